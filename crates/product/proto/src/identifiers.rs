//! Names of things that cross the wire.

use core::fmt;

/// A client process. The upper 44 bits are the milliseconds of the Unix epoch at which it was created, the lower 20 are random:
/// ids are never reused and are ordered by age, so that replicas can forget old clients by a horizon (R10).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId(pub u64);

impl ClientId {
    /// An id for a client created at `unix_ms`; `random` distinguishes clients of the same
    /// millisecond.
    pub fn new(unix_ms: u64, random: u64) -> Self {
        Self((unix_ms << 20) | (random & 0xf_ffff))
    }

    /// Creation time in milliseconds of the Unix epoch.
    pub fn created_ms(self) -> u64 {
        self.0 >> 20
    }
}

/// Identifies one operation for ever (docs/PROTOCOL.md). Retransmissions carry the same id, so that
/// replicas can deduplicate them; the id of the last put is the *version* of a value, which clients
/// compare (R5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OpId {
    /// The client that issued it.
    pub client: ClientId,
    /// Sequence number of the client, from 1.
    pub sequence: u64,
}

impl OpId {
    /// The version of a key that was never put, or was deleted.
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

/// A partition, by an opaque id that is unique in the cluster. The metadata service says which
/// keyspace, keys and members it has ([`crate::control::Assign`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PartitionId(pub u32);

impl PartitionId {
    /// Index into a table ordered by partition id, starting at 0.
    pub fn position(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for PartitionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// A keyspace: a separate set of keys with its own replication mode and its own pair of vrings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyspaceId(pub u16);

impl KeyspaceId {
    /// Default keyspace.
    pub const DEFAULT: Self = Self(0);
}

impl fmt::Display for KeyspaceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// Raised by the metadata service with every change of a partition's members or roles; 0 means
/// "none yet".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(pub u32);

/// Raised at every election of a metadata leader; nodes and switch agents refuse older terms (R13).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Term(pub u64);

/// Match value of a key: its 128-bit digest, or its first 16 bytes ([`crate::KeyOrder`]). The top
/// 16 bits are the vnode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyDigest(pub [u8; 16]);

impl KeyDigest {
    /// The vnode: the top 16 bits.
    pub fn vnode(&self) -> u16 {
        u16::from_be_bytes([self.0[0], self.0[1]])
    }

    /// As an integer ([`crate::MatchRange`]).
    pub fn match_value(&self) -> u128 {
        u128::from_be_bytes(self.0)
    }

    /// From a match value.
    pub fn of_match_value(value: u128) -> Self {
        Self(value.to_be_bytes())
    }
}
