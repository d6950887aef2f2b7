//! Parsing and rewriting of Ethernet frames. The eBPF program does the same, step by step, in the same order
//! (`parsing.h`, `rewrite.h` of the XDP back end); the fixtures and a property test hold the two together.
//!
//! Rules:
//! - Whether a frame is for a vring is decided by its IPv4 destination (ARP: target or sender) alone, looked
//!   for behind up to [`VLAN_TAGS_MAX`] VLAN tags. A frame too short to show that address is nobody's valid
//!   traffic and is dropped.
//! - What is for a vring must be an untagged, unfragmented UDP datagram whose lengths agree. IP options are
//!   skipped and kept. Checksums are not verified but updated incrementally (RFC 1624), so a wrong one stays
//!   wrong and the host drops it; a UDP checksum of zero ("none") stays zero.
//! - The TTL is left alone: a rewritten datagram has a host's address, so it is rewritten at most once and
//!   cannot circle.

use alloc::vec::Vec;
use core::net::SocketAddrV4;

use nicekv_proto::HeaderLayout;
use nicekv_proto::hot::Stamp;
use nicekv_proto::large::receivers_of;
use nicekv_proto::route::{ChainHeader, room_for_stamp, room_of};

use crate::hot::values::write_reply;
use crate::{Counter, Ring, Sought, VringSet};

/// VLAN tags that are looked behind.
pub const VLAN_TAGS_MAX: usize = 2;

const ETHERNET_BYTES: usize = 14;
const VLAN_TAG_BYTES: usize = 4;
const ARP_BYTES: usize = 28;
const IPV4_BYTES_MIN: usize = 20;
const UDP_BYTES: usize = 8;

const TYPE_IPV4: u16 = 0x0800;
const TYPE_ARP: u16 = 0x0806;
const TYPE_VLAN: [u16; 2] = [0x8100, 0x88a8];
const PROTOCOL_UDP: u8 = 17;
const IPV4_TTL: u8 = 64;
/// In a frame without tags and IP options.
const UDP_AT: usize = ETHERNET_BYTES + IPV4_BYTES_MIN;
/// "More fragments" and the fragment offset.
const FRAGMENT_BITS: u16 = MORE_FRAGMENTS | FRAGMENT_OFFSET_BITS;
const MORE_FRAGMENTS: u16 = 0x2000;
const FRAGMENT_OFFSET_BITS: u16 = 0x1fff;

/// What the parser makes of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// A datagram for a vring.
    Vring(Ring, Datagram),
    /// To be dropped and counted.
    Drop(Counter),
    /// Others' traffic.
    Others {
        /// Who says to have sent it: source of IPv4, sender of ARP.
        sender: Option<[u8; 4]>,
        /// What is UDP over IPv4, as far as it shows its ports.
        datagram: Option<Datagram>,
    },
}

const OTHERS: Class = Class::Others { sender: None, datagram: None };

/// A UDP datagram: everything that admitting, matching and rewriting need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Datagram {
    pub(crate) source: [u8; 4],
    pub(crate) destination: [u8; 4],
    source_port: u16,
    destination_port: u16,
    /// Offset of the UDP header in the frame.
    udp_at: usize,
    /// Where the datagram ends; behind that is padding.
    end_at: usize,
    /// Whether more fragments follow.
    pub(crate) is_fragment: bool,
}

impl Datagram {
    /// Where it comes from, and where it goes to.
    pub(crate) fn ends(&self) -> (SocketAddrV4, SocketAddrV4) {
        let address = |ip: [u8; 4], port| SocketAddrV4::new(ip.into(), port);
        (address(self.source, self.source_port), address(self.destination, self.destination_port))
    }

    /// What is in it, of the frame that it was found in.
    pub(crate) fn payload<'a>(&self, frame: &'a [u8]) -> &'a [u8] {
        &frame[self.udp_at + UDP_BYTES..self.end_at]
    }
}

