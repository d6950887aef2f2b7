//! Large values: what is too long for one message, or for one datagram where messages have no more (quorum keyspaces), goes in chunks, and is spoken of by its name.
//!
//! ```text
//!   client ──Update, SetLarge (name, length, checksum)──▶ multicast vnode ─▶ every replica      the op; sent again, it asks for reports
//!   client ──Chunk 0, 1, 2 …──▶ multicast vnode ─▶ every replica                                once each; repairs go to one
//!   client ◀──TransferReport── every replica                                                    what is there, and what is missing
//!   client ◀──Reply── primary                                                                   every replica holds all, durably
//!
//!   client ──Get──▶ unicast vnode ──▶ one replica ──Reply (name, length, checksum), token──▶ client
//!   client ──ReadChunks (name, first, count), token──▶ unicast vnode ──▶ one replica ──Chunk …──▶ client
//! ```
//!
//! Wherever a small value stands, the [`Reference`] of a large one may stand in its place; its [`Form`](crate::Form) beside it says which of the two it is. A value is named by the op that
//! wrote it, has one content for ever, and lies at every replica apart from the keys.

use crate::bytes::Reader;
use crate::codec::{self, Codec, List, Rest};
use crate::declare::{codec_of, layout, message, part};
use crate::limits::{
    CHUNK_BYTES, DATAGRAM_BYTES_MAX, KEY_BYTES_MAX, LARGE_BYTES_MAX, MEMBERS_MAX, PAIR_BYTES_MAX,
    small_value_bytes_max,
};
use crate::{
    DecodeError, Epoch, Header, HeaderLayout, KeyDigest, KeyspaceId, NodeId, OpId, Opcode, PartitionId,
    Status,
};
use alloc::vec::Vec;
use core::mem::size_of;
use core::net::SocketAddrV4;

part! {
    /// Which large value, how long it is, and what it is.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct Reference where is_possible {
        /// The op that wrote it.
        name: OpId,
        /// In bytes: more than a datagram has room for beside the key, and at most [`LARGE_BYTES_MAX`].
        length: u32 => 4 zeros,
        /// The first half of its BLAKE3 digest.
        checksum: u128,
    }
}

impl Reference {
    /// Bytes of the encoded form.
    pub const BYTES: usize = size_of::<<Self as Codec>::Layout>();

    /// The encoded form, which stands where a small value would.
    pub fn bytes(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(Self::BYTES);
        codec::append::<Self>(self, &mut out);
        out
    }

    /// Reads the encoded form, which is all of `bytes`.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        let reference = codec::read::<Self>("reference", &mut reader)?;
        reader.finish("reference")?;
        Ok(reference)
    }

    /// What a message that was decoded carries, whose decoding has checked it, or what was encoded from one.
    ///
    /// # Panics
    ///
    /// With anything else.
    pub fn checked(encoded: &[u8]) -> Self {
        Self::decode(encoded).expect("checked when it was decoded, or made of one")
    }

    /// How many chunks it goes in.
    pub fn chunks(&self) -> u32 {
        self.length.div_ceil(CHUNK_BYTES as u32)
    }

    /// Where a chunk begins in the value, and how long it is; none beyond the end.
    pub fn chunk(&self, number: u32) -> Option<(u32, usize)> {
        let start = number.checked_mul(CHUNK_BYTES as u32)?;
        let length = self.length.checked_sub(start).filter(|rest| *rest > 0)?;
        Some((start, length.min(CHUNK_BYTES as u32) as usize))
    }

    fn is_possible(&self) -> Result<(), DecodeError> {
        let is_large = LENGTH_MIN..=LARGE_BYTES_MAX;
        if self.name != OpId::NONE && is_large.contains(&self.length) {
            return Ok(());
        }
        Err(self.length_error())
    }

    /// Whether it is longer than small values are.
    pub(crate) fn check_length(&self, small_max: usize) -> Result<(), DecodeError> {
        if self.length as usize > small_max { Ok(()) } else { Err(self.length_error()) }
    }

    fn length_error(&self) -> DecodeError {
        DecodeError::UnknownValue { field: "length of a large value", value: self.length.into() }
    }
}

