//! Decides what to move, split and merge, from the counts of one period: a pure function (TurboKV
//! §4.1.2, §5.1).
//!
//! ```text
//!   a partition alone is too hot     ─▶ split at half of its load; if that is a single key, the key is reported
//!   a node is above 1.3 × the mean   ─▶ gives its hottest partition that fits to the least utilised node, repeatedly; if none fits, the hottest is split
//!   a partition is too large         ─▶ split at half of its keys
//!   none of these, and two cold neighbours ─▶ merged
//! ```
//!
//! Load is a number of requests: a read is load of the node that answers it, an update is load of
//! every member. If the receiver of a partition already holds it, the receiver takes over the
//! giver's reads; otherwise it replaces the giver.
//!
//! Invariants: each partition has at most one change. A move relieves the giver, and leaves the
//! receiver below the giver's former load. A resting partition is neither moved nor merged. No
//! merge results in a partition that would be split again.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use nicekv_proto::{MatchRange, NodeId, PartitionId};

/// A node with more load than this, in percent of the mean, gives partitions away. A partition with
/// more load is too hot for any node.
pub(crate) const HOT_PERCENT: u64 = 130;
/// A partition that no node can take is split if it has more load than this, in percent of the
/// mean.
const SPLIT_PERCENT_MIN: u64 = 20;
/// Two neighbours are merged if they have less load together than this, in percent of the mean.
const COLD_PERCENT: u64 = 5;
/// Upper bound of partitions that a node gives away in a period.
const GIFTS_MAX: usize = 16;
/// Minimum share of the requests that a split must leave each half, in thousandths.
const HALF_MIN: u16 = 50;

/// The load of a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Load {
    pub(crate) id: PartitionId,
    pub(crate) range: MatchRange,
    /// The partition's members, the preferred leader first.
    pub(crate) nodes: Vec<NodeId>,
    pub(crate) reads: BTreeMap<NodeId, u64>,
    pub(crate) updates: u64,
    pub(crate) keys: u64,
    pub(crate) bytes: u64,
    /// A match value to split at, and the thousandths of requests for smaller values.
    pub(crate) cut: Option<(u128, u16)>,
    /// The most requested match value, and the thousandths of requests for it.
    pub(crate) top: Option<(u128, u16)>,
    /// The match value with half of the keys below it.
    pub(crate) middle: Option<u128>,
    /// Whether the partition was moved recently, and should not move again.
    pub(crate) rests: bool,
    /// Whether the partition was created recently.
    pub(crate) is_young: bool,
}

impl Load {
    fn total(&self) -> u64 {
        self.reads.values().sum::<u64>() + self.updates
    }

    /// The partition's load on a node.
    fn at(&self, node: NodeId) -> u64 {
        let updates = if self.nodes.contains(&node) { self.updates } else { 0 };
        self.reads.get(&node).copied().unwrap_or(0) + updates
    }

    /// The partition's load on its busiest node.
    fn hottest(&self) -> u64 {
        self.nodes.iter().map(|node| self.at(*node)).max().unwrap_or(0)
    }
}

/// Limits of a keyspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rules {
    pub(crate) is_chain: bool,
    /// The configured number of partitions, which is also the lower bound.
    pub(crate) partitions_min: usize,
    /// Upper bound of the number of partitions.
    pub(crate) partitions_max: usize,
    /// Upper bound of replicas on a node.
    pub(crate) per_node_max: usize,
    /// Upper bound of keys in a partition.
    pub(crate) keys_max: Option<u64>,
    pub(crate) bytes_max: Option<u64>,
    /// Minimum number of requests in a period; with fewer, the counts are not significant.
    pub(crate) requests_min: u64,
}

/// A node, and its room for further replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Room {
    pub(crate) node: NodeId,
    /// Whether the node's disk has space.
    pub(crate) has_space: bool,
    /// Number of replicas of other keyspaces on the node.
    pub(crate) held: usize,
}

impl Rules {
    fn is_full(&self, load: &Load, percent: u64) -> bool {
        let above = |amount: u64, max: Option<u64>| {
            max.is_some_and(|max| u128::from(amount) * 100 > u128::from(max) * u128::from(percent))
        };
        above(load.keys, self.keys_max) || above(load.bytes, self.bytes_max)
    }
}

/// A change that balances load.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Move a partition to these nodes.
    Move { id: PartitionId, from: NodeId, to: NodeId, nodes: Vec<NodeId> },
    /// Split a partition at this value.
    Split { id: PartitionId, at: u128, because: Because },
    /// Merge two neighbours.
    Merge { ids: [PartitionId; 2] },
}

/// Why a partition is split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Because {
    Hot,
    Full,
}

/// A single key that is too hot for any node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HotKey {
    pub(crate) id: PartitionId,
    pub(crate) value: u128,
    /// The requests of the key, in percent of the mean load of all nodes.
    pub(crate) percent: u64,
}

/// The verdict on a period.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Verdict {
    pub(crate) steps: Vec<Step>,
    pub(crate) hot_keys: Vec<HotKey>,
    /// Load by node.
    pub(crate) loads: BTreeMap<NodeId, u64>,
}

