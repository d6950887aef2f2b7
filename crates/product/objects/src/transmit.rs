//! Datagrams to send.

use alloc::vec::Vec;
use core::net::SocketAddrV4;

/// Destination of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Destination {
    /// Members of a group. The address encodes group and mask, and the switch copies the datagram.
    Group {
        /// Number of the group.
        group: u8,
        /// Members, by place.
        mask: u16,
    },
    /// The host that sent a request.
    Host(SocketAddrV4),
}

/// A datagram.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// Its destination.
    pub to: Destination,
    /// The whole datagram.
    pub bytes: Vec<u8>,
}
