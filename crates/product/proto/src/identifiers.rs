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

    /// When it was created, in milliseconds of the Unix epoch.
    pub fn created_ms(self) -> u64 {
        self.0 >> 20
    }
}

/// Names one operation for ever (docs/PROTOCOL.md): a retry carries the same one, replicas deduplicate by it, and the one of the last put is
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

/// A partition, by a name that is unique in the cluster and says nothing: which keyspace and which keys it has, and who holds it, is
/// told by the metadata service ([`crate::control::Assign`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PartitionId(pub u32);

impl PartitionId {
    /// The place in a table of partitions that is kept in the order of their ids from 0.
    pub fn position(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for PartitionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// A keyspace: keys of their own, with their own replication and their own pair of vrings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyspaceId(pub u16);

impl KeyspaceId {
    /// The keyspace of requests that name none.
    pub const DEFAULT: Self = Self(0);
}

impl fmt::Display for KeyspaceId {
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

/// What a key is matched by: its 128-bit digest, or its first 16 bytes ([`crate::KeyOrder`]); the top 16 bits are the vnode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyDigest(pub [u8; 16]);

impl KeyDigest {
    /// The vnode: the top 16 bits.
    pub fn vnode(&self) -> u16 {
        u16::from_be_bytes([self.0[0], self.0[1]])
    }

    /// As one number ([`crate::MatchRange`]).
    pub fn match_value(&self) -> u128 {
        u128::from_be_bytes(self.0)
    }

    /// Of a match value.
    pub fn of_match_value(value: u128) -> Self {
        Self(value.to_be_bytes())
    }
}
