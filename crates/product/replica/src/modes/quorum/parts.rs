//! State of forgetting deletions (`forget`), merging (`merge`), and repairing damaged keys
//! (`repair`).

use super::version::Version;
use crate::StreamPeer;
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::net::SocketAddrV4;
use nicekv_proto::quorum::{Timestamp, Tombstone, Tombstones};
use nicekv_proto::{Epoch, NodeId};

/// A member's state of forgetting.
#[derive(Clone, Default)]
pub(super) struct Forgetting {
    /// Found by the scrub, and not yet under way.
    pub(super) found: Vec<Found>,
    pub(super) under_way: Option<Batch>,
    /// The latest request of each other member to hold tombstones.
    pub(super) asked: Vec<Asked>,
    /// Numbers messages and requests.
    pub(super) serial: u64,
    /// Keys that are being read to be forgotten, and were not written since.
    pub(super) reading: BTreeSet<Box<[u8]>>,
}

pub(super) type Found = (Box<[u8]>, Timestamp);

#[derive(Clone)]
pub(super) struct Batch {
    pub(super) tombstones: Vec<Found>,
    pub(super) stage: ForgetStage,
    /// Place of the first tombstone of the part that others were sent.
    pub(super) from: usize,
    /// Number of the part's message.
    pub(super) round: u64,
    pub(super) done: Vec<NodeId>,
    pub(super) asked_ns: u64,
    pub(super) tries: u32,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ForgetStage {
    /// Others have to hold them.
    Holding,
    /// All hold them, in this epoch.
    Fencing,
    /// Others have to forget them.
    Telling,
}

/// A request of another member to hold tombstones.
#[derive(Clone)]
pub(super) struct Asked {
    pub(super) by: NodeId,
    pub(super) epoch: Epoch,
    pub(super) round: u64,
    pub(super) serial: u64,
    /// Number of tombstones not yet synced.
    pub(super) pending: usize,
}

impl Batch {
    /// End of the part that begins at `from`: what fits in one message.
    pub(super) fn part_end(&self) -> usize {
        let mut bytes = 0;
        let fits = |(key, timestamp): &&Found| {
            bytes += Tombstone { timestamp: *timestamp, key }.bytes();
            bytes <= Tombstones::LISTED_BYTES_MAX
        };
        self.from + self.tombstones[self.from..].iter().take_while(fits).count()
    }
}

/// A scan of the engine for a newcomer.
#[derive(Clone)]
pub(super) struct PendingScan {
    pub(super) token: u64,
    pub(super) epoch: Epoch,
    pub(super) peer: StreamPeer,
}

/// The newcomer's side.
#[derive(Clone, Default)]
pub(super) struct Merge {
    /// Members all of whose versions are synced here.
    pub(super) merged: Vec<NodeId>,
    pub(super) source: Option<Source>,
    /// Place among the members from where the next source is chosen.
    pub(super) next: usize,
    /// Tells the versions of one part from those of parts that were given up.
    pub(super) round: u64,
    pub(super) end: End,
}

/// A newcomer that has merged everything: whether that is synced.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum End {
    #[default]
    Open,
    Syncing,
    Durable,
}

impl Merge {
    /// Everything is merged. Whether that is new.
    pub(super) fn begin_end(&mut self) -> bool {
        let is_new = self.end == End::Open;
        if is_new {
            self.end = End::Syncing;
        }
        is_new
    }

    /// Everything merged is synced.
    pub(super) fn end(&mut self) {
        self.end = End::Durable;
    }
}

#[derive(Clone)]
pub(super) struct Source {
    pub(super) member: NodeId,
    pub(super) address: SocketAddrV4,
    pub(super) epoch: Epoch,
    /// Everything through this key is synced here.
    pub(super) after: Option<Vec<u8>>,
    pub(super) stage: PartStage,
}

#[derive(Clone)]
pub(super) enum PartStage {
    Asked {
        asks: u32,
        at_ns: u64,
    },
    /// Number of versions not yet synced, and whether the part was the last.
    Taking {
        pending: usize,
        last: Option<Vec<u8>>,
        more: bool,
    },
}

/// Damaged keys, of which at most [`REPAIRS_MAX`](crate::modes::bounds::REPAIRS_MAX) are repaired
/// at once; others are found again when they are read again.
pub(super) type Repairs = BTreeMap<Box<[u8]>, Repair>;

/// The repair of a key.
#[derive(Clone)]
pub(super) struct Repair {
    /// The epoch in which the damage was found.
    pub(super) found: Epoch,
    /// Answers of other members, all in the present epoch.
    pub(super) answers: BTreeMap<NodeId, Offer>,
    pub(super) asked_ns: u64,
    pub(super) tries: u32,
    /// The result is in the log and not synced yet.
    pub(super) is_logged: bool,
}

/// A member's version of a key, if any, and its floor.
pub(super) type Offer = (Option<Version>, u64);
