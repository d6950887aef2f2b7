//! Node-to-node messages of a new epoch (R3, R4) and of copying a partition to a joiner (R7).

use crate::bytes::{Reader, in_range, put};
use crate::codec::{self, Codec, List, OptionalRest, Rest};
use crate::declare::{code, codec_of, for_each, layout, message, part, tagged};
use crate::large::Reference;
use crate::limits::{CHUNK_BYTES, DATAGRAM_BYTES_MAX, HASH_BYTES_MAX, KEY_BYTES_MAX, VALUE_BYTES_MAX};
use crate::{DecodeError, Epoch, Form, NodeId, OpId, PartitionId};
use alloc::vec::Vec;
use core::mem::size_of;
use zerocopy::network_endian::U16;

message! {
    /// From the primary of a new epoch: list what you hold, from `cursor` on.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct RecoverRequest: RecoverRequest {
        header {}
        body {
            /// The partition.
            partition: PartitionId,
            /// The new epoch.
            epoch: Epoch,
            /// The primary.
            sender: NodeId => 6 zeros,
            /// 0 at first, then `next` of the reply before.
            cursor: u64,
        }
    }
}

part! {
    /// An undecided op of a member.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct UndecidedOp {
        /// The op.
        op: OpId,
        /// As in [`PrepareAck::contended`](crate::replication::PrepareAck::contended).
        contended: bool => 7 zeros,
    }
}

message! {
    /// A member's ack of an epoch: what it holds (R4). Its undecided ops are thereby acknowledged in the new epoch (R1).
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct RecoverReply: RecoverReply {
        header {}
        body {
            /// The partition.
            partition: PartitionId,
            /// The new epoch.
            epoch: Epoch,
            /// The member.
            sender: NodeId,
            /// Its undecided ops, forced, in the order of its log. At most [`UNDECIDED_MAX`].
            undecided: Vec<UndecidedOp> as List<u16, UndecidedOp, UNDECIDED_MAX> => 4 zeros,
            /// Of the request.
            cursor: u64,
            /// Where to go on; 0 when all is told.
            next: u64,
            /// The last decision that it has logged.
            logged: u64,
            /// The last decision that survives its crash.
            forced: u64,
            /// The last decision that it knows to be durable at every member of an epoch before (R18).
            released: u64,
        }
    }
}

/// Most ops of one [`RecoverReply`].
pub const UNDECIDED_MAX: usize = 56;
const UNDECIDED_BYTES: usize = size_of::<<UndecidedOp as Codec>::Layout>();
const _: () = assert!(RecoverReply::FIXED_BYTES + UNDECIDED_MAX * UNDECIDED_BYTES <= DATAGRAM_BYTES_MAX);

tagged! {
    /// What a primary lacks and a member has.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Wanted {
        /// The prepare of this op; answered by a [`Resend`](crate::replication::Resend).
        1 => Op(OpId),
        /// Decisions after this one; answered by [`Decisions`](crate::replication::Decisions).
        2 => DecisionsAfter(u64),
    }
}

message! {
    /// From a primary to a member of its epoch.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Fetch: Fetch {
        header {}
        body {
            /// The partition.
            partition: PartitionId,
            /// The epoch.
            epoch: Epoch,
            /// The primary.
            sender: NodeId,
            /// What.
            wanted: Wanted => 5 zeros,
        }
    }
}

part! {
    /// A key's state as the engine stores it and as it is copied to a joiner.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Entry<'a> where is_possible {
        /// The decision that wrote it.
        index: u64,
        /// The op id of that decision (R5).
        version: OpId,
        /// Milliseconds of the Unix epoch; 0 is never.
        expiry_ms: u64,
        /// What the value is.
        form: Form,
        /// The value; `None` is a tombstone, kept until every original member holds the deletion.
        value: Option<&'a [u8]> as OptionalRest<HASH_BYTES_MAX>,
    }
}

impl<'a> Entry<'a> {
    const FORM_AT: usize = size_of::<[u64; 4]>();
    /// Bytes of the stored form less the value.
    pub const FIXED_BYTES: usize = size_of::<<Entry<'static> as Codec>::Layout>();

    /// Appends the stored form.
    pub fn append(&self, out: &mut Vec<u8>) {
        codec::append::<Entry<'static>>(self, out);
    }

    /// The large value of which a stored entry speaks; none of one that is damaged.
    pub fn reference_of(stored: &[u8]) -> Option<Reference> {
        // Most speak of none, which is seen at a glance.
        let is_large = *stored.get(Self::FORM_AT)? == Form::Large as u8;
        is_large.then(|| Entry::decode(stored).ok()?.large()).flatten()
    }

    /// The large value that it speaks of.
    pub fn large(&self) -> Option<Reference> {
        let reference = self.value.filter(|_| self.form == Form::Large)?;
        Some(Reference::checked(reference))
    }

    fn is_possible(&self) -> Result<(), DecodeError> {
        if self.form == Form::Plain {
            in_range("value", self.value.map_or(0, <[u8]>::len), 0, VALUE_BYTES_MAX)?;
        }
        self.form.check(self.value)
    }

    pub(crate) fn check_of(&self, key: &[u8]) -> Result<(), DecodeError> {
        self.form.check_beside(key.len(), self.value)
    }

