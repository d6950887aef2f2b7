//! A partition's epoch, as a member of it was told: who is in it, and in which role (R4).

use crate::node::status::Standing;
use alloc::vec::Vec;
use core::net::{Ipv4Addr, SocketAddrV4};
use nicekv_proto::chunk::Round;
use nicekv_proto::control::{Assign, Member, MemberRole, MemberState};
use nicekv_proto::route::ChainHeader;
use nicekv_proto::{Epoch, KeyDigest, KeyOrder, KeyspaceId, MatchRange, NodeId, PartitionId, Replication};

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct Membership {
    /// The partition.
    pub partition: PartitionId,
    /// The keyspace that it is a part of.
    pub keyspace: KeyspaceId,
    /// The keys that it holds, by their match values.
    pub range: MatchRange,
    /// How keys become match values.
    pub order: KeyOrder,
    /// The epoch.
    pub epoch: Epoch,
    /// Whether it is in force: nobody outside of it can answer a get any more (R6).
    pub activated: bool,
    /// Whether no op of a client begins in it any more (R17).
    pub sealed: bool,
    /// This node's standing.
    pub standing: Standing,
    /// The primary, where the protocol has one.
    pub primary: NodeId,
    /// All members, this node among them unless it stands outside.
    pub members: Vec<Member>,
    /// R.
    pub replicas: usize,
    /// What is sent there reaches all members.
    pub multicast: SocketAddrV4,
    /// Whether the members are a chain, in their order.
    pub is_chain: bool,
    /// The oldest stamp that an update of an object's name may have; 0: there are no names of objects (P8).
    pub stamp_min: Round,
}

impl Membership {
    /// Of a node that has not been told anything: in no epoch.
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

    /// What `me` is told.
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

    /// What a key of the keyspace is matched by.
    pub(crate) fn digest(&self, key: &[u8]) -> KeyDigest {
        nicekv_proto::placement::match_digest(self.order, key)
    }

    /// A member's place among the members.
    pub(crate) fn position(&self, node: NodeId) -> Option<usize> {
        self.members.iter().position(|member| member.node == node)
    }

    /// Where a member is reached.
    pub(crate) fn address(&self, node: NodeId) -> Option<SocketAddrV4> {
        self.members.iter().find(|member| member.node == node).map(|member| member.address)
    }

    /// Where the primary is reached.
    ///
    /// # Panics
    /// Outside of every epoch.
    pub(crate) fn primary_address(&self) -> SocketAddrV4 {
        self.address(self.primary).expect("the primary is a member")
    }

    /// Of a chain: who answers, the last that holds everything (C3).
    pub(crate) fn tail(&self) -> Option<NodeId> {
        self.members.iter().rfind(|member| member.holds_all()).map(|member| member.node)
    }

    /// Whether a switch has written this into a request for the partition, if it goes by this epoch (C5). Of no chain nothing is written.
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

    /// What switches write into a get that has room for it, by this epoch (C5).
    pub(crate) fn chain_of_gets(&self) -> ChainHeader {
        let tail = self.tail().filter(|_| self.is_chain).and_then(|tail| self.address(tail));
        match tail {
            Some(tail) => ChainHeader::new(self.partition, self.epoch, [*tail.ip()]),
            None => ChainHeader::EMPTY,
        }
    }

    /// Of a chain: who comes before a member.
    pub(crate) fn predecessor(&self, of: NodeId) -> Option<Member> {
        self.members.get(self.position(of)?.checked_sub(1)?).copied()
    }

    /// Of a chain: who comes after a member; behind the tail are those that join.
    pub(crate) fn successor(&self, of: NodeId) -> Option<Member> {
        self.members.get(self.position(of)? + 1).copied()
    }

    /// Whether a message of this epoch from `sender` is to be heard (R4).
    pub(crate) fn accepts(&self, epoch: Epoch, sender: NodeId) -> bool {
        self.is_member(sender) && epoch == self.epoch
    }

    /// Whether both this node and `sender` are members.
    pub(crate) fn is_member(&self, sender: NodeId) -> bool {
        self.standing != Standing::Outside && self.position(sender).is_some()
    }

    /// The other members that hold everything: those that compare entries, and vote.
    pub(crate) fn judges(&self, me: NodeId) -> impl Iterator<Item = (NodeId, SocketAddrV4)> {
        let others = self.members.iter().filter(move |member| member.node != me && member.holds_all());
        others.map(|member| (member.node, member.address))
    }

    /// Whether some member still copies.
    pub(crate) fn has_joiners(&self) -> bool {
        self.members.iter().any(|member| member.state == MemberState::Joining)
    }

    /// What this node, or another member, is there for.
    pub(crate) fn role(&self, node: NodeId) -> Option<MemberRole> {
        self.members.iter().find(|member| member.node == node).map(|member| member.role)
    }

    /// Whether every original member is in the epoch and consistent.
    pub(crate) fn is_whole(&self) -> bool {
        let originals = self.members.iter().filter(|member| member.role.is_original());
        let consistent = originals.filter(|member| member.state == MemberState::Consistent).count();
        self.standing == Standing::Consistent && consistent >= self.replicas
    }

    /// Puts wait while the epoch has fewer members than R − 1 (R6).
    pub(crate) fn has_members_enough(&self) -> bool {
        self.members.len() + 1 >= self.replicas
    }
}
