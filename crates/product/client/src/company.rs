//! What may share a datagram: requests for one part of a ring, and gets of all parts that one node answers.
//!
//! ```text
//!   the get that leads a datagram ──▶ switch ──▶ node
//!                                                 │ its answer comes from there,
//!   gets of its part ride with those of all ◀─────┘ for as long as that is believed
//!   parts that the same node answers
//! ```
//!
//! A switch routes a datagram by what leads it, so an answer to that tells which node the switch has chosen for its part, and answers to others
//! tell nothing. It is believed for a while only, after which a get of the part leads a datagram again: a part always led by others would never be
//! known to have moved.
//!
//! It is a hint, as the division into parts is. A node drops what is not its own, and that is sent again, alone. Then both the part of what was
//! dropped and the one that led it keep to themselves for longer: a key that is always changing may have its gets answered by its
//! primary, though the switch chooses another member.

use crate::bundler::Outgoing;
use crate::config::{Config, Keyspace};
use crate::in_flight::InFlight;
use crate::lengths::GetLength;
use crate::slot::State;
use crate::turns::Lane;
use alloc::vec;
use alloc::vec::Vec;
use core::net::SocketAddrV4;
use nicekv_proto::placement::PARTITION_BITS_MAX;
use nicekv_proto::route::leave_room_for_stamp;
use nicekv_proto::{KeyOrder, KeyspaceId};

/// How long an answer is believed: long against a round trip, short against what a switch's tables last.
const BELIEVED_NS: u64 = 100_000_000;
/// How long a part keeps to itself after a datagram that it shared with others was not answered.
const APART_NS: u64 = 1_000_000_000;

/// What requests in one datagram have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Company {
    /// The part of the ring that their keys are in.
    Part(KeyspaceId, u16),
    /// The node that answers them.
    Node(KeyspaceId, SocketAddrV4),
}

/// Who answers gets of a part.
#[derive(Clone, Copy, Debug, Default)]
struct Part {
    node: Option<SocketAddrV4>,
    /// When that is not believed any more.
    until_ns: u64,
    /// Nothing is believed before.
    apart_ns: u64,
}

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct Parts {
    keyspace: KeyspaceId,
    bits: u32,
    parts: Vec<Part>,
}

impl Parts {
    /// Of a keyspace whose requests may share datagrams.
    pub(crate) fn of(keyspace: &Keyspace) -> Option<Self> {
        let bits =
            keyspace.partition_bits.filter(|_| keyspace.order == KeyOrder::Hash && !keyspace.is_hot)?;
        let bits = bits.min(PARTITION_BITS_MAX.into());
        Some(Self { keyspace: keyspace.id, bits, parts: vec![Part::default(); 1 << bits] })
    }

    fn part(&self, vnode: u16) -> u16 {
        vnode.checked_shr(u16::BITS - self.bits).unwrap_or(0)
    }

    /// Who else may be in the datagram of this request.
    pub(crate) fn company(&self, vnode: u16, is_get: bool, now_ns: u64) -> Company {
        let part = self.part(vnode);
        let Part { node, until_ns, .. } = self.parts[usize::from(part)];
        match node.filter(|_| is_get && now_ns < until_ns) {
            Some(node) => Company::Node(self.keyspace, node),
            None => Company::Part(self.keyspace, part),
        }
    }

    /// The get that led a datagram was answered from there.
    pub(crate) fn answered(&mut self, vnode: u16, node: SocketAddrV4, now_ns: u64) {
        let part = self.part(vnode);
        let part = &mut self.parts[usize::from(part)];
        if now_ns >= part.apart_ns {
            (part.node, part.until_ns) = (Some(node), now_ns + BELIEVED_NS);
        }
    }

    /// A get that shared a datagram with others was not answered, or another that it led.
    pub(crate) fn unanswered(&mut self, vnode: u16, now_ns: u64) {
        let part = self.part(vnode);
        self.parts[usize::from(part)] = Part { node: None, until_ns: 0, apart_ns: now_ns + APART_NS };
    }
}

impl InFlight {
    /// Writes the next request to `out`.
    pub(crate) fn poll_transmit(&mut self, out: &mut Vec<u8>) -> Option<Outgoing> {
        while let Some(index) = self.outgoing.pop_front() {
            let slot = &mut self.slots[index as usize];
            slot.queued = false;
            if slot.state == State::InFlight {
                out.clear();
                out.extend_from_slice(&slot.buffers.datagram);
                // What was lost may have been lost for its company.
                let is_directed = slot.buffers.is_for_chain
                    && !self.coordinator.is_switch()
                    && !slot.exchange.is_about_channels();
                if is_directed {
                    slot.buffers.to = self.coordinator.direct(out);
                }
                // A get that was not answered asks the owner: a holder may have lost what the switch believes it has.
                let may_go_to_holder = slot.attempts == 1 || !slot.exchange.is_asked_of_one();
                if self.hot[slot.keyspace] && may_go_to_holder && !is_directed {
                    leave_room_for_stamp(out);
                }
                let parts = self.parts[slot.keyspace].as_ref();
                let is_large = slot.buffers.large.is_some();
                let may_share = slot.attempts == 1 && slot.exchange.may_share() && !is_directed && !is_large;
                let parts = parts.filter(|_| may_share);
                let (vnode, is_get) = (slot.buffers.vnode, slot.exchange.is_asked_of_one());
                let company = parts.map(|parts| parts.company(vnode, is_get, slot.sent_ns));
                return Some(Outgoing { to: slot.buffers.to, slot: index, company });
            }
        }
        None
    }

