//! A partition's current epoch: its members and their roles (R4).

use crate::node::status::Standing;
use alloc::vec::Vec;
use core::net::{Ipv4Addr, SocketAddrV4};
use nicekv_proto::chunk::Round;
use nicekv_proto::control::{Assign, Member, MemberRole, MemberState};
use nicekv_proto::route::ChainHeader;
use nicekv_proto::{Epoch, KeyDigest, KeyOrder, KeyspaceId, MatchRange, NodeId, PartitionId, Replication};

#[derive(Clone, Debug)]
pub(crate) struct Membership {
    pub partition: PartitionId,
    pub keyspace: KeyspaceId,
    /// The match values of the partition's keys.
    pub range: MatchRange,
    /// How keys map to match values.
    pub order: KeyOrder,
    pub epoch: Epoch,
    /// Whether the epoch is activated: no node outside of it can answer a get any more (R6).
    pub activated: bool,
    /// Whether the epoch is sealed: clients start no more ops in it (R17).
    pub sealed: bool,
    pub standing: Standing,
    /// The primary, in modes that have one.
    pub primary: NodeId,
    /// All members; includes this node unless it is outside.
    pub members: Vec<Member>,
    /// R, the replication factor.
    pub replicas: usize,
    /// An address in the multicast vring that reaches all members.
    pub multicast: SocketAddrV4,
    /// Whether the members form a chain, in the order of the list.
    pub is_chain: bool,
    /// The oldest stamp that is allowed in an update of an object's name; 0: the keyspace has no
    /// object names (P8).
    pub stamp_min: Round,
}

impl Membership {
    /// State of a partition before its first epoch.
    pub(crate) fn outside(partition: PartitionId) -> Self {
        Self {
            partition,
            keyspace: KeyspaceId(0),
            range: MatchRange::ALL,
            order: KeyOrder::Hash,
            epoch: Epoch(0),
            activated: false,
            sealed: false,
            standing: Standing::Outside,
            primary: NodeId(0),
            members: Vec::new(),
            replicas: 0,
            multicast: SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0),
            is_chain: false,
            stamp_min: Round::default(),
        }
    }

    /// The epoch that is assigned to the node `me`.
    pub(crate) fn of(assign: &Assign, me: NodeId) -> Self {
        let mine = assign.members.iter().find(|member| member.node == me);
        let standing = match mine.map(|member| (member.state, member.role)) {
            None => Standing::Outside,
            Some((MemberState::Joining, _)) => Standing::Joining,
            Some((MemberState::Consistent, MemberRole::Handoff)) => Standing::Handoff,
            Some((MemberState::Consistent, _)) => Standing::Consistent,
        };
        Self {
            partition: assign.partition,
            keyspace: assign.keyspace,
            range: assign.range,
            order: assign.order,
            epoch: assign.epoch,
            activated: assign.activated,
            sealed: assign.sealed,
            standing,
            primary: assign.primary,
            members: assign.members.clone(),
            replicas: assign.replicas.into(),
            multicast: assign.multicast,
            is_chain: assign.replication == Replication::Chain,
            stamp_min: assign.stamp_min,
        }
    }

    /// The digest by which switches and nodes match a key.
    pub(crate) fn digest(&self, key: &[u8]) -> KeyDigest {
        nicekv_proto::placement::match_digest(self.order, key)
    }

    /// Whether the keys are names of objects, so that updates need stamps (P8, P9).
    pub(crate) fn has_stamps(&self) -> bool {
        self.stamp_min != Round::default()
    }

    /// A member's position in the list of members.
    pub(crate) fn position(&self, node: NodeId) -> Option<usize> {
        self.members.iter().position(|member| member.node == node)
    }

    pub(crate) fn address(&self, node: NodeId) -> Option<SocketAddrV4> {
        self.members.iter().find(|member| member.node == node).map(|member| member.address)
    }

    pub(crate) fn primary_address(&self) -> SocketAddrV4 {
        self.address(self.primary).expect("the primary is a member")
    }

    /// The tail of a chain: the last member that holds everything (C3).
    pub(crate) fn tail(&self) -> Option<NodeId> {
        self.members.iter().rfind(|member| member.holds_all()).map(|member| member.node)
    }

    /// Whether the chain header in a request is that of this epoch (C5). In keyspaces without
    /// chains the header must be empty.
    pub(crate) fn is_passed_by(&self, chain: &ChainHeader, is_put: bool) -> bool {
        if !self.is_chain {
            return *chain == ChainHeader::EMPTY;
        }
        let place = |node| self.position(node);
        let (Some(head), Some(tail)) = (place(self.primary), self.tail().and_then(place)) else {
            return false;
        };
        let first = if is_put { head } else { tail };
        let nodes = self.members.iter().take(tail + 1).skip(first).map(|member| *member.address.ip());
        chain.partition == self.partition
            && chain.epoch == self.epoch
            && nodes.eq(chain.nodes().iter().copied())
    }

    /// The chain header that switches write into gets of this epoch (C5).
    pub(crate) fn chain_of_gets(&self) -> ChainHeader {
        let tail = self.tail().filter(|_| self.is_chain).and_then(|tail| self.address(tail));
        match tail {
            Some(tail) => ChainHeader::new(self.partition, self.epoch, [*tail.ip()]),
            None => ChainHeader::EMPTY,
        }
    }

    /// The member before `of` in a chain.
    pub(crate) fn predecessor(&self, of: NodeId) -> Option<Member> {
        self.members.get(self.position(of)?.checked_sub(1)?).copied()
    }

    /// The member after `of` in a chain. Joiners stand behind the tail.
    pub(crate) fn successor(&self, of: NodeId) -> Option<Member> {
        self.members.get(self.position(of)? + 1).copied()
    }

    /// Whether a message from `sender` in `epoch` is accepted (R4).
    pub(crate) fn accepts(&self, epoch: Epoch, sender: NodeId) -> bool {
        self.is_member(sender) && epoch == self.epoch
    }

    pub(crate) fn is_member(&self, sender: NodeId) -> bool {
        self.standing != Standing::Outside && self.position(sender).is_some()
    }

    /// The other members that hold everything. They compare entries, and take part in votes.
    pub(crate) fn judges(&self, me: NodeId) -> impl Iterator<Item = (NodeId, SocketAddrV4)> {
        let others = self.members.iter().filter(move |member| member.node != me && member.holds_all());
        others.map(|member| (member.node, member.address))
    }

    /// Whether some member is still copying.
    pub(crate) fn has_joiners(&self) -> bool {
        self.members.iter().any(|member| member.state == MemberState::Joining)
    }

    /// The role of a member.
    pub(crate) fn role(&self, node: NodeId) -> Option<MemberRole> {
        self.members.iter().find(|member| member.node == node).map(|member| member.role)
    }

    /// Whether every original member is in the epoch and consistent.
    pub(crate) fn is_whole(&self) -> bool {
        let originals = self.members.iter().filter(|member| member.role.is_original());
        let consistent = originals.filter(|member| member.state == MemberState::Consistent).count();
        self.standing == Standing::Consistent && consistent >= self.replicas
    }

    /// Whether the epoch has at least R − 1 members; puts wait until it does (R6).
    pub(crate) fn has_members_enough(&self) -> bool {
        self.members.len() + 1 >= self.replicas
    }
}
