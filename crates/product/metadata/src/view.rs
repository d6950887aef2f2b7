//! The input of a decision: the persisted state and the observations, from the point of view of one
//! partition.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use nicekv_proto::control::DiskSpace;
use nicekv_proto::{NodeId, PartitionId};
use nicekv_switch::Matching;

use crate::config::{Config, nanoseconds};
use crate::observe::{Observations, Watch};
use crate::policy::Policy;
use crate::state::{DesiredState, Left, Member, Partition, Process, Removed, State, storages};
use crate::targets::Targets;

/// Upper bound of partitions that a node copies at the same time because they move to it.
pub(crate) const MOVES_PER_NODE_MAX: usize = 4;

/// The service's observations of nodes, as decisions about one partition use them.
pub(crate) trait Observed {
    /// The policy of the partition's protocol.
    fn policy(&self) -> Policy;
    /// The node's process, if it is live.
    fn live(&self, node: NodeId) -> Option<Process>;
    /// The identity of the node's storage for decisions, if one is recorded (R18).
    fn identity(&self, _node: NodeId) -> Option<u128> {
        None
    }
    /// Whether `survivor` has proven to be live since `silent` fell silent. Otherwise they may have
    /// died together, and `silent` may be the one that returns with its data.
    fn outlives(&self, survivor: NodeId, silent: NodeId) -> bool;
    /// The newest epoch that this process of the node has acknowledged; 0 if none.
    fn acknowledged(&self, node: NodeId, incarnation: u64) -> u32;
    /// Whether the node has reported, in the current epoch, that its copy is complete.
    fn copied(&self, node: NodeId) -> bool;
    /// Whether a former member cannot answer gets any more.
    fn harmless(&self, removed: &Removed) -> bool;
    /// Whether a former member may still consider itself a member of a partition that this one
    /// replaces (R17).
    fn is_of_parent(&self, _removed: &Removed) -> bool {
        false
    }
    /// Whether a former member has reported that it does not hold data any more.
    fn discarded(&self, left: &Left) -> bool;
    /// Whether the node's disk has space for the copy of a joiner.
    fn has_space(&self, node: NodeId) -> bool;
    /// Whether the node is barred at present.
    fn barred(&self, node: NodeId) -> bool;
    /// The live member that must be removed, because it and another one cannot communicate.
    fn expelled(&self) -> Option<NodeId>;
    /// Number of partitions that the node leads.
    fn led(&self, node: NodeId) -> usize;
    /// Live nodes that may join as handoffs, the best first. Empty before the handoff delay has
    /// passed, unless the case is urgent.
    fn stand_ins(&self, is_urgent: bool) -> Vec<(NodeId, Process)>;
    /// Whether the first original, this node, may become primary again: the partition has been
    /// whole for long enough, and no other partition is being given back to that node.
    fn may_lead_again(&self, node: NodeId) -> bool;
    /// The target originals, the preferred leader first.
    fn target(&self) -> &[NodeId];
    /// Whether the node may copy another partition that moves to it.
    fn may_move(&self, node: NodeId) -> bool;
    /// Whether the operator has removed the node.
    fn is_given_up(&self, _node: NodeId) -> bool {
        false
    }
    /// Whether a member has requested another epoch, and the current one has lasted long enough.
    fn wants_fence(&self) -> bool;
    /// The round that the partition's names of objects should adopt (P8); 0 if it has none.
    fn round(&self) -> u64 {
        0
    }
}

/// Whether a consistent original is live with all of its data.
pub(crate) fn has_live_consistent(partition: &Partition, observed: &impl Observed) -> bool {
    holders(partition, observed).any(|member| is_intact(member, observed))
}

/// Whether the data are lost: every consistent original is live, and none has its data.
pub(crate) fn is_lost(partition: &Partition, observed: &impl Observed) -> bool {
    let wiped = |member: &Member| {
        observed.live(member.node).is_some_and(|process| process.storage != member.process.storage)
    };
    partition.holders().all(wiped)
}

pub(crate) fn is_intact(member: &Member, observed: &impl Observed) -> bool {
    observed.live(member.node).is_some_and(|process| is_same_storage(member, process))
}

pub(crate) fn is_same_storage(member: &Member, process: Process) -> bool {
    process.storage == member.process.storage
}

/// Members that may lead, and may be the last to remain.
pub(crate) fn holders<'a>(
    partition: &'a Partition,
    observed: &impl Observed,
) -> impl Iterator<Item = &'a Member> {
    let policy = observed.policy();
    partition.members.iter().filter(move |member| policy.may_lead(member))
}

