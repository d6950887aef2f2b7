//! Datagrams of a quorum keyspace (rule R14): a register without a primary.
//!
//! ```text
//!   client ──Query──▶ multicast vnode ─▶ every replica ──Held──▶ client      what do you hold?
//!   client ──Store──▶ multicast vnode ─▶ every replica ──Held──▶ client      hold this, or what you have if it is newer
//! ```
//!
//! Both are answered alike: "in this epoch I durably hold the version of this timestamp". Every request states R and k, so that a
//! client that was configured for another keyspace is refused instead of counting wrongly.

use crate::bytes::{Reader, flag, in_range, put, reserved, reserved_bytes};
use crate::header::{Header, Opcode};
use crate::limits::{DATAGRAM_BYTES_MAX, KEY_BYTES_MAX, MEMBERS_MAX, VALUE_BYTES_MAX};
use crate::{ClientId, DecodeError, Epoch, KeyDigest, KeyspaceId, NodeId, OpId};
use alloc::vec::Vec;
use core::mem::size_of;
use core::net::SocketAddrV4;
use thiserror::Error;
use zerocopy::network_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// R and k of a keyspace, fixed for ever (R14).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quorum {
    replicas: u8,
    write_set: u8,
}

/// R and k that make no quorum.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum QuorumError {
    /// A put that nobody holds.
    #[error("a write set of 0 would acknowledge puts that no replica holds")]
    NoWriteSet,
    /// k above R.
    #[error("a write set of {write_set} needs more replicas than the {replicas} there are")]
    WriteSetTooLarge {
        /// k.
        write_set: u8,
        /// R.
        replicas: u8,
    },
    /// R above [`MEMBERS_MAX`].
    #[error("{replicas} replicas exceed the limit of {MEMBERS_MAX}")]
    TooManyReplicas {
        /// R.
        replicas: u8,
    },
}

impl Quorum {
    /// `write_set` (k) of `replicas` (R) hold every put that is acknowledged.
    ///
    /// # Errors
    /// Unless 1 ≤ k ≤ R ≤ [`MEMBERS_MAX`].
    pub fn new(replicas: u8, write_set: u8) -> Result<Self, QuorumError> {
        if usize::from(replicas) > MEMBERS_MAX {
            return Err(QuorumError::TooManyReplicas { replicas });
        }
        match write_set {
            0 => Err(QuorumError::NoWriteSet),
            _ if write_set > replicas => Err(QuorumError::WriteSetTooLarge { write_set, replicas }),
            _ => Ok(Self { replicas, write_set }),
        }
    }

    /// R.
    pub fn replicas(&self) -> usize {
        self.replicas.into()
    }

    /// k: so many replicas hold what was put.
    pub fn write_set(&self) -> usize {
        self.write_set.into()
    }

    /// R − k + 1: so many replicas have one in common with every write set.
    pub fn read_set(&self) -> usize {
        self.replicas() - self.write_set() + 1
    }
}

/// Orders the versions of a key: the counter, then the op that wrote it. The default one is that of a key that was never put.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp {
    /// One more than that of the newest version that the putting client saw.
    pub counter: u64,
    /// The put, or the delete.
    pub op: OpId,
}

impl Timestamp {
    /// Of a key that was never put.
    pub const NEVER: Self = Self { counter: 0, op: OpId::NONE };

    /// The timestamp of a put by `op` after this version; `None` past 2^64 − 1 of them.
    pub fn next(self, op: OpId) -> Option<Self> {
        Some(Self { counter: self.counter.checked_add(1)?, op })
    }
}

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct TimestampLayout {
    counter: U64,
    client: U64,
    sequence: U64,
}

impl TimestampLayout {
    fn of(timestamp: Timestamp) -> Self {
        Self {
            counter: timestamp.counter.into(),
            client: timestamp.op.client.0.into(),
            sequence: timestamp.op.sequence.into(),
        }
    }

    fn decode(&self) -> Result<Timestamp, DecodeError> {
        let op = OpId { client: ClientId(self.client.get()), sequence: self.sequence.get() };
        let timestamp = Timestamp { counter: self.counter.get(), op };
        if timestamp != Timestamp::NEVER && (timestamp.counter == 0 || op.sequence == 0) {
            return Err(DecodeError::UnknownValue { field: "timestamp", value: timestamp.counter });
        }
        Ok(timestamp)
    }
}

