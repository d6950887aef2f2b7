//! What was sent to a receiver, and what of it has come.

use alloc::collections::VecDeque;

/// Reports that are remembered, so that what is compared left a round trip before.
const REPORTS: usize = 16;

/// Counts of datagrams with chunks.
#[derive(Clone, Debug, Default)]
pub(crate) struct Traffic {
    sent: u32,
    arrived: u32,
    /// What had been sent when reports came, as what they tell of left before; and what had arrived.
    before: VecDeque<(u64, u32, u32)>,
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
        self.before.push_back((now_ns, self.sent, arrived));
    }

    /// Of what had left a round trip ago, and was not judged: how many, and how many of them have not come.
    pub(crate) fn sample(&self, now_ns: u64, round_trip_ns: u64) -> (u64, u64) {
        let is_over = |(at_ns, ..): &&(u64, u32, u32)| *at_ns + round_trip_ns <= now_ns;
        let Some((_, sent, _)) = self.before.iter().rev().find(is_over) else { return (0, 0) };
        let sent = sent.wrapping_sub(self.judged_sent);
        // It may begin before what was judged.
        let sent = if sent > u32::MAX / 2 { 0 } else { sent };
        let arrived = self.arrived.wrapping_sub(self.judged_arrived);
        (sent.into(), sent.saturating_sub(arrived).into())
    }

    /// Datagrams that have arrived.
    pub(crate) fn arrived(&self) -> u32 {
        self.arrived
    }

    /// Chunks that have arrived in a second, of late.
    pub(crate) fn arrived_per_second(&self) -> u32 {
        let Some(((since_ns, _, since), (until_ns, _, until))) = self.before.front().zip(self.before.back())
        else {
            return 0;
        };
        let arrived = u64::from(until.wrapping_sub(*since)) * 1_000_000_000;
        u32::try_from(arrived / (until_ns - since_ns).max(1)).unwrap_or(u32::MAX)
    }

    /// Another sample begins with what is sent from now on.
    pub(crate) fn restart(&mut self) {
        (self.judged_sent, self.judged_arrived) = (self.sent, self.arrived);
    }

    /// A sample of so many was judged.
    pub(crate) fn note_judged(&mut self, sent: u64) {
        self.judged_sent = self.judged_sent.wrapping_add(sent as u32);
        self.judged_arrived = self.arrived;
    }
}
