//! The target replica sets of all partitions. They are derived from the ring and the state, and
//! cached while nodes and partitions do not change.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use nicekv_proto::placement::{KeyspaceSpec, replica_sets_of};
use nicekv_proto::{NodeId, PartitionId};

use crate::state::{Reshaping, State};

/// The originals that every partition should have.
#[derive(Clone, Debug, Default)]
pub(crate) struct Targets {
    ring: Vec<NodeId>,
    /// The partitions for which the targets were computed. A partition's range never changes, so
    /// the ids suffice.
    partitions: Vec<PartitionId>,
    merges: Vec<Reshaping>,
    /// Partitions that are placed by load instead of by the ring.
    placed: BTreeMap<PartitionId, Vec<NodeId>>,
    sets: BTreeMap<PartitionId, Vec<NodeId>>,
}

impl Targets {
    /// Recomputes the targets if the state has changed.
    pub(crate) fn update(&mut self, state: &State) {
        let ring = state.ring();
        let partitions: Vec<_> = state.partitions().map(|(id, _)| id).collect();
        let merges = state.reshapings.iter().filter(|reshaping| reshaping.at.is_none()).cloned().collect();
        let placed = state.placements().map(|(id, nodes)| (id, nodes.to_vec())).collect();
        if (&self.ring, &self.partitions, &self.merges, &self.placed)
            == (&ring, &partitions, &merges, &placed)
        {
            return;
        }
        self.placed = placed;
        self.sets.clear();
        (self.ring, self.partitions, self.merges) = (ring, partitions, merges);
        for spec in &state.keyspaces {
            self.add(state, spec);
        }
        self.place();
    }

    /// Applies placements by load, if their nodes may hold data. A partition that will be merged
    /// follows the first of its pair.
    fn place(&mut self) {
        let Self { ring, merges, placed, sets, .. } = self;
        for (id, nodes) in placed.iter() {
            let Some(set) = sets.get_mut(id) else { continue };
            let mut others: Vec<NodeId> = set.iter().copied().filter(|node| !nodes.contains(node)).collect();
            others.reverse();
            let of = |node: &NodeId| if ring.contains(node) { Some(*node) } else { others.pop() };
            *set = nodes.iter().filter_map(of).collect();
        }
        for merge in merges.iter().filter(|merge| merge.parents.iter().any(|id| placed.contains_key(id))) {
            let first = merge.parents.first().and_then(|id| sets.get(id)).cloned();
            if let (Some(first), Some(last)) = (first, merge.parents.last()) {
                sets.insert(*last, first);
            }
        }
    }

    /// Adds the targets of a keyspace. Partitions that will be merged get the originals of the
    /// resulting partition (R17).
    fn add(&mut self, state: &State, spec: &KeyspaceSpec) {
        let of_keyspace = state.partitions().filter(|(_, partition)| partition.keyspace == spec.id);
        let mut begins: Vec<_> = of_keyspace.map(|(id, partition)| (partition.range.first(), id)).collect();
        begins.sort_unstable();
        let follower = |id: &PartitionId| self.merges.iter().any(|merge| merge.parents.last() == Some(id));
        let places: Vec<bool> = begins.iter().map(|(_, id)| !follower(id)).collect();
        let starts = begins.iter().zip(&places).filter(|(_, is_own)| **is_own);
        let starts: Vec<u128> = starts.map(|((first, _), _)| *first).collect();
        let sets = replica_sets_of(&self.ring, spec, &starts);
        let mut index = 0;
        for ((_, id), is_own) in begins.iter().zip(places) {
            index += usize::from(is_own);
            self.sets.insert(*id, sets[index - 1].clone());
        }
    }

    /// The target originals, the preferred leader first. `None`: the partition stays where it is.
    pub(crate) fn of(&self, id: PartitionId) -> Option<&[NodeId]> {
        self.sets.get(&id).map(Vec::as_slice)
    }
}
