//! Messages between replicas to repair a value that is damaged on disk. Quorum keyspaces have no
//! decisions: the fields about them are zero there, except `through`, which is the deletion floor
//! of the answering member (`crate::quorum`).

use crate::bytes::Reader;
use crate::codec::{Codec, Key, Rest};
use crate::declare::{codec_of, for_each, layout, message, part, tagged};
use crate::limits::{DATAGRAM_BYTES_MAX, HASH_BYTES_MAX, PAIR_BYTES_MAX};
use crate::recovery::Entry;
#[cfg(test)]
use crate::samples::Random;
use crate::{DecodeError, Epoch, NodeId, PartitionId};
use alloc::vec::Vec;

message! {
    /// From a member that cannot read a key, to a member that may be able to.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct RepairRequest<'a>: RepairRequest {
        header {}
        body {
            /// The key's partition.
            partition: PartitionId,
            /// The epoch of the message.
            epoch: Epoch,
            /// The sender.
            sender: NodeId,
            /// The key.
            key: &'a [u8] as Key => 4 zeros,
            /// Last decision in the sender's log when it found the damage.
            logged: u64,
            /// Last decision that the sender knew to be held by every member.
            released: u64,
        }
    }
}

tagged! {
    /// Content of a member's engine for a key.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum KeyState<'a> {
        /// An entry in its stored form, see [`Entry::append`].
        0 => Stored(&'a [u8] as StoredEntry),
        /// No entry.
        1 => Absent,
        /// A damaged entry: ask another member.
        2 => Corrupt,
    }
}

impl<'a> KeyState<'a> {
    /// As sent to another member. An entry too long for a message cannot have been put by a client,
    /// so it counts as damaged.
    pub fn told_of(self, key: &[u8]) -> Self {
        match self {
            Self::Stored(stored) if check_stored(key, stored).is_err() => Self::Corrupt,
            state => state,
        }
    }
}

message! {
    /// The answer to a [`RepairRequest`].
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct RepairReply<'a>: RepairReply where is_possible {
        header {}
        body {
            /// The key's partition.
            partition: PartitionId,
            /// The epoch of the message.
            epoch: Epoch,
            /// The member that answers.
            sender: NodeId,
            /// The key.
            key: &'a [u8] as Key,
            /// Content of its engine for the key.
            state: KeyState<'a> as KeyState<'static> => 3 zeros,
            /// [`RepairRequest::logged`] and [`RepairRequest::released`], copied from the request.
            asked: (u64, u64),
            /// The last decision that `state` may include.
            through: u64,
        }
    }
}

impl RepairReply<'_> {
    fn is_possible(&self) -> Result<(), DecodeError> {
        match self.state {
            KeyState::Stored(stored) => check_stored(self.key, stored),
            KeyState::Absent | KeyState::Corrupt => Ok(()),
        }
    }
}

const _: () = assert!(RepairReply::FIXED_BYTES + Entry::FIXED_BYTES + PAIR_BYTES_MAX <= DATAGRAM_BYTES_MAX);

const ENTRY_BYTES_MAX: usize = Entry::FIXED_BYTES + HASH_BYTES_MAX;

/// A message has room for any key and its entry.
pub(crate) fn check_stored(key: &[u8], stored: &[u8]) -> Result<(), DecodeError> {
    Entry::decode(stored)?.check_of(key)
}

/// An entry in its stored form, up to the end of the message.
pub(crate) struct StoredEntry;

impl Codec for StoredEntry {
    type Value<'a> = &'a [u8];
    type Layout = [u8; 0];

    fn layout(_: &&[u8]) -> [u8; 0] {
        []
    }

    fn append_tail(entry: &&[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(entry);
    }

    fn read<'a>(
        field: &'static str,
        layout: &[u8; 0],
        tail: &mut Reader<'a>,
    ) -> Result<&'a [u8], DecodeError> {
        let entry = Rest::<ENTRY_BYTES_MAX>::read(field, layout, tail)?;
        Entry::decode(entry)?;
        Ok(entry)
    }

    #[cfg(test)]
    fn sample(random: &mut Random) -> &'static [u8] {
        let mut entry = Vec::new();
        Entry::sample(random).append(&mut entry);
        entry.leak()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Form;
    use crate::limits::{KEY_BYTES_MAX, small_value_bytes_max};
    use crate::{Datagram, OpId};

    #[test]
    fn longest_entry_fits_a_reply_and_longer_ones_are_damaged() {
        let key = [7; KEY_BYTES_MAX];
        let stored = |bytes: usize| {
            let (value, mut stored) = (alloc::vec![9; bytes], Vec::new());
            Entry { index: 1, version: OpId::NONE, expiry_ms: 0, form: Form::Plain, value: Some(&value) }
                .append(&mut stored);
            stored
        };
        let longest = stored(small_value_bytes_max(KEY_BYTES_MAX));
        let state = KeyState::Stored(&longest).told_of(&key);
        let (partition, epoch, sender) = (PartitionId(1), Epoch(2), NodeId(3));
        let reply =
            |state| RepairReply { partition, epoch, sender, key: &key, state, asked: (1, 1), through: 1 };
        let mut bytes = Vec::new();
        reply(state).encode(&mut bytes);
        assert_eq!(
            Datagram::decode(&bytes).unwrap().1,
            Datagram::RepairReply(reply(KeyState::Stored(&longest)))
        );
        let longer = stored(small_value_bytes_max(KEY_BYTES_MAX) + 1);
        assert_eq!(KeyState::Stored(&longer).told_of(&key), KeyState::Corrupt);
        reply(KeyState::Stored(&longer)).encode(&mut bytes);
        assert!(matches!(Datagram::decode(&bytes), Err(DecodeError::OutOfRange { field: "value", .. })));
        assert_eq!(KeyState::Absent.told_of(&key), KeyState::Absent);
    }
}
