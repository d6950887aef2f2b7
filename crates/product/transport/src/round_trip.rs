//! Round-trip time: from sending a chunk to receiving the report of its arrival.

/// Assumed before the first measurement.
const FIRST_NS: u64 = 1_000_000;
const LEAST_NS: u64 = 50_000;
const MOST_NS: u64 = 200_000_000;
/// A new measurement counts for one part in this many of the mean, …
const WEIGHT_DIVISOR: u64 = 8;
/// … or in this many if it is much longer than the mean: a queue that has grown must be noticed
/// soon, because chunks that wait in it are not lost.
const LONGER_DIVISOR: u64 = 2;
/// A measurement is much longer if it exceeds the mean this many times.
const LONGER_TIMES: u64 = 4;
/// A marked chunk without a report after this time is lost. It was the last chunk sent: a report of
/// a later chunk would have ended the measurement.
const LOST_NS: u64 = 1_000_000_000;

/// Measures one chunk at a time: its number and sending time are the mark.
#[derive(Clone, Debug)]
pub(crate) struct RoundTrip {
    smoothed_ns: u64,
    mark: Option<(u32, u64)>,
}

impl RoundTrip {
    pub(crate) fn new() -> Self {
        Self { smoothed_ns: FIRST_NS, mark: None }
    }

    pub(crate) fn ns(&self) -> u64 {
        self.smoothed_ns
    }

    /// A new chunk is sent.
    pub(crate) fn sent(&mut self, now_ns: u64, number: u32) {
        let is_lost = |(_, sent_ns): (u32, u64)| now_ns >= sent_ns + LOST_NS;
        if self.mark.is_none_or(is_lost) {
            self.mark = Some((number, now_ns));
        }
    }

    /// A report states that the chunk before `end` is the highest that has arrived, and arrived
    /// `held_ns` before the report.
    pub(crate) fn on_report(&mut self, now_ns: u64, end: u32, held_ns: u64) {
        let Some((_, sent_ns)) = self.mark.take_if(|(number, _)| *number < end) else { return };
        let time_ns = now_ns.saturating_sub(sent_ns).saturating_sub(held_ns).clamp(LEAST_NS, MOST_NS);
        let is_longer = time_ns > LONGER_TIMES * self.smoothed_ns;
        let divisor = if is_longer { LONGER_DIVISOR } else { WEIGHT_DIVISOR };
        self.smoothed_ns = (self.smoothed_ns * (divisor - 1) + time_ns) / divisor;
    }
}
