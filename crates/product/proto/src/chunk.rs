//! Negotiated storage (Replicast §II): a *chunk* is a piece of an object, named by its content, and
//! stored at those targets of a negotiating group that can take it soonest.
//!
//! ```text
//!   initiator ──ChunkRequest, Put──▶ negotiating group ─▶ every target ──ChunkAnswer: Bid, Stored, …──▶ initiator
//!             ──ChunkAccept: targets, time──▶ negotiating group ─▶ every target              the others' bids are cancelled
//!             ──Chunk 0, 1, 2 …──▶ rendezvous group ─▶ the chosen ones                   frames, within the window
//!             ◀──TransferReport── targets that miss frames   ◀──ChunkAnswer: Stored── targets that hold all frames durably
//!
//!   initiator ──ChunkRequest, Get──▶ negotiating group ─▶ every target ──ChunkAnswer: Held, NotFound──▶ initiator
//!             ──ChunkRead, token──▶ one of those that hold it ──Chunk …──▶ initiator
//! ```
//!
//! Every message names the sender's version of the group map; members with another version refuse
//! it (P2). A *frame* of a chunk is sent as a [`Chunk`](crate::large::Chunk) message.

use crate::codec::{Codec, List, plain};
use crate::declare::{codec_of, for_each, layout, message, part, tagged};
use crate::limits::CHUNK_BYTES;
use crate::{DecodeError, NodeId, OpId};
use alloc::vec::Vec;
use core::fmt;
use core::net::SocketAddrV4;
use zerocopy::network_endian::{U32, U64};

/// Longest chunk, in bytes.
pub const CHUNK_LENGTH_MAX: u32 = 4 << 20;
/// Most targets that one accept names.
pub const CHOSEN_MAX: usize = 8;
/// Longest message of a negotiation, in bytes: control messages must be short compared with what
/// they reserve (Replicast §III-D).
pub const CONTROL_BYTES_MAX: usize = 300;

/// Name of a chunk: the full 256-bit BLAKE3 digest of its bytes (P1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChunkId(pub [u8; 32]);

impl fmt::Display for ChunkId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Version of the group map, raised by the metadata service with every change of groups; 0: none
/// yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MapVersion(pub u32);

/// Garbage collection round, and stamp of what was stored or confirmed in that round (P7).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Round(pub u64);

plain! {
    ChunkId, [u8; 32], |value| value.0, |layout, _field| Ok(Self(*layout));
    MapVersion, U32, |value| value.0.into(), |layout, _field| Ok(Self(layout.get()));
    Round, U64, |value| value.0.into(), |layout, _field| Ok(Self(layout.get()));
}

tagged! {
    /// Purpose of a request.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Wanted where is_possible {
        /// To put a chunk.
        1 => Put {
            /// Its length in bytes.
            bytes: u32,
            /// Earliest start of the transfer, in nanoseconds from the receipt of this message.
            earliest_ns: u64,
            /// Mask of members that must not answer, because they hold the chunk or are excluded.
            except: u16,
        },
        /// To get a chunk.
        2 => Get,
    }
}

impl Wanted {
    fn is_possible(&self) -> Result<(), DecodeError> {
        match *self {
            Self::Put { bytes, .. } => length_is_possible(bytes),
            Self::Get => Ok(()),
        }
    }
}

fn length_is_possible(bytes: u32) -> Result<(), DecodeError> {
    if (1..=CHUNK_LENGTH_MAX).contains(&bytes) {
        return Ok(());
    }
    Err(DecodeError::UnknownValue { field: "length of a chunk", value: bytes.into() })
}

message! {
    /// Initiator to negotiating group.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct ChunkRequest: ChunkRequest {
        header {
            /// Names the negotiation; answers, accept and frames carry it. A retransmission gets
            /// the same bid.
            op: OpId,
            /// Address for answers, if not the sender.
            reply_to: Option<SocketAddrV4>,
        }
        body {
            /// Version of the initiator's map.
            version: MapVersion,
            /// The chunk.
            id: ChunkId,
            /// Purpose.
            wanted: Wanted,
        }
    }
}

tagged! {
    /// Answer of a target to a request or an accept, and report at the end of a transfer.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Answer where is_possible {
        /// Bid: the chunk may be sent in this window (P4), given as offsets in nanoseconds from the
        /// receipt of the request.
        1 => Bid {
            /// Number of the bid.
            bid: u64,
            /// Earliest arrival of the first bit.
            left_ns: u64,
            /// Latest arrival of the last bit.
            right_ns: u64,
            /// Expected time from then until the chunk is durable.
            disk_ns: u64,
        },
        /// The target holds the chunk durably, with a stamp (P3, P7).
        2 => Stored {
            /// Stamp: the target's round.
            stamp: Round,
            /// Process of the target.
            process: u64,
        },
        /// Another initiator is sending the chunk, which counts for nothing yet (P6). Ask again
        /// after this many nanoseconds.
        3 => Arriving(u64),
        /// The target cannot bid now. Ask again after this many nanoseconds.
        4 => NotNow(u64),
        /// The disk is full (P15).
        5 => NoSpace,
        /// The chunk can be read here.
        6 => Held {
            /// Its length in bytes.
            bytes: u32,
            /// Token for reads: proves that the initiator receives at its address (P10).
            token: u64,
            /// Expected time until the target is free to send, in nanoseconds.
            wait_ns: u64,
        },
        /// The target does not hold the chunk.
        7 => NotFound,
        /// The target has another map: its version is that of this message.
        8 => OtherMap,
        /// The received bytes do not match the chunk's id.
        9 => Wrong,
        /// The accept names an expired or unknown bid.
        10 => Lapsed,
    }
}

