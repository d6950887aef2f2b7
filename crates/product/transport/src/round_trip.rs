//! How long a chunk takes there, and word of it back.

/// Before anything is known.
const FIRST_NS: u64 = 1_000_000;
const LEAST_NS: u64 = 50_000;
const MOST_NS: u64 = 200_000_000;
/// What a new time weighs, …
const WEIGHT_DIVISOR: u64 = 8;
/// … and one that is longer by far: a queue that has grown is to be known soon, as what waits in it is not lost.
const LONGER_DIVISOR: u64 = 2;
/// So much longer.
const LONGER_TIMES: u64 = 4;
/// A mark that nobody has reported for so long was the last that left, and is lost. Of all others later ones tell.
const LOST_NS: u64 = 1_000_000_000;

/// One chunk at a time is marked when it leaves.
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

    /// A receiver has nothing from `end` on, and has had the last for so long.
    pub(crate) fn told(&mut self, now_ns: u64, end: u32, held_ns: u64) {
        let Some((_, sent_ns)) = self.mark.take_if(|(number, _)| *number < end) else { return };
        let time_ns = now_ns.saturating_sub(sent_ns).saturating_sub(held_ns).clamp(LEAST_NS, MOST_NS);
        let is_longer = time_ns > LONGER_TIMES * self.smoothed_ns;
        let divisor = if is_longer { LONGER_DIVISOR } else { WEIGHT_DIVISOR };
        self.smoothed_ns = (self.smoothed_ns * (divisor - 1) + time_ns) / divisor;
    }
}
