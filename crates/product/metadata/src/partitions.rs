//! Commands that split and merge partitions in a running cluster (R17).
//!
//! A change is persisted as a request. A few requests at a time are carried out, when their
//! partitions are whole ([`crate::decide`]). A change is refused at once if it cannot be carried
//! out, or if the switches do not have the capacity.

use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;

use nicekv_proto::placement::{
    KEYSPACE_PARTITIONS_MAX, KeyOrder, KeyspaceError, KeyspaceSpec, PARTITIONS_MAX, Protocol, vnode_blocks,
    vnodes,
};
use nicekv_proto::{KeyspaceId, MatchRange, PartitionId};
use nicekv_switch::{Table, TableError};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::announce::rules;
use crate::change::{Moves, Refused};
use crate::config::Config;
use crate::leader::Metadata;
use crate::state::{Gone, Partition, RESHAPED_MAX, RESHAPINGS_MAX, Reshaping, State, is_followed};
use crate::targets::Targets;

/// A change of the partitions of a keyspace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PartitionChange {
    /// Split a partition.
    Split {
        partition: u32,
        /// The first vnode of the second half; `None`: the middle.
        at: Option<u16>,
    },
    /// Split a partition of a range-partitioned keyspace.
    SplitAt {
        partition: u32,
        /// The first match value of the second half.
        first: MatchValue,
    },
    /// Merge two adjacent partitions.
    Merge {
        /// The two partitions, in any order.
        partitions: [u32; 2],
    },
    /// Cancel a split or merge that has not begun.
    Cancel {
        /// One of its partitions.
        partition: u32,
    },
}

/// A match value, shown as 32 hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MatchValue(pub u128);

impl fmt::Display for MatchValue {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:032x}", self.0)
    }
}

impl Serialize for MatchValue {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for MatchValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        u128::from_str_radix(&text, 16).map(Self).map_err(D::Error::custom)
    }
}

/// The effect of a [`PartitionChange`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartitionPlan {
    /// The keyspace's name.
    pub keyspace: String,
    /// The keyspace's id.
    pub keyspace_id: u16,
    /// Whether the keyspace is range-partitioned: its match values are the first bytes of keys, not
    /// digests.
    #[serde(default)]
    pub by_range: bool,
    /// The partitions that are replaced, in the order of their match values.
    pub parents: Vec<u32>,
    /// The first and last match value of each partition that results; empty for a cancellation.
    pub children: Vec<(MatchValue, MatchValue)>,
    /// Number of replicas that move before a merge or after a split, by the names of the old and
    /// the new node.
    pub moves: Vec<(String, String, usize)>,
}

/// The number of partitions, in keyspaces for which `counts` is true, after all requested splits.
pub(crate) fn partitions_to_be(state: &State, counts: impl Fn(KeyspaceId) -> bool) -> usize {
    let there = state.partitions().filter(|(_, partition)| counts(partition.keyspace)).count();
    let is_split = |reshaping: &&Reshaping| {
        let parent = state.partition(reshaping.parents[0]);
        reshaping.at.is_some() && parent.is_some_and(|parent| counts(parent.keyspace))
    };
    there + state.reshapings.iter().filter(is_split).count()
}

impl Metadata {
    /// The effect that a change would have.
    ///
    /// # Errors
    /// Why the change would be refused.
    pub fn plan_partitions(&self, change: &PartitionChange) -> Result<PartitionPlan, Refused> {
        self.with_partitions(change).map(|(plan, _)| plan)
    }

    /// Begins a change like [`Metadata::change`].
    ///
    /// # Errors
    /// Why the change is refused.
    pub fn change_partitions(&mut self, change: &PartitionChange) -> Result<PartitionPlan, Refused> {
        self.begin_change(|metadata| metadata.with_partitions(change))
    }

    fn with_partitions(&self, change: &PartitionChange) -> Result<(PartitionPlan, State), Refused> {
        self.check_begun()?;
        let mut next = self.committed.clone();
        let reshaping = match *change {
            PartitionChange::Cancel { partition } => return self.cancelled(PartitionId(partition)),
            PartitionChange::Split { partition, at } => self.split(PartitionId(partition), at)?,
            PartitionChange::SplitAt { partition, first } => self.split_at(PartitionId(partition), first)?,
            PartitionChange::Merge { partitions } => self.merge(partitions.map(PartitionId))?,
        };
        self.check_bounds(&reshaping)?;
        next.reshapings.push(reshaping.clone());
        self.check_tables(&next)?;
        Ok((self.plan_of_reshaping(&next, &reshaping), next))
    }

