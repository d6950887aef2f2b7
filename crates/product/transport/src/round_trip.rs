//! The round-trip time: from a chunk to the report of it.

/// Before the first measurement.
const FIRST_NS: u64 = 1_000_000;
const LEAST_NS: u64 = 50_000;
const MOST_NS: u64 = 200_000_000;
/// The weight of a new measurement: one part in this many, …
const WEIGHT_DIVISOR: u64 = 8;
/// … and if it is much longer than the mean. A queue that has grown must be noticed soon: what waits in it is not lost.
const LONGER_DIVISOR: u64 = 2;
/// How many times the mean is much longer.
const LONGER_TIMES: u64 = 4;
/// A marked chunk that was not reported for this long is lost, and was the last one: later chunks would tell of it.
const LOST_NS: u64 = 1_000_000_000;

/// One chunk at a time is marked when it leaves, and timed.
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

    /// A new chunk leaves.
    pub(crate) fn sent(&mut self, now_ns: u64, number: u32) {
        let is_lost = |(_, sent_ns): (u32, u64)| now_ns >= sent_ns + LOST_NS;
        if self.mark.is_none_or(is_lost) {
            self.mark = Some((number, now_ns));
        }
    }

    /// A report says that the chunk before `end` is the last one that has arrived, `held_ns` ago.
    pub(crate) fn on_report(&mut self, now_ns: u64, end: u32, held_ns: u64) {
        let Some((_, sent_ns)) = self.mark.take_if(|(number, _)| *number < end) else { return };
        let time_ns = now_ns.saturating_sub(sent_ns).saturating_sub(held_ns).clamp(LEAST_NS, MOST_NS);
        let is_longer = time_ns > LONGER_TIMES * self.smoothed_ns;
        let divisor = if is_longer { LONGER_DIVISOR } else { WEIGHT_DIVISOR };
        self.smoothed_ns = (self.smoothed_ns * (divisor - 1) + time_ns) / divisor;
    }
}
