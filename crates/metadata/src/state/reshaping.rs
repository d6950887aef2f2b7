//! Partitions that are split or merged (R17): what is asked for, and how far it is.
//!
//! ```text
//!   a wish ─▶ forming: the parents go on, the children are in the making ─▶ sealed: what is open is decided ─▶ the children are there
//!      ▲                    │                                                   │
//!      └── broken off ──────┴───────────────────────────────────────────────────┘
//! ```
//!
//! A wish names parents; children have ids only while they are formed, and other ones each time. So whatever is broken off was never anything.

use alloc::collections::BTreeSet;
use alloc::vec;
use alloc::vec::Vec;

use nicekv_placement::Protocol;
use nicekv_wire::{MatchRange, PartitionId};
use serde::{Deserialize, Serialize};

use super::encoding::{match_range, partition_id, partition_ids};
use super::{Gone, Partition, Removed, State};

/// Most wishes, those that are carried out included.
pub(crate) const RESHAPINGS_MAX: usize = 64;
/// Most of them that are carried out at once.
pub(crate) const FORMING_MAX: usize = 4;
/// Most partitions that were split or merged and that somebody may still hold.
pub(crate) const RESHAPED_MAX: usize = 1024;

/// A wish: one partition that is to be split, or two adjacent ones that are to be merged.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Reshaping {
    /// In the order of their ranges.
    #[serde(with = "partition_ids")]
    pub(crate) parents: Vec<PartitionId>,
    /// The vnode with which the second child begins; none: they are merged.
    pub(crate) at: Option<u16>,
}

/// What the members of a parent form.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Forming {
    pub(crate) children: Vec<Child>,
    /// No op of a client begins any more.
    pub(crate) sealed: bool,
}

/// A partition that is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Child {
    #[serde(with = "partition_id")]
    pub(crate) partition: PartitionId,
    #[serde(with = "match_range")]
    pub(crate) range: MatchRange,
}

/// A partition that was, up to its last decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Parent {
    #[serde(with = "partition_id")]
    pub(crate) partition: PartitionId,
    pub(crate) index: u64,
}

/// The first match value of a vnode.
fn vnode_start(vnode: u16) -> u128 {
    u128::from(vnode) << 112
}

/// Whether one range ends where the other one begins.
pub(crate) fn is_followed(low: MatchRange, high: MatchRange) -> bool {
    low.last().checked_add(1) == Some(high.first())
}

impl Reshaping {
    /// What the children are to own of what the parents own; `None` if that makes no sense.
    pub(crate) fn ranges(&self, parents: &[MatchRange]) -> Option<Vec<MatchRange>> {
        match (parents, self.at) {
            (&[whole], Some(at)) => {
                let at = vnode_start(at);
                let is_inside = whole.first() < at && at <= whole.last();
                let low = MatchRange::new(whole.first(), at.checked_sub(1)?).ok()?;
                let high = MatchRange::new(at, whole.last()).ok()?;
                is_inside.then(|| vec![low, high])
            }
            (&[low, high], None) if is_followed(low, high) => {
                Some(vec![MatchRange::new(low.first(), high.last()).ok()?])
            }
            _ => None,
        }
    }
}

impl State {
    /// The parents of a wish, if all of them are there.
    pub(crate) fn parents_of(&self, reshaping: &Reshaping) -> Option<Vec<&Partition>> {
        reshaping.parents.iter().map(|id| self.partition(*id)).collect()
    }

    /// What the children of a wish are to own.
    pub(crate) fn ranges_of(&self, reshaping: &Reshaping) -> Vec<MatchRange> {
        let ranges = |parents: Vec<&Partition>| parents.iter().map(|parent| parent.range).collect::<Vec<_>>();
        let ranges = self.parents_of(reshaping).map(ranges).unwrap_or_default();
        reshaping.ranges(&ranges).unwrap_or_default()
    }

    /// Notes who was a member of a partition that was split or merged and is none of some that takes its place: from then on it gets no lease
    /// before it knows the end of both.
    pub(crate) fn note_outside(&mut self) {
        let Self { partitions, reshaped, .. } = self;
        for gone in reshaped.values_mut() {
            let Gone { children, members, removed, .. } = gone;
            let goes_on = |process: &Removed| {
                let children = children.iter().map(|id| partitions.get(id));
                { children }.all(|child| child.is_some_and(|child| Gone::goes_on_in(process, child)))
            };
            removed.extend(members.extract_if(.., |process| !goes_on(process)));
        }
    }

    /// Whether so many ids are left for partitions that are to be.
    pub(crate) fn has_ids(&self, count: usize) -> bool {
        self.next_partition.checked_add(count as u32).is_some()
    }

    /// Ids for partitions that are to be; `None`: none are left.
    pub(crate) fn give_ids(&mut self, count: usize) -> impl Iterator<Item = PartitionId> + use<> {
        let first = self.next_partition;
        self.next_partition += count as u32;
        (first..self.next_partition).map(PartitionId)
    }

