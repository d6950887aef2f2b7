//! What a target is told when it begins, what it asks of its disk, and how far it is.

use crate::initiator::Timing;
use crate::reservation::Config;
use alloc::vec::Vec;
use nicekv_proto::chunk::{ChunkId, MapVersion, Round};
use nicekv_proto::{ClientId, NodeId, OpId};

const SECOND_NS: u64 = 1_000_000_000;

/// How a target looks after what it holds.
#[derive(Clone, Copy, Debug)]
pub struct MaintenanceConfig {
    /// The name of its initiator, which no other one has, nor had this target's process before.
    pub client: ClientId,
    /// How many targets are to hold a chunk.
    pub copies: usize,
    /// How long its initiator waits.
    pub timing: Timing,
    /// Chunks that it looks at at once; each that it puts is in memory.
    pub chunks_at_once: usize,
    /// How many of them in a second, at most …
    pub chunks_per_second: u32,
    /// … and how many bytes, read or sent.
    pub bytes_per_second: u64,
    /// From the beginning of a pass through all that it holds to that of the next one, at least.
    pub pass_ns: u64,
    /// What is not as it should be is looked at again after this. Longer than initiators wait for answers.
    pub again_ns: u64,
    /// Who has not answered for so long does not count as one that holds what it held.
    pub silence_ns: u64,
}

impl MaintenanceConfig {
    /// For the disks and networks of a data centre.
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
    /// How it looks after what it holds; none: it does not.
    pub maintenance: Option<MaintenanceConfig>,
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
    /// Its rendezvous set: who was to hold it when it was put, or was found to hold it since (P11).
    pub holders: Vec<NodeId>,
}

impl Held {
    /// Neither a stamp nor a mark says that the chunk outlives this round.
    pub(super) fn is_undecided(&self, round: Round) -> bool {
        self.stamp < round && self.marked < round
    }
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

/// How far a target is with what it looks after, by its present map.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// The map's version; 0 if it has none.
    pub version: MapVersion,
    /// The last round in which all was deleted that no name needs.
    pub swept: Round,
    /// All that it holds, and is not of the group of, is held by as many members of that group as are wanted (P13).
    pub has_moved: bool,
    /// So often it has looked at all that it holds since it has the map.
    pub passes: u64,
    /// Chunks that fewer targets hold than are wanted, and that this one is to put again: it is the first of those that hold them.
    pub lacking: usize,
    /// Chunks of which it is not known yet that enough hold them: somebody is silent, another one is to put them again, or they were not looked at, though who was to hold them is gone.
    pub unsettled: usize,
    /// Chunks that fewer targets hold than are wanted, and that may be garbage: the next round of collection decides.
    pub undecided: usize,
    /// Chunks that it holds.
    pub chunks: usize,
    /// Their bytes.
    pub bytes: u64,
}
