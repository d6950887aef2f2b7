//! Where the load of partitions lies, and what they hold, as nodes tell (TurboKV §5.1). A new leader hears it anew.

use alloc::collections::BTreeMap;

use nicekv_proto::heat::{Heat, PartitionHeat};
use nicekv_proto::{NodeId, PartitionId};

/// What was asked in an earlier period counts so many times less: who answers may be another one since.
const AGED_BY: u32 = 8;

/// See the module. Nodes and partitions bound it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Heats {
    told: BTreeMap<PartitionId, BTreeMap<NodeId, PartitionHeat>>,
    /// By node: its process, and when what was heard last was sent.
    heard: BTreeMap<NodeId, (u64, u64)>,
}

impl Heats {
    /// A live process says this. What is older than what was heard changes nothing.
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

    /// A period begins: what was told before counts less than what will be.
    pub(crate) fn age(&mut self) {
        let told = self.told.values_mut().flat_map(BTreeMap::values_mut);
        told.for_each(|heat| heat.requests /= AGED_BY);
    }

    /// As the member tells that is asked most.
    pub(crate) fn hottest(&self, id: PartitionId) -> Option<&PartitionHeat> {
        self.told.get(&id)?.values().max_by_key(|heat| heat.requests)
    }

    /// As the member tells that has counted keys.
    pub(crate) fn fullest(&self, id: PartitionId) -> Option<&PartitionHeat> {
        self.told.get(&id)?.values().filter(|heat| heat.keys > 0).max_by_key(|heat| heat.keys)
    }

    /// These are the partitions with their members, and the nodes, that there are.
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
