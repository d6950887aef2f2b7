//! Records in which epoch each decision was made, so that two replicas can find the last decision
//! that they have in common.
//!
//! ```text
//!   index     1 2 3 4 5 6 7 8 9          index     1 2 3 4 5 6 7
//!   origin    1 1 1 1 3 3 3 4 4          origin    1 1 1 1 1 1 2
//!                     common through 4 ──────────────────┘
//! ```
//!
//! One primary makes all decisions of an epoch, and starts with everything that its members hold
//! (R3). So if two replicas have the same origin at an index, their decisions up to that index are
//! the same. Later decisions of a returning replica were decided again without it, perhaps in
//! another order, so it discards them (R7).

use alloc::vec::Vec;
use nicekv_proto::bytes::{Reader, put};
use nicekv_proto::{DecodeError, Epoch};
use zerocopy::network_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// How many epochs a history distinguishes. A replica that missed more of them copies everything.
const RUNS_MAX: usize = 64;

/// The decisions from `first` up to the next run were made in epoch `origin`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    first: u64,
    origin: Epoch,
}

/// The origins of a sequence of decisions, oldest first. `first` and `origin` rise from run to run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct History {
    runs: Vec<Run>,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RunLayout {
    first: U64,
    origin: U32,
}

impl History {
    /// Records the next decision. One that was recorded before changes nothing.
    pub(crate) fn note(&mut self, index: u64, origin: Epoch) {
        if self.runs.last().is_some_and(|run| run.origin >= origin) {
            return;
        }
        if self.runs.len() == RUNS_MAX {
            self.runs.remove(0);
        }
        self.runs.push(Run { first: index, origin });
    }

    fn run(&self, index: u64) -> Option<&Run> {
        self.runs.iter().rev().find(|run| run.first <= index)
    }

    /// The epoch of the last decision.
    pub(crate) fn newest(&self) -> Option<Epoch> {
        self.runs.last().map(|run| run.origin)
    }

    /// Removes the decisions after `through`.
    pub(crate) fn truncate(&mut self, through: u64) {
        self.runs.retain(|run| run.first <= through);
    }

    /// Puts an earlier history, which ends where this one begins, in front of it.
    pub(crate) fn prepend(&mut self, mut before: Self) {
        let mut after = core::mem::take(&mut self.runs);
        if let (Some(last), Some(first)) = (before.runs.last(), after.first())
            && last.origin == first.origin
        {
            after.remove(0);
        }
        before.runs.append(&mut after);
        let excess = before.runs.len().saturating_sub(RUNS_MAX);
        before.runs.drain(..excess);
        *self = before;
    }

    /// The last decision that this sequence (up to `through`) and another one (up to
    /// `other_through`) have in common; 0 if none is known.
    pub(crate) fn common(&self, through: u64, other: &Self, other_through: u64) -> u64 {
        let mut index = through.min(other_through);
        while let (Some(mine), Some(theirs)) = (self.run(index), other.run(index)) {
            if mine.origin == theirs.origin {
                return index;
            }
            let newer = if mine.origin > theirs.origin { mine } else { theirs };
            index = newer.first - 1;
        }
        0
    }

    pub(crate) fn append(&self, out: &mut Vec<u8>) {
        for run in &self.runs {
            put(out, &RunLayout { first: run.first.into(), origin: run.origin.0.into() });
        }
    }

    /// Decodes what [`Self::append`] has encoded, to the end of `reader`.
    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let mut runs: Vec<Run> = Vec::new();
        while !reader.is_empty() {
            let layout: RunLayout = reader.layout("run of a history")?;
            let run = Run { first: layout.first.get(), origin: Epoch(layout.origin.get()) };
            let rises = runs.last().is_none_or(|last| last.first < run.first && last.origin < run.origin);
            if !rises || run.first == 0 || runs.len() == RUNS_MAX {
                return Err(DecodeError::UnknownValue { field: "run of a history", value: run.first });
            }
            runs.push(run);
        }
        Ok(Self { runs })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history(origins: &[u32]) -> History {
        let mut history = History::default();
        for (index, origin) in (1..).zip(origins) {
            history.note(index, Epoch(*origin));
        }
        history
    }

    #[track_caller]
    fn check(mine: &[u32], theirs: &[u32], common: u64) {
        let (one, other) = (history(mine), history(theirs));
        let (through, other_through) = (mine.len() as u64, theirs.len() as u64);
        assert_eq!(one.common(through, &other, other_through), common);
        assert_eq!(other.common(other_through, &one, through), common);
    }

    #[test]
    fn histories_agree_through_the_last_common_origin() {
        check(&[], &[], 0);
        check(&[1, 1], &[], 0);
        check(&[1, 1, 1], &[1, 1], 2);
        check(&[1, 1, 1, 1, 3, 3, 3, 4, 4], &[1, 1, 1, 1, 1, 1, 2], 4);
        check(&[1, 1, 3], &[1, 1, 2, 2, 2], 2);
        check(&[1, 1, 3, 5, 5], &[1, 1, 3, 4, 6], 3);
        check(&[2, 2], &[1, 1], 0);
    }

    #[test]
    fn forgotten_epochs_are_not_in_common() {
        let origins: Vec<u32> = (1..=RUNS_MAX as u32 + 2).collect();
        let long = history(&origins);
        assert_eq!(long.common(origins.len() as u64, &history(&[1, 2]), 2), 0);
        assert_eq!(long.common(origins.len() as u64, &history(&origins[..5]), 5), 5);
    }

    #[test]
    fn history_round_trips_and_prepends() {
        let whole = history(&[1, 1, 3, 3, 3, 4]);
        let mut bytes = Vec::new();
        whole.append(&mut bytes);
        assert_eq!(History::read(&mut Reader::new(&bytes)).unwrap(), whole);
        let mut before = whole.clone();
        before.truncate(4);
        let mut after = History::default();
        after.note(5, Epoch(3));
        after.note(6, Epoch(4));
        after.prepend(before);
        assert_eq!(after, whole);
        assert!(History::read(&mut Reader::new(&bytes[..bytes.len() - 1])).is_err());
    }
}
