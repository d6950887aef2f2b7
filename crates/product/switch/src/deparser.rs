//! The deparser: rewrites the headers of a parsed datagram. The eBPF programs do the same
//! (`rewrite.h`).
//!
//! Checksums are not verified but updated incrementally (RFC 1624), so a wrong one stays wrong and
//! the host drops the datagram; a UDP checksum of zero ("none") stays zero. The TTL stays: a
//! rewritten datagram has a host's address, so it is rewritten at most once and cannot loop.

use alloc::vec::Vec;

use nicekv_proto::hot::Stamp;
use nicekv_proto::route::{ChainHeader, room_for_stamp, room_of};

use crate::hot::values::write_reply;
use crate::parser::{Datagram, ETHERNET_BYTES, IPV4_BYTES_MIN, PROTOCOL_UDP, UDP_BYTES, bytes_at};

const IPV4_TTL: u8 = 64;
/// Offset of the UDP header in a frame without VLAN tags and IP options.
const UDP_AT: usize = ETHERNET_BYTES + IPV4_BYTES_MIN;

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

    /// Rewrites the destination port, and updates the checksum.
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

    /// Applies `edit` to the payload, and updates the checksum.
    pub(crate) fn edit<T>(&self, frame: &mut [u8], edit: impl FnOnce(&mut [u8]) -> T) -> T {
        let (udp, payload) = frame[self.udp_at..self.end_at].split_at_mut(UDP_BYTES);
        let before = payload.to_vec();
        let result = edit(payload);
        update_udp_checksum(&mut udp[6..8], &before, payload);
        result
    }

    /// Writes a chain header into a request that has room for it, and updates the checksum.
    pub(crate) fn write_chain(&self, frame: &mut [u8], header: &ChainHeader) {
        let (udp, payload) = frame[self.udp_at..self.end_at].split_at_mut(UDP_BYTES);
        let Some(room) = room_of(payload) else { return };
        let before = core::mem::replace(room, header.to_bytes());
        update_udp_checksum(&mut udp[6..8], &before, room);
    }

    /// Writes a stamp into a request that has room for it, and updates the checksum.
    pub(crate) fn write_stamp(&self, frame: &mut [u8], stamp: Stamp) {
        let (udp, payload) = frame[self.udp_at..self.end_at].split_at_mut(UDP_BYTES);
        let Some(room) = room_for_stamp(payload) else { return };
        let before = core::mem::replace(room, stamp.to_bytes());
        update_udp_checksum(&mut udp[6..8], &before, room);
    }

    /// Whether the frame consists of this datagram only, without IP options or padding, and has a
    /// correct IPv4 checksum. Only then may the switch answer it in place.
    pub(crate) fn is_bare(&self, frame: &[u8]) -> bool {
        let header = &frame[ETHERNET_BYTES..];
        self.udp_at == UDP_AT && self.end_at == frame.len() && sum(&header[..IPV4_BYTES_MIN]) == 0xffff
    }

    /// Turns a bare request into the switch's reply with this body, with a new IPv4 header. The UDP
    /// checksum is computed from the request's, so that a damaged request gets a reply with a wrong
    /// checksum.
    pub(crate) fn answered(&self, frame: &[u8], body: &[u8], router_mac: [u8; 6]) -> Vec<u8> {
        let mut frame = frame.to_vec();
        let sender = bytes_at(&frame, 6).expect("an Ethernet header");
        let bytes = self.edit(&mut frame, |payload| {
            let bytes = write_reply(payload, body);
            payload[bytes..].fill(0);
            bytes
        });
        self.swap_ends(&mut frame, sender, router_mac);
        frame.truncate(UDP_AT + UDP_BYTES + bytes);
        let [old, new] =
            [self.end_at - UDP_AT, UDP_BYTES + bytes].map(|length| (length as u16).to_be_bytes());
        let udp = &mut frame[UDP_AT..];
        udp[4..6].copy_from_slice(&new);
        // The length is summed twice: it is also in the pseudo-header.
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

    /// Swaps source and destination of IP and UDP, and writes these MAC addresses. No checksum
    /// changes, because the order of the summed words does not matter.
    pub(crate) fn swap_ends(&self, frame: &mut [u8], destination: [u8; 6], source: [u8; 6]) {
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
    // Zero means "no checksum"; the other representation of zero in one's complement is all ones.
    let updated = match updated_checksum([field[0], field[1]], before, after) {
        0 => 0xffff,
        other => other,
    };
    field.copy_from_slice(&updated.to_be_bytes());
}

/// RFC 1624, equation 3: HC' = ~(~HC + ~m + m'), over all 16-bit words. `before` and `after` have
/// the same length.
fn updated_checksum(checksum: [u8; 2], before: &[u8], after: &[u8]) -> u16 {
    let sum = u32::from(!u16::from_be_bytes(checksum));
    let added = |sum, (before, after)| sum + u32::from(!word(before)) + u32::from(word(after));
    !folded(before.chunks(2).zip(after.chunks(2)).fold(sum, added))
}

/// The one's complement sum of 16-bit words.
fn sum(bytes: &[u8]) -> u16 {
    folded(bytes.chunks(2).map(|bytes| u32::from(word(bytes))).sum())
}

/// A 16-bit word; an odd last byte is padded with zero.
fn word(bytes: &[u8]) -> u16 {
    u16::from_be_bytes([bytes[0], bytes.get(1).copied().unwrap_or(0)])
}

/// Folds a sum of fewer than 2^16 terms to 16 bits, for which two additions are enough.
fn folded(sum: u32) -> u16 {
    let sum = (sum & 0xffff) + (sum >> 16);
    (sum as u16).wrapping_add((sum >> 16) as u16)
}
