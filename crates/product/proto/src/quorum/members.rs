//! Messages between members of a quorum keyspace: deletions to be forgotten, and versions handed to
//! a successor (R14).
//!
//! ```text
//!   member ──Tombstones, Hold────▶ each other member ──TombstonesAck──▶   hold these deletions, or what you have if it is newer
//!   member ──Tombstones, Forget──▶ each other member ──TombstonesAck──▶   in a later epoch: forget them
//!   leaving member ──Entrust──▶ its successor ──Entrusted──▶              hold this version, or what you have if it is newer
//! ```

use super::Timestamp;
use crate::codec::{self, Codec, Key, OptionalValue, RestOf};
use crate::declare::{code, codec_of, layout, message, part};
use crate::limits::{DATAGRAM_BYTES_MAX, KEY_BYTES_MAX, PAIR_BYTES_MAX};
use crate::{DecodeError, Epoch, Form, NodeId, PartitionId};
use alloc::vec::Vec;
use core::mem::size_of;

code! {
    /// The treatment of tombstones.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum TombstoneStage {
        /// Store them durably, unless a newer version is present.
        Hold = 1,
        /// Forget them if still present: in an earlier epoch, every member has stored them or a
        /// newer version.
        Forget = 2,
    }
}

message! {
    /// From a member to another, about its tombstones.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Tombstones<'a>: Tombstones {
        header {}
        body {
            /// The partition.
            partition: PartitionId,
            /// The epoch of the message.
            epoch: Epoch,
            /// The sender.
            sender: NodeId,
            /// What to do.
            stage: TombstoneStage => 5 zeros,
            /// Names the message and its answer.
            round: u64,
            /// [`Tombstone`]s: at most [`Self::LISTED_BYTES_MAX`].
            listed: &'a [u8] as RestOf<Tombstone<'static>>,
        }
    }
}

part! {
    /// A deletion.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Tombstone<'a> {
        /// Version of the deletion.
        timestamp: Timestamp,
        /// The key.
        key: &'a [u8] as Key,
    }
}

impl<'a> Tombstones<'a> {
    /// Longest [`Self::listed`], in bytes.
    pub const LISTED_BYTES_MAX: usize = DATAGRAM_BYTES_MAX - Self::FIXED_BYTES;

    /// Iterates over the tombstones.
    pub fn entries(&self) -> impl Iterator<Item = Tombstone<'a>> + use<'a> {
        codec::each::<Tombstone<'static>>(self.listed)
    }
}

/// A message has room for at least one tombstone.
const _: () = assert!(
    size_of::<<Tombstone<'static> as Codec>::Layout>() + KEY_BYTES_MAX <= Tombstones::LISTED_BYTES_MAX
);

impl Tombstone<'_> {
    /// Length of the encoded form, in bytes.
    pub fn bytes(&self) -> usize {
        size_of::<<Tombstone<'static> as Codec>::Layout>() + self.key.len()
    }

    /// Appends it to [`Tombstones::listed`].
    pub fn append(&self, out: &mut Vec<u8>) {
        codec::append::<Tombstone<'static>>(self, out);
    }
}

message! {
    /// The answer to [`Tombstones`]: done; durably, if they were to be stored.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct TombstonesAck: TombstonesAck {
        header {}
        body {
            /// The partition.
            partition: PartitionId,
            /// The epoch of the message.
            epoch: Epoch,
            /// The member that answers.
            sender: NodeId => 6 zeros,
            /// Copied from the message.
            round: u64,
        }
    }
}

message! {
    /// From a leaving member to its successor: store this version durably, unless a newer one is
    /// present.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Entrust<'a>: Entrust where is_possible {
        header {}
        body {
            /// The partition.
            partition: PartitionId,
            /// The epoch of the message.
            epoch: Epoch,
            /// The leaving member.
            sender: NodeId => 6 zeros,
            /// Names the version and the answer.
            serial: u64,
            /// Version; never [`Timestamp::NEVER`].
            timestamp: Timestamp,
            /// The key, at most [`KEY_BYTES_MAX`] bytes.
            key: &'a [u8] as Key,
            /// The value; `None` is a deletion.
            value: Option<&'a [u8]> as OptionalValue,
            /// Whether the value is the [`Reference`](crate::large::Reference) of a large value.
            is_large: bool,
        }
    }
}
const _: () = assert!(Entrust::FIXED_BYTES + PAIR_BYTES_MAX <= DATAGRAM_BYTES_MAX);

impl Entrust<'_> {
    fn is_possible(&self) -> Result<(), DecodeError> {
        match self.timestamp {
            Timestamp::NEVER => Err(DecodeError::UnknownValue { field: "timestamp", value: 0 }),
            _ => Form::of_set(self.is_large).check_beside(self.key.len(), self.value),
        }
    }
}

message! {
    /// The answer to [`Entrust`]: that version or a newer one is durable.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Entrusted: Entrusted {
        header {}
        body {
            /// The partition.
            partition: PartitionId,
            /// The epoch of the message.
            epoch: Epoch,
            /// The member that answers.
            sender: NodeId => 6 zeros,
            /// Copied from the message.
            serial: u64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ClientId, OpId};

    #[test]
    fn tombstones_round_trip() {
        let op = OpId { client: ClientId(3), sequence: 4 };
        let of = |key, counter| Tombstone { timestamp: Timestamp { counter, op }, key };
        let told = [of(b"a", 7), of(b"bc", 9)];
        let mut listed = Vec::new();
        told.iter().for_each(|one| one.append(&mut listed));
        assert_eq!(listed.len(), told.iter().map(Tombstone::bytes).sum::<usize>());
        let (sender, partition, epoch) = (NodeId(1), PartitionId(2), Epoch(3));
        let stage = TombstoneStage::Hold;
        let message = Tombstones { sender, partition, epoch, stage, round: 4, listed: &listed };
        assert!(message.entries().eq(told));
    }
}
