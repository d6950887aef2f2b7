//! Large values: a value that does not fit one message (in quorum keyspaces: one datagram) travels
//! in chunks and is referred to by name.
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
//! A [`Reference`] stands in place of a large value wherever a small value would be stored; the
//! [`Form`](crate::Form) next to it distinguishes the two. A large value is named by the op that
//! wrote it, never changes, and is stored at every replica apart from the keys.

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
    /// Name, length and checksum of a large value.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct Reference where is_possible {
        /// The op that wrote it.
        name: OpId,
        /// Length in bytes: more than a datagram has room for next to the key, at most
        /// [`LARGE_BYTES_MAX`].
        length: u32 => 4 zeros,
        /// First half of its BLAKE3 digest.
        checksum: u128,
    }
}

impl Reference {
    /// Length of the encoded form, in bytes.
    pub const BYTES: usize = size_of::<<Self as Codec>::Layout>();

    /// The encoded form, which is stored in place of the value.
    pub fn bytes(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(Self::BYTES);
        codec::append::<Self>(self, &mut out);
        out
    }

    /// Decodes `bytes`, all of it.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        let reference = codec::read::<Self>("reference", &mut reader)?;
        reader.finish("reference")?;
        Ok(reference)
    }

    /// Decodes what a decoded message carries, or what was encoded from one.
    ///
    /// # Panics
    ///
    /// If `bytes` are not a reference.
    pub fn checked(encoded: &[u8]) -> Self {
        Self::decode(encoded).expect("checked when it was decoded, or made of one")
    }

    /// Number of chunks.
    pub fn chunks(&self) -> u32 {
        self.length.div_ceil(CHUNK_BYTES as u32)
    }

    /// Offset and length of a chunk; `None` beyond the end.
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

    /// Whether it is longer than small values may be.
    pub(crate) fn check_length(&self, small_max: usize) -> Result<(), DecodeError> {
        if self.length as usize > small_max { Ok(()) } else { Err(self.length_error()) }
    }

    fn length_error(&self) -> DecodeError {
        DecodeError::UnknownValue { field: "length of a large value", value: self.length.into() }
    }
}

/// Shortest large value: a shorter one fits a datagram next to any key.
const LENGTH_MIN: u32 = small_value_bytes_max(KEY_BYTES_MAX) as u32 + 1;
/// A reference fits a datagram next to any key.
const _: () = assert!(KEY_BYTES_MAX + Reference::BYTES <= PAIR_BYTES_MAX);

message! {
    /// One chunk of a large value, to the replicas that store it or to a client that reads it.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Chunk<'a>: Chunk {
        header {
            /// Keyspace of the key.
            keyspace: KeyspaceId,
            /// Op of the put or of the read.
            op: OpId,
            /// Digest of the key; zero if the receiver is a client.
            digest: KeyDigest,
        }
        body {
            /// Number of the chunk, from 0.
            number: u32,
            /// Mask of the receivers, by [`receiver_bit`].
            mask: u16 => 2 zeros,
            /// [`CHUNK_BYTES`] bytes; fewer in the last chunk.
            bytes: &'a [u8] as Rest<CHUNK_BYTES>,
        }
    }
}

/// Mask of all nodes.
pub const RECEIVERS_ALL: u16 = u16::MAX;

/// The bit of a node in receiver masks. Large clusters share bits: masks only save traffic,
/// correctness does not depend on them.
pub fn receiver_bit(node: NodeId) -> u16 {
    1 << (u32::from(node.0) % u16::BITS)
}

/// The receiver mask of an encoded datagram, as a switch reads it; all nodes if it has no mask.
pub fn receivers_of(datagram: &[u8]) -> u16 {
    let has_mask = |header: &&HeaderLayout| {
        (header.opcode == Opcode::Chunk as u8 || header.opcode == Opcode::ReadChunks as u8)
            && header.room == 0
    };
    let mask =
        HeaderLayout::peek(datagram).filter(has_mask).and_then(|_| datagram.get(MASK_AT..)?.first_chunk());
    mask.map_or(RECEIVERS_ALL, |mask| u16::from_be_bytes(*mask))
}

/// Offset of the receiver mask in a chunk, and in a request for chunks: behind the header and the
/// 32-bit field before it.
const MASK_AT: usize = Header::BYTES + size_of::<u32>();

/// Most ranges of missing chunks in a [`TransferReport`].
pub const HOLES_MAX: usize = 32;

part! {
    /// A range of missing chunks.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Hole {
        /// First missing chunk.
        start: u32,
        /// First chunk after the range.
        end: u32,
    }
}

message! {
    /// Progress report of a replica to the client that puts a large value.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct TransferReport: TransferReport {
        header {
            /// Op of the put.
            op: OpId,
        }
        body {
            /// Its partition.
            partition: PartitionId,
            /// Epoch of the replica.
            epoch: Epoch,
            /// The replica.
            sender: NodeId,
            /// [`Status::Ok`], or why the replica refuses the value.
            status: Status,
            /// The members, if the sender is the primary; else empty.
            members: Vec<NodeId> as List<u8, NodeId, MEMBERS_MAX>,
            /// All chunks below this number have arrived.
            prefix: u32,
            /// No chunk from this number on has arrived.
            end: u32,
            /// Chunks from this number on are not accepted yet.
            limit: u32,
            /// Datagrams with chunks that have arrived.
            arrived: u32,
            /// Requests for reports that have arrived.
            asked: u32,
            /// Chunks per second that the replica can accept; 0: unknown.
            chunks_per_second: u32,
            /// Age of the last arrived chunk when this was sent, in nanoseconds.
            held_ns: u64,
            /// Missing chunks to be sent again.
            missing: Vec<Hole> as List<u8, Hole, HOLES_MAX>,
        }
    }
}

message! {
    /// Request of a client that has received a reference: send these chunks. The answer is the
    /// chunks, or a [`Reply`](crate::Reply): with the same reference and the right token if this
    /// token is wrong, with [`Status::NotFound`] if the value is gone.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct ReadChunks: ReadChunks {
        header {
            /// Keyspace of the key.
            keyspace: KeyspaceId,
            /// Op of the read.
            op: OpId,
            /// Digest of the key.
            digest: KeyDigest,
            /// Where to send the chunks, if not to the sender.
            reply_to: Option<SocketAddrV4>,
        }
        body {
            /// First chunk.
            first: u32,
            /// Mask of the nodes that receive it, if it is multicast: the [`receiver_bit`] of
            /// `replica`.
            mask: u16,
            /// Replica that must answer; [`ANY_REPLICA`]: the one that the switch selects.
            replica: NodeId,
            /// The value.
            reference: Reference,
            /// Token from the replica's reply: proves that the client receives at the address that
            /// it names.
            token: u64,
            /// Number of chunks, at most [`READ_CHUNKS_MAX`].
            count: u16 => 6 zeros,
        }
    }
}

/// Any replica.
pub const ANY_REPLICA: NodeId = NodeId(u16::MAX);

/// Most chunks of one [`ReadChunks`].
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
    fn reference_codec_is_strict() {
        check_part::<Reference>();
    }

    #[test]
    fn chunks_cover_the_value() {
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
    fn long_key_makes_a_value_large() {
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
