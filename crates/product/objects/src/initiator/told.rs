//! What an initiator is told when it begins, and what it tells.

use crate::reservation::Config;
use alloc::sync::Arc;
use alloc::vec::Vec;
use nicekv_proto::chunk::{MapVersion, Round};
use nicekv_proto::{ClientId, NodeId};

/// A put, a get or a count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Handle(pub u64);

/// How an initiator is.
#[derive(Clone, Copy, Debug)]
pub struct InitiatorConfig {
    /// Its name, which no other one has.
    pub client: ClientId,
    /// How many targets are to hold a chunk.
    pub copies: usize,
    /// Windows; the same as the targets'.
    pub reservation: Config,
    /// How long it waits.
    pub timing: Timing,
}

/// How long an initiator waits, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// For answers, before it decides by those that it has (P5).
    pub answers_ns: u64,
    /// For acknowledgements, beyond what bids say of the disk.
    pub acks_ns: u64,
    /// For a target that has all of a chunk, and is to force it.
    pub disk_ns: u64,
    /// For frames that a target was asked for.
    pub frames_ns: u64,
    /// Before it asks again, at first: doubled each time …
    pub again_ns_min: u64,
    /// … up to this.
    pub again_ns_max: u64,
    /// For all of it.
    pub deadline_ns: u64,
}

impl Timing {
    /// On a network of a data centre.
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

/// A chunk is held, durably, by as many targets as were wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placed {
    /// The map by which all of them said so.
    pub version: MapVersion,
    /// The lowest of their stamps (P7, P9).
    pub stamp: Round,
    /// Who they are.
    pub holders: Vec<NodeId>,
}

/// Who of its group holds a chunk, as far as they have said so in time: bits of places.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// Who was asked and holds it.
    pub held: u16,
    /// Who does not.
    pub lacking: u16,
    /// Who has said nothing, or goes by another map.
    pub silent: u16,
    /// With which stamps those have confirmed it who were asked to.
    pub stamps: Vec<(u8, Round)>,
}

/// Why a chunk was not put.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PutError {
    /// Not enough targets said in time that they hold it. Some may; what nobody names is collected.
    #[error("not enough targets have acknowledged the chunk in time; whether it is stored is unknown")]
    Unknown,
    /// No target of the group has room (P15).
    #[error(
        "no target of the chunk's group has room for it; add nodes, or delete objects and collect garbage (`nicekv object gc --now`)"
    )]
    NoSpace,
    /// It has no bytes, or too many.
    #[error("a chunk of {bytes} bytes; it must have 1 to {bytes_max}")]
    Length {
        /// How many it has.
        bytes: usize,
        /// The bound.
        bytes_max: u32,
    },
}

/// Why a chunk was not got.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GetError {
    /// All targets of its group, and while its slot moves all former ones, have said that they do not hold it.
    #[error("no target of the chunk's group holds it")]
    NotFound,
    /// Those that may hold it have not answered, or not with what it is.
    #[error("the targets that may hold the chunk did not deliver it in time; try again")]
    Unavailable,
}

/// What has happened.
#[derive(Clone, Debug)]
pub enum Event {
    /// A put has ended.
    Put(Handle, Result<Placed, PutError>),
    /// A get has ended.
    Got(Handle, Result<Arc<[u8]>, GetError>),
    /// A count has ended.
    Counted(Handle, Counted),
    /// A target goes by a newer map: [`Initiator::set_map`] is to be called.
    NewerMap(MapVersion),
}

/// For operators.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub struct InitiatorCounters {
    pub requests: u64,
    pub accepts: u64,
    /// Negotiations in which no bids fit each other.
    pub no_common_window: u64,
    /// Bids that were accepted too late.
    pub lapsed: u64,
    /// Negotiations after which not all have acknowledged in time.
    pub overdue: u64,
    pub frames: u64,
    pub repairs: u64,
    pub probes: u64,
    /// Chunks that were there already, at as many targets as were wanted: no frame was sent.
    pub known: u64,
    pub puts: u64,
    pub puts_failed: u64,
    pub gets: u64,
    pub gets_failed: u64,
    /// What was read is not what its id says.
    pub wrong: u64,
    pub strangers: u64,
}
