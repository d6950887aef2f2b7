//! The receiver of one transfer.
//!
//! ```text
//!   chunk ─▶ new? ─▶ the caller keeps its bytes
//!              └─ beyond the end: a hole, which is reported after a random part of a round trip
//!   poll_report: after 32 new chunks, after 1 ms, when all have arrived, when a hole is due, when probed
//! ```

use crate::chunk_set::ChunkSet;
use crate::report::{MISSING_MAX, REPORT_CHUNKS, REPORT_NS, Report};
use alloc::collections::BTreeMap;

/// Most chunks beyond the prefix that a receiver accepts.
pub const WINDOW_MAX: u32 = 8192;
/// A receiver abandons a transfer after this time without a datagram.
pub const ABANDONED_NS: u64 = 5_000_000_000;

/// Result of [`Receiver::handle_chunk`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// The chunk is new: the caller must keep its bytes.
    New,
    /// The chunk had arrived before.
    Duplicate,
    /// The receiver does not accept the chunk.
    Refused(Refused),
}

/// Why a receiver does not accept a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The value has no such chunk.
    Number,
    /// The chunk is beyond the receive window.
    Window,
}

/// A range of chunks that had not arrived when a later chunk did.
#[derive(Clone, Copy, Debug)]
struct Gap {
    end: u32,
    report_ns: u64,
    is_reported: bool,
}

/// The receiving end of a transfer; see the module documentation.
#[derive(Clone, Debug)]
pub struct Receiver {
    count: u32,
    chunks: ChunkSet,
    limit: u32,
    chunks_per_second: u32,
    /// Gaps by their first chunk. Every missing range below the end lies in a gap.
    gaps: BTreeMap<u32, Gap>,
    /// Earliest time at which a gap must be reported.
    next_gap_ns: u64,
    /// Whether the last report named gaps.
    has_reported: bool,
    arrived: u32,
    asked: u32,
    /// Number of chunks that arrived since the last report, and when the first of them arrived.
    unreported: u32,
    unreported_ns: u64,
    is_due: bool,
    reported_ns: u64,
    end_ns: u64,
    heard_ns: u64,
    round_trip_ns: u64,
    random: u64,
}

impl Receiver {
    /// A receiver of `count` chunks that accepts up to `room` chunks beyond the prefix. `seed` must
    /// differ between receivers, so that they do not report gaps at the same time.
    pub fn new(now_ns: u64, count: u32, room: u32, seed: u64) -> Self {
        let mut receiver = Self {
            count,
            chunks: ChunkSet::default(),
            limit: 0,
            chunks_per_second: 0,
            gaps: BTreeMap::new(),
            next_gap_ns: u64::MAX,
            has_reported: false,
            arrived: 0,
            asked: 0,
            unreported: 0,
            unreported_ns: now_ns,
            // The first report announces this receiver to the sender.
            is_due: true,
            reported_ns: 0,
            end_ns: now_ns,
            heard_ns: now_ns,
            round_trip_ns: REPORT_NS,
            random: seed | 1,
        };
        receiver.set_room(room);
        receiver
    }

    /// Sets how many chunks beyond the prefix are accepted. The limit never falls below one that
    /// was reported.
    pub fn set_room(&mut self, chunks: u32) {
        let limit = self.chunks.prefix().saturating_add(chunks.min(WINDOW_MAX)).min(self.count);
        self.limit = self.limit.max(limit);
    }

    /// Sets the rate that the receiver can process, in chunks per second; 0: unbounded.
    pub fn set_rate(&mut self, chunks_per_second: u32) {
        self.chunks_per_second = chunks_per_second;
    }

    /// Sets the round-trip time that the sender has measured.
    pub fn set_round_trip(&mut self, round_trip_ns: u64) {
        self.round_trip_ns = round_trip_ns;
    }

    /// The chunks that have arrived.
    pub fn chunks(&self) -> &ChunkSet {
        &self.chunks
    }

    /// Whether all chunks have arrived.
    pub fn is_complete(&self) -> bool {
        self.chunks.prefix() == self.count
    }

