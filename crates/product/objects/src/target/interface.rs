//! The interface of a target: its settings, the requests to its disk, and its progress.

use crate::initiator::Timing;
use crate::reservation::Config;
use alloc::vec::Vec;
use nicekv_proto::chunk::{ChunkId, MapVersion, Round};
use nicekv_proto::{ClientId, NodeId, OpId};

const SECOND_NS: u64 = 1_000_000_000;

/// How a target maintains its chunks.
#[derive(Clone, Copy, Debug)]
pub struct MaintenanceConfig {
    /// The client id of its own initiator: used by no other initiator, nor by an earlier process of this target.
    pub client: ClientId,
    /// How many targets should hold a chunk.
    pub copies: usize,
    /// Timeouts of its initiator.
    pub timing: Timing,
    /// Chunks that are checked at once. Each one that is put again is in memory.
    pub chunks_at_once: usize,
    /// Chunks that are checked per second, at most …
    pub chunks_per_second: u32,
    /// … and bytes that are read or sent for that per second.
    pub bytes_per_second: u64,
    /// Least time from the start of a pass over all chunks to the start of the next one.
    pub pass_ns: u64,
    /// When to check a chunk again that was not as it should be. Longer than initiators wait for answers.
    pub again_ns: u64,
    /// A target that was silent for this long no longer counts as a holder.
    pub silence_ns: u64,
}

impl MaintenanceConfig {
    /// Settings for the disks and networks of a data centre.
    pub fn new(client: ClientId, copies: usize) -> Self {
        Self {
            client,
            copies,
            timing: Timing::DEFAULT,
            chunks_at_once: 1,
            chunks_per_second: 100,
            bytes_per_second: 8 << 20,
            pass_ns: 3_600 * SECOND_NS,
            again_ns: SECOND_NS,
            silence_ns: 300 * SECOND_NS,
        }
    }
}

/// Settings of a target.
#[derive(Clone, Debug)]
pub struct TargetConfig {
    /// Its node id.
    pub node: NodeId,
    /// Identifies this start of its process; never the same twice.
    pub process: u64,
    /// Parameters of reservations.
    pub reservation: Config,
    /// Assumed write rate of its disk until it is measured.
    pub disk_bytes_per_second: u64,
    /// Secret from which tokens and random numbers derive.
    pub secret: [u8; 32],
    /// How it maintains its chunks; `None`: it does not.
    pub maintenance: Option<MaintenanceConfig>,
}

/// A chunk that a target holds durably.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// Its length in bytes.
    pub bytes: u32,
    /// The round in which it was last stored or confirmed (P7).
    pub stamp: Round,
    /// The last round in which a name needed it.
    pub marked: Round,
    /// Its rendezvous set: the targets that were to hold it when it was put, or were found to hold it since (P11).
    pub holders: Vec<NodeId>,
}

impl Held {
    /// Neither a stamp nor a mark protects the chunk in this round.
    pub(super) fn is_undecided(&self, round: Round) -> bool {
        self.stamp < round && self.marked < round
    }
}

/// A request to the disk. Requests are carried out in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Storage {
    /// Begin to write a chunk.
    Begin {
        /// The transfer, whose op id it has.
        op: OpId,
        /// Id of the chunk.
        id: ChunkId,
        /// Its length in bytes.
        bytes: u32,
        /// Its rendezvous set, to be stored with it.
        holders: Vec<NodeId>,
    },
    /// Write a part of a chunk.
    Write {
        /// The transfer.
        op: OpId,
        /// Offset of the part, in bytes.
        offset: u32,
        /// The part.
        bytes: Vec<u8>,
    },
    /// The chunk is complete: verify it by its id and make it durable, or drop it. Answered by [`StorageDone::Finished`].
    Finish {
        /// The transfer.
        op: OpId,
    },
    /// Drop a chunk that will not be completed.
    Abandon {
        /// The transfer.
        op: OpId,
    },
    /// Read a part of a chunk. Answered by [`StorageDone::Read`], in order.
    Read {
        /// The chunk.
        id: ChunkId,
        /// Offset of the part, in bytes.
        offset: u32,
        /// Length of the part.
        bytes: u32,
    },
    /// Delete a chunk.
    Remove {
        /// The chunk.
        id: ChunkId,
    },
}

/// How the disk ended a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The chunk matches its id and is durable.
    Whole,
    /// The chunk does not match its id; nothing is kept.
    Wrong,
    /// The disk is full; nothing is kept.
    NoRoom,
}

/// An answer of the disk.
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
        /// The bytes; `None`: the chunk is damaged.
        bytes: Option<Vec<u8>>,
    },
}

/// How far maintenance and garbage collection of a target are, by its present map.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Version of the map; 0 without one.
    pub version: MapVersion,
    /// The last round whose garbage was all deleted.
    pub swept: Round,
    /// All chunks of other groups that it holds are held by enough members of these groups (P13).
    pub has_moved: bool,
    /// Passes over all chunks since it got the map.
    pub passes: u64,
    /// Chunks with too few holders that this target will put again: it is the first of the holders.
    pub lacking: usize,
    /// Chunks that may have too few holders: a target is silent, another one will put them again, or they were not checked
    /// since a holder was removed.
    pub unsettled: usize,
    /// Chunks with too few holders that may be garbage: the next round of collection decides.
    pub undecided: usize,
    /// Chunks held.
    pub chunks: usize,
    /// Their bytes.
    pub bytes: u64,
}
