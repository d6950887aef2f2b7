//! Partitions that no longer exist: what remains to be done after their keyspace was dropped (R16),
//! or after they were split or merged (R17).
//!
//! ```text
//!   drop ─▶ no members, no entries in any table ─▶ quiet: no node answers ────────────────────────┐
//!                                                                                                 ├▶ discarded by all former members ─▶ forgotten
//!   split or merge ─▶ children exist ─▶ quiet: children are whole and do not need its data any more ┘
//! ```

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use nicekv_proto::placement::KeyspaceSpec;
use nicekv_proto::{KeyspaceId, MatchRange, NodeId, PartitionId};
use serde::{Deserialize, Serialize};

use super::encoding::{by_partition, keyspace, keyspace_id, match_range, partition_ids};
use super::{Left, Member, Partition, Removed};

/// A dropped keyspace of which some node may still hold data. Its rings are not reused until no
/// node does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Dropped {
    #[serde(with = "keyspace")]
    pub(crate) spec: KeyspaceSpec,
    /// Partitions whose data some node may hold.
    #[serde(with = "by_partition")]
    pub(crate) partitions: BTreeMap<PartitionId, Gone>,
}

/// A partition that no longer exists, in its last epoch, which has no members.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Gone {
    #[serde(with = "keyspace_id")]
    pub(crate) keyspace: KeyspaceId,
    #[serde(with = "match_range")]
    pub(crate) range: MatchRange,
    pub(crate) epoch: u32,
    /// The partitions that have replaced it (R17); empty if its keyspace was dropped.
    #[serde(with = "partition_ids")]
    pub(crate) children: Vec<PartitionId>,
    /// Whether no node answers its gets or acknowledges its puts any more, and no child is built
    /// from its data.
    pub(crate) quiet: bool,
    /// Number of members of the last epoch that know that they were removed, or whose process is
    /// gone.
    pub(crate) told: u8,
    /// Former members that may not know that they were removed.
    pub(crate) removed: Vec<Removed>,
    /// Former members that are members of all children, and have not acknowledged all of them yet.
    pub(crate) members: Vec<Removed>,
    /// Nodes that may hold its data.
    pub(crate) left: Vec<Left>,
}

impl Gone {
    /// The end of a partition whose keyspace is dropped.
    pub(crate) fn of(partition: &Partition) -> Self {
        let epoch = partition.epoch + 1;
        let mut removed = partition.removed.clone();
        // Joiners are included, because in quorum mode they may already answer.
        removed.extend(partition.members.iter().map(|member| Removed {
            node: member.node,
            incarnation: member.process.incarnation,
            since: epoch,
            served: true,
        }));
        let mut left = partition.left.clone();
        left.extend(partition.members.iter().map(|member| Left { node: member.node, since: epoch }));
        let Partition { keyspace, range, .. } = *partition;
        let (children, members, quiet, told) = Default::default();
        Self { keyspace, range, epoch, children, quiet, told, removed, members, left }
    }

    /// The end of a whole partition that is replaced by `children`, whose epoch is later than those
    /// of all parents.
    pub(super) fn succeeded_by(partition: &Partition, epoch: u32, children: Vec<PartitionId>) -> Self {
        let gone = Self::of(&Partition { epoch: epoch - 1, ..partition.clone() });
        Self { children, members: gone.removed, removed: Vec::new(), ..gone }
    }

    /// The end of a split or merged partition whose keyspace is dropped. Its children take over no
    /// longer. Members that have taken over already know that it does not exist any more.
    pub(super) fn end(mut self, replicas: usize) -> Self {
        self.children.clear();
        self.removed.append(&mut self.members);
        self.told = replicas.saturating_sub(self.removed.len()) as u8;
        self
    }

    /// Whether a former member's process is a consistent member of a child: it has taken over, or
    /// will build the child from its data. Until then it must not be notified that it was removed
    /// from this partition (R17).
    pub(crate) fn goes_on_in(removed: &Removed, child: &Partition) -> bool {
        let is_it = |member: &&Member| {
            let is_process = member.process.incarnation == removed.incarnation;
            is_process && member.standing.is_consistent() && !member.handoff
        };
        child.member(removed.node).filter(is_it).is_some()
    }

    /// Whether this process may still consider itself a member of this partition.
    pub(crate) fn is_unaware(&self, process: &Removed) -> bool {
        let is_it =
            |removed: &Removed| (removed.node, removed.incarnation) == (process.node, process.incarnation);
        self.removed.iter().chain(&self.members).any(is_it)
    }

    /// Whether no node holds data of the partition, and all former members know its end.
    pub(crate) fn is_over(&self) -> bool {
        self.quiet && self.removed.is_empty() && self.members.is_empty() && self.left.is_empty()
    }

    /// Handles the removal of a node from the cluster.
    pub(crate) fn forget(&mut self, node: NodeId) {
        self.removed.retain(|removed| removed.node != node);
        self.members.retain(|member| member.node != node);
        self.left.retain(|left| left.node != node);
    }

    /// All nodes that it names.
    pub(super) fn nodes(&self) -> impl Iterator<Item = NodeId> {
        let left = self.left.iter().map(|left| left.node);
        self.removed.iter().chain(&self.members).map(|removed| removed.node).chain(left)
    }
}