/// Whether every member that is waited for has acknowledged the current epoch.
pub(crate) fn all_acknowledged(partition: &Partition, observed: &impl Observed) -> bool {
    let acknowledged =
        |member: &Member| observed.acknowledged(member.node, member.process.incarnation) == partition.epoch;
    let is_awaited = |member: &&Member| observed.policy().awaits(observed.live(member.node).is_some());
    partition.members.iter().filter(is_awaited).all(acknowledged)
}

/// The tasks of each node over all partitions, so that the next task goes to a node with few.
#[derive(Debug, Default)]
pub(crate) struct Load {
    led: BTreeMap<NodeId, usize>,
    stands_in: BTreeMap<NodeId, usize>,
    /// Number of partitions that are moving to each node.
    moving: BTreeMap<NodeId, usize>,
    /// Nodes that lead a partition whose epoch not all members have acknowledged.
    taking_over: BTreeSet<NodeId>,
}

impl Load {
    /// The tasks that the whole state implies.
    pub(crate) fn of(situation: &Situation<'_>) -> Self {
        let mut load = Self::default();
        for (id, partition) in situation.state.partitions() {
            load.add(partition, all_acknowledged(partition, &situation.view(id, partition)));
        }
        load
    }

    fn add(&mut self, partition: &Partition, is_acknowledged: bool) {
        *self.led.entry(partition.primary).or_default() += 1;
        for handoff in partition.handoffs() {
            *self.stands_in.entry(handoff.node).or_default() += 1;
        }
        for newcomer in &partition.newcomers {
            *self.moving.entry(*newcomer).or_default() += 1;
        }
        if !is_acknowledged {
            self.taking_over.insert(partition.primary);
        }
    }

    /// Updates the tasks after a partition has changed from `old` to `new`.
    pub(crate) fn replace(&mut self, old: &Partition, new: &Partition) {
        *self.led.entry(old.primary).or_default() -= 1;
        for handoff in old.handoffs() {
            *self.stands_in.entry(handoff.node).or_default() -= 1;
        }
        for newcomer in &old.newcomers {
            *self.moving.entry(*newcomer).or_default() -= 1;
        }
        self.add(new, new.epoch == old.epoch);
    }
}

/// Everything on which decisions and announcements depend.
#[derive(Clone, Copy)]
pub(crate) struct Situation<'a> {
    pub(crate) config: &'a Config,
    pub(crate) state: &'a State,
    pub(crate) observations: &'a Observations,
    pub(crate) targets: &'a Targets,
    pub(crate) now_ns: u64,
    /// Whether no partition may move at present, because the switches do not have the capacity.
    pub(crate) moves_wait: bool,
}

impl<'a> Situation<'a> {
    /// The view of one partition.
    pub(crate) fn view(self, id: PartitionId, partition: &'a Partition) -> View<'a> {
        let policy = Policy::of(self.state.keyspace(partition));
        let target = self.targets.of(id).filter(|_| !self.moves_wait).unwrap_or(&partition.originals);
        let watch = self.observations.watch(id);
        View { situation: self, id, partition, policy, watch, target, load: None }
    }

    /// Whether a former member cannot answer gets any more (R6).
    pub(crate) fn harmless(self, removed: &Removed) -> bool {
        let Self { config, observations, now_ns, .. } = self;
        let Observations { switches, membership, .. } = observations;
        let &Removed { node, incarnation, .. } = removed;
        // A switch that may still forward by old tables after its acknowledgement is no fence.
        let no_switch_leads_there = config.matching == Matching::Messages && switches.all_current();
        // Gets of clients with a directory do not come through switches, so the direct lease counts
        // for them.
        (no_switch_leads_there && membership.direct_lease_is_over(node, incarnation, now_ns))
            || membership.lease_is_over(node, incarnation, now_ns)
    }

    /// Whether the data of former members are no longer needed: R originals have all data, and are
    /// live (R16).
    pub(crate) fn may_discard(self, id: PartitionId, partition: &Partition) -> bool {
        let view = self.view(id, partition);
        let is_intact = |member: &Member| is_intact(member, &view);
        partition.is_whole() && all_acknowledged(partition, &view) && partition.members.iter().all(is_intact)
    }
}

/// A [`Situation`] from the point of view of one partition.
#[derive(Clone, Copy)]
pub(crate) struct View<'a> {
    situation: Situation<'a>,
    id: PartitionId,
    partition: &'a Partition,
    policy: Policy,
    watch: &'a Watch,
    target: &'a [NodeId],
    load: Option<&'a Load>,
}

