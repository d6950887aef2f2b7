//! Evidence that the state is an older copy: nodes have been in epochs that the state does not
//! have.
//!
//! Every epoch is persisted before a node learns of it, so this happens only if an older copy has
//! replaced the state. The state's record of which node holds which data is then wrong, so nothing
//! may be decided from it: if an epoch number were used twice, replicas with different decisions
//! would look alike (R7).
//!
//! The evidence is persisted, because each new leader begins new epochs. After some of them the
//! numbers would have caught up, and the nodes' reports would no longer contradict the state.

use nicekv_proto::{NodeId, PartitionId};
use serde::{Deserialize, Serialize};

/// A node's report that contradicts the state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Contradiction {
    node: u16,
    partition: u32,
    /// The epoch that the node was in, or an earlier one that the state does not have either.
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
