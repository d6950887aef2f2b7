//! Names of things that cross the wire.

use core::fmt;

/// A client process. The upper 44 bits are the milliseconds of the Unix epoch at which it was created, the lower 20 are random:
/// ids are never reused and are ordered by age, so that replicas can forget old clients by a horizon (R10).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId(pub u64);

impl ClientId {
    /// An id for a client created at `unix_ms`, told apart from others of that millisecond by `random`.
    pub fn new(unix_ms: u64, random: u64) -> Self {
        Self((unix_ms << 20) | (random & 0xf_ffff))
    }
}

/// Names one operation for ever (DESIGN §4): a retry carries the same one, replicas deduplicate by it, and the one of the last put is
/// what clients compare as the *version* of a value (R5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OpId {
    /// The client that issued it.
    pub client: ClientId,
    /// The client's own count, from 1.
    pub sequence: u64,
}

impl OpId {
    /// The version of a key that has never been put, or was deleted.
    pub const NONE: Self = Self { client: ClientId(0), sequence: 0 };
}

impl fmt::Display for OpId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}.{}", self.client.0, self.sequence)
    }
}

/// A storage node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u16);

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node-{}", self.0)
    }
}

/// A partition of a keyspace: an aligned power-of-two block of vnodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PartitionId(pub u16);

impl fmt::Display for PartitionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// Raised by the metadata service at every change of a partition's replica set or roles; 0 is "none yet".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(pub u32);

/// Raised at every election of a metadata leader; nodes and switch agents refuse older ones (R13).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Term(pub u64);

/// 128-bit digest of a key; its top 16 bits are the vnode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyDigest(pub [u8; 16]);

impl KeyDigest {
    /// The vnode: the top 16 bits.
    pub fn vnode(&self) -> u16 {
        u16::from_be_bytes([self.0[0], self.0[1]])
    }
}