/// What the tables are asked for of a datagram for a ring.
///
/// By vnodes: the address. A sender that wants to hand many datagrams for different vnodes to its kernel at once, as a train with a single destination,
/// sends them to the ring's own address, which is also that of vnode 0; the vnode is then in the header: the first 16 bits of the key's digest. A datagram
/// about no key has a digest of zeros, so that to it the ring's address is vnode 0's and nothing else. By records: the whole value of the header, and its
/// keyspace (TurboKV §4.1).
///
/// In the ring of groups the address alone says who is meant: no vnode is read from the header, and no mask of a chunk.
pub(crate) fn sought(ring: Ring, destination: [u8; 4], payload: &[u8]) -> Sought {
    let header = HeaderLayout::peek(payload);
    let opcode = header.map(|header| header.opcode);
    if ring == Ring::Group {
        return Sought { opcode, ..Sought::from(destination) };
    }
    let key = header.map(|header| (header.keyspace.get(), u128::from_be_bytes(header.digest)));
    let address = match (destination, header) {
        ([a, b, 0, 0], Some(header)) => [a, b, header.digest[0], header.digest[1]],
        _ => destination,
    };
    Sought { address, key, opcode, receivers: receivers_of(payload) }
}

/// The Ethernet addresses of a frame: (destination, source).
pub(crate) fn ethernet_addresses(frame: &[u8]) -> Option<([u8; 6], [u8; 6])> {
    (frame.len() >= ETHERNET_BYTES).then_some(())?;
    Some((bytes_at(frame, 0)?, bytes_at(frame, 6)?))
}

/// Whether an address can be a source: a real one, of a single station.
pub(crate) fn is_station(mac: [u8; 6]) -> bool {
    mac[0] & 1 == 0 && mac != [0; 6]
}

pub(crate) fn classify(frame: &[u8], vrings: &VringSet) -> Class {
    try_classify(frame, vrings).unwrap_or(Class::Drop(Counter::Malformed))
}

/// `None` if the frame ends before its destination shows.
fn try_classify(frame: &[u8], vrings: &VringSet) -> Option<Class> {
    let mut at = ETHERNET_BYTES;
    let mut ether_type = u16_at(frame, at - 2)?;
    let mut tags = 0;
    while tags < VLAN_TAGS_MAX && TYPE_VLAN.contains(&ether_type) {
        at += VLAN_TAG_BYTES;
        tags += 1;
        ether_type = u16_at(frame, at - 2)?;
    }
    Some(match ether_type {
        TYPE_ARP => classify_arp(&frame[at..], vrings)?,
        TYPE_IPV4 => classify_ipv4(frame, at, vrings)?,
        _ => OTHERS,
    })
}

fn classify_arp(arp: &[u8], vrings: &VringSet) -> Option<Class> {
    let arp: [u8; ARP_BYTES] = bytes_at(arp, 0)?;
    let (sender, target) = (bytes_at(&arp, 14)?, bytes_at(&arp, 24)?);
    let vring = vrings.contains(sender) || vrings.contains(target);
    Some(if vring {
        Class::Drop(Counter::VringMiss)
    } else {
        Class::Others { sender: Some(sender), datagram: None }
    })
}

/// `at`: where the packet begins in the frame.
fn classify_ipv4(frame: &[u8], at: usize, vrings: &VringSet) -> Option<Class> {
    let packet = &frame[at..];
    let header: [u8; IPV4_BYTES_MIN] = bytes_at(packet, 0)?;
    let (source, destination) = (bytes_at(&header, 12)?, bytes_at(&header, 16)?);
    let Some(ring) = vrings.ring_of(destination) else {
        return Some(Class::Others { sender: Some(source), datagram: udp_of_others(frame, at, &header) });
    };
    let header_bytes = usize::from(header[0] & 0x0f) * 4;
    let total_bytes = usize::from(u16_at(&header, 2)?);
    if header[0] >> 4 != 4 || header_bytes < IPV4_BYTES_MIN {
        return None;
    }
    if at > ETHERNET_BYTES || u16_at(&header, 6)? & FRAGMENT_BITS != 0 {
        return Some(Class::Drop(Counter::VringRefused));
    }
    if header[9] != PROTOCOL_UDP {
        return Some(Class::Drop(Counter::VringMiss));
    }
    if total_bytes > packet.len() || total_bytes < header_bytes + UDP_BYTES {
        return None;
    }
    let udp_bytes = usize::from(u16_at(packet, header_bytes + 4)?);
    if udp_bytes < UDP_BYTES || udp_bytes > total_bytes - header_bytes {
        return None;
    }
    let udp_at = at + header_bytes;
    let datagram = Datagram {
        source,
        destination,
        source_port: u16_at(frame, udp_at)?,
        destination_port: u16_at(frame, udp_at + 2)?,
        udp_at,
        end_at: udp_at + udp_bytes,
        is_fragment: false,
    };
    Some(Class::Vring(ring, datagram))
}

