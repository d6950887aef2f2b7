//! What a target remembers of those who want something of it.

use core::net::SocketAddrV4;
use nicekv_reservation::Bid;
use nicekv_wire::OpId;
use nicekv_wire::chunk::ChunkId;

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

/// Who has asked for frames.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reading {
    pub(super) to: SocketAddrV4,
    pub(super) op: OpId,
    pub(super) place: u8,
    pub(super) id: ChunkId,
    pub(super) first: u32,
}
