//! A partition, its members, and its former members.

use alloc::vec::Vec;

use nicekv_proto::control::{MemberRole, MemberState};
use nicekv_proto::limits::MEMBERS_MAX;
use nicekv_proto::{Epoch, KeyspaceId, MatchRange, NodeId};
use serde::{Deserialize, Serialize};

use super::encoding::{keyspace_id, match_range, node_id, node_ids};
use super::{Divisions, Forming, Parent};

/// A run of a node's process, with the storage that it uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Process {
    pub(crate) incarnation: u64,
    pub(crate) storage: u128,
}

/// The progress of a joining member. Each step needs the acknowledgements of the whole epoch (R7).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum Standing {
    /// Announced as joining; in neither ring.
    Joining,
    /// In the multicast ring; copies data.
    Copying,
    /// Announced as consistent; not in the unicast ring yet, unless it is the primary.
    Promoted,
    /// In both rings.
    Serving,
}

impl Standing {
    pub(crate) fn is_consistent(self) -> bool {
        matches!(self, Self::Promoted | Self::Serving)
    }

    /// The state that assignments tell members.
    pub(crate) fn announced(self) -> MemberState {
        if self.is_consistent() { MemberState::Consistent } else { MemberState::Joining }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Member {
    #[serde(with = "node_id")]
    pub(crate) node: NodeId,
    pub(crate) process: Process,
    pub(crate) standing: Standing,
    /// Whether it replaces an absent original (R8). A member that is neither a handoff nor an
    /// original is leaving, or a spare of a chain (C8).
    pub(crate) handoff: bool,
}

/// A former member that has not acknowledged that it was removed. It gets no lease (R12).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Removed {
    #[serde(with = "node_id")]
    pub(crate) node: NodeId,
    pub(crate) incarnation: u64,
    /// The epoch that removed it.
    pub(crate) since: u32,
    /// Whether it may have answered gets. Then the epoch is activated only when it cannot answer
    /// any more (R6).
    pub(crate) served: bool,
}

/// A former member that may hold data of the partition, until it reports that it has discarded them
/// (R16).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Left {
    #[serde(with = "node_id")]
    pub(crate) node: NodeId,
    /// The first epoch without the node.
    pub(crate) since: u32,
}

/// A partition in its newest epoch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Partition {
    #[serde(with = "keyspace_id")]
    pub(crate) keyspace: KeyspaceId,
    /// The match values that the partition owns.
    #[serde(with = "match_range")]
    pub(crate) range: MatchRange,
    pub(crate) epoch: u32,
    pub(crate) activated: bool,
    #[serde(with = "node_id")]
    pub(crate) primary: NodeId,
    pub(crate) members: Vec<Member>,
    pub(crate) removed: Vec<Removed>,
    /// The replica set that the hash ring gives. Other members are handoffs, leaving members, or
    /// spares.
    #[serde(with = "node_ids")]
    pub(crate) originals: Vec<NodeId>,
    /// Originals that have not had all data since they became originals.
    #[serde(with = "node_ids")]
    pub(crate) newcomers: Vec<NodeId>,
    /// Originals whose storage has lost data, so that their data are void until they have copied
    /// everything (R18).
    #[serde(with = "node_ids")]
    pub(crate) emptied: Vec<NodeId>,
    /// Divisions of gets among the members.
    pub(crate) divisions: Divisions,
    /// Former members that may hold data of the partition (R16).
    pub(crate) left: Vec<Left>,
    /// The children that the members are forming (R17).
    pub(crate) forming: Option<Forming>,
    /// The partitions that it replaces, until one of its epochs is activated (R17).
    pub(crate) parents: Vec<Parent>,
    /// The round of garbage collection that its names of objects have adopted with this epoch (P8);
    /// 0 if it has no names.
    pub(crate) round: u64,
}

impl Partition {
    pub(crate) fn epoch(&self) -> Epoch {
        Epoch(self.epoch)
    }

    pub(crate) fn member(&self, node: NodeId) -> Option<&Member> {
        self.members.iter().find(|member| member.node == node)
    }

    /// The role of a member, as assignments tell it.
    pub(crate) fn role(&self, member: &Member) -> MemberRole {
        match (member.handoff, self.originals.contains(&member.node)) {
            (true, _) => MemberRole::Handoff,
            // A spare of a chain. Data that it holds from an earlier membership are void (C8).
            (false, false) if !member.standing.is_consistent() => MemberRole::Newcomer,
            (false, false) => MemberRole::Leaving,
            (false, true) if self.is_newcomer(member.node) || self.emptied.contains(&member.node) => {
                MemberRole::Newcomer
            }
            (false, true) => MemberRole::Original,
        }
    }

