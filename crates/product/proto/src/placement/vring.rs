//! The pair of virtual rings of a keyspace (NICE §4.2).

use crate::KeyDigest;
use core::net::{Ipv4Addr, SocketAddrV4};

/// Two /16 ranges, one address per vnode in each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Vrings {
    /// Base of the ring whose datagrams reach one replica.
    pub unicast: Ipv4Addr,
    /// Base of the ring whose datagrams reach every replica.
    pub multicast: Ipv4Addr,
    /// UDP port of both.
    pub port: u16,
}

impl Vrings {
    /// The rings of a cluster with hosts of its own: `10.10.0.0/16` and `10.11.0.0/16`.
    pub fn on_network(port: u16) -> Self {
        Self { unicast: Ipv4Addr::new(10, 10, 0, 0), multicast: Ipv4Addr::new(10, 11, 0, 0), port }
    }

    /// The rings of a cluster on the loopback interface, all of whose addresses are local.
    pub fn on_loopback(port: u16) -> Self {
        Self { unicast: Ipv4Addr::new(127, 10, 0, 0), multicast: Ipv4Addr::new(127, 11, 0, 0), port }
    }

    /// Where a get of any key goes, when the switch is to read the vnode from its header.
    pub fn unicast_ring(&self) -> SocketAddrV4 {
        SocketAddrV4::new(self.unicast, self.port)
    }

    /// Where an update of any key goes, when the switch is to read the vnode from its header.
    pub fn multicast_ring(&self) -> SocketAddrV4 {
        SocketAddrV4::new(self.multicast, self.port)
    }

    /// Where a get of this key goes.
    pub fn unicast_address(&self, digest: &KeyDigest) -> SocketAddrV4 {
        SocketAddrV4::new(with_vnode(self.unicast, digest.vnode()), self.port)
    }

    /// Where an update of this key goes.
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