impl Verdict {
    /// The most loaded node, and its load in percent of the mean.
    pub(crate) fn hottest(&self) -> Option<(NodeId, u64)> {
        let (node, load) = self.loads.iter().max_by_key(|(_, load)| **load)?;
        let total: u64 = self.loads.values().sum();
        Some((*node, percent_of_mean(*load, total, self.loads.len())))
    }
}

fn percent_of_mean(load: u64, total: u64, nodes: usize) -> u64 {
    (u128::from(load) * 100 * nodes as u128 / u128::from(total.max(1))) as u64
}

/// The steps to take. `partitions`: all partitions of a keyspace, ascending by range.
pub(crate) fn judge(rules: &Rules, nodes: &[Room], partitions: &[Load]) -> Verdict {
    let mut judge = Judge::new(rules, nodes, partitions);
    if judge.requests >= rules.requests_min.max(1) {
        judge.split_hot();
        judge.give();
    }
    judge.split_full();
    if judge.verdict.steps.is_empty() && judge.requests >= rules.requests_min.max(1) {
        judge.merge();
    }
    judge.verdict
}

struct Judge<'a> {
    rules: &'a Rules,
    partitions: &'a [Load],
    requests: u64,
    /// The load of all nodes together.
    total: u64,
    /// The expected load by node after the steps so far.
    loads: BTreeMap<NodeId, u64>,
    /// Number of replicas on each node, including other keyspaces.
    held: BTreeMap<NodeId, usize>,
    full: BTreeSet<NodeId>,
    splits: usize,
    changed: BTreeSet<PartitionId>,
    verdict: Verdict,
}

impl<'a> Judge<'a> {
    fn new(rules: &'a Rules, nodes: &[Room], partitions: &'a [Load]) -> Self {
        let load = |node: NodeId| partitions.iter().map(|partition| partition.at(node)).sum();
        let here = |node: NodeId| partitions.iter().filter(|it| it.nodes.contains(&node)).count();
        let loads: BTreeMap<NodeId, u64> = nodes.iter().map(|room| (room.node, load(room.node))).collect();
        Self {
            rules,
            partitions,
            requests: partitions.iter().map(Load::total).sum(),
            total: loads.values().sum(),
            verdict: Verdict { loads: loads.clone(), ..Verdict::default() },
            loads,
            held: nodes.iter().map(|room| (room.node, room.held + here(room.node))).collect(),
            full: nodes.iter().filter(|room| !room.has_space).map(|room| room.node).collect(),
            splits: 0,
            changed: BTreeSet::new(),
        }
    }

    fn percent(&self, load: u64) -> u64 {
        percent_of_mean(load, self.total, self.loads.len())
    }

    /// Whether a node may hold another replica.
    fn has_room(&self, node: NodeId) -> bool {
        self.held.get(&node).is_some_and(|held| *held < self.rules.per_node_max) && !self.full.contains(&node)
    }

    fn may_split(&self, load: &Load) -> bool {
        let has_room = |node: &NodeId| self.has_room(*node);
        let count = self.partitions.len() + self.splits;
        count < self.rules.partitions_max
            && !self.changed.contains(&load.id)
            && load.nodes.iter().all(has_room)
    }

    fn split(&mut self, load: &Load, at: u128, because: Because) {
        self.splits += 1;
        self.changed.insert(load.id);
        load.nodes.iter().for_each(|node| *self.held.entry(*node).or_default() += 1);
        self.verdict.steps.push(Step::Split { id: load.id, at, because });
    }

    /// Splits a partition at the median of its load, if each half gets enough of it.
    fn split_by_load(&mut self, load: &Load) -> bool {
        let Some((at, below)) = load.cut else { return false };
        let is_worth_it = (HALF_MIN..=1000 - HALF_MIN).contains(&below);
        if is_worth_it && self.may_split(load) {
            self.split(load, at, Because::Hot);
            return true;
        }
        false
    }

    fn split_hot(&mut self) {
        let mut hot: Vec<&Load> = self.partitions.iter().collect();
        hot.retain(|load| self.percent(load.hottest()) > HOT_PERCENT);
        hot.sort_by_key(|load| (u64::MAX - load.hottest(), load.id));
        for load in hot {
            if let Some((value, share)) = load.top {
                let percent = self.percent(load.hottest()) * u64::from(share) / 1000;
                if percent > HOT_PERCENT {
                    self.verdict.hot_keys.push(HotKey { id: load.id, value, percent });
                }
            }
            self.split_by_load(load);
        }
    }

    /// Lets every overloaded node give partitions away, until it is not overloaded or no partition
    /// fits elsewhere.
    fn give(&mut self) {
        let mut givers: Vec<(u64, NodeId)> = self.loads.iter().map(|(node, load)| (*load, *node)).collect();
        givers.sort_unstable_by_key(|(load, node)| (u64::MAX - load, *node));
        for (_, from) in givers {
            for _ in 0..GIFTS_MAX {
                if self.percent(self.loads[&from]) <= HOT_PERCENT {
                    break;
                }
                let Some(gift) = self.gift(from) else {
                    self.split_for(from);
                    break;
                };
                self.hand_over(gift);
            }
        }
    }

