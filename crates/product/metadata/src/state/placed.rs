//! Partitions that balancing by migration has placed on other nodes than the ring would (TurboKV
//! §5.1).

use alloc::vec::Vec;

use nicekv_proto::placement::LoadBalancing;
use nicekv_proto::{NodeId, PartitionId};
use serde::{Deserialize, Serialize};

use super::encoding::node_ids;
use super::{Partition, State};

/// The nodes of a partition, the preferred leader first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Placed(#[serde(with = "node_ids")] Vec<NodeId>);

impl State {
    /// Places a partition at these nodes.
    pub(crate) fn place(&mut self, id: PartitionId, nodes: Vec<NodeId>) {
        self.placed.insert(id, Placed(nodes));
    }

    /// The nodes on which a partition is placed; `None`: the ring decides.
    pub(crate) fn placement(&self, id: PartitionId) -> Option<&[NodeId]> {
        self.placed.get(&id).map(|placed| placed.0.as_slice())
    }

    pub(crate) fn placements(&self) -> impl Iterator<Item = (PartitionId, &[NodeId])> {
        self.placed.iter().map(|(id, placed)| (*id, placed.0.as_slice()))
    }

    /// Places children where their parents were, if their keyspace is balanced by migration.
    /// Afterwards only load moves them.
    pub(super) fn inherit_placement(&mut self, parent: &Partition, children: &[PartitionId]) {
        if self.keyspace(parent).balancing == LoadBalancing::Migrate {
            children.iter().for_each(|child| self.place(*child, parent.originals.clone()));
        }
    }

    pub(super) fn validate_placed(&self) -> Result<(), &'static str> {
        let is_possible = |(id, placed): (&PartitionId, &Placed)| {
            let distinct = (1..placed.0.len()).all(|at| !placed.0[..at].contains(&placed.0[at]));
            let replicas = self.partition(*id).map(|partition| self.keyspace(partition).replicas);
            distinct && replicas == Some(placed.0.len())
        };
        match self.placed.iter().all(is_possible) {
            true => Ok(()),
            false => Err("a partition is placed on nodes that cannot hold it"),
        }
    }
}
