//! Load distribution within partitions, and numbers of keys, as nodes report them (TurboKV §5.1). A
//! new leader starts without reports.

use alloc::collections::BTreeMap;

use nicekv_proto::heat::{Heat, PartitionHeat};
use nicekv_proto::{NodeId, PartitionId};

/// Divisor of the counts of earlier periods, because the node that answers may have changed since.
const AGED_BY: u32 = 8;

/// The reports of all nodes. The numbers of nodes and partitions bound its size.
#[derive(Clone, Debug, Default)]
pub(crate) struct Heats {
    told: BTreeMap<PartitionId, BTreeMap<NodeId, PartitionHeat>>,
    /// For each node, its process, and the sending time of its newest report.
    heard: BTreeMap<NodeId, (u64, u64)>,
}

impl Heats {
    /// Records a report of a live process. An outdated report changes nothing.
    pub(crate) fn handle(&mut self, told: &Heat, is_member: impl Fn(PartitionId, NodeId) -> bool) {
        let heard = self.heard.entry(told.node).or_default();
        if heard.0 == told.incarnation && told.sent_ns < heard.1 {
            return;
        }
        *heard = (told.incarnation, told.sent_ns);
        for heat in told.partitions.iter().filter(|heat| is_member(heat.partition, told.node)) {
            self.told.entry(heat.partition).or_default().insert(told.node, *heat);
        }
    }

    /// Begins a period: the counts of earlier periods are reduced.
    pub(crate) fn age(&mut self) {
        let told = self.told.values_mut().flat_map(BTreeMap::values_mut);
        told.for_each(|heat| heat.requests /= AGED_BY);
    }

    /// The report of the member with the most requests.
    pub(crate) fn hottest(&self, id: PartitionId) -> Option<&PartitionHeat> {
        self.told.get(&id)?.values().max_by_key(|heat| heat.requests)
    }

    /// The report of the member that has counted keys.
    pub(crate) fn fullest(&self, id: PartitionId) -> Option<&PartitionHeat> {
        self.told.get(&id)?.values().filter(|heat| heat.keys > 0).max_by_key(|heat| heat.keys)
    }

    /// Removes partitions and nodes that no longer exist.
    pub(crate) fn retain(
        &mut self,
        is_member: impl Fn(PartitionId, NodeId) -> bool,
        is_node: impl Fn(NodeId) -> bool,
    ) {
        for (id, told) in &mut self.told {
            told.retain(|node, _| is_member(*id, *node));
        }
        self.told.retain(|_, told| !told.is_empty());
        self.heard.retain(|node, _| is_node(*node));
    }
}