    /// The hottest partition that fits on another node. The least utilised nodes are tried first.
    fn gift(&self, from: NodeId) -> Option<Gift<'a>> {
        let mut takers: Vec<NodeId> = self.loads.keys().copied().filter(|node| *node != from).collect();
        takers.sort_by_key(|node| (self.loads[node], *node));
        let is_free =
            |load: &&Load| load.nodes.contains(&from) && !load.rests && !self.changed.contains(&load.id);
        let mut candidates: Vec<&Load> = self.partitions.iter().filter(is_free).collect();
        candidates.sort_by_key(|load| (u64::MAX - load.at(from), load.id));
        // A node that already has as many replicas as it may is skipped.
        takers.into_iter().find_map(|to| {
            let gifts = candidates.iter().filter_map(|load| self.offer(load, from, to));
            let mut gifts = gifts.filter(|gift| gift.relief > 0);
            gifts.find(|gift| self.fits(gift))
        })
    }

    fn offer(&self, load: &'a Load, from: NodeId, to: NodeId) -> Option<Gift<'a>> {
        let reads = load.reads.get(&from).copied().unwrap_or(0);
        if load.nodes.contains(&to) {
            let gift = Gift { load, from, to, relief: reads, gain: reads };
            return (!self.rules.is_chain).then_some(gift);
        }
        // In a chain the receiver becomes the tail, whichever member leaves.
        let all_reads: u64 = load.reads.values().sum();
        let gained = if self.rules.is_chain { all_reads } else { reads };
        let relief = reads + load.updates;
        self.has_room(to).then_some(Gift { load, from, to, relief, gain: gained + load.updates })
    }

    /// Whether the receiver stays below the overload limit, and below the giver's present load.
    fn fits(&self, gift: &Gift<'_>) -> bool {
        let after = self.loads[&gift.to] + gift.gain;
        after < self.loads[&gift.from] && self.percent(after) <= HOT_PERCENT
    }

    fn hand_over(&mut self, gift: Gift<'_>) {
        let Gift { load, from, to, relief, gain } = gift;
        let nodes: Vec<NodeId> = load
            .nodes
            .iter()
            .map(|node| match *node {
                node if node == from => to,
                node if node == to => from,
                node => node,
            })
            .collect();
        if !load.nodes.contains(&to) {
            *self.held.entry(to).or_default() += 1;
            self.held.entry(from).and_modify(|held| *held = held.saturating_sub(1));
            if self.rules.is_chain {
                // The former tail does not answer gets any more.
                for (tail, reads) in load.reads.iter().filter(|(node, _)| **node != from) {
                    self.loads.entry(*tail).and_modify(|load| *load = load.saturating_sub(*reads));
                }
            }
        }
        self.loads.entry(from).and_modify(|load| *load = load.saturating_sub(relief));
        *self.loads.entry(to).or_default() += gain;
        self.changed.insert(load.id);
        self.verdict.steps.push(Step::Move { id: load.id, from, to, nodes });
    }

    /// Splits the hottest partition of the node that can be split, because none fits elsewhere.
    fn split_for(&mut self, node: NodeId) {
        let mut candidates: Vec<&Load> = self.partitions.iter().collect();
        candidates.retain(|load| self.percent(load.at(node)) > SPLIT_PERCENT_MIN);
        candidates.sort_by_key(|load| (u64::MAX - load.at(node), load.id));
        // A partition that is already being split will become lighter; that is awaited first.
        if candidates.iter().any(|load| self.changed.contains(&load.id)) {
            return;
        }
        for load in candidates {
            if self.split_by_load(load) {
                return;
            }
        }
    }

    fn split_full(&mut self) {
        for load in self.partitions.iter().filter(|load| self.rules.is_full(load, 100)) {
            if let Some(at) = load.middle.filter(|_| self.may_split(load)) {
                self.split(load, at, Because::Full);
            }
        }
    }

    /// Merges the two neighbours with the least load, if it is low.
    fn merge(&mut self) {
        if self.partitions.len() <= self.rules.partitions_min {
            return;
        }
        let both = |pair: &[Load]| pair[0].total() + pair[1].total();
        let size = |pair: &[Load]| Load {
            keys: pair[0].keys + pair[1].keys,
            bytes: pair[0].bytes + pair[1].bytes,
            ..pair[0].clone()
        };
        let may_merge = |pair: &&[Load]| {
            let is_at_rest = pair.iter().all(|load| !load.rests && !load.is_young);
            is_at_rest && self.percent(both(pair)) <= COLD_PERCENT && !self.rules.is_full(&size(pair), 50)
        };
        let coldest = self.partitions.windows(2).filter(may_merge).min_by_key(|pair| both(pair));
        if let Some([low, high]) = coldest {
            self.verdict.steps.push(Step::Merge { ids: [low.id, high.id] });
        }
    }
}

/// A partition that may move from one node to another.
struct Gift<'a> {
    load: &'a Load,
    from: NodeId,
    to: NodeId,
    /// The load that the giver loses.
    relief: u64,
    /// The load that the receiver gains.
    gain: u64,
}

#[cfg(test)]
mod tests;