    /// Members with all data, which may lead: consistent originals and leaving members.
    pub(crate) fn holders(&self) -> impl Iterator<Item = &Member> {
        self.members.iter().filter(|member| !member.handoff && member.standing.is_consistent())
    }

    /// The tail of a chain: the last member with all data, which answers gets (C3).
    pub(crate) fn tail(&self) -> NodeId {
        self.holders().last().map_or(self.primary, |member| member.node)
    }

    /// Whether every original serves, there are no other members, and no change is incomplete.
    pub(crate) fn is_whole(&self) -> bool {
        let all_serve = self.members.iter().all(|member| member.standing == Standing::Serving);
        all_serve && self.has_only_originals() && self.activated && self.removed.is_empty()
    }

    fn has_only_originals(&self) -> bool {
        let is_original = |member: &Member| self.originals.contains(&member.node);
        self.members.len() == self.originals.len() && self.members.iter().all(is_original)
    }

    /// Whether a node is an original without all data.
    pub(crate) fn is_newcomer(&self, node: NodeId) -> bool {
        self.newcomers.contains(&node)
    }

    /// Whether a node is a member or an original.
    pub(crate) fn has(&self, node: NodeId) -> bool {
        self.originals.contains(&node) || self.member(node).is_some()
    }

    /// Handoffs, and joining spares of a chain.
    pub(crate) fn handoffs(&self) -> impl Iterator<Item = &Member> {
        let joins = |member: &Member| !member.standing.is_consistent();
        let is_other = |member: &Member| !self.originals.contains(&member.node);
        self.members.iter().filter(move |member| member.handoff || (is_other(member) && joins(member)))
    }

    /// In a chain: whether a member is a spare: it replaces an absent or lagging original, and has
    /// not been chosen to become an original here.
    pub(crate) fn is_spare(&self, member: &Member) -> bool {
        let is_behind =
            |node: &NodeId| self.member(*node).is_none_or(|original| !original.standing.is_consistent());
        let is_missed = |node: &NodeId| !self.is_newcomer(*node) && is_behind(node);
        !self.originals.contains(&member.node) && self.originals.iter().any(is_missed)
    }

    /// Updates the former members after the epoch `before`: adds nodes that are no longer members,
    /// and removes those that are members again.
    pub(crate) fn note_left(&mut self, before: &Self) {
        let since = self.epoch;
        let gone = before.members.iter().filter(|member| self.member(member.node).is_none());
        let gone: Vec<_> = gone.map(|member| Left { node: member.node, since }).collect();
        let members = &self.members;
        self.left.retain(|left| members.iter().all(|member| member.node != left.node));
        self.left.extend(gone);
    }

    /// Checks the invariants of every epoch. `nodes`: the nodes of the cluster.
    pub(super) fn validate(&self, replicas: usize, nodes: &[NodeId]) -> Result<(), &'static str> {
        if !self.holders().any(|member| member.node == self.primary) {
            return Err("a primary does not have all data");
        }
        let removed = self.removed.iter().map(|removed| removed.node);
        let members = self.members.iter().map(|member| member.node);
        let mut named = self.originals.iter().copied().chain(members).chain(removed);
        if self.originals.len() != replicas
            || self.members.len() > MEMBERS_MAX
            || !named.all(|node| nodes.contains(&node))
        {
            return Err("a replica set has the wrong size or names an unknown node");
        }
        let is_original = |member: &Member| self.originals.contains(&member.node);
        let is_named_once = |(index, member): (usize, &Member)| {
            self.members[..index].iter().all(|before| before.node != member.node)
        };
        let is_in_two_roles = |member: &Member| is_original(member) && member.handoff;
        let left = self.left.iter().map(|left| left.node);
        if !{ left }.all(|node| nodes.contains(&node) && self.member(node).is_none()) {
            return Err("a node that has left a partition is a member of it, or is unknown");
        }
        if self.members.iter().any(is_in_two_roles)
            || !self.newcomers.iter().chain(&self.emptied).all(|node| self.originals.contains(node))
            || !self.members.iter().enumerate().all(is_named_once)
        {
            return Err("a member is listed twice, or has the wrong role");
        }
        if !self.divisions.are_sound() {
            return Err("the divisions of a partition are invalid");
        }
        Ok(())
    }
}
