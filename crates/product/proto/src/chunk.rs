//! Negotiated storage (Replicast §II): a *chunk* is a piece of an object that is named by what it is, and lies at the targets of a negotiating group that could take it soonest.
//!
//! ```text
//!   initiator ──ChunkRequest, Put──▶ negotiating group ─▶ every target ──ChunkAnswer: Bid, Stored, …──▶ initiator
//!             ──ChunkAccept: who, when──▶ negotiating group ─▶ every target              the others' bids are cancelled
//!             ──Chunk 0, 1, 2 …──▶ rendezvous group ─▶ the chosen ones                   frames, within the window
//!             ◀──TransferReport── who misses some            ◀──ChunkAnswer: Stored── who holds all of it durably
//!
//!   initiator ──ChunkRequest, Get──▶ negotiating group ─▶ every target ──ChunkAnswer: Held, NotFound──▶ initiator
//!             ──ChunkRead, token──▶ one of those that hold it ──Chunk …──▶ initiator
//! ```
//!
//! Every message names the map of groups that its sender goes by: members of another one refuse it (P2). What a *frame* is here is a [`Chunk`](crate::large::Chunk) elsewhere.

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
/// No message of a negotiation is longer than this, in bytes: control messages are to be short beside what is reserved (Replicast §III-D).
pub const CONTROL_BYTES_MAX: usize = 300;

/// What a chunk is: the BLAKE3 digest of its bytes, all 256 bits (P1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChunkId(pub [u8; 32]);

impl fmt::Display for ChunkId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Which map of groups: raised by the metadata service whenever groups change; 0 is "none yet".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MapVersion(pub u32);

/// A round of garbage collection, and the stamp of what was stored or confirmed in it (P7).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Round(pub u64);

plain! {
    ChunkId, [u8; 32], |value| value.0, |layout, _field| Ok(Self(*layout));
    MapVersion, U32, |value| value.0.into(), |layout, _field| Ok(Self(layout.get()));
    Round, U64, |value| value.0.into(), |layout, _field| Ok(Self(layout.get()));
}

tagged! {
    /// What an initiator wants.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Wanted where is_possible {
        /// To put a chunk.
        1 => Put {
            /// Its length in bytes.
            bytes: u32,
            /// When the initiator can begin, in nanoseconds from the receipt of this.
            earliest_ns: u64,
            /// Places of the group that hold it, or are not asked: they are silent.
            except: u16,
        },
        /// To get it.
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
            /// Names the negotiation: answers, accept and frames carry it. One that is sent again is answered with the same bid.
            op: OpId,
            /// Where answers go, if not to the sender.
            reply_to: Option<SocketAddrV4>,
        }
        body {
            /// Of the initiator's map.
            version: MapVersion,
            /// The chunk.
            id: ChunkId,
            /// What for.
            wanted: Wanted,
        }
    }
}

tagged! {
    /// What a target says to a request, an accept, or at the end of a transfer.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Answer where is_possible {
        /// A put may be sent here in this window (P4): offsets from the receipt of the request, in nanoseconds.
        1 => Bid {
            /// Which bid.
            bid: u64,
            /// The first bit, at the earliest.
            left_ns: u64,
            /// The last bit, at the latest.
            right_ns: u64,
            /// How long after that it is durable, as far as is known.
            disk_ns: u64,
        },
        /// It is held here, durably, and stamped (P3, P7).
        2 => Stored {
            /// With the target's round.
            stamp: Round,
            /// Which start of the target says so.
            process: u64,
        },
        /// Another initiator is sending it here: that counts for nothing yet (P6). To be asked for after so many nanoseconds.
        3 => Arriving(u64),
        /// Nothing can be promised. To be asked for after so many nanoseconds.
        4 => NotNow(u64),
        /// The disk has no room for it (P15).
        5 => NoSpace,
        /// A get may be sent here.
        6 => Held {
            /// Its length in bytes.
            bytes: u32,
            /// What reads have to show: that they come from where this went (P10).
            token: u64,
            /// When the target expects to be free for it, in nanoseconds from now.
            wait_ns: u64,
        },
        /// It is not here.
        7 => NotFound,
        /// The target goes by another map: the version of this answer.
        8 => OtherMap,
        /// What came is not what its id says.
        9 => Wrong,
        /// The accept names a bid that is over, or was never made.
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
            /// The negotiation.
            op: OpId,
        }
        body {
            /// Of the target's map.
            version: MapVersion,
            /// The target.
            node: NodeId,
            /// Its place in its group.
            place: u8 => 1 zeros,
            /// What.
            answer: Answer,
            /// The chunk.
            id: ChunkId,
        }
    }
}

part! {
    /// A target that gets the chunk, and when.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Chosen {
        /// Its place in the group.
        place: u8,
        /// The bid that it made.
        bid: u64,
        /// What of it is used, as offsets from the receipt of the request.
        left_ns: u64,
        /// Likewise.
        right_ns: u64,
    }
}

message! {
    /// Initiator to negotiating group: whose bids it takes. All others are cancelled by it. Sent again, it asks the chosen ones what they have.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct ChunkAccept: ChunkAccept {
        header {
            /// The negotiation.
            op: OpId,
            /// As in the request.
            reply_to: Option<SocketAddrV4>,
        }
        body {
            /// Of the initiator's map.
            version: MapVersion,
            /// The chunk.
            id: ChunkId,
            /// The targets; none if no bids fit each other.
            chosen: Vec<Chosen> as List<u8, Chosen, CHOSEN_MAX>,
        }
    }
}

message! {
    /// Initiator to one target that holds a chunk: send these frames of it.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct ChunkRead: ChunkRead {
        header {
            /// The negotiation; frames carry it.
            op: OpId,
            /// As in the request.
            reply_to: Option<SocketAddrV4>,
        }
        body {
            /// Of the initiator's map.
            version: MapVersion,
            /// The chunk.
            id: ChunkId,
            /// As the target has told it.
            token: u64,
            /// The first frame.
            first: u32,
            /// How many, at most [`READ_FRAMES_MAX`].
            count: u16 => 2 zeros,
        }
    }
}

/// Frames of one [`ChunkRead`], at most.
pub const READ_FRAMES_MAX: u16 = 64;

/// How many frames a chunk of so many bytes goes in.
pub const fn frames_of(bytes: u32) -> u32 {
    bytes.div_ceil(CHUNK_BYTES as u32)
}

/// Where a frame begins in a chunk of so many bytes, and how long it is; none beyond the end.
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
    fn frames_are_the_chunk() {
        let frame = CHUNK_BYTES as u32;
        assert_eq!([1, frame, frame + 1, 3 * frame].map(frames_of), [1, 1, 2, 3]);
        assert_eq!((frame_of(frame + 1, 0), frame_of(frame + 1, 1)), (Some((0, frame)), Some((frame, 1))));
        assert_eq!((frame_of(frame, 1), frame_of(5, u32::MAX)), (None, None));
    }

    #[test]
    fn what_cannot_be_is_refused() {
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
        assert!(decoded(&|out| answer(2, 2).encode(out)).is_err(), "a window of no time");
    }
}
