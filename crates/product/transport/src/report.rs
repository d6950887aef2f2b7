//! What a receiver tells.

use alloc::vec::Vec;
use core::ops::Range;

/// Ranges of missing chunks in one report, at most.
pub const MISSING_MAX: usize = 32;
/// A receiver reports after so many new chunks …
pub const REPORT_CHUNKS: u32 = 32;
/// … or so long after the first of them.
pub const REPORT_NS: u64 = 1_000_000;

/// What a receiver has and lacks. Numbers only ever rise from one report of a receiver to the next one, so that late ones are known by that.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// All below this number are there.
    pub prefix: u32,
    /// None from this number on is there.
    pub end: u32,
    /// From this number on nothing is taken yet.
    pub limit: u32,
    /// Datagrams with a chunk that have come, all in all, known ones among them: for the sender's pace.
    pub arrived: u32,
    /// Questions for a report that have come: what left before one of them has come too, or is lost.
    pub asked: u32,
    /// For how long the last one was there when this was said.
    pub held_ns: u64,
    /// What can be taken, in chunks per second; 0: no bound is known.
    pub chunks_per_second: u32,
    /// Holes that are to be filled, ascending, at most [`MISSING_MAX`].
    pub missing: Vec<Range<u32>>,
}

impl Report {
    /// Whether it makes sense for a transfer of so many chunks: a stranger may say anything.
    pub fn is_possible(&self, count: u32) -> bool {
        let mut from = self.prefix;
        let is_hole = |hole: &Range<u32>| {
            let fits = from <= hole.start && hole.start < hole.end && hole.end <= self.end;
            from = hole.end;
            fits
        };
        let fits = self.prefix <= self.end && self.end <= count;
        fits && self.missing.len() <= MISSING_MAX && self.missing.iter().all(is_hole)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_is_seen() {
        let missing = Vec::from([2..3, 5..7]);
        let report = Report { prefix: 2, end: 9, limit: 20, missing, ..Report::default() };
        assert!(report.is_possible(9) && Report::default().is_possible(0));
        let lies: [fn(&mut Report); 6] = [
            |report| report.end = 10,
            |report| report.prefix = 10,
            |report| report.missing[0] = 1..3,
            |report| report.missing[1] = 2..4,
            |report| report.missing[1] = 8..10,
            |report| report.missing = (0..40).map(|at| 2 + at..3 + at).collect(),
        ];
        for (number, lie) in lies.iter().enumerate() {
            let mut told = report.clone();
            lie(&mut told);
            assert!(!told.is_possible(9), "lie {number}");
        }
    }
}
