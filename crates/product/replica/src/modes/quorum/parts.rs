//! What a member keeps while it forgets deletions (`forget`), merges what others hold (`merge`), and repairs damaged keys (`repair`).

use super::version::Version;
use crate::StreamPeer;
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::net::SocketAddrV4;
use nicekv_proto::quorum::{Timestamp, Tombstone, Tombstones};
use nicekv_proto::{Epoch, NodeId};

/// A member's part in forgetting.
#[derive(Clone, Default)]
pub(super) struct Forgetting {
    /// Found by the scrub, and not yet under way.
    pub(super) found: Vec<Found>,
    pub(super) under_way: Option<Batch>,
    /// What other members have asked to be held, the newest of each.
    pub(super) asked: Vec<Asked>,
    /// Names messages and what is asked.
    pub(super) serial: u64,
    /// Keys that are being read to be forgotten, and that were not written since.
    pub(super) reading: BTreeSet<Box<[u8]>>,
}

pub(super) type Found = (Box<[u8]>, Timestamp);

#[derive(Clone)]
pub(super) struct Batch {
    pub(super) tombstones: Vec<Found>,
    pub(super) stage: ForgetStage,
    /// Place of the first one of the part that others have been told of.
    pub(super) from: usize,
    /// Of the part's message.
    pub(super) round: u64,
    pub(super) done: Vec<NodeId>,
    pub(super) asked_ns: u64,
    pub(super) tries: u32,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ForgetStage {
    /// Others are to hold them.
    Holding,
    /// They do, in this epoch.
    Fencing,
    /// They are to forget them.
    Telling,
}

/// What another member wants to be held.
#[derive(Clone)]
pub(super) struct Asked {
    pub(super) by: NodeId,
    pub(super) epoch: Epoch,
    pub(super) round: u64,
    pub(super) serial: u64,
    /// So many are not yet durable.
    pub(super) pending: usize,
}

impl Batch {
    /// The part that begins at `from` ends before this place: what fits one message.
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
    /// Members all of whose versions are durable here.
    pub(super) merged: Vec<NodeId>,
    pub(super) source: Option<Source>,
    /// Place among the members where to look for the next source.
    pub(super) next: usize,
    /// Tells the versions of one part from those of parts that were given up.
    pub(super) round: u64,
    pub(super) end: End,
}

/// Of a newcomer that has merged all: whether that is durable.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum End {
    #[default]
    Open,
    Forcing,
    Durable,
}

impl Merge {
    /// All is merged; whether that is new.
    pub(super) fn begin_end(&mut self) -> bool {
        let is_new = self.end == End::Open;
        if is_new {
            self.end = End::Forcing;
        }
        is_new
    }

    /// All that is merged is durable.
    pub(super) fn end(&mut self) {
        self.end = End::Durable;
    }
}

#[derive(Clone)]
pub(super) struct Source {
    pub(super) member: NodeId,
    pub(super) address: SocketAddrV4,
    pub(super) epoch: Epoch,
    /// Everything up to this key is durable here.
    pub(super) after: Option<Vec<u8>>,
    pub(super) stage: PartStage,
}

#[derive(Clone)]
pub(super) enum PartStage {
    Asked {
        asks: u32,
        at_ns: u64,
    },
    /// So many versions are not yet durable, and whether the part was the last.
    Taking {
        pending: usize,
        last: Option<Vec<u8>>,
        more: bool,
    },
}

/// Damaged keys, of which at most [`REPAIRS_MAX`](crate::modes::bounds::REPAIRS_MAX) are being repaired; others are found again when they are read again.
pub(super) type Repairs = BTreeMap<Box<[u8]>, Repair>;

/// The repair of a key.
#[derive(Clone)]
pub(super) struct Repair {
    /// The epoch in which the damage was found.
    pub(super) found: Epoch,
    /// What other members have, all in the present epoch.
    pub(super) answers: BTreeMap<NodeId, Offer>,
    pub(super) asked_ns: u64,
    pub(super) tries: u32,
    /// What the answers came to is in the log and not yet forced.
    pub(super) is_logged: bool,
}

/// What a member holds of a key, if anything, and its floor.
pub(super) type Offer = (Option<Version>, u64);
