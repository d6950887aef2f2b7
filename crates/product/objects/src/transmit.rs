//! What is to be sent, and where.

use alloc::vec::Vec;
use core::net::SocketAddrV4;

/// Where a datagram goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Destination {
    /// To those of a group whose bits are set, by their places: the address says both, and the switch copies.
    Group {
        /// Which group.
        group: u8,
        /// Whom of it.
        mask: u16,
    },
    /// To a host that has asked.
    Host(SocketAddrV4),
}

/// A datagram.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// Where it goes.
    pub to: Destination,
    /// All of it.
    pub bytes: Vec<u8>,
}
