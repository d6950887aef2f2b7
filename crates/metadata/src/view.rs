//! What one partition sees of the cluster.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use nicekv_wire::NodeId;

use crate::config::nanoseconds;
use crate::epochs::Observed;
use crate::leader::Metadata;
use crate::plant::Plant;
use crate::state::{Partition, Process, Removed};
use crate::watch::Watch;

/// What the nodes have to do, over all partitions, so that the next task goes to one with little.
#[derive(Debug, Default)]
pub(crate) struct Load {
    led: BTreeMap<NodeId, usize>,
    stands_in: BTreeMap<NodeId, usize>,
    /// Nodes that lead a partition whose epoch is not acknowledged by all.
    taking_over: BTreeSet<NodeId>,
}

impl Load {
    pub(crate) fn add(&mut self, partition: &Partition, is_acknowledged: bool) {
        *self.led.entry(partition.primary).or_default() += 1;
        for handoff in partition.handoffs() {
            *self.stands_in.entry(handoff.node).or_default() += 1;
        }
        if !is_acknowledged {
            self.taking_over.insert(partition.primary);
        }
    }

    /// A partition goes from `old` to `new`.
    pub(crate) fn replace(&mut self, old: &Partition, new: &Partition) {
        *self.led.entry(old.primary).or_default() -= 1;
        for handoff in old.handoffs() {
            *self.stands_in.entry(handoff.node).or_default() -= 1;
        }
        self.add(new, new.epoch == old.epoch);
    }
}

pub(crate) struct View<'a> {
    pub(crate) metadata: &'a Metadata,
    pub(crate) partition: &'a Partition,
    pub(crate) watch: &'a Watch,
    pub(crate) load: Option<&'a Load>,
    pub(crate) now_ns: u64,
}

impl Observed for View<'_> {
    fn live(&self, node: NodeId) -> Option<Process> {
        self.metadata.membership.live(node)
    }

    fn outlives(&self, survivor: NodeId, silent: NodeId) -> bool {
        let membership = &self.metadata.membership;
        membership.is_proven_since(survivor, membership.silent_since_ns(silent))
    }

    fn acknowledged(&self, node: NodeId, incarnation: u64) -> u32 {
        self.watch.acknowledged(node, incarnation).map_or(0, |known| known.epoch)
    }

    fn copied(&self, node: NodeId) -> bool {
        let process = self.metadata.membership.live(node);
        process.is_some_and(|process| self.watch.copied(node, process.incarnation, self.partition.epoch))
    }

    fn harmless(&self, removed: &Removed) -> bool {
        self.metadata.switches.all_current()
            || self.has(Plant::LeaseNotAwaited)
            || self.metadata.membership.lease_is_over(removed.node, removed.incarnation, self.now_ns)
    }

    fn has(&self, plant: Plant) -> bool {
        self.metadata.has(plant)
    }

    fn is_quorum(&self) -> bool {
        self.metadata.config.write_set.is_some()
    }

    fn barred(&self, node: NodeId) -> bool {
        self.watch.is_barred(node, self.now_ns)
    }

    fn expelled(&self) -> Option<NodeId> {
        let Metadata { membership, config, .. } = self.metadata;
        self.watch.expelled(self.partition.primary, membership, &config.timing)
    }

    fn led(&self, node: NodeId) -> usize {
        self.load.and_then(|load| load.led.get(&node)).copied().unwrap_or(0)
    }

    fn stand_ins(&self, is_urgent: bool) -> Vec<(NodeId, Process)> {
        let delay = self.metadata.config.timing.handoff_delay.filter(|_| !self.is_quorum());
        let Some(delay) = delay else { return Vec::new() };
        if !is_urgent && self.now_ns < self.watch.departed_ns() + nanoseconds(delay) {
            return Vec::new();
        }
        let nodes = self.metadata.committed.nodes.iter().filter(|node| !self.barred(**node));
        let mut live: Vec<_> = nodes.filter_map(|node| Some((*node, self.live(*node)?))).collect();
        let tasks = |node| self.load.and_then(|load| load.stands_in.get(&node)).copied().unwrap_or(0);
        live.sort_by_key(|(node, _)| tasks(*node));
        live
    }

    fn may_lead_again(&self, node: NodeId) -> bool {
        let Some(delay) = self.metadata.config.timing.rebalance_delay else { return false };
        let is_due =
            self.watch.whole_since_ns().is_some_and(|since| self.now_ns >= since + nanoseconds(delay));
        is_due && !self.load.is_some_and(|load| load.taking_over.contains(&node))
    }
}