    /// Whether no datagram has arrived for [`ABANDONED_NS`].
    pub fn is_abandoned(&self, now_ns: u64) -> bool {
        now_ns >= self.heard_ns.saturating_add(ABANDONED_NS)
    }

    /// Whether a datagram has arrived since `since_ns`.
    pub fn has_input_since(&self, since_ns: u64) -> bool {
        self.heard_ns >= since_ns
    }

    /// Processes an arrived chunk.
    pub fn handle_chunk(&mut self, now_ns: u64, number: u32) -> Received {
        if number >= self.count {
            return Received::Refused(Refused::Number);
        }
        self.heard_ns = now_ns;
        self.arrived = self.arrived.wrapping_add(1);
        if number >= self.limit {
            // The chunk counts for the next report: the sender may not know the limit, or what has
            // arrived.
            self.note(now_ns);
            return Received::Refused(Refused::Window);
        }
        let end = self.chunks.end();
        let is_new = self.chunks.insert(number);
        self.note(now_ns);
        if !is_new {
            return Received::Duplicate;
        }
        if number >= end {
            self.end_ns = now_ns;
        }
        if number > end {
            let report_ns = now_ns + self.random_below(self.round_trip_ns);
            self.gaps.insert(end, Gap { end: number, report_ns, is_reported: false });
            self.next_gap_ns = self.next_gap_ns.min(report_ns);
        }
        let prefix = self.chunks.prefix();
        while self.gaps.first_key_value().is_some_and(|(_, gap)| gap.end <= prefix) {
            self.gaps.pop_first();
        }
        self.is_due |= self.is_complete();
        Received::New
    }

    /// Processes an arrived probe: a report is due.
    pub fn handle_probe(&mut self, now_ns: u64) {
        self.heard_ns = now_ns;
        self.asked = self.asked.wrapping_add(1);
        self.is_due = true;
    }

    fn note(&mut self, now_ns: u64) {
        if self.unreported == 0 {
            self.unreported_ns = now_ns;
        }
        self.unreported += 1;
    }

    /// The next report, if one is due.
    pub fn poll_report(&mut self, now_ns: u64) -> Option<Report> {
        if now_ns < self.report_ns() {
            return None;
        }
        self.mark_due_gaps(now_ns);
        (self.is_due, self.unreported, self.reported_ns) = (false, 0, now_ns);
        let is_due =
            |start: u32| self.gaps.range(..=start).next_back().is_some_and(|(_, gap)| gap.is_reported);
        let missing = self.chunks.holes().filter(|hole| is_due(hole.start)).take(MISSING_MAX).collect();
        Some(Report {
            prefix: self.chunks.prefix(),
            end: self.chunks.end(),
            limit: self.limit,
            arrived: self.arrived,
            asked: self.asked,
            held_ns: now_ns.saturating_sub(self.end_ns),
            chunks_per_second: self.chunks_per_second,
            missing,
        })
    }

    /// Marks gaps that have waited long enough; reports contain them from now on.
    fn mark_due_gaps(&mut self, now_ns: u64) {
        (self.next_gap_ns, self.has_reported) = (u64::MAX, false);
        for gap in self.gaps.values_mut() {
            gap.is_reported |= gap.report_ns <= now_ns;
            self.has_reported |= gap.is_reported;
            self.next_gap_ns =
                if gap.is_reported { self.next_gap_ns } else { self.next_gap_ns.min(gap.report_ns) };
        }
    }

    /// When the next report is due if nothing arrives.
    fn report_ns(&self) -> u64 {
        if self.is_due || self.unreported >= REPORT_CHUNKS {
            return 0;
        }
        let waits_ns = if self.unreported > 0 { self.unreported_ns + REPORT_NS } else { u64::MAX };
        let again_ns = match self.has_reported && !self.gaps.is_empty() {
            // The last report, or the repairs, may be lost.
            true => self.reported_ns + REPORT_NS.max(2 * self.round_trip_ns),
            false => u64::MAX,
        };
        let next_gap_ns = if self.gaps.is_empty() { u64::MAX } else { self.next_gap_ns };
        waits_ns.min(next_gap_ns).min(again_ns)
    }

