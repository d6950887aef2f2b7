//! Messages of a quorum keyspace (rule R14): a register without a primary.
//!
//! ```text
//!   client ──Query──▶ multicast vnode ─▶ every replica ──Held──▶ client      what do you hold?
//!   client ──Store──▶ multicast vnode ─▶ every replica ──Held──▶ client      hold this, or what you have if it is newer
//! ```
//!
//! Both have the same answer: "in this epoch I durably hold the version with this timestamp, and
//! have forgotten deletions up to this counter". A store names the epoch in which its query was
//! answered, and is refused in any other epoch. Every request contains R and k, so that a client
//! with a wrong configuration is refused instead of counting wrongly.
//!
//! Messages between members are in `members`.

mod members;

use crate::bytes::Reader;
use crate::codec::{Codec, Key, OptionalValue, Value};
use crate::declare::{codec_of, for_each, layout, message, part, tagged};
use crate::large::Reference;
use crate::limits::{DATAGRAM_BYTES_MAX, KEY_BYTES_MAX, MEMBERS_MAX, PAIR_BYTES_MAX};
#[cfg(test)]
use crate::samples::Random;
use crate::{DecodeError, Epoch, Form, KeyDigest, KeyspaceId, NodeId, OpId};
use core::net::SocketAddrV4;
pub use members::{Entrust, Entrusted, Tombstone, TombstoneStage, Tombstones, TombstonesAck};
use thiserror::Error;

/// R and k of a keyspace, which never change (R14).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quorum {
    replicas: u8,
    write_set: u8,
}

/// Invalid R and k.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum QuorumError {
    /// k is 0: no replica would hold a put.
    #[error("a write set of 0 would acknowledge puts that no replica holds")]
    NoWriteSet,
    /// k exceeds R.
    #[error("a write set of {write_set} needs more replicas than the {replicas} there are")]
    WriteSetTooLarge {
        /// k.
        write_set: u8,
        /// R.
        replicas: u8,
    },
    /// R exceeds [`MEMBERS_MAX`].
    #[error("{replicas} replicas exceed the limit of {MEMBERS_MAX}")]
    TooManyReplicas {
        /// R.
        replicas: u8,
    },
}

impl Quorum {
    /// `write_set` (k) of `replicas` (R) hold every acknowledged put.
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

    /// Write quorum size (k).
    pub fn write_set(&self) -> usize {
        self.write_set.into()
    }

    /// Read quorum size, R − k + 1: any such set shares a replica with every write quorum.
    pub fn read_set(&self) -> usize {
        self.replicas() - self.write_set() + 1
    }
}

impl Codec for Quorum {
    type Value<'a> = Self;
    type Layout = [u8; 2];

    fn layout(quorum: &Self) -> [u8; 2] {
        [quorum.replicas, quorum.write_set]
    }

    fn read<'a>(field: &'static str, layout: &[u8; 2], _: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let [replicas, write_set] = *layout;
        Self::new(replicas, write_set)
            .map_err(|_| DecodeError::UnknownValue { field, value: write_set.into() })
    }

    #[cfg(test)]
    fn sample(random: &mut Random) -> Self {
        random.layout(|layout| Self::read("quorum", layout, &mut Reader::new(&[])))
    }
}

part! {
    /// Version of a key: ordered by counter, then by the op that wrote it. The default is that of a
    /// key that was never put.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub struct Timestamp where is_possible {
        /// One more than the newest counter that the client has seen, and than any floor that
        /// replicas reported to it.
        counter: u64,
        /// The put or delete.
        op: OpId,
    }
}

impl Timestamp {
    /// Version of a key that was never put.
    pub const NEVER: Self = Self { counter: 0, op: OpId::NONE };

    /// Version of a put by `op` after this one; `None` after 2^64 − 1 puts.
    pub fn next(self, op: OpId) -> Option<Self> {
        Some(Self { counter: self.counter.checked_add(1)?, op })
    }

    fn is_possible(&self) -> Result<(), DecodeError> {
        if *self != Self::NEVER && (self.counter == 0 || self.op.sequence == 0) {
            return Err(DecodeError::UnknownValue { field: "timestamp", value: self.counter });
        }
        Ok(())
    }
}

