//! What is to be moved, split and merged, from what was counted in one period: a pure function (TurboKV §4.1.2, §5.1).
//!
//! ```text
//!   a partition alone is too hot     ─▶ split where its load falls into halves; if it is one key's, that is named
//!   a node is above 1.3 × the mean   ─▶ gives its hottest partition that fits to the least utilised node, and again; if none fits, the hottest is split
//!   a partition is too large         ─▶ split where its keys fall into halves
//!   nothing of this, and two cold neighbours ─▶ merged
//! ```
//!
//! Load is requests: a read is its answering node's, an update is every member's. Who is given a partition that it holds already takes over its reads; who
//! does not takes the giver's place altogether.
//!
//! Invariants: at most one change per partition; what is given leaves the giver less loaded than it was and makes nobody as loaded as that; nothing
//! that rests is given or merged; nothing is merged that would be split again.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use nicekv_proto::{MatchRange, NodeId, PartitionId};

/// A node above this, in percent of the mean, gives something away; a partition above it is too hot for any node.
pub(crate) const HOT_PERCENT: u64 = 130;
/// What no node can take is split if it is above this, in percent of the mean.
const SPLIT_PERCENT_MIN: u64 = 20;
/// Two neighbours that are asked less than this together, in percent of the mean, are merged.
const COLD_PERCENT: u64 = 5;
/// Most that a node gives away in a period.
const GIFTS_MAX: usize = 16;
/// A split leaves each half at least this share of what is asked, in parts of a thousand.
const HALF_MIN: u16 = 50;

/// What is known of a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Load {
    pub(crate) id: PartitionId,
    pub(crate) range: MatchRange,
    /// Where it is, who leads by right first.
    pub(crate) nodes: Vec<NodeId>,
    pub(crate) reads: BTreeMap<NodeId, u64>,
    pub(crate) updates: u64,
    pub(crate) keys: u64,
    pub(crate) bytes: u64,
    /// A value at which it can be split, and how many of a thousand requests are for smaller ones.
    pub(crate) cut: Option<(u128, u16)>,
    /// The value that is asked most, and how many of a thousand requests are for it.
    pub(crate) top: Option<(u128, u16)>,
    /// Half of the keys are before it.
    pub(crate) middle: Option<u128>,
    /// It was moved a short while ago.
    pub(crate) rests: bool,
    /// It came into being a short while ago.
    pub(crate) is_young: bool,
}

impl Load {
    fn total(&self) -> u64 {
        self.reads.values().sum::<u64>() + self.updates
    }

    /// What a node has to do for it.
    fn at(&self, node: NodeId) -> u64 {
        let updates = if self.nodes.contains(&node) { self.updates } else { 0 };
        self.reads.get(&node).copied().unwrap_or(0) + updates
    }

    /// What its busiest node has to do for it.
    fn hottest(&self) -> u64 {
        self.nodes.iter().map(|node| self.at(*node)).max().unwrap_or(0)
    }
}

/// What holds for a keyspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rules {
    pub(crate) is_chain: bool,
    /// Partitions that it begins with: no fewer remain.
    pub(crate) partitions_min: usize,
    /// Most that it may have.
    pub(crate) partitions_max: usize,
    /// Most that a node may hold.
    pub(crate) per_node_max: usize,
    /// What a partition may hold.
    pub(crate) keys_max: Option<u64>,
    pub(crate) bytes_max: Option<u64>,
    /// With fewer requests in a period nothing follows from how they lie.
    pub(crate) requests_min: u64,
}

/// A node, and what it can still take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Room {
    pub(crate) node: NodeId,
    /// Its disk is not full.
    pub(crate) has_space: bool,
    /// Partitions of other keyspaces that it holds.
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

/// One change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// A partition is to be at these nodes.
    Move { id: PartitionId, from: NodeId, to: NodeId, nodes: Vec<NodeId> },
    /// A second half begins there.
    Split { id: PartitionId, at: u128, because: Because },
    /// Two neighbours become one.
    Merge { ids: [PartitionId; 2] },
}

/// Why a partition is split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Because {
    Hot,
    Full,
}

/// A key that alone is too hot for any node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HotKey {
    pub(crate) id: PartitionId,
    pub(crate) value: u128,
    /// What it is asked, in percent of the mean of all nodes.
    pub(crate) percent: u64,
}

/// What follows from a period.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Verdict {
    pub(crate) steps: Vec<Step>,
    pub(crate) hot_keys: Vec<HotKey>,
    /// By node.
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

/// What is to be done. `partitions`: all of a keyspace, ascending by range.
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
    /// What all nodes have to do.
    total: u64,
    /// As it will be.
    loads: BTreeMap<NodeId, u64>,
    /// Partitions, those of other keyspaces too.
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

    /// Whether it may hold a partition more.
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

    /// Splits at the median of the load, if that leaves each half something.
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

    /// Every node that is too loaded gives partitions away until it is not, or nothing fits.
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

    /// The hottest partition that fits.
    fn gift(&self, from: NodeId) -> Option<Gift<'a>> {
        let mut takers: Vec<NodeId> = self.loads.keys().copied().filter(|node| *node != from).collect();
        takers.sort_by_key(|node| (self.loads[node], *node));
        let is_free =
            |load: &&Load| load.nodes.contains(&from) && !load.rests && !self.changed.contains(&load.id);
        let mut candidates: Vec<&Load> = self.partitions.iter().filter(is_free).collect();
        candidates.sort_by_key(|load| (u64::MAX - load.at(from), load.id));
        // One that cannot be a taker, as it holds all that there is already, makes way for the next one.
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
        // Who comes to a chain is its tail, whoever goes.
        let all_reads: u64 = load.reads.values().sum();
        let gained = if self.rules.is_chain { all_reads } else { reads };
        let relief = reads + load.updates;
        self.has_room(to).then_some(Gift { load, from, to, relief, gain: gained + load.updates })
    }

    /// The least utilised node does not become a hot one, nor as hot as the giver was.
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
                // The tail until now answers no more.
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

    /// Nothing fits: the hottest that can be split is.
    fn split_for(&mut self, node: NodeId) {
        let mut candidates: Vec<&Load> = self.partitions.iter().collect();
        candidates.retain(|load| self.percent(load.at(node)) > SPLIT_PERCENT_MIN);
        candidates.sort_by_key(|load| (u64::MAX - load.at(node), load.id));
        // One that is split already will be lighter.
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

    /// The two neighbours that are asked least, if that is little.
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

/// A partition that changes hands.
struct Gift<'a> {
    load: &'a Load,
    from: NodeId,
    to: NodeId,
    /// What the giver has less.
    relief: u64,
    /// What the taker has more.
    gain: u64,
}

#[cfg(test)]
mod tests;
