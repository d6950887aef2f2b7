//! Balancing by migration (TurboKV §4.1.2, §5.1): for keyspaces with `balancing=migrate`, counts
//! load for a period, and carries out the steps that follow from it.
//!
//! ```text
//!   all whole, loads known ─▶ counting for a period ─▶ verdict ─▶ steps, one by one ─▶ moves, splits and merges as by command ─┐
//!           ▲                                                                                                               │
//!           └───────────────────────────── all is whole and known again ◀──────────────────────────────────────────────────┘
//! ```
//!
//! While a change is in progress or a node is absent, load is not counted and no step begins:
//! counts from such a time would mean little.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use nicekv_proto::control::DiskSpace;
use nicekv_proto::placement::{KEYSPACE_PARTITIONS_MAX, KeyOrder, KeyspaceSpec, LoadBalancing};
use nicekv_proto::{KeyspaceId, NodeId, PartitionId};

use crate::change::Refused;
use crate::config::nanoseconds;
use crate::decide::migration::{Because, Load, Room, Rules, Step, Verdict, judge};
use crate::leader::Metadata;
use crate::observe::REST_PERIODS;
use crate::partitions::{MatchValue, PartitionChange};
use crate::policy::Policy;
use crate::state::Partition;

/// Upper bound of the partitions of a keyspace for each node. At this number splits stop.
const PARTITIONS_PER_NODE: usize = 16;
/// Upper bound of the replicas on a node, over all keyspaces, for moves and splits.
const HELD_MAX: usize = 512;

impl Metadata {
    /// Takes the next step. To be called when no other decision is pending.
    pub(crate) fn balance(&mut self) {
        if !self.committed.keyspaces.iter().any(|spec| spec.balancing == LoadBalancing::Migrate) {
            return;
        }
        if self.absent().is_some() {
            self.observations.balance.steps.clear();
        }
        if let Some(step) = self.observations.balance.steps.pop_front() {
            return self.carry_out(&step);
        }
        let waits_for = self.unsettled();
        let now_ns = self.situation().now_ns;
        let period_ns = nanoseconds(self.config.timing.balance_period);
        let counted = &mut self.observations.switches.requests;
        let is_over = now_ns >= counted.window.begun_ns() + period_ns;
        if waits_for.is_none() && !is_over {
            self.observations.balance.waits_for = None;
            return;
        }
        if waits_for.is_none() {
            self.observations.balance.periods += 1;
            for spec in self.migrating() {
                let verdict = self.judged(&spec);
                self.observations.balance.steps.extend(verdict.steps.iter().cloned());
                self.observations.balance.verdicts.insert(spec.id, verdict);
            }
        }
        self.observations.switches.requests.begin_window(now_ns);
        if waits_for.is_none() {
            self.observations.heats.age();
        }
        self.observations.balance.waits_for = waits_for;
        if let Some(step) = self.observations.balance.steps.pop_front() {
            self.carry_out(&step);
        }
    }

    fn migrating(&self) -> Vec<KeyspaceSpec> {
        let specs = self.committed.keyspaces.iter();
        specs.filter(|spec| spec.balancing == LoadBalancing::Migrate).cloned().collect()
    }

    fn partitions_of(&self, keyspace: KeyspaceId) -> Vec<(PartitionId, &Partition)> {
        let partitions = self.committed.partitions();
        let mut of_it: Vec<_> = partitions.filter(|(_, partition)| partition.keyspace == keyspace).collect();
        of_it.sort_unstable_by_key(|(_, partition)| partition.range.first());
        of_it
    }

    /// The verdict on the counts so far, as if the period ended now.
    pub(crate) fn judged(&self, spec: &KeyspaceSpec) -> Verdict {
        let nodes = self.rooms(spec.id);
        let partitions_max = (PARTITIONS_PER_NODE * nodes.len()).max(2 * spec.partitions as usize);
        let rules = Rules {
            is_chain: Policy::of(spec).is_chain,
            partitions_min: spec.partitions as usize,
            partitions_max: partitions_max.min(KEYSPACE_PARTITIONS_MAX as usize),
            per_node_max: HELD_MAX,
            keys_max: spec.partition_keys,
            bytes_max: spec.partition_bytes,
            requests_min: self.config.timing.balance_requests_min.into(),
        };
        let loads =
            self.partitions_of(spec.id).into_iter().map(|(id, partition)| self.load_of(id, partition));
        judge(&rules, &nodes, &loads.collect::<Vec<_>>())
    }

    /// The nodes of the ring, with the number of replicas of other keyspaces on each.
    fn rooms(&self, keyspace: KeyspaceId) -> Vec<Room> {
        let mut held = BTreeMap::<NodeId, usize>::new();
        for (_, partition) in self.committed.partitions().filter(|(_, it)| it.keyspace != keyspace) {
            partition.members.iter().for_each(|member| *held.entry(member.node).or_default() += 1);
        }
        let room = |node: NodeId| Room {
            node,
            has_space: self.observations.membership.space(node) == DiskSpace::Enough,
            held: held.get(&node).copied().unwrap_or(0),
        };
        self.committed.ring().into_iter().map(room).collect()
    }