impl<'a> View<'a> {
    /// Adds the tasks of nodes to the view.
    pub(crate) fn with_load(self, load: &'a Load) -> Self {
        Self { load: Some(load), ..self }
    }

    /// Whether the member has acknowledged the newest epoch.
    pub(crate) fn is_informed(&self, member: &Member) -> bool {
        let known = self.watch.acknowledged(member.node, member.process.incarnation);
        let newest = (self.partition.epoch, self.partition.activated);
        known.is_some_and(|known| (known.epoch, known.activated) == newest)
    }
}

impl Observed for View<'_> {
    fn policy(&self) -> Policy {
        self.policy
    }

    fn live(&self, node: NodeId) -> Option<Process> {
        self.situation.observations.membership.live(node)
    }

    fn identity(&self, node: NodeId) -> Option<u128> {
        storages::identity(&self.situation.state.storages, node)
    }

    fn outlives(&self, survivor: NodeId, silent: NodeId) -> bool {
        let membership = &self.situation.observations.membership;
        membership.is_proven_since(survivor, membership.silent_since_ns(silent))
    }

    fn acknowledged(&self, node: NodeId, incarnation: u64) -> u32 {
        self.watch.acknowledged(node, incarnation).map_or(0, |known| known.epoch)
    }

    fn copied(&self, node: NodeId) -> bool {
        self.live(node)
            .is_some_and(|process| self.watch.copied(node, process.incarnation, self.partition.epoch))
    }

    fn harmless(&self, removed: &Removed) -> bool {
        self.situation.harmless(removed)
    }

    fn is_of_parent(&self, removed: &Removed) -> bool {
        let parents = self.situation.state.reshaped.values().filter(|gone| gone.children.contains(&self.id));
        { parents }.any(|gone| gone.is_unaware(removed))
    }

    fn discarded(&self, left: &Left) -> bool {
        self.watch.has_discarded(left.node, left.since)
    }

    fn has_space(&self, node: NodeId) -> bool {
        self.situation.observations.membership.space(node) == DiskSpace::Enough
    }

    fn barred(&self, node: NodeId) -> bool {
        self.watch.is_barred(node, self.situation.now_ns)
    }

    fn expelled(&self) -> Option<NodeId> {
        let Situation { config, observations, .. } = self.situation;
        self.watch.expelled(self.partition.primary, &observations.membership, &config.timing)
    }

    fn led(&self, node: NodeId) -> usize {
        self.load.and_then(|load| load.led.get(&node)).copied().unwrap_or(0)
    }

    fn stand_ins(&self, is_urgent: bool) -> Vec<(NodeId, Process)> {
        let Situation { config, state, now_ns, .. } = self.situation;
        let delay = config.timing.handoff_delay.filter(|_| self.policy.has_handoffs);
        let Some(delay) = delay else { return Vec::new() };
        if !is_urgent && now_ns < self.watch.departed_ns() + nanoseconds(delay) {
            return Vec::new();
        }
        let nodes = state.ring().into_iter().filter(|node| !self.barred(*node) && self.has_space(*node));
        let mut live: Vec<_> = nodes.filter_map(|node| Some((node, self.live(node)?))).collect();
        let tasks = |node| self.load.and_then(|load| load.stands_in.get(&node)).copied().unwrap_or(0);
        live.sort_by_key(|(node, _)| tasks(*node));
        live
    }

    fn target(&self) -> &[NodeId] {
        self.target
    }

    fn may_move(&self, node: NodeId) -> bool {
        let moving = self.load.and_then(|load| load.moving.get(&node)).copied().unwrap_or(0);
        moving < MOVES_PER_NODE_MAX
    }

    fn is_given_up(&self, node: NodeId) -> bool {
        self.situation.state.node(node).is_none_or(|known| known.desired == DesiredState::Removed)
    }

    fn wants_fence(&self) -> bool {
        let Situation { config, now_ns, .. } = self.situation;
        self.watch.wants_fence(now_ns, &config.timing)
    }

    fn round(&self) -> u64 {
        self.situation.state.round_of(self.partition.keyspace)
    }

    fn may_lead_again(&self, node: NodeId) -> bool {
        let Situation { config, now_ns, .. } = self.situation;
        let Some(delay) = config.timing.rebalance_delay else { return false };
        let is_due = self.watch.whole_since_ns().is_some_and(|since| now_ns >= since + nanoseconds(delay));
        is_due && !self.load.is_some_and(|load| load.taking_over.contains(&node))
    }
}
