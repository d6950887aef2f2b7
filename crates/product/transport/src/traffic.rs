//! Counts of the datagrams sent to a receiver, and of those that have arrived.

use alloc::collections::VecDeque;

/// Number of reports that are kept, to find what was sent one round trip ago.
const REPORTS: usize = 16;

/// Counts of datagrams that carry chunks. The counters wrap.
#[derive(Clone, Debug, Default)]
pub(crate) struct Traffic {
    sent: u32,
    arrived: u32,
    /// For each report: its arrival time, and the counts of sent and of arrived datagrams at that
    /// time.
    reports: VecDeque<(u64, u32, u32)>,
    /// Both counts at the start of the current sample.
    sample_sent: u32,
    sample_arrived: u32,
}

impl Traffic {
    pub(crate) fn sent(&mut self) {
        self.sent = self.sent.wrapping_add(1);
    }

    /// Records a report that is not older than the last one.
    pub(crate) fn on_report(&mut self, now_ns: u64, arrived: u32) {
        self.arrived = arrived;
        if self.reports.len() == REPORTS {
            self.reports.pop_front();
        }
        self.reports.push_back((now_ns, self.sent, arrived));
    }

    /// Number of datagrams of the current sample that were sent at least one round trip ago, and
    /// how many of them have not arrived.
    pub(crate) fn sample(&self, now_ns: u64, round_trip_ns: u64) -> (u64, u64) {
        let is_over = |(at_ns, ..): &&(u64, u32, u32)| *at_ns + round_trip_ns <= now_ns;
        let Some((_, sent, _)) = self.reports.iter().rev().find(is_over) else { return (0, 0) };
        let sent = sent.wrapping_sub(self.sample_sent);
        // The report may be older than the sample.
        let sent = if sent > u32::MAX / 2 { 0 } else { sent };
        let arrived = self.arrived.wrapping_sub(self.sample_arrived);
        (sent.into(), sent.saturating_sub(arrived).into())
    }

    /// Datagrams that have arrived.
    pub(crate) fn arrived(&self) -> u32 {
        self.arrived
    }

    /// Recent rate of arrivals, in chunks per second.
    pub(crate) fn arrived_per_second(&self) -> u32 {
        let Some(((since_ns, _, since), (until_ns, _, until))) =
            self.reports.front().zip(self.reports.back())
        else {
            return 0;
        };
        let arrived = u64::from(until.wrapping_sub(*since)) * 1_000_000_000;
        u32::try_from(arrived / (until_ns - since_ns).max(1)).unwrap_or(u32::MAX)
    }

    /// Starts a sample with the next sent datagram.
    pub(crate) fn restart(&mut self) {
        (self.sample_sent, self.sample_arrived) = (self.sent, self.arrived);
    }

    /// Ends a sample of `sent` datagrams; the next sample begins after them.
    pub(crate) fn end_sample(&mut self, sent: u64) {
        self.sample_sent = self.sample_sent.wrapping_add(sent as u32);
        self.sample_arrived = self.arrived;
    }
}