    fn split(&self, id: PartitionId, at: Option<u16>) -> Result<Reshaping, Refused> {
        let partition = self.reshapable(id)?;
        if self.committed.keyspace(partition).order == KeyOrder::Range {
            return self.split_range(id, partition.range, at.map(|at| u128::from(at) << 112));
        }
        let (first, last) = vnodes(partition.range);
        if first == last {
            return Err(Refused::OneVnode { partition: id.0, vnode: first });
        }
        // The middle. If the number of vnodes is odd, the first half is smaller by one.
        let at = at.unwrap_or(first + (last - first).div_ceil(2));
        if !(first < at && at <= last) {
            return Err(Refused::NotInside { partition: id.0, at, first, last });
        }
        Ok(Reshaping { parents: vec![id], at: Some(u128::from(at) << 112) })
    }

    fn split_at(&self, id: PartitionId, MatchValue(at): MatchValue) -> Result<Reshaping, Refused> {
        let partition = self.reshapable(id)?;
        let spec = self.committed.keyspace(partition);
        match spec.order {
            KeyOrder::Range => self.split_range(id, partition.range, Some(at)),
            KeyOrder::Hash => Err(Refused::ByHash { partition: id.0, keyspace: spec.name.clone() }),
        }
    }

    /// Splits at a match value; `None`: the middle. Keys from `at` on are in the second half.
    fn split_range(
        &self,
        id: PartitionId,
        range: MatchRange,
        at: Option<u128>,
    ) -> Result<Reshaping, Refused> {
        let (first, last) = (range.first(), range.last());
        let shown = |value| MatchValue(value).to_string();
        if first == last {
            return Err(Refused::OneValue { partition: id.0, value: shown(first) });
        }
        let at = at.unwrap_or(first + (last - first) / 2 + 1);
        if !(first < at && at <= last) {
            let (first, last) = (shown(first), shown(last));
            return Err(Refused::NotWithin { partition: id.0, at: shown(at), first, last });
        }
        Ok(Reshaping { parents: vec![id], at: Some(at) })
    }

    fn merge(&self, ids: [PartitionId; 2]) -> Result<Reshaping, Refused> {
        let (one, other) = (self.reshapable(ids[0])?, self.reshapable(ids[1])?);
        let [PartitionId(a), PartitionId(b)] = ids;
        if one.keyspace != other.keyspace {
            return Err(Refused::OtherKeyspaces { one: a, other: b });
        }
        let parents =
            if one.range.first() <= other.range.first() { [ids[0], ids[1]] } else { [ids[1], ids[0]] };
        let is_adjacent = is_followed(one.range, other.range) || is_followed(other.range, one.range);
        match is_adjacent {
            true => Ok(Reshaping { parents: parents.into(), at: None }),
            false => Err(Refused::NotAdjacent { one: a, other: b }),
        }
    }

    /// The partition with this id, if it may be split or merged.
    fn reshapable(&self, id: PartitionId) -> Result<&Partition, Refused> {
        let state = &self.committed;
        let PartitionId(partition) = id;
        let there = state.partition(id).ok_or_else(|| self.why_not_there(id))?;
        let spec = state.keyspace(there);
        if matches!(spec.protocol, Protocol::Quorum { .. }) {
            return Err(Refused::ByQuorum { partition, keyspace: spec.name.clone() });
        }
        match state.reshapings.iter().any(|reshaping| reshaping.parents.contains(&id)) {
            true => Err(Refused::AskedAlready { partition }),
            false => Ok(there),
        }
    }

    fn why_not_there(&self, id: PartitionId) -> Refused {
        let PartitionId(partition) = id;
        match self.committed.gone().find(|(gone, ..)| *gone == id) {
            None => Refused::UnknownPartition { partition },
            Some((_, spec, Gone { children, .. })) if children.is_empty() => {
                Refused::DroppedPartition { partition, keyspace: spec.name.clone() }
            }
            Some((_, _, Gone { children, .. })) => {
                let children: Vec<_> = children.iter().map(|id| id.0.to_string()).collect();
                Refused::Succeeded { partition, by: children.join(" and ") }
            }
        }
    }

    fn check_bounds(&self, reshaping: &Reshaping) -> Result<(), Refused> {
        let state = &self.committed;
        if state.reshapings.len() >= RESHAPINGS_MAX {
            return Err(Refused::TooManyReshapings { reshapings: RESHAPINGS_MAX });
        }
        let waiting: usize = state.reshapings.iter().map(|reshaping| reshaping.parents.len()).sum();
        if state.reshaped.len() + waiting + reshaping.parents.len() > RESHAPED_MAX {
            return Err(Refused::Undiscarded { partitions: state.reshaped.len() });
        }
        let Some(parents) = state.parents_of(reshaping).filter(|_| reshaping.at.is_some()) else {
            return Ok(());
        };
        let spec = state.keyspace(parents[0]);
        if partitions_to_be(state, |id| id == spec.id) >= KEYSPACE_PARTITIONS_MAX as usize {
            let (keyspace, most) = (spec.name.clone(), KEYSPACE_PARTITIONS_MAX);
            return Err(Refused::TooManyPartitions { keyspace, most });
        }
        self.check_count(1)
    }

