//! What a target is told when it begins, what it asks of its disk, and what it counts.

use alloc::vec::Vec;
use nicekv_reservation::Config;
use nicekv_wire::chunk::{ChunkId, MapVersion, Round};
use nicekv_wire::{NodeId, OpId};

/// How a target is.
#[derive(Clone, Debug)]
pub struct TargetConfig {
    /// Its name.
    pub node: NodeId,
    /// Of this start of its process: no two have the same.
    pub process: u64,
    /// Windows and their bounds.
    pub reservation: Config,
    /// What its disk writes in a second, before that has been measured.
    pub disk_bytes_per_second: u64,
    /// From it come tokens and what is left to chance.
    pub secret: [u8; 32],
}

/// A chunk that is held, durably.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// Its length.
    pub bytes: u32,
    /// The round in which it was stored or confirmed last (P7).
    pub stamp: Round,
    /// The last round in which a name was said to need it.
    pub marked: Round,
    /// Its rendezvous set: who was to hold it when it was put (P11).
    pub holders: Vec<NodeId>,
}

/// What the disk is to do, in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Storage {
    /// A chunk comes.
    Begin {
        /// Names the transfer.
        op: OpId,
        /// What it is to be.
        id: ChunkId,
        /// Its length.
        bytes: u32,
        /// To be kept with it.
        holders: Vec<NodeId>,
    },
    /// A part of it.
    Write {
        /// The transfer.
        op: OpId,
        /// Where it begins.
        offset: u32,
        /// The part.
        bytes: Vec<u8>,
    },
    /// All has come: it is verified by its id and forced, or given up. Answered by [`StorageDone::Finished`].
    Finish {
        /// The transfer.
        op: OpId,
    },
    /// It does not come: nothing is kept of it.
    Abandon {
        /// The transfer.
        op: OpId,
    },
    /// Answered by [`StorageDone::Read`], in order.
    Read {
        /// The chunk.
        id: ChunkId,
        /// From where on.
        offset: u32,
        /// How many bytes.
        bytes: u32,
    },
    /// The chunk is deleted.
    Remove {
        /// Which.
        id: ChunkId,
    },
}

/// How a transfer ended on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It is what its id says, and durable.
    Whole,
    /// It is not what its id says; nothing is kept.
    Wrong,
    /// The disk is full; nothing is kept.
    NoRoom,
}

/// What the disk has done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StorageDone {
    /// See [`Storage::Finish`].
    Finished {
        /// The transfer.
        op: OpId,
        /// How it ended.
        end: End,
    },
    /// See [`Storage::Read`].
    Read {
        /// None: what is there is damaged.
        bytes: Option<Vec<u8>>,
    },
}

/// How far a target is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// The map that it goes by.
    pub version: MapVersion,
    /// The last round in which all was deleted that no name needs.
    pub swept: Round,
    /// Chunks that it holds.
    pub chunks: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// For operators.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub struct TargetCounters {
    pub requests: u64,
    pub bids: u64,
    pub bids_refused: u64,
    pub cancelled: u64,
    /// Bids of which nobody has said anything, and transfers that did not come.
    pub lapsed: u64,
    pub transfers: u64,
    pub stored: u64,
    /// Chunks that were there already: no transfer (deduplication).
    pub confirmed: u64,
    pub wrong: u64,
    pub no_space: u64,
    pub frames: u64,
    pub frames_refused: u64,
    pub gets: u64,
    pub not_found: u64,
    pub reads: u64,
    pub reads_refused: u64,
    pub frames_sent: u64,
    pub damaged: u64,
    pub collected: u64,
    /// Of another map, of nobody's negotiation, or by somebody else than its initiator.
    pub refused: u64,
    pub malformed: u64,
}
