//! Garbage collection at a target (P7, P8).
//!
//! ```text
//!   round g is told ──▶ all that is stored or confirmed from now on has stamp g
//!   all names have adopted g, and take no stamps below g − 1: they are listed, and what they need is marked ──▶ all are listed ──▶ what has a stamp below g − 1, and no mark of g, is deleted
//! ```
//!
//! So what is put has at least a whole round to get its name, and an initiator needs not know the newest one.
//!
//! Whoever lists names begins anew when something goes wrong: a mark too many does no harm, and nothing is deleted before a listing has come to its end.

use super::Target;
use alloc::vec::Vec;
use core::ops::Bound;
use nicekv_proto::chunk::{ChunkId, Round};

/// Chunks that are looked at in one step.
const SWEEP_MAX: usize = 4_096;

/// How far a round has come.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sweep {
    /// The last round of which all names were listed.
    listed: Round,
    /// The last round that has come to its end.
    done: Round,
    /// The chunk that was looked at last, in the round that is the newest.
    after: Option<ChunkId>,
}

impl Target {
    /// The round is this one; an older one changes nothing. A target that has begun anew has all that it holds stamped with the round that it is told, as it does not know of later stamps (P8).
    pub fn set_round(&mut self, round: Round) {
        if self.round.is_none() {
            self.held.values_mut().for_each(|held| held.stamp = round);
        }
        if self.round < Some(round) {
            (self.round, self.sweep.after) = (Some(round), None);
        }
    }

    /// The round that it goes by.
    pub fn round(&self) -> Option<Round> {
        self.round
    }

    /// Names need these, say they who have all adopted this round. False: it is not the target's, so the listing is of no use.
    pub fn mark(&mut self, round: Round, ids: &[ChunkId]) -> bool {
        if self.round != Some(round) {
            return false;
        }
        for id in ids {
            if let Some(held) = self.held.get_mut(id) {
                held.marked = round;
            }
        }
        true
    }

    /// All that names need in this round has been marked: what is not needed is deleted, a part of it at each call. Whether there is nothing left to do.
    pub fn sweep(&mut self, round: Round) -> bool {
        if self.round != Some(round) || self.sweep.done == round {
            return true;
        }
        self.sweep.listed = round;
        let from = self.sweep.after.map_or(Bound::Unbounded, Bound::Excluded);
        let mut looked_at = self.held.range((from, Bound::Unbounded)).take(SWEEP_MAX).peekable();
        let mut dead = Vec::new();
        self.sweep.after = None;
        while let Some((id, held)) = looked_at.next() {
            if held.stamp.0 + 1 < round.0 && held.marked < round {
                dead.push(*id);
            }
            if looked_at.peek().is_none() {
                self.sweep.after = Some(*id);
            }
        }
        for id in dead {
            self.counters.collected += 1;
            self.drop_copy(&id);
        }
        let is_done = self.sweep.after.is_none();
        if is_done {
            self.sweep.done = round;
        }
        is_done
    }

    /// The last round of which all names were listed.
    pub(super) fn listed(&self) -> Round {
        self.sweep.listed
    }

    /// The last round in which all that no name needs was deleted.
    pub fn swept(&self) -> Round {
        self.sweep.done
    }
}
