//! Partitions that migrate because of load (TurboKV §5.1), observed in the metadata service's
//! state: each may move at most once in ten periods.

use super::Cluster;
use nicekv_metadata::Metadata;
use std::collections::{BTreeMap, BTreeSet};

/// Minimum number of periods between two moves of a partition: ten, minus a tenth for clocks that
/// run too fast.
const REST_PERIODS: u64 = 9;

/// Migrations observed in the metadata service's state.
#[derive(Clone, Debug, Default)]
pub(super) struct Migrations {
    /// Version of the last observed state.
    pub(super) version: u64,
    /// Partitions in the last observed state.
    pub(super) known: BTreeSet<u32>,
    /// Target nodes of partitions that are not placed by the ring.
    pub(super) placed: BTreeMap<u32, Vec<u16>>,
    /// When each partition was last moved.
    pub(super) moved_ns: BTreeMap<u32, u64>,
}

impl Cluster {
    /// Compares the newest state with the last one, and checks the interval between moves.
    pub(super) fn look_at_migrations(&mut self) {
        if !self.scenario.migrates() {
            return;
        }
        let newer = |core: &&Metadata| core.version() != self.migrations.version;
        let Some(core) = self.metadata().filter(newer) else { return };
        let (version, status, now_ns) = (core.version(), core.status(), self.queue.now_ns());
        let before = std::mem::take(&mut self.migrations);
        let rest_ns = self.scenario.timing.balance_period.as_nanos() as u64 * REST_PERIODS;
        let placed: BTreeMap<u32, Vec<u16>> =
            status.migrations.into_iter().flat_map(|migration| migration.placed).collect();
        let mut moved_ns = before.moved_ns;
        for (id, nodes) in &placed {
            // A new partition of a split or merge begins on its parents' nodes: that is no move.
            if !before.known.contains(id) || before.placed.get(id) == Some(nodes) {
                continue;
            }
            self.tally.count("partitions moved by load");
            if moved_ns.insert(*id, now_ns).is_some_and(|moved_ns| now_ns < moved_ns + rest_ns) {
                self.watch.violate(format!("partition {id} is moved again within ten periods"));
            }
        }
        let known = status.partitions.iter().map(|partition| partition.id).collect();
        moved_ns.retain(|id, _| placed.contains_key(id));
        self.migrations = Migrations { version, known, placed, moved_ns };
    }
}
