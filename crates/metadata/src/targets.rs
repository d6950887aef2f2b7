//! What the ring says of every partition: derived from the state, and kept while neither nodes nor partitions change.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use nicekv_placement::{KeyspaceSpec, Protocol, replica_sets};
use nicekv_wire::{NodeId, PartitionId};

use crate::state::State;

/// Whether the replicas of a keyspace follow the ring. Those of a quorum do not yet: a newcomer there must know whether what it holds
/// counts (R14), which only new storage knows today.
pub(crate) fn is_movable(spec: &KeyspaceSpec) -> bool {
    spec.protocol == Protocol::Multicast
}

/// The originals that every partition is to have.
#[derive(Clone, Debug, Default)]
pub(crate) struct Targets {
    ring: Vec<NodeId>,
    partitions: usize,
    sets: BTreeMap<PartitionId, Vec<NodeId>>,
}

impl Targets {
    /// Of this state, computed anew if it says something else.
    pub(crate) fn update(&mut self, state: &State) {
        let (ring, partitions) = (state.ring(), state.partitions().count());
        if (&self.ring, self.partitions) == (&ring, partitions) {
            return;
        }
        self.sets.clear();
        for spec in state.keyspaces.iter().filter(|spec| is_movable(spec)) {
            let of_keyspace = state.partitions().filter(|(_, partition)| partition.keyspace == spec.id);
            let ids = of_keyspace.map(|(id, _)| id);
            self.sets.extend(ids.zip(replica_sets(&ring, spec)));
        }
        (self.ring, self.partitions) = (ring, partitions);
    }

    /// The first one leads by right. None: the partition stays where it is.
    pub(crate) fn of(&self, id: PartitionId) -> Option<&[NodeId]> {
        self.sets.get(&id).map(Vec::as_slice)
    }
}