/// The datagram, or the first fragment of one, if it shows its ports. Lengths that lie are left to the receiver; what is in the
/// frame is looked at.
fn udp_of_others(frame: &[u8], at: usize, header: &[u8; IPV4_BYTES_MIN]) -> Option<Datagram> {
    let udp_at = at + usize::from(header[0] & 0x0f) * 4;
    let fragment = u16_at(header, 6)?;
    let is_udp = header[9] == PROTOCOL_UDP && fragment & FRAGMENT_OFFSET_BITS == 0;
    if !is_udp || header[0] & 0x0f < 5 || frame.len() < udp_at + UDP_BYTES {
        return None;
    }
    Some(Datagram {
        source: bytes_at(header, 12)?,
        destination: bytes_at(header, 16)?,
        source_port: u16_at(frame, udp_at)?,
        destination_port: u16_at(frame, udp_at + 2)?,
        udp_at,
        end_at: frame.len(),
        is_fragment: fragment & MORE_FRAGMENTS != 0,
    })
}

/// The parts of the rewrite, separately callable so that a test can leave one out.
impl Datagram {
    pub(crate) fn rewrite_ethernet(&self, frame: &mut [u8], destination: [u8; 6], source: [u8; 6]) {
        frame[..6].copy_from_slice(&destination);
        frame[6..12].copy_from_slice(&source);
    }

    pub(crate) fn rewrite_destination(&self, frame: &mut [u8], destination: [u8; 4]) {
        frame[ETHERNET_BYTES + 16..ETHERNET_BYTES + 20].copy_from_slice(&destination);
    }

    pub(crate) fn update_ipv4_checksum(&self, frame: &mut [u8], destination: [u8; 4]) {
        let field = &mut frame[ETHERNET_BYTES + 10..ETHERNET_BYTES + 12];
        let updated = updated_checksum([field[0], field[1]], &self.destination, &destination);
        field.copy_from_slice(&updated.to_be_bytes());
    }

    /// Writes the port at which targets are, with its checksum.
    pub(crate) fn rewrite_port(&self, frame: &mut [u8], port: u16) {
        let udp = &mut frame[self.udp_at..self.udp_at + UDP_BYTES];
        let (before, after) = (self.destination_port.to_be_bytes(), port.to_be_bytes());
        udp[2..4].copy_from_slice(&after);
        update_udp_checksum(&mut udp[6..8], &before, &after);
    }

    pub(crate) fn update_udp_checksum(&self, frame: &mut [u8], destination: [u8; 4]) {
        let field = &mut frame[self.udp_at + 6..self.udp_at + 8];
        update_udp_checksum(field, &self.destination, &destination);
    }

    /// Changes the payload, with its checksum.
    pub(crate) fn edit<T>(&self, frame: &mut [u8], edit: impl FnOnce(&mut [u8]) -> T) -> T {
        let (udp, payload) = frame[self.udp_at..self.end_at].split_at_mut(UDP_BYTES);
        let before = payload.to_vec();
        let told = edit(payload);
        update_udp_checksum(&mut udp[6..8], &before, payload);
        told
    }

    /// Fills the room for a chain header, if the datagram has some, whatever is there.
    pub(crate) fn write_chain(&self, frame: &mut [u8], header: &ChainHeader) {
        let (udp, payload) = frame[self.udp_at..self.end_at].split_at_mut(UDP_BYTES);
        let Some(room) = room_of(payload) else { return };
        let before = core::mem::replace(room, header.to_bytes());
        update_udp_checksum(&mut udp[6..8], &before, room);
    }

    /// The same with a stamp.
    pub(crate) fn write_stamp(&self, frame: &mut [u8], stamp: Stamp) {
        let (udp, payload) = frame[self.udp_at..self.end_at].split_at_mut(UDP_BYTES);
        let Some(room) = room_for_stamp(payload) else { return };
        let before = core::mem::replace(room, stamp.to_bytes());
        update_udp_checksum(&mut udp[6..8], &before, room);
    }

