//! What sources ask, by partition, as nodes tell (NICE §4.5).
//!
//! Gets of an interval count whole, those of each interval before half as much as those of the one after it. Memory is bounded: a partition has
//! at most [`SOURCES_PER_PARTITION_MAX`] sources and all have [`SOURCES_ALL_MAX`]; who comes when there is no room is not counted until others have
//! been silent for some intervals. A new leader hears it all anew, and goes by the divisions that are persisted meanwhile.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use nicekv_proto::control::Sources;
use nicekv_proto::{NodeId, PartitionId};
use nicekv_switch::Prefix;

/// Most sources of a partition.
const SOURCES_PER_PARTITION_MAX: usize = 64;
/// Most of all.
const SOURCES_ALL_MAX: usize = 1 << 16;

/// What a partition is asked, by source.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Load {
    /// Of addresses that can be divided, ascending.
    pub(crate) inside: Vec<(u32, u64)>,
    /// Of all others: the primary's in any case.
    pub(crate) outside: u64,
}

impl Load {
    pub(crate) fn total(&self) -> u64 {
        self.outside + self.inside.iter().map(|(_, gets)| gets).sum::<u64>()
    }
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub(crate) struct SourceLoads {
    by_partition: BTreeMap<PartitionId, BTreeMap<u32, u64>>,
    sources: usize,
    /// By node: its process, and when what was heard last was sent.
    heard: BTreeMap<NodeId, (u64, u64)>,
    /// When an interval ends.
    due_ns: u64,
    /// How often this leader has divided a partition otherwise because of it.
    pub(crate) divided: u64,
}

impl SourceLoads {
    /// A live process says this. What is older than what was heard, or the same again, changes nothing.
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

    /// What a partition is asked, by sources among `clients` and by others.
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

    /// Gets of a partition in a second, of late, as far as they are told: half of what there is of intervals that are over, and all of this one.
    pub(crate) fn gets_per_second(&self, id: PartitionId, now_ns: u64, interval_ns: u64) -> Option<u64> {
        let begun_ns = self.due_ns.checked_sub(interval_ns).filter(|_| self.due_ns > 0)?;
        let told: u64 = self.by_partition.get(&id)?.values().sum();
        let counted_ns = now_ns.saturating_sub(begun_ns) + interval_ns;
        u64::try_from(u128::from(told) * 1_000_000_000 / u128::from(counted_ns)).ok()
    }

    /// Whether an interval is over.
    pub(crate) fn is_due(&self, now_ns: u64) -> bool {
        now_ns >= self.due_ns
    }

    /// The next interval begins, if this one is over.
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

    /// These are the partitions and nodes that there are.
    pub(crate) fn retain(
        &mut self,
        is_partition: impl Fn(PartitionId) -> bool,
        is_node: impl Fn(NodeId) -> bool,
    ) {
        self.by_partition.retain(|id, _| is_partition(*id));
        self.heard.retain(|node, _| is_node(*node));
        self.sources = self.by_partition.values().map(BTreeMap::len).sum();
    }

    /// Sources that are known, each counted once for each partition that it asks.
    pub(crate) fn known(&self) -> usize {
        self.sources
    }
}