/// Asks every replica for the newest version of a key that it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuorumQuery<'a> {
    /// The keyspace of the key.
    pub keyspace: KeyspaceId,
    /// Names the request; its answers carry it.
    pub op: OpId,
    /// Digest of the key.
    pub digest: KeyDigest,
    /// Where the answers go, if not to the sender.
    pub reply_to: Option<SocketAddrV4>,
    /// Of the keyspace.
    pub quorum: Quorum,
    /// Whether the answers carry the value: a put needs the timestamp alone.
    pub wants_value: bool,
    /// The key, 1 to [`KEY_BYTES_MAX`] bytes.
    pub key: &'a [u8],
}

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct QueryLayout {
    replicas: u8,
    write_set: u8,
    wants_value: u8,
    reserved: u8,
    key_length: U16,
    reserved2: U16,
}

fn decode_quorum(replicas: u8, write_set: u8) -> Result<Quorum, DecodeError> {
    let refused = DecodeError::UnknownValue { field: "write_set", value: write_set.into() };
    Quorum::new(replicas, write_set).map_err(|_| refused)
}

fn request_header(
    opcode: Opcode,
    keyspace: KeyspaceId,
    op: OpId,
    digest: KeyDigest,
    reply_to: Option<SocketAddrV4>,
) -> Header {
    Header { opcode, keyspace, reply_to, op, digest }
}

impl<'a> QuorumQuery<'a> {
    /// Writes the datagram to `out`, which is cleared.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let header = request_header(Opcode::QuorumQuery, self.keyspace, self.op, self.digest, self.reply_to);
        header.encode(out, |out| {
            let layout = QueryLayout {
                replicas: self.quorum.replicas,
                write_set: self.quorum.write_set,
                wants_value: self.wants_value.into(),
                reserved: 0,
                key_length: (self.key.len() as u16).into(),
                reserved2: 0.into(),
            };
            put(out, &layout);
            out.extend_from_slice(self.key);
        });
    }

    pub(crate) fn decode(header: &Header, body: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(body);
        let layout: QueryLayout = reader.layout("quorum query")?;
        reserved("reserved", u64::from(layout.reserved) + u64::from(layout.reserved2.get()))?;
        let length = in_range("key_length", layout.key_length.get().into(), 1, KEY_BYTES_MAX)?;
        let key = reader.bytes(length, "key_length")?;
        reader.finish("quorum query")?;
        Ok(Self {
            keyspace: header.keyspace,
            op: header.op,
            digest: header.digest,
            reply_to: header.reply_to,
            quorum: decode_quorum(layout.replicas, layout.write_set)?,
            wants_value: flag("wants_value", layout.wants_value)?,
            key,
        })
    }
}

/// Asks every replica to hold a version of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuorumStore<'a> {
    /// The keyspace of the key.
    pub keyspace: KeyspaceId,
    /// Names the request; its answers carry it. Of a write-back it is the get, while `timestamp` names the put.
    pub op: OpId,
    /// Digest of the key.
    pub digest: KeyDigest,
    /// Where the answers go, if not to the sender.
    pub reply_to: Option<SocketAddrV4>,
    /// Of the keyspace.
    pub quorum: Quorum,
    /// Of the version; never [`Timestamp::NEVER`].
    pub timestamp: Timestamp,
    /// Its value; `None` is a deletion.
    pub value: Option<&'a [u8]>,
    /// The key, 1 to [`KEY_BYTES_MAX`] bytes.
    pub key: &'a [u8],
}

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct StoreLayout {
    timestamp: TimestampLayout,
    replicas: u8,
    write_set: u8,
    present: u8,
    reserved: u8,
    key_length: U16,
    value_length: U16,
}
const _: () = assert!(size_of::<StoreLayout>() == 32);
const _: () =
    assert!(Header::BYTES + size_of::<StoreLayout>() + KEY_BYTES_MAX + VALUE_BYTES_MAX <= DATAGRAM_BYTES_MAX);

impl<'a> QuorumStore<'a> {
    /// Writes the datagram to `out`, which is cleared.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let header = request_header(Opcode::QuorumStore, self.keyspace, self.op, self.digest, self.reply_to);
        let value = self.value.unwrap_or_default();
        header.encode(out, |out| {
            let layout = StoreLayout {
                timestamp: TimestampLayout::of(self.timestamp),
                replicas: self.quorum.replicas,
                write_set: self.quorum.write_set,
                present: self.value.is_some().into(),
                reserved: 0,
                key_length: (self.key.len() as u16).into(),
                value_length: (value.len() as u16).into(),
            };
            put(out, &layout);
            out.extend_from_slice(self.key);
            out.extend_from_slice(value);
        });
    }

    pub(crate) fn decode(header: &Header, body: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(body);
        let layout: StoreLayout = reader.layout("quorum store")?;
        reserved("reserved", layout.reserved.into())?;
        let key_length = in_range("key_length", layout.key_length.get().into(), 1, KEY_BYTES_MAX)?;
        let value_length = in_range("value_length", layout.value_length.get().into(), 0, VALUE_BYTES_MAX)?;
        let key = reader.bytes(key_length, "key_length")?;
        let value = reader.bytes(value_length, "value_length")?;
        reader.finish("quorum store")?;
        let timestamp = layout.timestamp.decode()?;
        let present = flag("present", layout.present)?;
        if timestamp == Timestamp::NEVER || (!present && !value.is_empty()) {
            return Err(DecodeError::UnknownValue { field: "present", value: layout.present.into() });
        }
        Ok(Self {
            keyspace: header.keyspace,
            op: header.op,
            digest: header.digest,
            reply_to: header.reply_to,
            quorum: decode_quorum(layout.replicas, layout.write_set)?,
            timestamp,
            value: present.then_some(value),
            key,
        })
    }
}