    /// Checks that `more` further partitions can be managed.
    pub(crate) fn check_count(&self, more: u32) -> Result<(), Refused> {
        let to_be: u32 = self.committed.unfounded(&self.config).map(|spec| spec.partitions).sum();
        let partitions = partitions_to_be(&self.committed, |_| true) as u32 + to_be + more;
        match partitions > PARTITIONS_MAX {
            true => Err(KeyspaceError::TooManyPartitions { partitions }.into()),
            false => Ok(()),
        }
    }

    /// Checks that switches have the capacity for the tables of a state, including the partitions
    /// that result from requested splits.
    pub(crate) fn check_tables(&self, next: &State) -> Result<(), Refused> {
        let config = Config { nodes: next.node_configs(), ..self.config.clone() };
        let tables = rules::compile(&config, next);
        let refused = |error: TableError| Refused::Tables { error: error.to_string() };
        tables.validate(&self.config.vrings()).map_err(refused)?;
        let blocks = |range: MatchRange| vnode_blocks(range).map_or(0, |blocks| blocks.len());
        let (mut more, mut records) = (0, 0);
        for reshaping in &next.reshapings {
            let ranges = next.ranges_of(reshaping);
            let order = next.parents_of(reshaping).map(|parents| next.keyspace(parents[0]).order);
            match order {
                Some(KeyOrder::Range) => records += ranges.len(),
                _ => more += ranges.into_iter().map(blocks).sum::<usize>(),
            }
        }
        for (table, more) in [(Table::Unicast, more), (Table::Multicast, more), (Table::Record, records)] {
            let (entries, capacity) = (tables.entries(table) + more, table.capacity());
            if entries > capacity {
                return Err(refused(TableError::TableFull { table, entries, capacity }));
            }
        }
        Ok(())
    }

    fn cancelled(&self, id: PartitionId) -> Result<(PartitionPlan, State), Refused> {
        let mut next = self.committed.clone();
        if next.partition(id).is_none() {
            return Err(self.why_not_there(id));
        }
        let place = next.reshapings.iter().position(|reshaping| reshaping.parents.contains(&id));
        let place = place.ok_or(Refused::NotAsked { partition: id.0 })?;
        let reshaping = next.reshapings.remove(place);
        for parent in &reshaping.parents {
            let Some(partition) = next.partition(*parent).filter(|it| it.forming.is_some()) else { continue };
            let epoch = partition.epoch + 1;
            next.replace(*parent, Partition { epoch, forming: None, ..partition.clone() });
        }
        let plan = self.plan_of_reshaping(&next, &reshaping);
        Ok((PartitionPlan { children: Vec::new(), moves: Vec::new(), ..plan }, next))
    }

    /// The effect of a requested split or merge.
    fn plan_of_reshaping(&self, next: &State, reshaping: &Reshaping) -> PartitionPlan {
        let parents: Vec<&Partition> = next.parents_of(reshaping).unwrap_or_default();
        let KeyspaceSpec { id, name, order, .. } = next.keyspace(parents[0]);
        let ranges = next.ranges_of(reshaping);
        PartitionPlan {
            keyspace: name.clone(),
            keyspace_id: id.0,
            by_range: *order == KeyOrder::Range,
            parents: reshaping.parents.iter().map(|id| id.0).collect(),
            moves: self.moves_of(next, reshaping, &parents, &ranges),
            children: ranges
                .into_iter()
                .map(|range| (MatchValue(range.first()), MatchValue(range.last())))
                .collect(),
        }
    }

    /// The replicas that will have moved when all changes are complete.
    fn moves_of(
        &self,
        next: &State,
        reshaping: &Reshaping,
        parents: &[&Partition],
        ranges: &[MatchRange],
    ) -> Vec<(String, String, usize)> {
        let (mut after, mut targets) = (next.clone(), Targets::default());
        if !after.has_ids(ranges.len()) {
            return Vec::new();
        }
        let ids: Vec<PartitionId> = after.give_ids(ranges.len()).collect();
        let child = |(id, range): (&PartitionId, &MatchRange)| {
            (*id, Partition { range: *range, ..parents[0].clone() })
        };
        after.succeed(reshaping, ids.iter().zip(ranges).map(child).collect());
        targets.update(&after);
        let mut moves = Moves::default();
        for (parent, target) in parents.iter().flat_map(|parent| ids.iter().map(move |id| (parent, id))) {
            let target = targets.of(*target).unwrap_or(&parent.originals);
            moves.add(&parent.originals, target, |node| self.names(&[node]));
        }
        moves.listed()
    }
}
