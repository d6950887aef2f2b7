//! What a target remembers of those who want something of it.

use crate::reservation::Bid;
use core::net::SocketAddrV4;
use nicekv_proto::OpId;
use nicekv_proto::chunk::ChunkId;

/// A bid that is neither accepted nor cancelled.
#[derive(Clone, Copy, Debug)]
pub(super) struct Negotiation {
    pub(super) bid: Bid,
    pub(super) id: ChunkId,
    pub(super) bytes: u32,
    /// Places that hold it already.
    pub(super) except: u16,
    pub(super) initiator: SocketAddrV4,
    pub(super) received_ns: u64,
}

/// What the disk reads, and what for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Reading {
    /// Somebody has asked for frames.
    Frames { to: SocketAddrV4, op: OpId, place: u8, id: ChunkId, first: u32 },
    /// All of a chunk is looked at.
    Whole { id: ChunkId },
}
