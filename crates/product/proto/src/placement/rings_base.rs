//! Default addresses of a keyspace's rings, from its number.

use core::net::Ipv4Addr;

use crate::KeyspaceId;

/// Most keyspaces of a cluster.
pub const KEYSPACES_MAX: usize = 16;
/// First number of keyspaces created by a command.
pub const CREATED_FIRST: KeyspaceId = KeyspaceId(KEYSPACES_MAX as u16);

/// Default location of a cluster's rings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RingsBase {
    /// Separate hosts: `10.10.0.0/16` and `10.11.0.0/16` belong to keyspace 0.
    Network,
    /// One host: `127.10.0.0/16` and `127.11.0.0/16` belong to keyspace 0; all addresses are local.
    Loopback,
}

impl RingsBase {
    /// Location of a cluster with this ring.
    pub fn of(ring: Ipv4Addr) -> Self {
        if ring.is_loopback() { Self::Loopback } else { Self::Network }
    }

    /// Unicast and multicast ring of a keyspace: two /16 each, from 10 on; 20 to 39 are left for
    /// hosts.
    pub fn rings(self, id: KeyspaceId) -> (Ipv4Addr, Ipv4Addr) {
        let first = match self {
            Self::Network => 10,
            Self::Loopback => 127,
        };
        let second = match id.0.min(KEYSPACES_MAX as u16) as u8 {
            id @ 0..5 => 10 + 2 * id,
            id => 40 + 2 * (id - 5),
        };
        (Ipv4Addr::new(first, second, 0, 0), Ipv4Addr::new(first, second + 1, 0, 0))
    }
}
