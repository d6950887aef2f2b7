//! What a target remembers of those who want something of it.

use alloc::collections::BTreeMap;
use core::net::SocketAddrV4;
use nicekv_reservation::Bid;
use nicekv_wire::chunk::{ChunkId, Round};
use nicekv_wire::{OpId, PartitionId};

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

/// Marks of a round that come.
#[derive(Clone, Debug)]
pub(super) struct Marking {
    pub(super) round: Round,
    /// Partitions of names whose marks are not all here, and the page that is the next one of each.
    pub(super) open: BTreeMap<PartitionId, u32>,
}
