//! The parser: Ethernet, VLAN, IPv4 and UDP headers of a frame. The eBPF programs do the same, step
//! by step, in the same order (`parsing.h`); both are tested with the same packet fixtures.
//!
//! Rules:
//! - A frame is for a vring if its IPv4 destination is (ARP: target or sender), which the parser
//!   looks for behind up to [`VLAN_TAGS_MAX`] VLAN tags. A frame that is too short to have that
//!   address is dropped.
//! - A frame for a vring must be an untagged, unfragmented UDP datagram with consistent lengths. IP
//!   options are skipped and kept. Checksums are not verified here ([`crate::deparser`]).

use core::net::SocketAddrV4;

use crate::{Counter, Ring, VringSet};

/// Upper bound of the VLAN tags that the parser skips.
pub const VLAN_TAGS_MAX: usize = 2;

pub(crate) const ETHERNET_BYTES: usize = 14;
const VLAN_TAG_BYTES: usize = 4;
const ARP_BYTES: usize = 28;
pub(crate) const IPV4_BYTES_MIN: usize = 20;
pub(crate) const UDP_BYTES: usize = 8;

const TYPE_IPV4: u16 = 0x0800;
const TYPE_ARP: u16 = 0x0806;
const TYPE_VLAN: [u16; 2] = [0x8100, 0x88a8];
pub(crate) const PROTOCOL_UDP: u8 = 17;
const FRAGMENT_BITS: u16 = MORE_FRAGMENTS | FRAGMENT_OFFSET_BITS;
const MORE_FRAGMENTS: u16 = 0x2000;
const FRAGMENT_OFFSET_BITS: u16 = 0x1fff;

/// The parser's verdict on a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PacketClass {
    /// The frame is a datagram for a vring.
    Vring(Ring, Datagram),
    /// The frame is dropped and counted.
    Drop(Counter),
    /// The frame is other traffic, which is forwarded by MAC address.
    Other {
        /// The IP address that the sender claims: the source of an IPv4 packet, or the sender of an
        /// ARP message.
        sender: Option<[u8; 4]>,
        /// The UDP datagram, if the frame has one and contains its ports.
        datagram: Option<Datagram>,
    },
}

const OTHER: PacketClass = PacketClass::Other { sender: None, datagram: None };

/// The parsed headers of a UDP datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Datagram {
    pub(crate) source: [u8; 4],
    pub(crate) destination: [u8; 4],
    pub(crate) source_port: u16,
    pub(crate) destination_port: u16,
    /// Offset of the UDP header in the frame.
    pub(crate) udp_at: usize,
    /// Offset of the first byte behind the datagram; Ethernet padding may follow.
    pub(crate) end_at: usize,
    /// Whether the datagram is a first fragment, and more follow.
    pub(crate) is_fragment: bool,
}

impl Datagram {
    /// The source and destination of the datagram.
    pub(crate) fn ends(&self) -> (SocketAddrV4, SocketAddrV4) {
        let address = |ip: [u8; 4], port| SocketAddrV4::new(ip.into(), port);
        (address(self.source, self.source_port), address(self.destination, self.destination_port))
    }

    /// The payload of the datagram. `frame`: the frame that was parsed.
    pub(crate) fn payload<'a>(&self, frame: &'a [u8]) -> &'a [u8] {
        &frame[self.udp_at + UDP_BYTES..self.end_at]
    }
}

/// The Ethernet addresses of a frame: (destination, source).
pub(crate) fn ethernet_addresses(frame: &[u8]) -> Option<([u8; 6], [u8; 6])> {
    (frame.len() >= ETHERNET_BYTES).then_some(())?;
    Some((bytes_at(frame, 0)?, bytes_at(frame, 6)?))
}

/// Whether a MAC address can be a source: unicast and not zero.
pub fn is_station(mac: [u8; 6]) -> bool {
    mac[0] & 1 == 0 && mac != [0; 6]
}

pub(crate) fn classify(frame: &[u8], vrings: &VringSet) -> PacketClass {
    try_classify(frame, vrings).unwrap_or(PacketClass::Drop(Counter::Malformed))
}

/// Returns `None` if the frame ends before its destination address.
fn try_classify(frame: &[u8], vrings: &VringSet) -> Option<PacketClass> {
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
        _ => OTHER,
    })
}

fn classify_arp(arp: &[u8], vrings: &VringSet) -> Option<PacketClass> {
    let arp: [u8; ARP_BYTES] = bytes_at(arp, 0)?;
    let (sender, target) = (bytes_at(&arp, 14)?, bytes_at(&arp, 24)?);
    let vring = vrings.contains(sender) || vrings.contains(target);
    Some(if vring {
        PacketClass::Drop(Counter::VringMiss)
    } else {
        PacketClass::Other { sender: Some(sender), datagram: None }
    })
}

/// `at`: offset of the IPv4 header in the frame.
fn classify_ipv4(frame: &[u8], at: usize, vrings: &VringSet) -> Option<PacketClass> {
    let packet = &frame[at..];
    let header: [u8; IPV4_BYTES_MIN] = bytes_at(packet, 0)?;
    let (source, destination) = (bytes_at(&header, 12)?, bytes_at(&header, 16)?);
    let Some(ring) = vrings.ring_of(destination) else {
        return Some(PacketClass::Other { sender: Some(source), datagram: other_udp(frame, at, &header) });
    };
    let header_bytes = usize::from(header[0] & 0x0f) * 4;
    let total_bytes = usize::from(u16_at(&header, 2)?);
    if header[0] >> 4 != 4 || header_bytes < IPV4_BYTES_MIN {
        return None;
    }
    if at > ETHERNET_BYTES || u16_at(&header, 6)? & FRAGMENT_BITS != 0 {
        return Some(PacketClass::Drop(Counter::VringRefused));
    }
    if header[9] != PROTOCOL_UDP {
        return Some(PacketClass::Drop(Counter::VringMiss));
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
    Some(PacketClass::Vring(ring, datagram))
}

/// The datagram of other traffic, or the first fragment of one, if its ports are in the frame.
/// Inconsistent lengths are left to the receiver: the payload is whatever the frame contains.
fn other_udp(frame: &[u8], at: usize, header: &[u8; IPV4_BYTES_MIN]) -> Option<Datagram> {
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

pub(crate) fn bytes_at<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes_at(bytes, at).map(u16::from_be_bytes)
}