    /// From now on this is the keyspace of that index, to which nothing is under way, or the next one.
    pub(crate) fn set_keyspace(&mut self, index: usize, keyspace: &Keyspace, config: &Config) {
        let lanes = [Lane::new(config), Lane::new(config)];
        self.get_lengths.resize(self.get_lengths.len().max(index + 1), GetLength::default());
        if index == self.lanes.len() {
            self.lanes.push(lanes);
            self.parts.push(None);
            self.hot.push(false);
        } else {
            self.lanes[index] = lanes;
        }
        self.set_company(index, keyspace);
    }

    /// From now on requests to the keyspace of that index share datagrams so, or have room for a switch's word.
    pub(crate) fn set_company(&mut self, index: usize, keyspace: &Keyspace) {
        (self.parts[index], self.hot[index]) = (Parts::of(keyspace), keyspace.is_hot);
    }

    /// The slot's request leaves in the datagram that `leader` leads, which may be itself.
    pub(crate) fn led_by(&mut self, index: u32, leader: u32) {
        let vnode = self.slots[leader as usize].buffers.vnode;
        self.slots[index as usize].led_by = (vnode, index == leader);
    }

    /// The slot's request is answered from there.
    pub(crate) fn note_node(&mut self, index: u32, from: SocketAddrV4, now_ns: u64) {
        let slot = &self.slots[index as usize];
        let parts = self.parts[slot.keyspace].as_mut();
        if let (Some(parts), (_, true)) = (parts, slot.led_by)
            && slot.exchange.is_asked_of_one()
        {
            parts.answered(slot.buffers.vnode, from, now_ns);
        }
    }

    /// The slot's request may have been dropped for its company.
    pub(crate) fn keep_apart(&mut self, index: u32, now_ns: u64) {
        let slot = &self.slots[index as usize];
        if let (Some(parts), (leader, false)) = (&mut self.parts[slot.keyspace], slot.led_by) {
            parts.unanswered(slot.buffers.vnode, now_ns);
            parts.unanswered(leader, now_ns);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::Ipv4Addr;
    use nicekv_proto::placement::Vrings;

    const ONE: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 1), 7400);
    const OTHER: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 2), 7400);

    fn parts(bits: u32) -> Parts {
        Parts::of(&Keyspace { partition_bits: Some(bits), ..Vrings::on_loopback(7400).into() }).unwrap()
    }

    #[test]
    fn what_is_believed_is_the_last_answer_for_a_while_and_of_gets_alone() {
        let mut parts = parts(1);
        let (lower, upper) = (|parts: &Parts, at| parts.company(0x7fff, true, at), 0x8000);
        let alone = Company::Part(KeyspaceId::DEFAULT, 0);
        let with = |node| Company::Node(KeyspaceId::DEFAULT, node);
        assert_eq!(lower(&parts, 0), alone);
        parts.answered(0, ONE, 0);
        parts.answered(1, OTHER, 1);
        assert_eq!(lower(&parts, BELIEVED_NS), with(OTHER));
        assert_eq!(lower(&parts, BELIEVED_NS + 1), alone);
        assert_eq!(parts.company(0x7fff, false, 2), alone, "an update goes to all members");
        assert_eq!(parts.company(upper, true, 2), Company::Part(KeyspaceId::DEFAULT, 1));
    }

    #[test]
    fn a_part_whose_company_was_not_answered_keeps_to_itself_for_longer() {
        let mut parts = parts(0);
        parts.answered(7, ONE, 0);
        parts.unanswered(7, 5);
        let alone = Company::Part(KeyspaceId::DEFAULT, 0);
        assert_eq!(parts.company(7, true, 6), alone);
        parts.answered(7, ONE, 4 + APART_NS);
        assert_eq!(parts.company(7, true, 5 + APART_NS), alone);
        parts.answered(7, ONE, 5 + APART_NS);
        assert_eq!(parts.company(7, true, 6 + APART_NS), Company::Node(KeyspaceId::DEFAULT, ONE));
    }

    #[test]
    fn where_borders_are_anywhere_nobody_has_company() {
        let order = KeyOrder::Range;
        let keyspace = Keyspace { partition_bits: Some(4), order, ..Vrings::on_loopback(7400).into() };
        assert!(Parts::of(&keyspace).is_none());
    }

    #[test]
    fn more_parts_than_there_can_be_partitions_are_not_told_apart() {
        assert_eq!(parts(40).parts.len(), 1 << PARTITION_BITS_MAX);
        assert_eq!(parts(40).part(u16::MAX), (1 << PARTITION_BITS_MAX) - 1);
    }
}
