//! Between members of a quorum keyspace: deletions that are to be forgotten, and versions that a successor is to hold (R14).
//!
//! ```text
//!   member ──Tombstones, Hold────▶ each other member ──TombstonesAck──▶   hold these deletions, or what you have if it is newer
//!   member ──Tombstones, Forget──▶ each other member ──TombstonesAck──▶   in a later epoch: forget them
//!   who leaves ──Entrust──▶ its successor ──Entrusted──▶                  hold this version, or what you have if it is newer
//! ```

use super::Timestamp;
use crate::codec::{self, Codec, Key, OptionalValue, RestOf};
use crate::declare::{code, codec_of, layout, message, part};
use crate::limits::{DATAGRAM_BYTES_MAX, KEY_BYTES_MAX, PAIR_BYTES_MAX};
use crate::{DecodeError, Epoch, Form, NodeId, PartitionId};
use alloc::vec::Vec;
use core::mem::size_of;

code! {
    /// What is to be done with tombstones.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum TombstoneStage {
        /// Hold them durably, or something newer.
        Hold = 1,
        /// Forget those that you still hold: every member has held them, or something newer, in an epoch before this one.
        Forget = 2,
    }
}

message! {
    /// From a member to another, about deletions that it holds.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Tombstones<'a>: Tombstones {
        header {}
        body {
            /// The partition.
            partition: PartitionId,
            /// The epoch of the message.
            epoch: Epoch,
            /// The member that asks.
            sender: NodeId,
            /// What for.
            stage: TombstoneStage => 5 zeros,
            /// Names the message; its answer carries it.
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
        /// Of the version.
        timestamp: Timestamp,
        /// The key.
        key: &'a [u8] as Key,
    }
}

impl<'a> Tombstones<'a> {
    /// Most bytes of [`Self::listed`].
    pub const LISTED_BYTES_MAX: usize = DATAGRAM_BYTES_MAX - Self::FIXED_BYTES;

    /// What is listed.
    pub fn entries(&self) -> impl Iterator<Item = Tombstone<'a>> + use<'a> {
        codec::each::<Tombstone<'static>>(self.listed)
    }
}

/// One at least fits a message.
const _: () = assert!(
    size_of::<<Tombstone<'static> as Codec>::Layout>() + KEY_BYTES_MAX <= Tombstones::LISTED_BYTES_MAX
);

impl Tombstone<'_> {
    /// Bytes of the encoded form.
    pub fn bytes(&self) -> usize {
        size_of::<<Tombstone<'static> as Codec>::Layout>() + self.key.len()
    }

    /// Appends it to [`Tombstones::listed`].
    pub fn append(&self, out: &mut Vec<u8>) {
        codec::append::<Tombstone<'static>>(self, out);
    }
}

message! {
    /// The answer to [`Tombstones`]: it is done, durably if they are to be held.
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
            /// Of what is answered.
            round: u64,
        }
    }
}

message! {
    /// From a member that leaves to the one that comes in its place: hold this version durably, or something newer.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Entrust<'a>: Entrust where is_possible {
        header {}
        body {
            /// The partition.
            partition: PartitionId,
            /// The epoch of the message.
            epoch: Epoch,
            /// The member that leaves.
            sender: NodeId => 6 zeros,
            /// Names the version; the answer carries it.
            serial: u64,
            /// Of the version; never [`Timestamp::NEVER`].
            timestamp: Timestamp,
            /// The key, at most [`KEY_BYTES_MAX`] bytes.
            key: &'a [u8] as Key,
            /// Its value; `None` is a deletion.
            value: Option<&'a [u8]> as OptionalValue,
            /// Whether that is the [`Reference`](crate::large::Reference) of a large one.
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
    /// The answer to [`Entrust`]: that version, or a newer one, is held durably.
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
            /// Of what is answered.
            serial: u64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ClientId, OpId};

    #[test]
    fn tombstones_are_told_as_they_were_listed() {
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
