//! What was sent to a receiver, and what of it has come.

use alloc::collections::VecDeque;

/// Reports that are remembered, so that what is compared left a round trip before.
const REPORTS: usize = 16;

/// Counts of datagrams with chunks.
#[derive(Clone, Debug, Default)]
pub(crate) struct Traffic {
    sent: u32,
    arrived: u32,
    /// What had been sent when reports came: what they tell of left before.
    before: VecDeque<(u64, u32)>,
    judged_sent: u32,
    judged_arrived: u32,
}

impl Traffic {
    pub(crate) fn sent(&mut self) {
        self.sent = self.sent.wrapping_add(1);
    }

    /// A report that is not late.
    pub(crate) fn told(&mut self, now_ns: u64, arrived: u32) {
        self.arrived = arrived;
        if self.before.len() == REPORTS {
            self.before.pop_front();
        }
        self.before.push_back((now_ns, self.sent));
    }

    /// Of what had left a round trip ago, and was not judged: how many, and how many of them have not come.
    pub(crate) fn sample(&self, now_ns: u64, round_trip_ns: u64) -> (u64, u64) {
        let is_over = |(at_ns, _): &&(u64, u32)| *at_ns + round_trip_ns <= now_ns;
        let Some((_, sent)) = self.before.iter().rev().find(is_over) else { return (0, 0) };
        let sent = sent.wrapping_sub(self.judged_sent);
        // It may begin before what was judged.
        let sent = if sent > u32::MAX / 2 { 0 } else { sent };
        let arrived = self.arrived.wrapping_sub(self.judged_arrived);
        (sent.into(), sent.saturating_sub(arrived).into())
    }

    /// A sample of so many was judged.
    pub(crate) fn note_judged(&mut self, sent: u64) {
        self.judged_sent = self.judged_sent.wrapping_add(sent as u32);
        self.judged_arrived = self.arrived;
    }
}
