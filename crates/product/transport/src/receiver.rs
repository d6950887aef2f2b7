//! One receiver of one transfer.
//!
//! ```text
//!   chunk ─▶ new? ─▶ the caller keeps its bytes            poll_report ◀─ 32 new ones, or 1 ms, or all there, or a hole is ripe, or a probe
//!              └─ beyond the end: a hole, asked for after a random part of a round trip
//! ```

use crate::chunks::Chunks;
use crate::report::{MISSING_MAX, REPORT_CHUNKS, REPORT_NS, Report};
use alloc::collections::BTreeMap;

/// Chunks beyond the prefix that a receiver takes, at most.
pub const WINDOW_MAX: u32 = 8192;
/// A transfer of which nothing came for so long is over.
pub const ABANDONED_NS: u64 = 5_000_000_000;

/// What became of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// Its bytes are to be kept.
    New,
    /// It was there.
    Known,
    /// It is not taken.
    Refused(Refused),
}

/// Why not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The value has no such chunk.
    Number,
    /// There is no room for it yet.
    Window,
}

/// Chunks that were passed over.
#[derive(Clone, Copy, Debug)]
struct Gap {
    end: u32,
    ask_ns: u64,
    is_asked: bool,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Receiver {
    count: u32,
    chunks: Chunks,
    limit: u32,
    chunks_per_second: u32,
    /// By their first numbers. Every hole lies in one of them.
    gaps: BTreeMap<u32, Gap>,
    /// When the first of those is to be asked for that are not yet; at the latest.
    ripens_ns: u64,
    /// Whether some were asked for when the last report was made.
    has_asked: bool,
    arrived: u32,
    asked: u32,
    /// Chunks since the last report, and when the first of them came.
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
    /// Of a value of so many chunks; `room`: how many may be there beyond the prefix. `seed`: differs between receivers.
    pub fn new(now_ns: u64, count: u32, room: u32, seed: u64) -> Self {
        let mut receiver = Self {
            count,
            chunks: Chunks::default(),
            limit: 0,
            chunks_per_second: 0,
            gaps: BTreeMap::new(),
            ripens_ns: u64::MAX,
            has_asked: false,
            arrived: 0,
            asked: 0,
            unreported: 0,
            unreported_ns: now_ns,
            // The sender is to know that there is somebody.
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

    /// So many chunks may be there beyond the prefix from now on. What was granted stays so.
    pub fn set_room(&mut self, chunks: u32) {
        let limit = self.chunks.prefix().saturating_add(chunks.min(WINDOW_MAX)).min(self.count);
        self.limit = self.limit.max(limit);
    }

    /// So many a second can be taken; 0: no bound is known.
    pub fn set_rate(&mut self, chunks_per_second: u32) {
        self.chunks_per_second = chunks_per_second;
    }

    /// What the sender has said of the time to it and back.
    pub fn set_round_trip(&mut self, round_trip_ns: u64) {
        self.round_trip_ns = round_trip_ns;
    }

    /// What is there.
    pub fn chunks(&self) -> &Chunks {
        &self.chunks
    }

    /// Whether all is there.
    pub fn is_complete(&self) -> bool {
        self.chunks.prefix() == self.count
    }

    /// Whether nobody seems to send any more.
    pub fn is_abandoned(&self, now_ns: u64) -> bool {
        now_ns >= self.heard_ns.saturating_add(ABANDONED_NS)
    }

    /// Whether its sender was heard at this time or later.
    pub fn is_heard_since(&self, since_ns: u64) -> bool {
        self.heard_ns >= since_ns
    }

    /// A chunk has come.
    pub fn handle_chunk(&mut self, now_ns: u64, number: u32) -> Taken {
        if number >= self.count {
            return Taken::Refused(Refused::Number);
        }
        self.heard_ns = now_ns;
        self.arrived = self.arrived.wrapping_add(1);
        if number >= self.limit {
            // The sender may not know of the limit, or of what is there.
            self.note(now_ns);
            return Taken::Refused(Refused::Window);
        }
        let end = self.chunks.end();
        let is_new = self.chunks.insert(number);
        self.note(now_ns);
        if !is_new {
            return Taken::Known;
        }
        if number >= end {
            self.end_ns = now_ns;
        }
        if number > end {
            let ask_ns = now_ns + self.random_below(self.round_trip_ns);
            self.gaps.insert(end, Gap { end: number, ask_ns, is_asked: false });
            self.ripens_ns = self.ripens_ns.min(ask_ns);
        }
        let prefix = self.chunks.prefix();
        while self.gaps.first_key_value().is_some_and(|(_, gap)| gap.end <= prefix) {
            self.gaps.pop_first();
        }
        self.is_due |= self.is_complete();
        Taken::New
    }

    /// The sender asks for a report.
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

    /// A report, if one is due.
    pub fn poll_report(&mut self, now_ns: u64) -> Option<Report> {
        if now_ns < self.report_ns() {
            return None;
        }
        self.ripen(now_ns);
        (self.is_due, self.unreported, self.reported_ns) = (false, 0, now_ns);
        let asked = |start: u32| self.gaps.range(..=start).next_back().is_some_and(|(_, gap)| gap.is_asked);
        let missing = self.chunks.holes().filter(|hole| asked(hole.start)).take(MISSING_MAX).collect();
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

    /// Holes that have waited are asked for from now on.
    fn ripen(&mut self, now_ns: u64) {
        (self.ripens_ns, self.has_asked) = (u64::MAX, false);
        for gap in self.gaps.values_mut() {
            gap.is_asked |= gap.ask_ns <= now_ns;
            self.has_asked |= gap.is_asked;
            self.ripens_ns = if gap.is_asked { self.ripens_ns } else { self.ripens_ns.min(gap.ask_ns) };
        }
    }

    /// When the next report is due if nothing comes.
    fn report_ns(&self) -> u64 {
        if self.is_due || self.unreported >= REPORT_CHUNKS {
            return 0;
        }
        let waits_ns = if self.unreported > 0 { self.unreported_ns + REPORT_NS } else { u64::MAX };
        let again_ns = match self.has_asked && !self.gaps.is_empty() {
            // The report was lost, or what it has asked for.
            true => self.reported_ns + REPORT_NS.max(2 * self.round_trip_ns),
            false => u64::MAX,
        };
        let ripens_ns = if self.gaps.is_empty() { u64::MAX } else { self.ripens_ns };
        waits_ns.min(ripens_ns).min(again_ns)
    }

    /// When something is to be done at the latest: [`Self::poll_report`], or the transfer is over.
    pub fn next_deadline(&self) -> u64 {
        self.report_ns().min(self.heard_ns.saturating_add(ABANDONED_NS))
    }

    /// Xorshift.
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
    fn it_reports_after_32_chunks_or_a_millisecond_and_at_the_end() {
        let mut receiver = receiver(100, 100);
        (0..31).for_each(|number| assert_eq!(receiver.handle_chunk(MS, number), Taken::New));
        assert_eq!((receiver.poll_report(MS), receiver.next_deadline()), (None, 2 * MS));
        receiver.handle_chunk(MS, 31);
        assert_eq!(receiver.poll_report(MS).map(|report| report.prefix), Some(32));
        receiver.handle_chunk(2 * MS, 32);
        assert_eq!((receiver.poll_report(3 * MS - 1), receiver.poll_report(3 * MS).is_some()), (None, true));
        (33..100).for_each(|number| assert_eq!(receiver.handle_chunk(4 * MS, number), Taken::New));
        assert!(receiver.is_complete() && receiver.poll_report(4 * MS).is_some());
        assert_eq!(receiver.poll_report(4 * MS), None);
    }

    #[test]
    fn a_hole_is_asked_for_when_it_is_ripe_and_again_while_it_is_there() {
        let mut receiver = receiver(100, 100);
        receiver.handle_chunk(MS, 0);
        receiver.handle_chunk(MS, 5);
        let ripe_ns = receiver.next_deadline();
        assert!((MS..2 * MS).contains(&ripe_ns));
        receiver.handle_chunk(ripe_ns, 2);
        let report = receiver.poll_report(ripe_ns).unwrap();
        assert_eq!((report.missing, report.arrived, report.end), (vec![1..2, 3..5], 3, 6));
        let again_ns = receiver.next_deadline();
        assert!(again_ns > ripe_ns);
        assert_eq!(receiver.poll_report(again_ns).unwrap().missing, [1..2, 3..5]);
        [1, 3, 4].iter().for_each(|number| assert_eq!(receiver.handle_chunk(again_ns, *number), Taken::New));
        let report = receiver.poll_report(again_ns + MS).unwrap();
        assert_eq!((report.prefix, report.missing.len(), report.arrived), (6, 0, 6));
    }

    #[test]
    fn what_does_not_fit_is_refused_and_nothing_grows() {
        let mut receiver = receiver(20_000, 20_000);
        assert_eq!(receiver.handle_chunk(0, 20_000), Taken::Refused(Refused::Number));
        assert_eq!(receiver.handle_chunk(0, WINDOW_MAX), Taken::Refused(Refused::Window));
        for number in (0..20_000).step_by(2) {
            receiver.handle_chunk(0, number + 1);
        }
        assert_eq!(receiver.gaps.len() as u32, WINDOW_MAX / 2);
        let report = receiver.poll_report(MS).unwrap();
        assert_eq!(report.missing.len(), MISSING_MAX);
        assert!(report.is_possible(20_000));
    }

    #[test]
    fn it_is_over_five_seconds_after_the_last_chunk() {
        let mut receiver = receiver(10, 10);
        receiver.handle_chunk(MS, 3);
        assert!(receiver.is_heard_since(MS) && !receiver.is_heard_since(MS + 1));
        assert!(!receiver.is_abandoned(MS + ABANDONED_NS - 1) && receiver.is_abandoned(MS + ABANDONED_NS));
        receiver.handle_probe(2 * MS);
        assert!(!receiver.is_abandoned(MS + ABANDONED_NS) && receiver.poll_report(2 * MS).is_some());
    }
}