/// Of a large value: whatever is shorter has room beside every key.
const LENGTH_MIN: u32 = small_value_bytes_max(KEY_BYTES_MAX) as u32 + 1;
/// Every key has room for a reference.
const _: () = assert!(KEY_BYTES_MAX + Reference::BYTES <= PAIR_BYTES_MAX);

message! {
    /// A part of a large value: to replicas of an op that puts it, or to a client that reads it.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Chunk<'a>: Chunk {
        header {
            /// The keyspace of the key.
            keyspace: KeyspaceId,
            /// Of the put, or of the read.
            op: OpId,
            /// Digest of the key; zero in what goes to a client.
            digest: KeyDigest,
        }
        body {
            /// From 0.
            number: u32,
            /// For which nodes it is, by their [`receiver_bit`]s.
            mask: u16 => 2 zeros,
            /// [`CHUNK_BYTES`], or what is left at the end.
            bytes: &'a [u8] as Rest<CHUNK_BYTES>,
        }
    }
}

/// Masks of chunks: all nodes.
pub const RECEIVERS_ALL: u16 = u16::MAX;

/// The bit of a node in masks of chunks. Nodes share bits where there are many: a mask spares links and hosts what they need not have, and nothing else depends on it.
pub fn receiver_bit(node: NodeId) -> u16 {
    1 << (u32::from(node.0) % u16::BITS)
}

/// For which nodes a datagram is, as a switch reads it that has not decoded it: all, unless it has a mask.
pub fn receivers_of(datagram: &[u8]) -> u16 {
    let has_mask = |header: &&HeaderLayout| {
        (header.opcode == Opcode::Chunk as u8 || header.opcode == Opcode::ReadChunks as u8)
            && header.room == 0
    };
    let mask =
        HeaderLayout::peek(datagram).filter(has_mask).and_then(|_| datagram.get(MASK_AT..)?.first_chunk());
    mask.map_or(RECEIVERS_ALL, |mask| u16::from_be_bytes(*mask))
}

/// Of a chunk, and of what asks for some.
const MASK_AT: usize = Header::BYTES + size_of::<u32>();

/// Ranges of missing chunks in a [`TransferReport`], at most.
pub const HOLES_MAX: usize = 32;

part! {
    /// Chunks that are missing.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Hole {
        /// The first.
        start: u32,
        /// The one behind the last.
        end: u32,
    }
}

message! {
    /// From a replica to who puts a large value: what is here of it.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct TransferReport: TransferReport {
        header {
            /// The op that puts it.
            op: OpId,
        }
        body {
            /// Its partition.
            partition: PartitionId,
            /// The replica's epoch.
            epoch: Epoch,
            /// The replica.
            sender: NodeId,
            /// [`Status::Ok`], or why it is not taken here.
            status: Status,
            /// From the primary: the members. Others say none.
            members: Vec<NodeId> as List<u8, NodeId, MEMBERS_MAX>,
            /// All chunks below this number are here.
            prefix: u32,
            /// None from this number on is here.
            end: u32,
            /// From this number on nothing is taken yet.
            limit: u32,
            /// Datagrams with a chunk of it that have come.
            arrived: u32,
            /// Questions for reports that have come.
            asked: u32,
            /// What can be taken, in chunks per second; 0: no bound is known.
            chunks_per_second: u32,
            /// For how long the last one was here when this was said, in nanoseconds.
            held_ns: u64,
            /// Holes that are to be filled.
            missing: Vec<Hole> as List<u8, Hole, HOLES_MAX>,
        }
    }
}

