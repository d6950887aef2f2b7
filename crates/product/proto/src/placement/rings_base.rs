//! Default addresses of a keyspace's rings, from its number.

use core::net::Ipv4Addr;

use crate::KeyspaceId;

/// Most keyspaces of a cluster.
pub const KEYSPACES_MAX: usize = 16;
/// The first number of a keyspace that is created by a command.
pub const CREATED_FIRST: KeyspaceId = KeyspaceId(KEYSPACES_MAX as u16);

/// Where the rings of a keyspace are unless it says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RingsBase {
    /// Hosts of their own: `10.10.0.0/16` and `10.11.0.0/16` are those of keyspace 0.
    Network,
    /// One host: `127.10.0.0/16` and `127.11.0.0/16`, all of whose addresses are local.
    Loopback,
}

impl RingsBase {
    /// Of a cluster one of whose rings this is.
    pub fn of(ring: Ipv4Addr) -> Self {
        if ring.is_loopback() { Self::Loopback } else { Self::Network }
    }

    /// The unicast and the multicast ring of a keyspace: two /16 each, from 10 on; 20 to 39 are left to hosts.
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
