//! Invariants, checked during the run and at its end.

use super::disk::Disk;
use super::names::Manifest;
use super::tasks::Task;
use super::world::World;
use nicekv_objects::GetError;
use nicekv_proto::NodeId;
use nicekv_proto::chunk::ChunkId;
use std::collections::BTreeSet;

impl World {
    /// Targets with a durable, undamaged copy of a chunk.
    fn holders(&self, id: &ChunkId) -> impl Iterator<Item = NodeId> {
        let has = |disk: &Disk| {
            let found = disk.chunks.get(id).filter(|_| !disk.damaged.contains(id));
            found.is_some_and(|(bytes, _)| nicekv_objects::chunk_id(bytes) == *id)
        };
        self.targets.iter().filter(move |host| has(&host.disk)).map(|host| host.node)
    }

    fn copies(&self, id: &ChunkId) -> usize {
        self.holders(id).count()
    }

    fn judge_copies(&mut self, id: &ChunkId, when: &str) {
        let (copies, excused) = (self.copies(id), self.judge.excused(id));
        if copies + excused < self.shape.copies {
            let wanted = self.shape.copies;
            self.judge.accuse(format!("{when}: chunk {id} is at {copies} of {wanted} targets"));
        }
    }

    fn live(&self) -> BTreeSet<ChunkId> {
        self.names.iter().flat_map(|(_, manifest)| manifest.chunks.iter().map(|(id, _)| *id)).collect()
    }

    /// The targets report that all chunks have enough copies.
    pub(super) fn judge_whole(&mut self) {
        for id in self.live() {
            self.judge_copies(&id, "all targets report that no chunk lacks copies");
        }
    }

    /// At the end of a run, each chunk is at the right targets, and at no others.
    fn judge_places(&mut self, id: &ChunkId) {
        let group = *self.map.group_of(id).1;
        let (inside, outside): (Vec<NodeId>, Vec<NodeId>) =
            self.holders(id).partition(|node| group.place_of(*node).is_some());
        if inside.len() != self.shape.copies || !outside.is_empty() {
            let wanted = self.shape.copies;
            self.judge.accuse(format!(
                "at the end: chunk {id} is at {inside:?} of its group, expected {wanted}, and at {outside:?} elsewhere"
            ));
        }
    }

    /// Checks the chunks of a manifest that was accepted.
    pub(super) fn judge_manifest(&mut self, name: u64, manifest: &Manifest) {
        for (id, _) in &manifest.chunks {
            self.judge_copies(id, &format!("the manifest of object {name} was accepted"));
        }
    }

    /// Checks that a chunk which a target has deleted is not needed.
    pub(super) fn judge_removal(&mut self, target: usize, id: &ChunkId) {
        self.judge.collected += 1;
        let is_live = self.names.iter().any(|(_, manifest)| manifest.chunks.iter().any(|(of, _)| of == id));
        if is_live {
            self.judge_copies(id, &format!("target {target} deleted a chunk that an object needs"));
        }
    }

    /// A read of a chunk failed. That is a violation if the same version of the object existed all
    /// the time.
    pub(super) fn judge_unread(
        &mut self,
        (name, version): (u64, u64),
        id: &ChunkId,
        error: GetError,
        is_read_back: bool,
    ) {
        let is_live = self.names.version(name) == Some(version);
        let is_lost = self.copies(id) == 0 && self.judge.excused(id) > 0;
        let is_wrong = error == GetError::NotFound || is_read_back;
        if is_live && is_wrong && !is_lost {
            self.judge.accuse(format!("chunk {id} of object {name}: {error}"));
        }
    }

    /// Checks that a target reserves no more than it has.
    pub(super) fn judge_bounds(&mut self, target: usize) {
        let Some(core) = &self.targets[target].core else { return };
        let (memory, _, under_way) = core.promised();
        let bytes_max = self.shape.reservation.bytes_max;
        // Chunks that are being written have released their reservations already.
        let most = 2 * self.shape.reservation.bids_max + self.targets[target].disk.open();
        if memory > bytes_max || under_way > most {
            self.judge.accuse(format!(
                "target {target} has promised {memory} bytes of {bytes_max}, to {under_way}"
            ));
        }
    }

    /// Reads all live objects.
    pub(super) fn read_back(&mut self) {
        if let Some(initiator) = self.initiators.iter().position(|host| host.task.is_some()) {
            return self.judge.accuse(format!("the user of initiator {initiator} still waits for a request"));
        }
        let live: Vec<u64> = self.names.iter().map(|(name, _)| name).collect();
        for (at, name) in live.into_iter().enumerate() {
            let initiator = at % self.initiators.len();
            let mut parts = match self.initiators[initiator].task.take() {
                Some(Task::Get { parts, .. }) => parts,
                _ => Vec::new(),
            };
            parts.extend(self.parts_of(name));
            self.get_parts(initiator, Task::Get { parts, copy_to: None, is_read_back: true });
        }
    }

    /// Checks the end of the run.
    pub(super) fn judge_end(&mut self) {
        if self.initiators.iter().any(|host| host.task.is_some()) {
            self.judge.accuse("objects could not be read back in time".into());
        }
        if !self.is_whole || self.map.before().is_some() {
            let progress: Vec<_> =
                self.targets.iter().map(|host| host.core.as_ref().map(|core| core.progress())).collect();
            self.judge.accuse(format!("the maintenance of targets has not finished: {progress:?}"));
        }
        let live = self.live();
        live.iter().for_each(|id| self.judge_places(id));
        for target in 0..self.targets.len() {
            let host = &self.targets[target];
            let Some(core) = &host.core else { continue };
            let (promised, open) = (core.promised(), host.disk.open());
            if promised != (0, 0, 0) || open != 0 {
                self.judge.accuse(format!(
                    "target {target} still reserves {promised:?} (memory, disk, transfers), {open} transfers on its disk"
                ));
            }
            let left = host.disk.chunks.keys().find(|id| !live.contains(id)).copied();
            if let Some(id) = left {
                self.judge.accuse(format!("target {target} keeps chunk {id}, which no object needs"));
            }
        }
    }
}
