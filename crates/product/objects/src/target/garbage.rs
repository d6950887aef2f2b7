//! Garbage collection at a target (P7, P8).
//!
//! ```text
//!   round g is announced ──▶ everything that is stored or confirmed from now on gets stamp g
//!   all names have adopted g and take no stamps below g − 1 ──▶ names are listed, and the chunks that they need are marked
//!   all names are listed ──▶ chunks with a stamp below g − 1 and without a mark of g are deleted
//! ```
//!
//! So a new chunk has at least one whole round to get its name, and an initiator need not know the newest round.
//!
//! If a listing fails it starts over: a mark too many does no harm, and nothing is deleted before a listing has ended.

use super::interface::Held;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::Bound;
use nicekv_proto::chunk::{ChunkId, Round};

/// Maximum chunks examined in one step.
const SWEEP_MAX: usize = 4_096;

/// The target's round, and how far its sweep has come.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct GarbageCollector {
    round: Option<Round>,
    /// The last round whose names were all listed.
    listed: Round,
    /// The last round whose sweep has ended.
    swept: Round,
    /// The last chunk that the sweep of the current round has examined.
    after: Option<ChunkId>,
}

impl GarbageCollector {
    pub(super) fn round(&self) -> Option<Round> {
        self.round
    }

    /// A round is announced; an older one changes nothing. After a restart all chunks get the stamp of the first round that
    /// is announced, because their later stamps are not known (P8).
    pub(super) fn set_round(&mut self, round: Round, held: &mut BTreeMap<ChunkId, Held>) {
        if self.round.is_none() {
            held.values_mut().for_each(|held| held.stamp = round);
        }
        if self.round < Some(round) {
            (self.round, self.after) = (Some(round), None);
        }
    }

    /// Marks chunks that names need, by a listing of names that have all adopted `round`. False: it is not the target's
    /// round, so the listing is of no use.
    pub(super) fn mark(&self, round: Round, ids: &[ChunkId], held: &mut BTreeMap<ChunkId, Held>) -> bool {
        if self.round != Some(round) {
            return false;
        }
        for id in ids {
            if let Some(held) = held.get_mut(id) {
                held.marked = round;
            }
        }
        true
    }

    /// The listing of `round` has ended. Returns the chunks to delete, of those examined in this step, and whether the sweep
    /// has ended.
    pub(super) fn sweep(&mut self, round: Round, held: &BTreeMap<ChunkId, Held>) -> (Vec<ChunkId>, bool) {
        if self.round != Some(round) || self.swept == round {
            return (Vec::new(), true);
        }
        self.listed = round;
        let from = self.after.map_or(Bound::Unbounded, Bound::Excluded);
        let mut examined = held.range((from, Bound::Unbounded)).take(SWEEP_MAX).peekable();
        let mut dead = Vec::new();
        self.after = None;
        while let Some((id, held)) = examined.next() {
            if held.stamp.0 + 1 < round.0 && held.marked < round {
                dead.push(*id);
            }
            if examined.peek().is_none() {
                self.after = Some(*id);
            }
        }
        let has_ended = self.after.is_none();
        if has_ended {
            self.swept = round;
        }
        (dead, has_ended)
    }

    pub(super) fn listed(&self) -> Round {
        self.listed
    }

    pub(super) fn swept(&self) -> Round {
        self.swept
    }
}
