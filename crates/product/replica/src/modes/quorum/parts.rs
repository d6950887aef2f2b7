//! State for forgetting deletions (`forget`), merging (`merge`), and repairing damaged keys
//! (`repair`).

use super::version::Version;
use crate::StreamPeer;
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::net::SocketAddrV4;
use nicekv_proto::quorum::{Timestamp, Tombstone, Tombstones};
use nicekv_proto::{Epoch, NodeId};

/// One member's state of forgetting deletions.
#[derive(Clone, Default)]
pub(super) struct Forgetting {
    /// Tombstones that the scrub has found and that are not in a batch yet.
    pub(super) found: Vec<Found>,
    pub(super) under_way: Option<Batch>,
    /// The latest request of each other member to hold tombstones.
    pub(super) asked: Vec<Asked>,
    /// The last number used for a message or request.
    pub(super) serial: u64,
    /// Keys that are being read so that they can be forgotten, and were not written since.
    pub(super) reading: BTreeSet<Box<[u8]>>,
}

pub(super) type Found = (Box<[u8]>, Timestamp);

#[derive(Clone)]
pub(super) struct Batch {
    pub(super) tombstones: Vec<Found>,
    pub(super) stage: ForgetStage,
    /// Index of the first tombstone of the current part, which was sent to the others.
    pub(super) from: usize,
    /// Number of the message with the current part.
    pub(super) round: u64,
    pub(super) done: Vec<NodeId>,
    pub(super) asked_ns: u64,
    pub(super) tries: u32,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ForgetStage {
    /// The others have to confirm that they hold the tombstones.
    Holding,
    /// All hold them in this epoch; waits for the next epoch.
    Fencing,
    /// The others have to forget them.
    Telling,
}

/// Another member's request to hold tombstones.
#[derive(Clone)]
pub(super) struct Asked {
    pub(super) by: NodeId,
    pub(super) epoch: Epoch,
    pub(super) round: u64,
    pub(super) serial: u64,
    /// How many of its tombstones are not synced yet.
    pub(super) pending: usize,
}

impl Batch {
    /// The end of the part that begins at `from`: as much as fits into one message.
    pub(super) fn part_end(&self) -> usize {
        let mut bytes = 0;
        let fits = |(key, timestamp): &&Found| {
            bytes += Tombstone { timestamp: *timestamp, key }.bytes();
            bytes <= Tombstones::LISTED_BYTES_MAX
        };
        self.from + self.tombstones[self.from..].iter().take_while(fits).count()
    }
}

/// A page of the engine that is read for a newcomer.
#[derive(Clone)]
pub(super) struct PendingScan {
    pub(super) token: u64,
    pub(super) epoch: Epoch,
    pub(super) peer: StreamPeer,
}

/// State of a merge, at the newcomer.
#[derive(Clone, Default)]
pub(super) struct Merge {
    /// Members whose versions are all synced here.
    pub(super) merged: Vec<NodeId>,
    pub(super) source: Option<Source>,
    /// Position in the member list at which the search for the next source starts.
    pub(super) next: usize,
    /// Number of the current part. Distinguishes its versions from those of parts that were given
    /// up.
    pub(super) round: u64,
    pub(super) end: End,
}

/// Whether the newcomer has merged everything, and whether that is synced.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum End {
    #[default]
    Open,
    Syncing,
    Durable,
}

impl Merge {
    /// Everything is merged. Returns whether this is the first call.
    pub(super) fn begin_end(&mut self) -> bool {
        let is_new = self.end == End::Open;
        if is_new {
            self.end = End::Syncing;
        }
        is_new
    }

    /// Everything that was merged is synced.
    pub(super) fn end(&mut self) {
        self.end = End::Durable;
    }
}

#[derive(Clone)]
pub(super) struct Source {
    pub(super) member: NodeId,
    pub(super) address: SocketAddrV4,
    pub(super) epoch: Epoch,
    /// Everything up to this key is synced here.
    pub(super) after: Option<Vec<u8>>,
    pub(super) stage: PartStage,
}

#[derive(Clone)]
pub(super) enum PartStage {
    Asked {
        asks: u32,
        at_ns: u64,
    },
    /// The part has arrived. How many of its versions are not synced yet, its last key, and whether
    /// more parts follow.
    Taking {
        pending: usize,
        last: Option<Vec<u8>>,
        more: bool,
    },
}

/// Repairs of damaged keys. At most [`REPAIRS_MAX`](crate::modes::bounds::REPAIRS_MAX) are under
/// way at once; other damaged keys are found again when they are next read.
pub(super) type Repairs = BTreeMap<Box<[u8]>, Repair>;

/// The repair of a key.
#[derive(Clone)]
pub(super) struct Repair {
    /// The epoch in which the damage was found.
    pub(super) found: Epoch,
    /// Answers of other members in the present epoch.
    pub(super) answers: BTreeMap<NodeId, Offer>,
    pub(super) asked_ns: u64,
    pub(super) tries: u32,
    /// Whether the repaired version is in the log and not synced yet.
    pub(super) is_logged: bool,
}

/// A member's version of a key, if it has one, and the member's floor.
pub(super) type Offer = (Option<Version>, u64);
