//! Load by source address and partition, as nodes report it (NICE §4.5).
//!
//! Gets of the current interval count fully, those of earlier intervals less: half as much with
//! each interval. Memory is bounded: a partition has at most [`SOURCES_PER_PARTITION_MAX`] sources,
//! and all partitions together have at most [`SOURCES_ALL_MAX`]. A source for which there is no
//! room is not counted until others have been silent for some intervals. A new leader starts
//! without reports, and meanwhile uses the persisted divisions.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use nicekv_proto::control::Sources;
use nicekv_proto::{NodeId, PartitionId};
use nicekv_switch::Prefix;

/// Upper bound of the sources of one partition.
const SOURCES_PER_PARTITION_MAX: usize = 64;
/// Upper bound of the sources of all partitions.
const SOURCES_ALL_MAX: usize = 1 << 16;

/// The load of a partition by source.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Load {
    /// Sources within the addresses that are divided, ascending, with their gets.
    pub(crate) inside: Vec<(u32, u64)>,
    /// Gets of all other sources, which the primary serves in any case.
    pub(crate) outside: u64,
}

impl Load {
    pub(crate) fn total(&self) -> u64 {
        self.outside + self.inside.iter().map(|(_, gets)| gets).sum::<u64>()
    }
}

/// The load of all partitions.
#[derive(Clone, Debug, Default)]
pub(crate) struct SourceLoads {
    by_partition: BTreeMap<PartitionId, BTreeMap<u32, u64>>,
    sources: usize,
    /// For each node, its process, and the sending time of its newest report.
    heard: BTreeMap<NodeId, (u64, u64)>,
    /// The end of the current interval.
    due_ns: u64,
    /// How often this leader has changed a partition's divisions because of load.
    pub(crate) divided: u64,
}

impl SourceLoads {
    /// Records a report of a live process. An outdated or repeated report changes nothing.
    pub(crate) fn handle(&mut self, told: &Sources, is_partition: impl Fn(PartitionId) -> bool) {
        let heard = self.heard.entry(told.node).or_default();
        if heard.0 == told.incarnation && told.sent_ns <= heard.1 {
            return;
        }
        *heard = (told.incarnation, told.sent_ns);
        for cell in told.gets.iter().filter(|cell| is_partition(cell.partition)) {
            let sources = self.by_partition.entry(cell.partition).or_default();
            if let Some(gets) = sources.get_mut(&cell.source) {
                *gets = gets.saturating_add(cell.gets.into());
            } else if sources.len() < SOURCES_PER_PARTITION_MAX && self.sources < SOURCES_ALL_MAX {
                sources.insert(cell.source, cell.gets.into());
                self.sources += 1;
            }
        }
    }

    /// The load of a partition from sources among `clients`, and from others.
    pub(crate) fn of(&self, id: PartitionId, clients: Prefix) -> Load {
        let mut load = Load::default();
        for (address, gets) in self.by_partition.get(&id).into_iter().flatten() {
            match clients.contains(address.to_be_bytes()) {
                true => load.inside.push((*address, *gets)),
                false => load.outside += gets,
            }
        }
        load
    }

    /// Recent gets of a partition per second, as far as they are reported.
    pub(crate) fn gets_per_second(&self, id: PartitionId, now_ns: u64, interval_ns: u64) -> Option<u64> {
        let begun_ns = self.due_ns.checked_sub(interval_ns).filter(|_| self.due_ns > 0)?;
        let told: u64 = self.by_partition.get(&id)?.values().sum();
        let counted_ns = now_ns.saturating_sub(begun_ns) + interval_ns;
        u64::try_from(u128::from(told) * 1_000_000_000 / u128::from(counted_ns)).ok()
    }

    /// Whether the current interval has ended.
    pub(crate) fn is_due(&self, now_ns: u64) -> bool {
        now_ns >= self.due_ns
    }

    /// Begins the next interval, if the current one has ended.
    pub(crate) fn turn(&mut self, now_ns: u64, interval_ns: u64) {
        if !self.is_due(now_ns) {
            return;
        }
        self.due_ns = now_ns + interval_ns;
        for sources in self.by_partition.values_mut() {
            sources.values_mut().for_each(|gets| *gets /= 2);
            sources.retain(|_, gets| *gets > 0);
        }
        self.by_partition.retain(|_, sources| !sources.is_empty());
        self.sources = self.by_partition.values().map(BTreeMap::len).sum();
    }

    /// Removes partitions and nodes that no longer exist.
    pub(crate) fn retain(
        &mut self,
        is_partition: impl Fn(PartitionId) -> bool,
        is_node: impl Fn(NodeId) -> bool,
    ) {
        self.by_partition.retain(|id, _| is_partition(*id));
        self.heard.retain(|node, _| is_node(*node));
        self.sources = self.by_partition.values().map(BTreeMap::len).sum();
    }

    /// Number of known sources, counted once for each partition.
    pub(crate) fn known(&self) -> usize {
        self.sources
    }
}
