//! Rounds of garbage collection, as the metadata service leads them (P8).
//!
//! ```text
//!   round g is persisted ──▶ targets are told ──▶ …
//!                        ──▶ each partition of names adopts it ──▶ its marks, page by page, to every target, until it has them
//! ```

use super::names::{PARTITIONS, partition_id};
use super::planted::Planted;
use super::world::{Event, MS, World};
use nicekv_wire::chunk::{ChunkId, Round as Number};
use std::sync::Arc;

/// Marks of a page.
const PAGE: usize = 4;
/// A page that was not taken is sent again after this.
const AGAIN_NS: u64 = 3 * MS;

impl World {
    pub(super) fn next_round(&mut self) {
        if self.is_healed {
            return;
        }
        let round_ms = self.shape.faults.round_ms;
        self.begin_round();
        let at_ns = self.queue.now_ns() + self.random.between(round_ms / 2, 2 * round_ms) * MS;
        self.queue.at(at_ns, Event::NextRound);
    }

    pub(super) fn begin_round(&mut self) {
        self.round = Number(self.round.0 + 1);
        self.report.rounds += 1;
        self.tell_all();
        for partition in 0..PARTITIONS {
            if self.has(Planted::MarksBeforeAdoption) {
                self.early.insert(partition, self.names.marks(partition));
            }
            let at_ns = self.queue.now_ns() + self.random.below(8 * MS);
            self.queue.at(at_ns, Event::Adopt { partition, round: self.round });
        }
    }

    pub(super) fn tell(&mut self, target: usize, life: u64) {
        let (map, round) = (self.map.clone(), self.round);
        let host = &mut self.targets[target];
        let Some(core) = host.core.as_mut().filter(|_| host.life == life) else { return };
        core.set_map((*map).clone());
        core.set_round(round);
        core.expect_marks(round, (0..PARTITIONS).map(partition_id));
        self.drain_target(target);
    }

    pub(super) fn adopt(&mut self, partition: u64, round: Number) {
        self.names.adopt(partition, round);
        let early = self.early.remove(&partition);
        let ids: Arc<[ChunkId]> = early.unwrap_or_else(|| self.names.marks(partition)).into();
        for target in 0..self.targets.len() {
            let at_ns = self.queue.now_ns() + self.random.below(2 * MS);
            self.queue.at(at_ns, Event::Page { partition, round, target, ids: ids.clone(), page: 0 });
        }
    }

    pub(super) fn on_page(
        &mut self,
        partition: u64,
        round: Number,
        (target, page): (usize, u32),
        ids: &Arc<[ChunkId]>,
    ) {
        if round < self.round {
            // It is over: the next one marks anew.
            return;
        }
        let first = page as usize * PAGE;
        let end = ids.len().min(first + PAGE);
        let is_last = end == ids.len();
        let core = self.targets[target].core.as_mut();
        let next = core.and_then(|core| {
            core.handle_marks(round, partition_id(partition), page, &ids[first..end], is_last)
        });
        let (page, after_ns) = match next {
            Some(u32::MAX) => (u32::MAX, 0),
            Some(next) => (next, self.random.below(MS)),
            None => (page, AGAIN_NS),
        };
        self.drain_target(target);
        if page != u32::MAX {
            let at_ns = self.queue.now_ns() + after_ns;
            self.queue.at(at_ns, Event::Page { partition, round, target, ids: ids.clone(), page });
        }
    }
}
