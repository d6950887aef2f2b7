//! Input and output of the match-action stage: the fields of a datagram that tables match, and the
//! forwarding decision.

use nicekv_proto::HeaderLayout;
use nicekv_proto::large::{RECEIVERS_ALL, receivers_of};
use nicekv_proto::route::ChainHeader;

use crate::Ring;
use crate::traffic_manager::{Copies, Hop};

/// The fields of a datagram for a vring that tables match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LookupKey {
    /// The address of the datagram's vnode.
    pub address: [u8; 4],
    /// The keyspace and match value in the datagram's header, if it has one.
    pub key: Option<(u16, u128)>,
    /// The opcode in the datagram's header.
    pub opcode: Option<u8>,
    /// The hosts that get a copy of a multicast, as [receiver
    /// bits](nicekv_proto::large::receiver_bit). In the ring of groups this mask is part of the
    /// address instead.
    pub receivers: u16,
}

impl From<[u8; 4]> for LookupKey {
    /// The key of a datagram without a header.
    fn from(address: [u8; 4]) -> Self {
        Self { address, key: None, opcode: None, receivers: RECEIVERS_ALL }
    }
}

impl LookupKey {
    /// The fields of a datagram for `ring`.
    ///
    /// Tables of vnodes match the address. A sender that passes many datagrams for different vnodes
    /// to its kernel in one GSO batch, which has a single destination, sends them to the ring's own
    /// address, which is also the address of vnode 0. Then the vnode is the first 16 bits of the
    /// key's digest in the header. A datagram that concerns no key has a digest of zeros, so for it
    /// the ring's address means vnode 0. Tables of records match the keyspace and the whole match
    /// value in the header (TurboKV §4.1).
    ///
    /// In the ring of groups only the address is matched: neither a vnode nor a chunk's mask is
    /// read from the header.
    pub(crate) fn of(ring: Ring, destination: [u8; 4], payload: &[u8]) -> Self {
        let header = HeaderLayout::peek(payload);
        let opcode = header.map(|header| header.opcode);
        if ring == Ring::Group {
            return Self { opcode, ..Self::from(destination) };
        }
        let key = header.map(|header| (header.keyspace.get(), u128::from_be_bytes(header.digest)));
        let address = match (destination, header) {
            ([a, b, 0, 0], Some(header)) => [a, b, header.digest[0], header.digest[1]],
            _ => destination,
        };
        Self { address, key, opcode, receivers: receivers_of(payload) }
    }
}

/// The forwarding decision for a datagram.
#[derive(Clone, Debug)]
pub enum Route<'a> {
    /// Send it to this hop; `None`: it would leave by the trunk by which it arrived, so it is
    /// dropped.
    Unicast(Option<Hop>),
    /// Send it to a node of a chain, with this header written into the room that the request has
    /// for it.
    Chain(Option<Hop>, ChainHeader),
    /// Send a copy to each of these hops.
    Multicast(Copies<'a>),
    /// Send the switch's own reply to the sender; this is the body behind the reply's header (H9).
    Answered(&'a [u8]),
    /// The datagram is for a vring, but no entry covers it: drop it.
    Miss,
    /// The datagram is not for a vring.
    NotVring,
}
