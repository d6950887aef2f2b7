//! Keyspaces that are dropped: what is left to do about their partitions (R16).
//!
//! ```text
//!   Change ─▶ no members, no entries in any table ─▶ quiet: nobody answers ─▶ discarded by all that were members ─▶ forgotten
//! ```

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use nicekv_placement::KeyspaceSpec;
use nicekv_wire::{MatchRange, NodeId, PartitionId};
use serde::{Deserialize, Serialize};

use super::encoding::{gone, keyspace, match_range};
use super::{Left, Partition, Removed};

/// A keyspace of which somebody may still hold something. Until then its rings are nobody else's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Dropped {
    #[serde(with = "keyspace")]
    pub(crate) spec: KeyspaceSpec,
    /// Those that somebody may hold.
    #[serde(with = "gone")]
    pub(crate) partitions: BTreeMap<PartitionId, Gone>,
}

/// One of its partitions, in its last epoch, which has no members.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Gone {
    #[serde(with = "match_range")]
    pub(crate) range: MatchRange,
    pub(crate) epoch: u32,
    /// Nobody answers a get or takes a put of it any more.
    pub(crate) quiet: bool,
    /// Members of the last epoch that know that they are none, or whose process is gone.
    pub(crate) told: u8,
    /// Those that do not know it.
    pub(crate) removed: Vec<Removed>,
    /// Who may hold something of it.
    pub(crate) left: Vec<Left>,
}

impl Gone {
    /// What becomes of a partition whose keyspace is dropped.
    pub(crate) fn of(partition: &Partition) -> Self {
        let epoch = partition.epoch + 1;
        let mut removed = partition.removed.clone();
        // By quorum, who joins may answer already.
        removed.extend(partition.members.iter().map(|member| Removed {
            node: member.node,
            incarnation: member.process.incarnation,
            since: epoch,
            served: true,
        }));
        let mut left = partition.left.clone();
        left.extend(partition.members.iter().map(|member| Left { node: member.node, since: epoch }));
        Self { range: partition.range, epoch, quiet: false, told: 0, removed, left }
    }

    /// Nobody holds anything of it, and all know that.
    pub(crate) fn is_over(&self) -> bool {
        self.quiet && self.removed.is_empty() && self.left.is_empty()
    }

    /// A node is none of the cluster's any more.
    pub(crate) fn forget(&mut self, node: NodeId) {
        self.removed.retain(|removed| removed.node != node);
        self.left.retain(|left| left.node != node);
    }

    /// Every node that it names.
    pub(super) fn nodes(&self) -> impl Iterator<Item = NodeId> {
        let left = self.left.iter().map(|left| left.node);
        self.removed.iter().map(|removed| removed.node).chain(left)
    }
}