message! {
    /// Of a client that was told of a large value: send these chunks. Answered by them, or by a [`Reply`](crate::Reply): with the same reference and a token where
    /// this one's is not right, with [`Status::NotFound`] where the value is not any more.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct ReadChunks: ReadChunks {
        header {
            /// The keyspace of the key.
            keyspace: KeyspaceId,
            /// The read.
            op: OpId,
            /// Digest of the key.
            digest: KeyDigest,
            /// Where the chunks go, if not to the sender.
            reply_to: Option<SocketAddrV4>,
        }
        body {
            /// The first chunk.
            first: u32,
            /// Which nodes get it, where it goes to all replicas: the [`receiver_bit`] of `replica`.
            mask: u16,
            /// Who is to answer; [`ANY_REPLICA`]: whom the switch passes it to.
            replica: NodeId,
            /// Which value.
            reference: Reference,
            /// What the replica has told the client in its reply: that what it asks for goes to where it is.
            token: u64,
            /// How many, at most [`READ_CHUNKS_MAX`].
            count: u16 => 6 zeros,
        }
    }
}

/// No replica in particular.
pub const ANY_REPLICA: NodeId = NodeId(u16::MAX);

/// Chunks of one [`ReadChunks`], at most.
pub const READ_CHUNKS_MAX: u16 = 64;

const _: () = assert!(Chunk::FIXED_BYTES + CHUNK_BYTES <= DATAGRAM_BYTES_MAX);
const _: () = assert!(TransferReport::FIXED_BYTES + HOLES_MAX * 8 + MEMBERS_MAX * 2 <= DATAGRAM_BYTES_MAX);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::VALUE_BYTES_MAX;
    use crate::samples::check_part;
    use crate::{ClientId, Form};

    #[test]
    fn every_bit_of_a_reference_counts() {
        check_part::<Reference>();
    }

    #[test]
    fn the_chunks_of_a_value_are_the_value() {
        let name = OpId { client: ClientId(7), sequence: 3 };
        let of = |length| Reference { name, length, checksum: 9 };
        let chunk = CHUNK_BYTES as u32;
        assert_eq!([of(chunk).chunks(), of(chunk + 1).chunks(), of(3 * chunk).chunks()], [1, 2, 3]);
        assert_eq!(of(chunk + 1).chunk(1), Some((chunk, 1)));
        assert_eq!((of(chunk).chunk(0), of(chunk).chunk(1)), (Some((0, CHUNK_BYTES)), None));
        assert_eq!(Reference::decode(&of(2_000).bytes()), Ok(of(2_000)));
        for impossible in [of(0), of(LENGTH_MIN - 1), of(LARGE_BYTES_MAX + 1)] {
            assert!(Reference::decode(&impossible.bytes()).is_err(), "{impossible:?}");
        }
        assert!(Reference::decode(&of(2_000).bytes()[1..]).is_err());
        assert!(Form::Large.check(None).is_err() && Form::Large.check(Some(b"small")).is_err());
        assert!(Form::Plain.check(Some(b"small")).is_ok());
    }

    #[test]
    fn a_value_is_large_where_its_key_leaves_no_room() {
        let bytes = [7; VALUE_BYTES_MAX + 1];
        for (key_bytes, small_max) in [(1, 1_024), (256, 1_024), (257, 1_023), (KEY_BYTES_MAX, 256)] {
            let name = OpId { client: ClientId(7), sequence: 3 };
            let of = |length| Reference { name, length, checksum: 9 }.bytes();
            let large = |length| Form::Large.check_beside(key_bytes, Some(&of(length)));
            let small = |length| Form::Plain.check_beside(key_bytes, Some(&bytes[..length]));
            assert_eq!((small(small_max), large(small_max as u32 + 1)), (Ok(()), Ok(())), "{key_bytes}");
            assert!(matches!(small(small_max + 1), Err(DecodeError::OutOfRange { field: "value", .. })));
            assert!(large(small_max as u32).is_err(), "{key_bytes}: it is small");
            assert_eq!(Form::Plain.check_beside(key_bytes, None), Ok(()));
        }
    }
}
