//! Partitions that migrate because of load (TurboKV §5.1), observed in the metadata service's state: each at most once in ten periods.

use super::Cluster;
use nicekv_metadata::Metadata;
use std::collections::{BTreeMap, BTreeSet};

/// Periods between two moves of a partition; a tenth less is for clocks that run too fast.
const REST_PERIODS: u64 = 9;

/// What the metadata service's state said of them.
#[derive(Clone, Debug, Default)]
pub(super) struct Migrations {
    /// Of the state that was looked at last.
    pub(super) version: u64,
    /// Partitions that there were.
    pub(super) known: BTreeSet<u32>,
    /// Where they are to be, if not where the ring says.
    pub(super) placed: BTreeMap<u32, Vec<u16>>,
    /// When they were moved last.
    pub(super) moved_ns: BTreeMap<u32, u64>,
}

impl Cluster {
    /// The newest state may have partitions elsewhere.
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
            // What a split or a merge has made is where its parents were.
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
