//! Reports, in which a receiver states what it has and what it misses.

use alloc::vec::Vec;
use core::ops::Range;

/// Most ranges of missing chunks in one report.
pub const MISSING_MAX: usize = 32;
/// A receiver reports after this many unreported chunks …
pub const REPORT_CHUNKS: u32 = 32;
/// … or this long after the first of them.
pub const REPORT_NS: u64 = 1_000_000;

/// What a receiver has and misses. Later reports of a receiver never have a lower `prefix`, `end`
/// or `limit`, so the sender recognises reports that arrive late.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// All chunks below this number have arrived.
    pub prefix: u32,
    /// No chunk from this number on has arrived.
    pub end: u32,
    /// The receiver refuses chunks from this number on for now.
    pub limit: u32,
    /// Number of arrived datagrams that carried chunks, duplicates included. The sender adapts its
    /// pace to it.
    pub arrived: u32,
    /// Number of probes that have arrived. Everything that was sent before one of them has arrived,
    /// too, or is lost.
    pub asked: u32,
    /// Time between the arrival of the last chunk and this report.
    pub held_ns: u64,
    /// Rate that the receiver can process, in chunks per second; 0: unbounded.
    pub chunks_per_second: u32,
    /// Missing ranges that the sender should repair, ascending, at most [`MISSING_MAX`].
    pub missing: Vec<Range<u32>>,
}

impl Report {
    /// Whether the report is consistent and fits a transfer of `count` chunks. Reports are not
    /// authenticated.
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
