//! A state that nodes contradict: they have been in epochs that it does not know.
//!
//! Every epoch is persisted before a node hears of it, so this happens only to a state that was replaced by an older copy of itself. What it says of who holds what is not
//! true any more, so nothing may be decided from it: an epoch that comes twice would make replicas with different decisions look alike (R7).
//!
//! It is persisted, since each start of a leader begins new epochs: after some of them the numbers would have caught up, and nothing would show any more.

use nicekv_proto::{NodeId, PartitionId};
use serde::{Deserialize, Serialize};

/// What a node has said.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Contradiction {
    node: u16,
    partition: u32,
    /// The node was in this epoch, or one before it that the state does not know either.
    epoch: u32,
    /// The newest of the state.
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