    /// Latest time to call [`Self::poll_report`], or to check [`Self::is_abandoned`].
    pub fn next_deadline(&self) -> u64 {
        self.report_ns().min(self.heard_ns.saturating_add(ABANDONED_NS))
    }

    /// Xorshift (Marsaglia 2003). Seeds of simulations that found bugs depend on these numbers, so
    /// they must not change with a library.
    fn random_below(&mut self, bound: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % bound.max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn receiver(count: u32, room: u32) -> Receiver {
        let mut receiver = Receiver::new(0, count, room, 7);
        assert_eq!(receiver.poll_report(0).map(|report| report.limit), Some(room.min(count).min(WINDOW_MAX)));
        receiver
    }

    #[test]
    fn receiver_reports_after_32_chunks_after_a_millisecond_and_at_the_end() {
        let mut receiver = receiver(100, 100);
        (0..31).for_each(|number| assert_eq!(receiver.handle_chunk(MS, number), Received::New));
        assert_eq!((receiver.poll_report(MS), receiver.next_deadline()), (None, 2 * MS));
        receiver.handle_chunk(MS, 31);
        assert_eq!(receiver.poll_report(MS).map(|report| report.prefix), Some(32));
        receiver.handle_chunk(2 * MS, 32);
        assert_eq!((receiver.poll_report(3 * MS - 1), receiver.poll_report(3 * MS).is_some()), (None, true));
        (33..100).for_each(|number| assert_eq!(receiver.handle_chunk(4 * MS, number), Received::New));
        assert!(receiver.is_complete() && receiver.poll_report(4 * MS).is_some());
        assert_eq!(receiver.poll_report(4 * MS), None);
    }

    #[test]
    fn hole_is_reported_when_due_and_again_until_filled() {
        let mut receiver = receiver(100, 100);
        receiver.handle_chunk(MS, 0);
        receiver.handle_chunk(MS, 5);
        let due_ns = receiver.next_deadline();
        assert!((MS..2 * MS).contains(&due_ns));
        receiver.handle_chunk(due_ns, 2);
        let report = receiver.poll_report(due_ns).unwrap();
        assert_eq!((report.missing, report.arrived, report.end), (vec![1..2, 3..5], 3, 6));
        let again_ns = receiver.next_deadline();
        assert!(again_ns > due_ns);
        assert_eq!(receiver.poll_report(again_ns).unwrap().missing, [1..2, 3..5]);
        [1, 3, 4]
            .iter()
            .for_each(|number| assert_eq!(receiver.handle_chunk(again_ns, *number), Received::New));
        let report = receiver.poll_report(again_ns + MS).unwrap();
        assert_eq!((report.prefix, report.missing.len(), report.arrived), (6, 0, 6));
    }

    #[test]
    fn chunks_outside_the_window_are_refused_and_memory_is_bounded() {
        let mut receiver = receiver(20_000, 20_000);
        assert_eq!(receiver.handle_chunk(0, 20_000), Received::Refused(Refused::Number));
        assert_eq!(receiver.handle_chunk(0, WINDOW_MAX), Received::Refused(Refused::Window));
        for number in (0..20_000).step_by(2) {
            receiver.handle_chunk(0, number + 1);
        }
        assert_eq!(receiver.gaps.len() as u32, WINDOW_MAX / 2);
        let report = receiver.poll_report(MS).unwrap();
        assert_eq!(report.missing.len(), MISSING_MAX);
        assert!(report.is_valid(20_000));
    }

    #[test]
    fn transfer_is_abandoned_five_seconds_after_the_last_chunk() {
        let mut receiver = receiver(10, 10);
        receiver.handle_chunk(MS, 3);
        assert!(receiver.has_input_since(MS) && !receiver.has_input_since(MS + 1));
        assert!(!receiver.is_abandoned(MS + ABANDONED_NS - 1) && receiver.is_abandoned(MS + ABANDONED_NS));
        receiver.handle_probe(2 * MS);
        assert!(!receiver.is_abandoned(MS + ABANDONED_NS) && receiver.poll_report(2 * MS).is_some());
    }
}