/// What a version is of which a replica tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content<'a> {
    /// The key was never put, or was deleted.
    Absent,
    /// It has a value, which the request did not ask for.
    Present,
    /// The value.
    Value(&'a [u8]),
}

/// A replica's answer to a [`QuorumQuery`] or a [`QuorumStore`]: what it durably holds, or something newer by now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuorumHeld<'a> {
    /// Of the request.
    pub op: OpId,
    /// Who answers.
    pub node: NodeId,
    /// In which epoch. Clients count the answers of one epoch only (R14).
    pub epoch: Epoch,
    /// Of the newest version that survives its crash.
    pub timestamp: Timestamp,
    /// That version.
    pub content: Content<'a>,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct HeldLayout {
    timestamp: TimestampLayout,
    epoch: U32,
    node: U16,
    content: u8,
    reserved: u8,
    value_length: U16,
    reserved2: [u8; 6],
}
const _: () = assert!(size_of::<HeldLayout>() == 40);

impl<'a> QuorumHeld<'a> {
    /// Writes the datagram to `out`, which is cleared.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let header =
            request_header(Opcode::QuorumHeld, KeyspaceId::DEFAULT, self.op, KeyDigest::default(), None);
        let (content, value): (u8, &[u8]) = match self.content {
            Content::Absent => (0, &[]),
            Content::Present => (1, &[]),
            Content::Value(value) => (2, value),
        };
        header.encode(out, |out| {
            let layout = HeldLayout {
                timestamp: TimestampLayout::of(self.timestamp),
                epoch: self.epoch.0.into(),
                node: self.node.0.into(),
                content,
                reserved: 0,
                value_length: (value.len() as u16).into(),
                reserved2: [0; 6],
            };
            put(out, &layout);
            out.extend_from_slice(value);
        });
    }

    pub(crate) fn decode(header: &Header, body: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(body);
        let layout: HeldLayout = reader.layout("quorum held")?;
        reserved("reserved", layout.reserved.into())?;
        reserved_bytes("reserved", &layout.reserved2)?;
        let length = in_range("value_length", layout.value_length.get().into(), 0, VALUE_BYTES_MAX)?;
        let value = reader.bytes(length, "value_length")?;
        reader.finish("quorum held")?;
        let timestamp = layout.timestamp.decode()?;
        let content = match layout.content {
            0 if value.is_empty() => Content::Absent,
            1 if value.is_empty() && timestamp != Timestamp::NEVER => Content::Present,
            2 if timestamp != Timestamp::NEVER => Content::Value(value),
            other => return Err(DecodeError::UnknownValue { field: "content", value: other.into() }),
        };
        let (node, epoch) = (NodeId(layout.node.get()), Epoch(layout.epoch.get()));
        Ok(Self { op: header.op, node, epoch, timestamp, content })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_write_set_meets_every_read_set() {
        for replicas in 1..=MEMBERS_MAX as u8 {
            for write_set in 1..=replicas {
                let quorum = Quorum::new(replicas, write_set).unwrap();
                assert_eq!(quorum.read_set() + quorum.write_set(), quorum.replicas() + 1);
            }
            assert_eq!(Quorum::new(replicas, 0), Err(QuorumError::NoWriteSet));
            let write_set = replicas + 1;
            let too_large = QuorumError::WriteSetTooLarge { write_set, replicas };
            assert_eq!(Quorum::new(replicas, write_set), Err(too_large));
        }
        assert_eq!(Quorum::new(10, 3), Err(QuorumError::TooManyReplicas { replicas: 10 }));
    }

    #[test]
    fn timestamps_order_by_counter_then_op() {
        let op = |client, sequence| OpId { client: ClientId(client), sequence };
        let first = Timestamp::NEVER.next(op(9, 9)).unwrap();
        let second = first.next(op(1, 1)).unwrap();
        assert!(Timestamp::NEVER < first && first < second);
        assert!(second < first.next(op(1, 2)).unwrap(), "two puts of one client at once");
        assert_eq!(Timestamp { counter: u64::MAX, op: op(1, 1) }.next(op(1, 2)), None);
    }
}