message! {
    /// Asks every replica for its newest version of a key.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct QuorumQuery<'a>: QuorumQuery where is_possible {
        header {
            /// The keyspace of the key.
            keyspace: KeyspaceId,
            /// Names the request and its answers.
            op: OpId,
            /// Digest of the key.
            digest: KeyDigest,
            /// Address for the answers, if not the sender.
            reply_to: Option<SocketAddrV4>,
        }
        body {
            /// R and k of the keyspace.
            quorum: Quorum,
            /// Whether answers contain the value: a put needs only the timestamp.
            wants_value: bool => 1 zeros,
            /// The key, at most [`KEY_BYTES_MAX`] bytes.
            key: &'a [u8] as Key => 2 zeros,
            /// The [`Reference`] of the large value to be stored, whose chunks are sent along with
            /// the query.
            announced: Option<&'a [u8]> as OptionalValue,
        }
    }
}

message! {
    /// Asks every replica to store a version of a key.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct QuorumStore<'a>: QuorumStore where is_possible {
        header {
            /// The keyspace of the key.
            keyspace: KeyspaceId,
            /// Names the request and its answers. A write-back has the op of the get here, and that
            /// of the put in `timestamp`.
            op: OpId,
            /// Digest of the key.
            digest: KeyDigest,
            /// Address for the answers, if not the sender.
            reply_to: Option<SocketAddrV4>,
        }
        body {
            /// Version to be stored; never [`Timestamp::NEVER`].
            timestamp: Timestamp,
            /// Epoch in which the query was answered.
            epoch: Epoch,
            /// R and k of the keyspace.
            quorum: Quorum,
            /// The key, at most [`KEY_BYTES_MAX`] bytes.
            key: &'a [u8] as Key,
            /// The value; `None` is a deletion.
            value: Option<&'a [u8]> as OptionalValue,
            /// Whether the value is the [`Reference`](crate::large::Reference) of a large value.
            is_large: bool,
        }
    }
}
const _: () = assert!(QuorumStore::FIXED_BYTES + PAIR_BYTES_MAX <= DATAGRAM_BYTES_MAX);
const _: () = assert!(QuorumQuery::FIXED_BYTES + KEY_BYTES_MAX + Reference::BYTES <= DATAGRAM_BYTES_MAX);

impl QuorumQuery<'_> {
    fn is_possible(&self) -> Result<(), DecodeError> {
        Form::of_set(self.announced.is_some()).check_beside(self.key.len(), self.announced)
    }
}

impl QuorumStore<'_> {
    fn is_possible(&self) -> Result<(), DecodeError> {
        match self.timestamp {
            Timestamp::NEVER => Err(DecodeError::UnknownValue { field: "timestamp", value: 0 }),
            _ => Form::of_set(self.is_large).check_beside(self.key.len(), self.value),
        }
    }
}

tagged! {
    /// Content of a version in an answer.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Content<'a> {
        /// The key was never put, or was deleted.
        0 => Absent,
        /// It has a value, which was not asked for.
        1 => Present,
        /// The value.
        2 => Value(&'a [u8] as Value),
        /// The [`Reference`](crate::large::Reference) of a large value.
        3 => Large(&'a [u8] as Value),
    }
}

message! {
    /// Answer of a replica to a [`QuorumQuery`] or a [`QuorumStore`]: its durable version, or a
    /// newer one.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct QuorumHeld<'a>: QuorumHeld where is_possible {
        header {
            /// Op of the request.
            op: OpId,
        }
        body {
            /// The newest durable version.
            timestamp: Timestamp,
            /// Highest counter of any deletion that the replica has forgotten.
            floor: u64,
            /// Epoch of the replica. Clients count answers of one epoch only (R14).
            epoch: Epoch,
            /// The replica.
            node: NodeId,
            /// Content of the version.
            content: Content<'a> as Content<'static> => 7 zeros,
        }
    }
}

impl QuorumHeld<'_> {
    fn is_possible(&self) -> Result<(), DecodeError> {
        if self.timestamp == Timestamp::NEVER && self.content != Content::Absent {
            return Err(DecodeError::UnknownValue { field: "timestamp", value: 0 });
        }
        match self.content {
            Content::Large(reference) => Form::Large.check(Some(reference)),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ClientId;

    #[test]
    fn write_and_read_quorums_intersect() {
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
