//! Reports of a receiver.

use alloc::vec::Vec;
use core::ops::Range;

/// Ranges of missing chunks in one report, at most.
pub const MISSING_MAX: usize = 32;
/// A receiver reports after this many new chunks …
pub const REPORT_CHUNKS: u32 = 32;
/// … or this long after the first of them.
pub const REPORT_NS: u64 = 1_000_000;

/// What a receiver has and misses. `prefix`, `end` and `limit` never fall from one report of a receiver to the next, which
/// shows late reports.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// All chunks below this number have arrived.
    pub prefix: u32,
    /// No chunk from this number on has arrived.
    pub end: u32,
    /// Chunks from this number on are not taken yet.
    pub limit: u32,
    /// Datagrams with chunks that have arrived, duplicates included: for the sender's pace.
    pub arrived: u32,
    /// Probes that have arrived: what left before one of them has arrived too, or is lost.
    pub asked: u32,
    /// Time from the arrival of the last chunk to this report.
    pub held_ns: u64,
    /// Rate that the receiver can take, in chunks per second; 0: unbounded.
    pub chunks_per_second: u32,
    /// Holes to be repaired, ascending, at most [`MISSING_MAX`].
    pub missing: Vec<Range<u32>>,
}

impl Report {
    /// Whether it fits a transfer of `count` chunks. Reports are not authenticated.
    pub fn is_valid(&self, count: u32) -> bool {
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
    fn contradictory_reports_are_invalid() {
        let missing = Vec::from([2..3, 5..7]);
        let report = Report { prefix: 2, end: 9, limit: 20, missing, ..Report::default() };
        assert!(report.is_valid(9) && Report::default().is_valid(0));
        let lies: [fn(&mut Report); 6] = [
            |report| report.end = 10,
            |report| report.prefix = 10,
            |report| report.missing[0] = 1..3,
            |report| report.missing[1] = 2..4,
            |report| report.missing[1] = 8..10,
            |report| report.missing = (0..40).map(|at| 2 + at..3 + at).collect(),
        ];
        for (number, lie) in lies.iter().enumerate() {
            let mut false_report = report.clone();
            lie(&mut false_report);
            assert!(!false_report.is_valid(9), "lie {number}");
        }
    }
}
