//! The pair of virtual rings of a keyspace (NICE §4.2).

use crate::KeyDigest;
use core::net::{Ipv4Addr, SocketAddrV4};

/// Two /16 ranges, one address per vnode in each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Vrings {
    /// Base of the unicast ring: a datagram reaches one replica.
    pub unicast: Ipv4Addr,
    /// Base of the multicast ring: a datagram reaches every replica.
    pub multicast: Ipv4Addr,
    /// UDP port of both.
    pub port: u16,
}

impl Vrings {
    /// Default rings of a cluster with separate hosts: `10.10.0.0/16` and `10.11.0.0/16`.
    pub fn on_network(port: u16) -> Self {
        Self { unicast: Ipv4Addr::new(10, 10, 0, 0), multicast: Ipv4Addr::new(10, 11, 0, 0), port }
    }

    /// Default rings of a cluster on the loopback interface.
    pub fn on_loopback(port: u16) -> Self {
        Self { unicast: Ipv4Addr::new(127, 10, 0, 0), multicast: Ipv4Addr::new(127, 11, 0, 0), port }
    }

    /// Destination of gets if the switch reads the vnode from the header.
    pub fn unicast_ring(&self) -> SocketAddrV4 {
        SocketAddrV4::new(self.unicast, self.port)
    }

    /// Destination of updates if the switch reads the vnode from the header.
    pub fn multicast_ring(&self) -> SocketAddrV4 {
        SocketAddrV4::new(self.multicast, self.port)
    }

    /// Destination of a get of this key.
    pub fn unicast_address(&self, digest: &KeyDigest) -> SocketAddrV4 {
        SocketAddrV4::new(with_vnode(self.unicast, digest.vnode()), self.port)
    }

    /// Destination of an update of this key.
    pub fn multicast_address(&self, digest: &KeyDigest) -> SocketAddrV4 {
        self.multicast_vnode(digest.vnode())
    }

    /// The multicast address of a vnode.
    pub fn multicast_vnode(&self, vnode: u16) -> SocketAddrV4 {
        SocketAddrV4::new(with_vnode(self.multicast, vnode), self.port)
    }
}

fn with_vnode(base: Ipv4Addr, vnode: u16) -> Ipv4Addr {
    let [a, b, _, _] = base.octets();
    let [c, d] = vnode.to_be_bytes();
    Ipv4Addr::new(a, b, c, d)
}
