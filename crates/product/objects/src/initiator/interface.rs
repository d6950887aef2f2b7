//! The interface of an initiator: its settings and results.

use crate::reservation::Config;
use alloc::sync::Arc;
use alloc::vec::Vec;
use nicekv_proto::chunk::{MapVersion, Round};
use nicekv_proto::{ClientId, NodeId};

/// Identifies a put, get or count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Handle(pub u64);

/// Settings of an initiator.
#[derive(Clone, Copy, Debug)]
pub struct InitiatorConfig {
    /// Its client id, which no other initiator has.
    pub client: ClientId,
    /// How many targets must hold a chunk.
    pub copies: usize,
    /// Parameters of reservations; must equal those of the targets.
    pub reservation: Config,
    /// Its timeouts.
    pub timing: Timing,
}

/// Timeouts of an initiator, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// For answers to a request, before it decides by those that came (P5).
    pub answers_ns: u64,
    /// For acknowledgements, in addition to the time that bids give for the disk.
    pub acks_ns: u64,
    /// For a target that has all frames, to make the chunk durable.
    pub disk_ns: u64,
    /// For requested frames.
    pub frames_ns: u64,
    /// First pause before a new attempt; doubled each time …
    pub again_ns_min: u64,
    /// … up to this.
    pub again_ns_max: u64,
    /// For a whole put or get.
    pub deadline_ns: u64,
}

impl Timing {
    /// Timeouts for a data-centre network.
    pub const DEFAULT: Self = Self {
        answers_ns: 3_000_000,
        acks_ns: 100_000_000,
        disk_ns: 1_000_000_000,
        frames_ns: 20_000_000,
        again_ns_min: 1_000_000,
        again_ns_max: 50_000_000,
        deadline_ns: 10_000_000_000,
    };
}

/// A chunk was put: enough targets hold it durably.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placed {
    /// Version of the map by which they all answered.
    pub version: MapVersion,
    /// The lowest of their stamps (P7, P9).
    pub stamp: Round,
    /// The targets.
    pub holders: Vec<NodeId>,
}

/// Which members of a chunk's group hold it, as masks of places.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// Members that hold it.
    pub held: u16,
    /// Members that do not.
    pub lacking: u16,
    /// Members that did not answer in time, or use another map.
    pub silent: u16,
    /// Place and stamp of each member that has confirmed it.
    pub stamps: Vec<(u8, Round)>,
}

/// Why a put failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PutError {
    /// Too few targets acknowledged the chunk in time. Some may hold it; without a name it will be collected.
    #[error("too few targets acknowledged the chunk in time; whether it is stored is unknown")]
    Unknown,
    /// No target of the group has room (P15).
    #[error(
        "no target of the chunk's group has room for it; add nodes, or delete objects and collect garbage (`nicekv object gc --now`)"
    )]
    NoSpace,
    /// The chunk is empty or too long.
    #[error("chunk of {bytes} bytes: it must have 1 to {bytes_max} bytes")]
    Length {
        /// Its length.
        bytes: usize,
        /// The limit.
        bytes_max: u32,
    },
}

/// Why a get failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GetError {
    /// All members of its group, and while its slot moves all former members, answered that they do not hold it.
    #[error("no target of the chunk's group holds it")]
    NotFound,
    /// Targets that may hold it did not answer, or sent a damaged chunk.
    #[error("targets that may hold the chunk did not deliver it in time; try again")]
    Unavailable,
}

/// Something has ended.
#[derive(Clone, Debug)]
pub enum Event {
    /// A put has ended.
    Put(Handle, Result<Placed, PutError>),
    /// A get has ended.
    Got(Handle, Result<Arc<[u8]>, GetError>),
    /// A count has ended.
    Counted(Handle, Counted),
    /// A target uses a newer map: call [`Initiator::set_map`](super::Initiator::set_map).
    NewerMap(MapVersion),
}

/// Counts for operators.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub struct InitiatorCounters {
    pub requests: u64,
    pub accepts: u64,
    /// Negotiations whose bids had no common window.
    pub no_common_window: u64,
    /// Bids that had expired when they were accepted.
    pub lapsed: u64,
    /// Negotiations without all acknowledgements in time.
    pub overdue: u64,
    pub frames: u64,
    pub repairs: u64,
    pub probes: u64,
    /// Puts of chunks that enough targets held already: no frame was sent.
    pub known: u64,
    pub puts: u64,
    pub puts_failed: u64,
    pub gets: u64,
    pub gets_failed: u64,
    /// Chunks read that did not match their ids.
    pub wrong: u64,
    /// Messages that match no job, or come from a target that is not in the map.
    pub unexpected: u64,
}