impl Answer {
    fn is_possible(&self) -> Result<(), DecodeError> {
        match *self {
            Self::Held { bytes, .. } => length_is_possible(bytes),
            Self::Bid { left_ns, right_ns, .. } if left_ns >= right_ns => {
                Err(DecodeError::UnknownValue { field: "right_ns", value: right_ns })
            }
            _ => Ok(()),
        }
    }
}

message! {
    /// Target to initiator.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct ChunkAnswer: ChunkAnswer {
        header {
            /// Names the negotiation.
            op: OpId,
        }
        body {
            /// Version of the target's map.
            version: MapVersion,
            /// The target.
            node: NodeId,
            /// Index of the target in its group.
            place: u8 => 1 zeros,
            /// The answer.
            answer: Answer,
            /// The chunk.
            id: ChunkId,
        }
    }
}

part! {
    /// A chosen target, with its window.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Chosen {
        /// Index in the group.
        place: u8,
        /// Its bid.
        bid: u64,
        /// Start of the used window, as offset from the receipt of the request.
        left_ns: u64,
        /// End of the used window, likewise.
        right_ns: u64,
    }
}

message! {
    /// Initiator to negotiating group: accepts bids and thereby cancels all others. A
    /// retransmission asks the chosen targets for their progress.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct ChunkAccept: ChunkAccept {
        header {
            /// Names the negotiation.
            op: OpId,
            /// As in the request.
            reply_to: Option<SocketAddrV4>,
        }
        body {
            /// Version of the initiator's map.
            version: MapVersion,
            /// The chunk.
            id: ChunkId,
            /// Chosen targets; empty if no bids fit together.
            chosen: Vec<Chosen> as List<u8, Chosen, CHOSEN_MAX>,
        }
    }
}

message! {
    /// Initiator to a target that holds a chunk: send these frames.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct ChunkRead: ChunkRead {
        header {
            /// Names the negotiation; frames carry it.
            op: OpId,
            /// As in the request.
            reply_to: Option<SocketAddrV4>,
        }
        body {
            /// Version of the initiator's map.
            version: MapVersion,
            /// The chunk.
            id: ChunkId,
            /// Token from the target's answer.
            token: u64,
            /// The first frame.
            first: u32,
            /// Number of frames, at most [`READ_FRAMES_MAX`].
            count: u16 => 2 zeros,
        }
    }
}

/// Most frames of one [`ChunkRead`].
pub const READ_FRAMES_MAX: u16 = 64;

/// Number of frames of a chunk with this length.
pub const fn frames_of(bytes: u32) -> u32 {
    bytes.div_ceil(CHUNK_BYTES as u32)
}

/// Offset and length of a frame; `None` beyond the end.
pub fn frame_of(bytes: u32, number: u32) -> Option<(u32, u32)> {
    let start = number.checked_mul(CHUNK_BYTES as u32)?;
    let left = bytes.checked_sub(start).filter(|left| *left > 0)?;
    Some((start, left.min(CHUNK_BYTES as u32)))
}

const _: () = assert!(ChunkRequest::FIXED_BYTES <= CONTROL_BYTES_MAX);
const _: () = assert!(ChunkAnswer::FIXED_BYTES <= CONTROL_BYTES_MAX);
const _: () = assert!(ChunkRead::FIXED_BYTES <= CONTROL_BYTES_MAX);
const _: () = {
    let chosen = size_of::<<Chosen as Codec>::Layout>();
    assert!(ChunkAccept::FIXED_BYTES + CHOSEN_MAX * chosen <= CONTROL_BYTES_MAX);
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Datagram;

    #[test]
    fn frames_cover_the_chunk() {
        let frame = CHUNK_BYTES as u32;
        assert_eq!([1, frame, frame + 1, 3 * frame].map(frames_of), [1, 1, 2, 3]);
        assert_eq!((frame_of(frame + 1, 0), frame_of(frame + 1, 1)), (Some((0, frame)), Some((frame, 1))));
        assert_eq!((frame_of(frame, 1), frame_of(5, u32::MAX)), (None, None));
    }

    #[test]
    fn impossible_values_are_refused() {
        let request = |bytes| ChunkRequest {
            op: OpId::NONE,
            reply_to: None,
            version: MapVersion(1),
            id: ChunkId::default(),
            wanted: Wanted::Put { bytes, earliest_ns: 0, except: 0 },
        };
        let decoded = |message: &dyn Fn(&mut Vec<u8>)| {
            let mut out = Vec::new();
            message(&mut out);
            Datagram::decode(&out).map(|_| ())
        };
        for (bytes, is_possible) in
            [(0, false), (1, true), (CHUNK_LENGTH_MAX, true), (CHUNK_LENGTH_MAX + 1, false)]
        {
            assert_eq!(decoded(&|out| request(bytes).encode(out)).is_ok(), is_possible, "{bytes}");
        }
        let answer = |left_ns, right_ns| ChunkAnswer {
            op: OpId::NONE,
            version: MapVersion(1),
            node: NodeId(1),
            place: 0,
            answer: Answer::Bid { bid: 1, left_ns, right_ns, disk_ns: 0 },
            id: ChunkId::default(),
        };
        assert!(decoded(&|out| answer(1, 2).encode(out)).is_ok());
        assert!(decoded(&|out| answer(2, 2).encode(out)).is_err(), "the transfer window is empty");
    }
}