    fn load_of(&self, id: PartitionId, partition: &Partition) -> Load {
        let observations = &self.observations;
        let asked = observations.switches.requests.window.of(id).cloned().unwrap_or_default();
        let (hottest, fullest) = (observations.heats.hottest(id), observations.heats.fullest(id));
        let is_border = |at: &u128| partition.range.first() < *at && *at <= partition.range.last();
        let now_ns = self.situation().now_ns;
        let rest_ns = nanoseconds(self.config.timing.balance_period) * REST_PERIODS;
        let rests = observations.balance.rests(id, self.committed.placement(id).is_some(), now_ns, rest_ns);
        Load {
            id,
            range: partition.range,
            nodes: partition.originals.clone(),
            reads: asked.reads,
            updates: asked.updates,
            keys: fullest.map_or(0, |heat| heat.keys),
            bytes: fullest.map_or(0, |heat| heat.bytes),
            cut: hottest.map(|heat| (heat.cut, heat.below_cut)).filter(|(at, _)| is_border(at)),
            top: hottest.filter(|heat| heat.for_top > 0).map(|heat| (heat.top, heat.for_top)),
            middle: fullest.map(|heat| heat.middle).filter(is_border),
            rests,
            is_young: observations.balance.is_young(id, now_ns, rest_ns),
        }
    }

    fn absent(&self) -> Option<String> {
        let ring = self.committed.ring();
        let away = ring.into_iter().find(|node| self.observations.membership.live(*node).is_none())?;
        Some(format!("{} to be live", self.names(&[away])))
    }

    /// The reason why balancing waits: an absent node or a change in progress. `None`: there is
    /// none.
    fn unsettled(&self) -> Option<String> {
        if let Some(absent) = self.absent() {
            return Some(absent);
        }
        if let Some(reason) = self.observations.switches.why_not_ready() {
            return Some(reason);
        }
        let leads_again = self.config.timing.rebalance_delay.is_some();
        for spec in self.migrating() {
            let is_chain = Policy::of(&spec).is_chain;
            let is_asked = |reshaping: &crate::state::Reshaping| {
                let parent = reshaping.parents.first().and_then(|id| self.committed.partition(*id));
                parent.is_some_and(|parent| parent.keyspace == spec.id)
            };
            let is_young = |gone: &crate::state::Gone| !gone.quiet && gone.keyspace == spec.id;
            if self.committed.reshapings.iter().any(is_asked)
                || self.committed.reshaped.values().any(is_young)
            {
                return Some("splits and merges in progress".to_string());
            }
            for (id, partition) in self.partitions_of(spec.id) {
                let target = self.situation().targets.of(id).unwrap_or(&partition.originals);
                let is_led = is_chain || !leads_again || partition.primary == partition.originals[0];
                if target != partition.originals || !is_led {
                    return Some(format!("partition {id} to move to its target nodes"));
                }
                if let Some(reason) = self.unfinished(id, partition) {
                    return Some(format!("partition {id}, {reason}"));
                }
            }
        }
        None
    }

    fn carry_out(&mut self, step: &Step) {
        let Some(partition) = self.committed.partition(first_of(step)) else { return };
        let (keyspace, order) = (partition.keyspace, self.committed.keyspace(partition).order);
        let what = self.describe_step(step);
        let begun = match step {
            Step::Move { id, from, nodes, .. } => self.place(*id, *from, nodes),
            Step::Split { id, at, .. } => {
                let partition = id.0;
                let change = match order {
                    KeyOrder::Range => PartitionChange::SplitAt { partition, first: MatchValue(*at) },
                    KeyOrder::Hash => PartitionChange::Split { partition, at: Some((at >> 112) as u16) },
                };
                self.change_partitions(&change).map(drop)
            }
            Step::Merge { ids } => {
                let partitions = ids.map(|id| id.0);
                self.change_partitions(&PartitionChange::Merge { partitions }).map(drop)
            }
        };
        let what = match begun {
            Ok(()) => {
                self.observations.balance.count(keyspace, step);
                what
            }
            Err(refused) => format!("{what}: refused: {refused}"),
        };
        self.observations.balance.tell(keyspace, what);
    }

    /// Places a partition at these nodes, regardless of the ring.
    fn place(&mut self, id: PartitionId, from: NodeId, nodes: &[NodeId]) -> Result<(), Refused> {
        self.begin_change(|metadata| {
            let mut next = metadata.committed.clone();
            let is_there = next.partition(id).is_some_and(|partition| partition.originals.contains(&from));
            if !is_there {
                return Err(Refused::UnknownPartition { partition: id.0 });
            }
            next.place(id, nodes.to_vec());
            Ok(((), next))
        })
    }

    /// A description of a step for operators.
    pub(crate) fn describe_step(&self, step: &Step) -> String {
        match step {
            Step::Move { id, from, to, .. } => {
                format!("partition {id} goes from {} to {}", self.names(&[*from]), self.names(&[*to]))
            }
            Step::Split { id, at, because } => {
                let why = match because {
                    Because::Hot => "half of its load",
                    Because::Full => "half of its keys, because it is too large",
                };
                format!("partition {id} is split at {}: {why}", MatchValue(*at))
            }
            Step::Merge { ids: [one, other] } => {
                format!("partitions {one} and {other} are merged: both are cold")
            }
        }
    }
}

fn first_of(step: &Step) -> PartitionId {
    match step {
        Step::Move { id, .. } | Step::Split { id, .. } => *id,
        Step::Merge { ids } => ids[0],
    }
}
