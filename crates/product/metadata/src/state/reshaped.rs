//! Splits and merges in the state, and the partitions that they have replaced (R17).

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use nicekv_proto::placement::Protocol;
use nicekv_proto::{MatchRange, PartitionId};

use super::reshaping::{Child, FORMING_MAX, Parent, RESHAPED_MAX, RESHAPINGS_MAX, Reshaping};
use super::{Gone, Partition, Removed, State};

impl State {
    /// The parents of a request, if all of them exist.
    pub(crate) fn parents_of(&self, reshaping: &Reshaping) -> Option<Vec<&Partition>> {
        reshaping.parents.iter().map(|id| self.partition(*id)).collect()
    }

    /// The ranges of the children that a request will create.
    pub(crate) fn ranges_of(&self, reshaping: &Reshaping) -> Vec<MatchRange> {
        let ranges = |parents: Vec<&Partition>| parents.iter().map(|parent| parent.range).collect::<Vec<_>>();
        let ranges = self.parents_of(reshaping).map(ranges).unwrap_or_default();
        reshaping.ranges(&ranges).unwrap_or_default()
    }

    /// Records members of a split or merged partition that are not members of every child. From
    /// then on they get no lease before they know the partition's end.
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

    /// Whether enough ids are left for `count` new partitions.
    pub(crate) fn has_ids(&self, count: usize) -> bool {
        self.next_partition.checked_add(count as u32).is_some()
    }

    /// Ids for new partitions. The caller has checked [`Self::has_ids`].
    pub(crate) fn give_ids(&mut self, count: usize) -> impl Iterator<Item = PartitionId> + use<> {
        let first = self.next_partition;
        self.next_partition += count as u32;
        (first..self.next_partition).map(PartitionId)
    }

    /// Replaces the parents of a request by its children.
    pub(crate) fn succeed(&mut self, reshaping: &Reshaping, children: Vec<(PartitionId, Partition)>) {
        let ids: Vec<PartitionId> = children.iter().map(|(id, _)| *id).collect();
        let epoch = children.iter().map(|(_, child)| child.epoch).max().unwrap_or(1);
        for id in reshaping.parents.iter().rev() {
            let parent = self.partitions.remove(id).expect("the partition is there");
            self.placed.remove(id);
            self.inherit_placement(&parent, &ids);
            self.reshaped.insert(*id, Gone::succeeded_by(&parent, epoch, ids.clone()));
        }
        for (id, child) in children {
            let round = self.round_of(child.keyspace);
            self.partitions.insert(id, Partition { round, ..child });
        }
        self.reshapings.retain(|other| other != reshaping);
    }

    /// Whether a partition has, had or will have this id.
    pub(crate) fn was_given(&self, id: PartitionId) -> bool {
        id.0 < self.next_partition
    }

    /// Whether the partition with this id has not been created yet, or former members do not know
    /// its end yet.
    pub(crate) fn is_awaited(&self, id: PartitionId) -> bool {
        let forming = self.partitions.values().filter_map(|partition| partition.forming.as_ref());
        let is_to_come = forming.flat_map(|forming| &forming.children).any(|child| child.partition == id);
        is_to_come || self.newest_epoch(id).is_some()
    }

    /// Whether a partition is a child that is still being built from its parents' data.
    pub(crate) fn is_young(&self, id: PartitionId) -> bool {
        self.reshaped.values().any(|gone| !gone.quiet && gone.children.contains(&id))
    }

    pub(super) fn validate_reshapings(&self) -> Result<(), &'static str> {
        let mut named = BTreeSet::new();
        let is_named_once =
            self.reshapings.iter().flat_map(|reshaping| &reshaping.parents).all(|id| named.insert(*id));
        let is_possible = |reshaping: &Reshaping| {
            let parents = self.parents_of(reshaping).unwrap_or_default();
            let by_quorum =
                |parent: &&Partition| matches!(self.keyspace(parent).protocol, Protocol::Quorum { .. });
            let one = |parent: &&Partition| parent.keyspace == parents[0].keyspace;
            !self.ranges_of(reshaping).is_empty() && !parents.iter().any(by_quorum) && parents.iter().all(one)
        };
        if !is_named_once
            || self.reshapings.len() > RESHAPINGS_MAX
            || !self.reshapings.iter().all(is_possible)
        {
            return Err("a requested split or merge is impossible");
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
        for reshaping in &self.reshapings {
            let all: Vec<_> =
                reshaping.parents.iter().map(|id| self.partitions[id].forming.as_ref()).collect();
            let Some(Some(first)) = all.first() else {
                if all.iter().any(Option::is_some) {
                    return Err("only one of two parents forms the children of a merge");
                }
                continue;
            };
            forming += 1;
            let is_one = all.iter().all(|other| *other == Some(first));
            let ranges = first.children.iter().map(|child| child.range);
            if !is_one || !ranges.eq(self.ranges_of(reshaping)) || !first.children.iter().all(&mut is_to_be) {
                return Err("a parent forms other children than requested");
            }
        }
        let is_asked_for =
            |(id, partition): (&PartitionId, &Partition)| partition.forming.is_none() || named.contains(id);
        match forming <= FORMING_MAX && self.partitions.iter().all(is_asked_for) {
            true => Ok(()),
            false => Err("children are formed without a request, or for too many"),
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
            return Err("a split or merged partition still exists, or has no children");
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
            false => Err("a partition replaces one that is not its parent"),
        }
    }
}
