//! Which requests may share a datagram: those for one partition, and gets of all partitions that one node answers.
//!
//! ```text
//!   the first get in a datagram ──▶ switch ──▶ node
//!                                               │ the answer comes from this node,
//!   gets of its partition are batched with  ◀───┘ so for a while
//!   gets of all partitions that it answers
//! ```
//!
//! A switch routes a datagram by its first request, the leader. So the answer to the leader shows which node the switch
//! has chosen for the leader's partition; answers to the others show nothing. The client believes it for
//! [`BELIEVED_NS`]. After that a get of the partition leads a datagram again: if others always led, the client would
//! never learn that the partition has moved.
//!
//! This is a hint, as is the division into partitions. A node drops requests that are not its own; they are sent again
//! alone. The partitions of the dropped request and of the leader then stay apart for [`APART_NS`]: the primary may
//! answer gets of a key that changes all the time, though the switch has chosen another member.

use crate::config::Keyspace;
use alloc::vec;
use alloc::vec::Vec;
use core::net::SocketAddrV4;
use nicekv_proto::placement::PARTITION_BITS_MAX;
use nicekv_proto::{KeyOrder, KeyspaceId};

/// How long an answer is believed: long against a round trip, short against the life of a switch's tables.
const BELIEVED_NS: u64 = 100_000_000;
/// How long a partition's requests are kept in separate datagrams after a shared datagram was not
/// answered.
const APART_NS: u64 = 1_000_000_000;

/// The key by which requests are batched: only requests with the same key share a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BatchKey {
    /// The partition of their keys.
    Partition(KeyspaceId, u16),
    /// The node that answers the requests.
    Node(KeyspaceId, SocketAddrV4),
}

/// The node that answers gets of a partition.
#[derive(Clone, Copy, Debug, Default)]
struct Partition {
    node: Option<SocketAddrV4>,
    /// How long the node is believed to answer.
    until_ns: u64,
    /// Answers before this time are ignored.
    apart_ns: u64,
}

/// For each partition of a keyspace, the node that answers its gets.
#[derive(Clone, Debug)]
pub(crate) struct AnsweringNodes {
    keyspace: KeyspaceId,
    bits: u32,
    partitions: Vec<Partition>,
}

impl AnsweringNodes {
    /// `None` if requests to the keyspace never share a datagram.
    pub(crate) fn of(keyspace: &Keyspace) -> Option<Self> {
        let bits =
            keyspace.partition_bits.filter(|_| keyspace.order == KeyOrder::Hash && !keyspace.is_hot)?;
        let bits = bits.min(PARTITION_BITS_MAX.into());
        Some(Self { keyspace: keyspace.id, bits, partitions: vec![Partition::default(); 1 << bits] })
    }

    fn partition_of(&self, vnode: u16) -> u16 {
        vnode.checked_shr(u16::BITS - self.bits).unwrap_or(0)
    }

    /// Requests with equal keys may share a datagram.
    pub(crate) fn batch_key(&self, vnode: u16, is_get: bool, now_ns: u64) -> BatchKey {
        let partition = self.partition_of(vnode);
        let Partition { node, until_ns, .. } = self.partitions[usize::from(partition)];
        match node.filter(|_| is_get && now_ns < until_ns) {
            Some(node) => BatchKey::Node(self.keyspace, node),
            None => BatchKey::Partition(self.keyspace, partition),
        }
    }

    /// `node` has answered a get that was the leader of its datagram.
    pub(crate) fn answered(&mut self, vnode: u16, node: SocketAddrV4, now_ns: u64) {
        let partition = self.partition_of(vnode);
        let partition = &mut self.partitions[usize::from(partition)];
        if now_ns >= partition.apart_ns {
            (partition.node, partition.until_ns) = (Some(node), now_ns + BELIEVED_NS);
        }
    }

    /// A request that shared a datagram was not answered; called for it and for the leader.
    pub(crate) fn unanswered(&mut self, vnode: u16, now_ns: u64) {
        let partition = self.partition_of(vnode);
        self.partitions[usize::from(partition)] =
            Partition { node: None, until_ns: 0, apart_ns: now_ns + APART_NS };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::Ipv4Addr;
    use nicekv_proto::placement::Vrings;

    const ONE: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 1), 7400);
    const OTHER: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 2), 7400);

    fn nodes(bits: u32) -> AnsweringNodes {
        AnsweringNodes::of(&Keyspace { partition_bits: Some(bits), ..Vrings::on_loopback(7400).into() })
            .unwrap()
    }

    #[test]
    fn last_answer_is_believed_for_a_while_and_for_gets_only() {
        let mut nodes = nodes(1);
        let (lower, upper) = (|nodes: &AnsweringNodes, at| nodes.batch_key(0x7fff, true, at), 0x8000);
        let alone = BatchKey::Partition(KeyspaceId::DEFAULT, 0);
        let with = |node| BatchKey::Node(KeyspaceId::DEFAULT, node);
        assert_eq!(lower(&nodes, 0), alone);
        nodes.answered(0, ONE, 0);
        nodes.answered(1, OTHER, 1);
        assert_eq!(lower(&nodes, BELIEVED_NS), with(OTHER));
        assert_eq!(lower(&nodes, BELIEVED_NS + 1), alone);
        assert_eq!(nodes.batch_key(0x7fff, false, 2), alone, "an update goes to all members");
        assert_eq!(nodes.batch_key(upper, true, 2), BatchKey::Partition(KeyspaceId::DEFAULT, 1));
    }

    #[test]
    fn unanswered_batch_keeps_its_partitions_apart() {
        let mut nodes = nodes(0);
        nodes.answered(7, ONE, 0);
        nodes.unanswered(7, 5);
        let alone = BatchKey::Partition(KeyspaceId::DEFAULT, 0);
        assert_eq!(nodes.batch_key(7, true, 6), alone);
        nodes.answered(7, ONE, 4 + APART_NS);
        assert_eq!(nodes.batch_key(7, true, 5 + APART_NS), alone);
        nodes.answered(7, ONE, 5 + APART_NS);
        assert_eq!(nodes.batch_key(7, true, 6 + APART_NS), BatchKey::Node(KeyspaceId::DEFAULT, ONE));
    }

    #[test]
    fn range_keyspaces_are_not_batched() {
        let order = KeyOrder::Range;
        let keyspace = Keyspace { partition_bits: Some(4), order, ..Vrings::on_loopback(7400).into() };
        assert!(AnsweringNodes::of(&keyspace).is_none());
    }

    #[test]
    fn partition_bits_are_capped() {
        assert_eq!(nodes(40).partitions.len(), 1 << PARTITION_BITS_MAX);
        assert_eq!(nodes(40).partition_of(u16::MAX), (1 << PARTITION_BITS_MAX) - 1);
    }
}