    /// Whether the frame is this datagram, without IP options, and nothing else, and what its IP header says is what was sent: then it may be answered in its own place.
    pub(crate) fn is_bare(&self, frame: &[u8]) -> bool {
        let header = &frame[ETHERNET_BYTES..];
        self.udp_at == UDP_AT && self.end_at == frame.len() && sum(&header[..IPV4_BYTES_MIN]) == 0xffff
    }

    /// The reply of a switch to what is in a bare frame, for its sender: of the body, in an IP header of its own. The UDP checksum is that of the request, less what
    /// differs: a damaged request has a damaged reply.
    pub(crate) fn answered(&self, frame: &[u8], body: &[u8], router_mac: [u8; 6]) -> Vec<u8> {
        let mut frame = frame.to_vec();
        let sender = bytes_at(&frame, 6).expect("an Ethernet header");
        let bytes = self.edit(&mut frame, |payload| {
            let bytes = write_reply(payload, body);
            payload[bytes..].fill(0);
            bytes
        });
        self.turn_round(&mut frame, sender, router_mac);
        frame.truncate(UDP_AT + UDP_BYTES + bytes);
        let [old, new] =
            [self.end_at - UDP_AT, UDP_BYTES + bytes].map(|length| (length as u16).to_be_bytes());
        let udp = &mut frame[UDP_AT..];
        udp[4..6].copy_from_slice(&new);
        // The length is in the pseudo-header, too.
        update_udp_checksum(&mut udp[6..8], &[old, old].concat(), &[new, new].concat());
        let packet_bytes = ((IPV4_BYTES_MIN + UDP_BYTES + bytes) as u16).to_be_bytes();
        let header = &mut frame[ETHERNET_BYTES..UDP_AT];
        header[..12].copy_from_slice(&[
            0x45,
            0,
            packet_bytes[0],
            packet_bytes[1],
            0,
            0,
            0x40,
            0,
            IPV4_TTL,
            PROTOCOL_UDP,
            0,
            0,
        ]);
        let checksum = !sum(header);
        header[10..12].copy_from_slice(&checksum.to_be_bytes());
        frame
    }

    /// Sends it back to its sender, from where it was sent to. No checksum differs: their terms change places.
    pub(crate) fn turn_round(&self, frame: &mut [u8], destination: [u8; 6], source: [u8; 6]) {
        self.rewrite_ethernet(frame, destination, source);
        let ports = self.udp_at;
        for (one, other, bytes) in [(ETHERNET_BYTES + 12, ETHERNET_BYTES + 16, 4), (ports, ports + 2, 2)] {
            (0..bytes).for_each(|byte| frame.swap(one + byte, other + byte));
        }
    }
}

fn update_udp_checksum(field: &mut [u8], before: &[u8], after: &[u8]) {
    if field == [0, 0] {
        return;
    }
    // Zero would read as "no checksum"; its other form in one's complement is all ones.
    let updated = match updated_checksum([field[0], field[1]], before, after) {
        0 => 0xffff,
        other => other,
    };
    field.copy_from_slice(&updated.to_be_bytes());
}

/// RFC 1624, equation 3: HC' = ~(~HC + ~m + m'), over all halves of words, of which there are as many before as after.
fn updated_checksum(checksum: [u8; 2], before: &[u8], after: &[u8]) -> u16 {
    let sum = u32::from(!u16::from_be_bytes(checksum));
    let added = |sum, (before, after)| sum + u32::from(!half(before)) + u32::from(half(after));
    !folded(before.chunks(2).zip(after.chunks(2)).fold(sum, added))
}

/// In one's complement.
fn sum(bytes: &[u8]) -> u16 {
    folded(bytes.chunks(2).map(|bytes| u32::from(half(bytes))).sum())
}

/// Half of a word; a last byte that is odd has a zero behind it.
fn half(bytes: &[u8]) -> u16 {
    u16::from_be_bytes([bytes[0], bytes.get(1).copied().unwrap_or(0)])
}

/// Less than 2^16 terms of 16 bits: two folds reach 16 bits.
fn folded(sum: u32) -> u16 {
    let sum = (sum & 0xffff) + (sum >> 16);
    (sum as u16).wrapping_add((sum >> 16) as u16)
}

fn bytes_at<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes_at(bytes, at).map(u16::from_be_bytes)
}
