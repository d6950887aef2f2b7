//! Evidence that the state is an older copy: nodes have been in epochs that it does not know.
//!
//! Every epoch is persisted before a node learns of it, so this happens only if the state was replaced by an older copy of itself. Its record of
//! who holds what is then wrong, so nothing may be decided from it: if an epoch number came twice, replicas with different decisions would look
//! alike (R7).
//!
//! The evidence is persisted, because each new leader begins new epochs: after some of them the numbers would have caught up and nothing would
//! show any more.

use nicekv_proto::{NodeId, PartitionId};
use serde::{Deserialize, Serialize};

/// A node's report that contradicts the state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Contradiction {
    node: u16,
    partition: u32,
    /// The node was in this epoch, or in an earlier one that the state does not know either.
    epoch: u32,
    /// The newest epoch in the state.
    known: u32,
}

impl Contradiction {
    pub(crate) fn new(node: NodeId, partition: PartitionId, epoch: u32, known: u32) -> Self {
        Self { node: node.0, partition: partition.0, epoch, known }
    }

    pub(crate) fn node(&self) -> NodeId {
        NodeId(self.node)
    }

    pub(crate) fn partition(&self) -> PartitionId {
        PartitionId(self.partition)
    }
}