    /// Whether this key can have it. No client can put another one, and no message has room for both.
    pub fn may_be_of(&self, key: &[u8]) -> bool {
        self.check_of(key).is_ok()
    }

    /// Reads the stored form, which is all of `bytes`.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        codec::read::<Entry<'static>>("entry", &mut Reader::new(bytes))
    }
}

/// Most bytes of one frame of the copying stream; a frame is a 32-bit big-endian length and that many bytes.
pub const FRAME_BYTES_MAX: usize = 512 << 10;

tagged! {
    /// Frames of the framed TCP stream by which a joiner copies a partition (R7). The joiner asks, the primary answers; each side keeps no
    /// more than one frame in flight.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub enum CopyFrame<'a> where is_possible {
        /// The next entries, or the deduplication records.
        1 => Request {
            /// Who copies.
            joiner: NodeId,
            /// The partition.
            partition: PartitionId,
            /// The epoch in which it joins.
            epoch: Epoch,
            /// What part.
            section: CopySection,
            /// Only entries that were written by decisions after this one.
            since: u64,
            /// Where to go on: behind the last key that it has ([`cursor_behind`]), or the last client; empty: at the first. Of [`CopySection::Begin`]: what it holds, opaque here.
            after: &'a [u8] as Rest<FRAME_BYTES_MAX>,
        },
        /// The answer.
        2 => Chunk {
            /// The partition.
            partition: PartitionId,
            /// The epoch of the request.
            epoch: Epoch,
            /// What part.
            section: CopySection,
            /// Whether there is more of this section.
            more: bool,
            /// Entries: [`put_keyed_entry`]s, after 8 bytes. Others: the replica's own records, opaque here.
            payload: &'a [u8] as Rest<FRAME_BYTES_MAX>,
        },
        /// A member lacks a large value: a part of it, from there on.
        3 => ValueRequest {
            /// Who lacks it.
            asker: NodeId,
            /// Of which both are members.
            partition: PartitionId,
            /// The epoch of both.
            epoch: Epoch,
            /// Which.
            reference: Reference,
            /// Where to go on.
            offset: u32,
        },
        /// The answer.
        4 => ValuePart {
            /// Which.
            name: OpId,
            /// Of the request.
            offset: u32,
            /// [`VALUE_PART_BYTES`], or what is left; none if it is not here.
            bytes: &'a [u8] as Rest<FRAME_BYTES_MAX>,
        },
    }
}

/// Bytes of a [`CopyFrame::ValuePart`]: some whole chunks.
pub const VALUE_PART_BYTES: u32 = 128 * CHUNK_BYTES as u32;
const _: () = assert!(VALUE_PART_BYTES as usize <= FRAME_BYTES_MAX / 2);

code! {
    /// The parts of a copy, in their order.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum CopySection {
        /// What both ends have in common.
        Begin = 0,
        /// Deduplication records.
        Clients = 1,
        /// Keys and values, and deletions.
        Entries = 2,
    }
}

impl<'a> CopyFrame<'a> {
    /// Appends the frame's bytes (without the length that precedes it in the stream).
    pub fn append(&self, out: &mut Vec<u8>) {
        codec::append::<CopyFrame<'static>>(self, out);
        assert!(out.len() <= FRAME_BYTES_MAX);
    }

    /// Reads a frame, which is all of `bytes`.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        codec::read::<CopyFrame<'static>>("copy frame", &mut Reader::new(bytes))
    }

    fn is_possible(&self) -> Result<(), DecodeError> {
        if let Self::Request { section: CopySection::Clients | CopySection::Entries, after, .. } = self {
            in_range("after", after.len(), 0, 1 + KEY_BYTES_MAX)?;
        }
        Ok(())
    }
}

/// Where the entries of a copy go on: behind this key, which may be the empty one.
pub fn cursor_behind(key: Option<&[u8]>) -> Vec<u8> {
    key.map_or_else(Vec::new, |key| [&[BEHIND], key].concat())
}

/// The key behind which they go on; none: they begin.
pub fn key_of_cursor(cursor: &[u8]) -> Option<&[u8]> {
    cursor.strip_prefix(&[BEHIND])
}

/// The first byte of a cursor.
const BEHIND: u8 = 1;

/// Appends one key and its stored entry to the payload of a [`CopyFrame::Chunk`].
pub fn put_keyed_entry(out: &mut Vec<u8>, key: &[u8], entry: &[u8]) {
    put(out, &[U16::from(key.len() as u16), U16::from(entry.len() as u16)]);
    out.extend_from_slice(key);
    out.extend_from_slice(entry);
}

/// Reads what [`put_keyed_entry`] wrote.
pub fn read_keyed_entry<'a>(reader: &mut Reader<'a>) -> Result<(&'a [u8], &'a [u8]), DecodeError> {
    let [key_length, entry_length]: [U16; 2] = reader.layout("keyed entry")?;
    let key_length = in_range("key_length", key_length.get().into(), 0, KEY_BYTES_MAX)?;
    let key = reader.bytes(key_length, "key_length")?;
    Ok((key, reader.bytes(entry_length.get().into(), "entry_length")?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::check_part;

    #[test]
    fn every_bit_of_an_entry_and_of_a_frame_counts() {
        check_part::<Entry<'static>>();
        check_part::<CopyFrame<'static>>();
    }
}