    /// Children take the place of parents.
    pub(crate) fn succeed(&mut self, reshaping: &Reshaping, children: Vec<(PartitionId, Partition)>) {
        let ids: Vec<PartitionId> = children.iter().map(|(id, _)| *id).collect();
        let epoch = children.iter().map(|(_, child)| child.epoch).max().unwrap_or(1);
        for id in &reshaping.parents {
            let parent = self.partitions.remove(id).expect("the partition is there");
            self.reshaped.insert(*id, Gone::succeeded_by(&parent, epoch, ids.clone()));
        }
        self.partitions.extend(children);
        self.reshapings.retain(|other| other != reshaping);
    }

    /// Partitions that somebody is still to make something of what this one leaves: its children are not whole yet.
    pub(crate) fn is_young(&self, id: PartitionId) -> bool {
        self.reshaped.values().any(|gone| !gone.quiet && gone.children.contains(&id))
    }

    pub(super) fn validate_reshapings(&self) -> Result<(), &'static str> {
        let mut named = BTreeSet::new();
        let is_named_once = self.reshapings.iter().flat_map(|wish| &wish.parents).all(|id| named.insert(*id));
        let is_possible = |wish: &Reshaping| {
            let parents = self.parents_of(wish).unwrap_or_default();
            let is_multicast = |parent: &&Partition| self.keyspace(parent).protocol == Protocol::Multicast;
            let one = |parent: &&Partition| parent.keyspace == parents[0].keyspace;
            !self.ranges_of(wish).is_empty() && parents.iter().all(is_multicast) && parents.iter().all(one)
        };
        if !is_named_once
            || self.reshapings.len() > RESHAPINGS_MAX
            || !self.reshapings.iter().all(is_possible)
        {
            return Err("partitions are to be split or merged that cannot be");
        }
        self.validate_forming(&named)?;
        self.validate_reshaped()
    }

    fn validate_forming(&self, named: &BTreeSet<PartitionId>) -> Result<(), &'static str> {
        let (mut ids, mut forming) = (BTreeSet::new(), 0);
        let mut is_to_be = |child: &Child| {
            let is_given = child.partition.0 < self.next_partition;
            let is_there = self.newest_epoch(child.partition).is_some();
            is_given && !is_there && ids.insert(child.partition)
        };
        for wish in &self.reshapings {
            let all: Vec<_> = wish.parents.iter().map(|id| self.partitions[id].forming.as_ref()).collect();
            let Some(Some(first)) = all.first() else {
                if all.iter().any(Option::is_some) {
                    return Err("a partition is formed of only one of two");
                }
                continue;
            };
            forming += 1;
            let is_one = all.iter().all(|other| *other == Some(first));
            let ranges = first.children.iter().map(|child| child.range);
            if !is_one || !ranges.eq(self.ranges_of(wish)) || !first.children.iter().all(&mut is_to_be) {
                return Err("what is formed of a partition is not what is to be formed");
            }
        }
        let is_asked_for =
            |(id, partition): (&PartitionId, &Partition)| partition.forming.is_none() || named.contains(id);
        match forming <= FORMING_MAX && self.partitions.iter().all(is_asked_for) {
            true => Ok(()),
            false => Err("more is formed than is asked for"),
        }
    }

    fn validate_reshaped(&self) -> Result<(), &'static str> {
        let is_known = |gone: &Gone| self.keyspaces.iter().any(|spec| spec.id == gone.keyspace);
        let is_succeeded = |gone: &Gone| {
            let is_there =
                |id: &PartitionId| self.partition(*id).is_some_and(|child| child.keyspace == gone.keyspace);
            matches!(gone.children.len(), 1..=2) && (gone.quiet || gone.children.iter().all(is_there))
        };
        let is_sound = |(id, gone): (&PartitionId, &Gone)| {
            !self.partitions.contains_key(id) && is_known(gone) && is_succeeded(gone)
        };
        if self.reshaped.len() > RESHAPED_MAX || !self.reshaped.iter().all(is_sound) {
            return Err("a partition that was split or merged has no place");
        }
        let is_child_of = |id: PartitionId, parent: &Parent| {
            self.reshaped.get(&parent.partition).is_some_and(|gone| gone.children.contains(&id))
        };
        let is_born = |(id, partition): (&PartitionId, &Partition)| {
            let parents = &partition.parents;
            parents.is_empty()
                || (parents.len() <= 2
                    && !partition.activated
                    && partition.forming.is_none()
                    && parents.iter().all(|parent| is_child_of(*id, parent)))
        };
        match self.partitions.iter().all(is_born) {
            true => Ok(()),
            false => Err("a partition takes the place of one that it does not come from"),
        }
    }
}
