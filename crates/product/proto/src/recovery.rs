//! Messages of a new epoch between nodes (R3, R4), and frames by which a joiner copies a partition
//! (R7).

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
    /// From the primary of a new epoch: list your undecided ops from `cursor` on.
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
            /// 0 in the first request, then `next` of the last reply.
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
        /// See [`PrepareAck::contended`](crate::replication::PrepareAck::contended).
        contended: bool => 7 zeros,
    }
}

message! {
    /// A member joins an epoch and lists its undecided ops (R4), which thereby count as
    /// acknowledged in the new epoch (R1).
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
            /// Durable undecided ops in log order; at most [`UNDECIDED_MAX`].
            undecided: Vec<UndecidedOp> as List<u16, UndecidedOp, UNDECIDED_MAX> => 4 zeros,
            /// Copied from the request.
            cursor: u64,
            /// Cursor for the next request; 0 at the end.
            next: u64,
            /// Last decision in its log.
            logged: u64,
            /// Last decision that is durable here.
            synced: u64,
            /// Last decision known to be durable at every member of an earlier epoch (R18).
            released: u64,
        }
    }
}

/// Most ops of one [`RecoverReply`].
pub const UNDECIDED_MAX: usize = 56;
const UNDECIDED_BYTES: usize = size_of::<<UndecidedOp as Codec>::Layout>();
const _: () = assert!(RecoverReply::FIXED_BYTES + UNDECIDED_MAX * UNDECIDED_BYTES <= DATAGRAM_BYTES_MAX);

tagged! {
    /// Data that a primary asks a member for.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Wanted {
        /// The prepare of this op; the answer is a [`Resend`](crate::replication::Resend).
        1 => Op(OpId),
        /// Decisions after this index; the answer is [`Decisions`](crate::replication::Decisions).
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
            /// What is missing.
            wanted: Wanted => 5 zeros,
        }
    }
}

part! {
    /// State of a key in the engine's stored form, which is also copied to joiners.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Entry<'a> where is_possible {
        /// Decision that wrote it.
        index: u64,
        /// Op of that decision (R5).
        version: OpId,
        /// Expiry time in milliseconds of the Unix epoch; 0: never.
        expiry_ms: u64,
        /// Form of the value.
        form: Form,
        /// The value; `None` is a tombstone, kept until every original member has the deletion.
        value: Option<&'a [u8]> as OptionalRest<HASH_BYTES_MAX>,
    }
}

impl<'a> Entry<'a> {
    const FORM_AT: usize = size_of::<[u64; 4]>();
    /// Length of the stored form without the value, in bytes.
    pub const FIXED_BYTES: usize = size_of::<<Entry<'static> as Codec>::Layout>();

    /// Appends the stored form.
    pub fn append(&self, out: &mut Vec<u8>) {
        codec::append::<Entry<'static>>(self, out);
    }

    /// Large value that a stored entry refers to; `None` if the entry is damaged.
    pub fn reference_of(stored: &[u8]) -> Option<Reference> {
        // Fast path: most entries refer to none.
        let is_large = *stored.get(Self::FORM_AT)? == Form::Large as u8;
        is_large.then(|| Entry::decode(stored).ok()?.large()).flatten()
    }

    /// Large value that the entry refers to.
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

    /// Whether the entry and this key fit a message; clients cannot put anything larger.
    pub fn may_be_of(&self, key: &[u8]) -> bool {
        self.check_of(key).is_ok()
    }

    /// Decodes the stored form, all of `bytes`.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        codec::read::<Entry<'static>>("entry", &mut Reader::new(bytes))
    }
}

/// Longest frame of the copy stream, in bytes; each frame is preceded by its length as a 32-bit
/// big-endian number.
pub const FRAME_BYTES_MAX: usize = 512 << 10;

tagged! {
    /// Frames of the TCP stream by which a joiner copies a partition (R7). The joiner requests, the
    /// primary answers; each side keeps at most one frame in flight.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub enum CopyFrame<'a> where is_possible {
        /// Requests the next entries or deduplication records.
        1 => Request {
            /// The joiner.
            joiner: NodeId,
            /// The partition.
            partition: PartitionId,
            /// The epoch in which it joins.
            epoch: Epoch,
            /// Requested section.
            section: CopySection,
            /// Only entries written by decisions after this index.
            since: u64,
            /// Where to continue: behind the last received key ([`cursor_behind`]) or client; empty
            /// at the start. In [`CopySection::Begin`] it is the joiner's own state, opaque here.
            after: &'a [u8] as Rest<FRAME_BYTES_MAX>,
        },
        /// The answer.
        2 => Chunk {
            /// The partition.
            partition: PartitionId,
            /// The epoch of the request.
            epoch: Epoch,
            /// Section of the answer.
            section: CopySection,
            /// Whether there is more of this section.
            more: bool,
            /// Entries: [`put_keyed_entry`]s, after 8 bytes. Other sections: the replica's own
            /// records, opaque here.
            payload: &'a [u8] as Rest<FRAME_BYTES_MAX>,
        },
        /// Requests a part of a large value that a member lacks.
        3 => ValueRequest {
            /// The member.
            asker: NodeId,
            /// Partition of both.
            partition: PartitionId,
            /// Epoch of both.
            epoch: Epoch,
            /// The value.
            reference: Reference,
            /// Offset to continue at.
            offset: u32,
        },
        /// The answer.
        4 => ValuePart {
            /// The value.
            name: OpId,
            /// Copied from the request.
            offset: u32,
            /// [`VALUE_PART_BYTES`] bytes; fewer at the end; empty if the value is not present.
            bytes: &'a [u8] as Rest<FRAME_BYTES_MAX>,
        },
    }
}

/// Most bytes of a [`CopyFrame::ValuePart`]: a whole number of chunks.
pub const VALUE_PART_BYTES: u32 = 128 * CHUNK_BYTES as u32;
const _: () = assert!(VALUE_PART_BYTES as usize <= FRAME_BYTES_MAX / 2);

code! {
    /// Sections of a copy, in order.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum CopySection {
        /// State that both ends share.
        Begin = 0,
        /// Deduplication records.
        Clients = 1,
        /// Keys with values, and tombstones.
        Entries = 2,
    }
}

impl<'a> CopyFrame<'a> {
    /// Appends the encoded frame, without its length prefix.
    pub fn append(&self, out: &mut Vec<u8>) {
        codec::append::<CopyFrame<'static>>(self, out);
        assert!(out.len() <= FRAME_BYTES_MAX);
    }

    /// Decodes a frame, all of `bytes`.
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

/// Cursor behind this key, which may be the empty key.
pub fn cursor_behind(key: Option<&[u8]>) -> Vec<u8> {
    key.map_or_else(Vec::new, |key| [&[BEHIND], key].concat())
}

/// The key of a cursor; `None` at the start.
pub fn key_of_cursor(cursor: &[u8]) -> Option<&[u8]> {
    cursor.strip_prefix(&[BEHIND])
}

/// First byte of a cursor.
const BEHIND: u8 = 1;

/// Appends one key and its stored entry to the payload of a [`CopyFrame::Chunk`].
pub fn put_keyed_entry(out: &mut Vec<u8>, key: &[u8], entry: &[u8]) {
    put(out, &[U16::from(key.len() as u16), U16::from(entry.len() as u16)]);
    out.extend_from_slice(key);
    out.extend_from_slice(entry);
}

/// Decodes what [`put_keyed_entry`] wrote.
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
    fn entry_and_frame_codecs_are_strict() {
        check_part::<Entry<'static>>();
        check_part::<CopyFrame<'static>>();
    }
}
