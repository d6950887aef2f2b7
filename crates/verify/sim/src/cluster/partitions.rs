//! The operator splits and merges partitions during the run (R17).

use super::Cluster;
use super::event::Event;
use nicekv_metadata::{MatchValue, Metadata, PartitionChange, PartitionStatus, ReshapingPhase, Status};
use nicekv_proto::placement::{KeyOrder, match_digest, vnodes};
use nicekv_proto::{Epoch, MatchRange, PartitionId};
use std::collections::{BTreeMap, BTreeSet};

/// Maximum partitions of a keyspace.
const PARTITIONS_MAX: usize = 8;

/// Splits and merges observed in the metadata service's state.
#[derive(Clone, Debug, Default)]
pub(super) struct Reshapings {
    /// Whether any splits or merges were requested.
    pub(super) are_asked: bool,
    /// Version of the last observed state.
    pub(super) version: u64,
    /// Parent partitions of splits and merges that are under way.
    pub(super) forming: BTreeSet<u32>,
    /// Those parents that are sealed.
    pub(super) sealed: BTreeSet<u32>,
}

fn range(partition: &PartitionStatus) -> MatchRange {
    partition.range().expect("32 hexadecimal digits")
}

impl Cluster {
    /// The newest epoch of each partition.
    pub fn epochs(&self) -> BTreeMap<PartitionId, Epoch> {
        let mut epochs = BTreeMap::new();
        for status in self.nodes.iter().filter_map(|node| Some(node.core.as_ref()?.status())) {
            for known in &status.partitions {
                let epoch = epochs.entry(known.partition).or_insert(known.epoch);
                *epoch = known.epoch.max(*epoch);
            }
        }
        epochs
    }

    /// The operator requests a split or merge, or cancels one.
    pub(super) fn draw_reshaping(&mut self) {
        let interval_ns = self.faults.reshape_interval_ns;
        if interval_ns == 0 {
            return;
        }
        if let Some(status) = self.metadata().map(Metadata::status)
            && let Some(change) = self.draw_partition_change(&status)
        {
            self.change_partitions(&change);
        }
        let pause_ns = self.random.between(interval_ns / 4, interval_ns);
        self.queue.after(pause_ns, Event::Reshape);
    }

    fn draw_partition_change(&mut self, status: &Status) -> Option<PartitionChange> {
        let partitions: Vec<&PartitionStatus> = (status.partitions.iter())
            .filter(|partition| self.shape(partition.keyspace).can_be_reshaped())
            .collect();
        let drawn = partitions.get(self.random.below(partitions.len().max(1) as u64) as usize)?;
        let of_keyspace = partitions.iter().filter(|partition| partition.keyspace == drawn.keyspace);
        let owned = range(drawn);
        let next =
            of_keyspace.clone().find(|other| Some(range(other).first()) == owned.last().checked_add(1));
        let (first, last) = vnodes(owned);
        match (self.random.below(8), next) {
            (0, _) => Some(PartitionChange::Cancel { partition: drawn.id }),
            (1..5, Some(next)) => Some(PartitionChange::Merge { partitions: [next.id, drawn.id] }),
            _ if of_keyspace.count() >= PARTITIONS_MAX => None,
            _ if self.shape(drawn.keyspace).order == KeyOrder::Range => self.draw_border(drawn),
            (5, _) if first < last => {
                let at = self.random.between(u64::from(first) + 1, u64::from(last)) as u16;
                Some(PartitionChange::Split { partition: drawn.id, at: Some(at) })
            }
            _ => Some(PartitionChange::Split { partition: drawn.id, at: None }),
        }
    }

    /// Draws a split at a key, or just behind one, so that this key is the last of the first half.
    fn draw_border(&mut self, drawn: &PartitionStatus) -> Option<PartitionChange> {
        let keys = self.scenario.workload.keys.iter().filter(|key| key.keyspace == drawn.keyspace);
        let values = keys.map(|key| match_digest(KeyOrder::Range, &key.name).match_value());
        let borders: Vec<u128> = values.flat_map(|value| [value, value.saturating_add(1)]).collect();
        let border = borders.get(self.random.below(borders.len().max(1) as u64) as usize)?;
        Some(PartitionChange::SplitAt { partition: drawn.id, first: MatchValue(*border) })
    }

    /// Whether the partitions of a keyspace may have been split or merged.
    pub(crate) fn may_be_reshaped(&self) -> bool {
        self.reshapings.are_asked
    }

    /// Requests a split or merge from the newest metadata process.
    pub fn change_partitions(&mut self, change: &PartitionChange) {
        let ask = |core: &mut Metadata| core.change_partitions(change).is_ok();
        self.reshapings.are_asked |= self.ask_newest("splits and merges asked for", change, ask);
    }

    /// Checks the newest metadata state for everything that is observed in it.
    pub(super) fn look_at_state(&mut self) {
        self.look_at_keyspaces();
        self.look_at_reshapings();
        self.look_at_places();
        self.look_at_migrations();
    }

    /// Counts splits and merges that have completed or were broken off since the last observed
    /// state.
    fn look_at_reshapings(&mut self) {
        if !self.reshapings.are_asked {
            return;
        }
        let newer = |core: &&Metadata| core.version() != self.reshapings.version;
        let Some(core) = self.metadata().filter(newer) else { return };
        let (version, status) = (core.version(), core.status());
        let of = |phases: &[ReshapingPhase]| -> BTreeSet<u32> {
            let those = status.reshapings.iter().filter(|it| phases.contains(&it.phase));
            those.flat_map(|it| it.parents.clone()).collect()
        };
        let before = std::mem::take(&mut self.reshapings);
        let sealed = of(&[ReshapingPhase::Sealed]);
        let forming = of(&[ReshapingPhase::Forming, ReshapingPhase::Sealed]);
        let is_there = |id: &&u32| status.partitions.iter().any(|partition| partition.id == **id);
        let (there, gone): (Vec<u32>, Vec<u32>) =
            before.forming.difference(&forming).partition(|id| is_there(id));
        let broken_when_sealed = there.iter().filter(|id| before.sealed.contains(id)).count();
        self.tally.count_many("partitions sealed", sealed.difference(&before.sealed).count() as u64);
        self.tally.count_many("partitions reshaped", gone.len() as u64);
        self.tally.count_many("reshapings broken off", there.len() as u64);
        self.tally.count_many("of them sealed ones", broken_when_sealed as u64);
        self.reshapings = Reshapings { version, forming, sealed, ..before };
    }
}
