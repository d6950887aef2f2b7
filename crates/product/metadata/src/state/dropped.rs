//! Partitions that are no more: what is left to do about them, since their keyspace is dropped (R16), or others have taken their place (R17).
//!
//! ```text
//!   Change ─▶ no members, no entries in any table ─▶ quiet: nobody answers ──────────────┐
//!                                                                                        ├▶ discarded by all that were members ─▶ forgotten
//!   split or merged ─▶ its children are there ─▶ quiet: they are whole, nobody needs it ─┘
//! ```

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use nicekv_proto::placement::KeyspaceSpec;
use nicekv_proto::{KeyspaceId, MatchRange, NodeId, PartitionId};
use serde::{Deserialize, Serialize};

use super::encoding::{by_partition, keyspace, keyspace_id, match_range, partition_ids};
use super::{Left, Member, Partition, Removed};

/// A keyspace of which somebody may still hold something. Until then its rings are nobody else's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Dropped {
    #[serde(with = "keyspace")]
    pub(crate) spec: KeyspaceSpec,
    /// Those that somebody may hold.
    #[serde(with = "by_partition")]
    pub(crate) partitions: BTreeMap<PartitionId, Gone>,
}

/// A partition in its last epoch, which has no members.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Gone {
    #[serde(with = "keyspace_id")]
    pub(crate) keyspace: KeyspaceId,
    #[serde(with = "match_range")]
    pub(crate) range: MatchRange,
    pub(crate) epoch: u32,
    /// Who took its place (R17); nobody, if its keyspace is dropped.
    #[serde(with = "partition_ids")]
    pub(crate) children: Vec<PartitionId>,
    /// Nobody answers a get or takes a put of it any more, nor is to be made of it.
    pub(crate) quiet: bool,
    /// Members of the last epoch that know that they are none, or whose process is gone.
    pub(crate) told: u8,
    /// Those that do not know it.
    pub(crate) removed: Vec<Removed>,
    /// Those that go on in all of its children, and have not been heard to have taken over there.
    pub(crate) members: Vec<Removed>,
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
        let Partition { keyspace, range, .. } = *partition;
        let (children, members, quiet, told) = Default::default();
        Self { keyspace, range, epoch, children, quiet, told, removed, members, left }
    }

    /// What becomes of a whole one whose place `children` take in an epoch that is later than any of all parents.
    pub(super) fn succeeded_by(partition: &Partition, epoch: u32, children: Vec<PartitionId>) -> Self {
        let gone = Self::of(&Partition { epoch: epoch - 1, ..partition.clone() });
        Self { children, members: gone.removed, removed: Vec::new(), ..gone }
    }

    /// Its keyspace is dropped, too: its children take nothing over any more. Who has taken over knows that it is no more.
    pub(super) fn end(mut self, replicas: usize) -> Self {
        self.children.clear();
        self.removed.append(&mut self.members);
        self.told = replicas.saturating_sub(self.removed.len()) as u8;
        self
    }

    /// Whether this process, which was a member, is one of a partition that takes its place, and has taken over, or is to make it of what it
    /// held: so it must not be told that it is none of this one (R17).
    pub(crate) fn goes_on_in(removed: &Removed, child: &Partition) -> bool {
        let is_it = |member: &&Member| {
            let is_process = member.process.incarnation == removed.incarnation;
            is_process && member.standing.is_consistent() && !member.handoff
        };
        child.member(removed.node).filter(is_it).is_some()
    }

    /// Whether this process may still be a member in its own eyes, without one that takes its place.
    pub(crate) fn is_unaware(&self, process: &Removed) -> bool {
        let is_it =
            |removed: &Removed| (removed.node, removed.incarnation) == (process.node, process.incarnation);
        self.removed.iter().chain(&self.members).any(is_it)
    }

    /// Nobody holds anything of it, and all know that.
    pub(crate) fn is_over(&self) -> bool {
        self.quiet && self.removed.is_empty() && self.members.is_empty() && self.left.is_empty()
    }

    /// A node is none of the cluster's any more.
    pub(crate) fn forget(&mut self, node: NodeId) {
        self.removed.retain(|removed| removed.node != node);
        self.members.retain(|member| member.node != node);
        self.left.retain(|left| left.node != node);
    }

    /// Every node that it names.
    pub(super) fn nodes(&self) -> impl Iterator<Item = NodeId> {
        let left = self.left.iter().map(|left| left.node);
        self.removed.iter().chain(&self.members).map(|removed| removed.node).chain(left)
    }
}
