//! How fast a sender sends.

/// No transfer is slower …
pub const CHUNKS_PER_SECOND_MIN: u32 = 200;
/// … or faster.
pub const CHUNKS_PER_SECOND_MAX: u32 = 4_000_000;

/// Chunks that may leave at once after a pause.
const BURST: u64 = 64;
/// After a loss the rate grows by this part in a round trip; before, it doubles.
const GROWTH_DIVISOR: u64 = 16;
/// What a receiver that goes alone is sent, for a thousand that have arrived: also where a quarter is always lost it is served.
const FOLLOWED_PER_MILLE: u64 = 1_350;
/// Chunks that reports must be about before they say something of loss.
pub(crate) const SAMPLE_MIN: u64 = 512;
/// What is lost beyond what is always lost, in millionths, before the sender slows down.
const LOSS_PPM: u64 = 20_000;
const MILLION: u64 = 1_000_000;
const SECOND_NS: u64 = 1_000_000_000;

/// A rate that falls by a third when more than two hundredths are lost, once in a round trip at most, and grows while less is; and when the next chunk may leave.
///
/// A full link delivers as much after the rate has fallen as before. Where less is delivered the loss has another reason, and falling further would not end: then it rises again, and
/// so much loss is taken for granted until there is less.
#[derive(Clone, Debug)]
pub struct Pace {
    rate: u64,
    /// What receivers can take.
    bound: u64,
    /// When the next chunk would leave if all left evenly.
    next_ns: u64,
    judged_ns: u64,
    has_lost: bool,
    /// Chunks per second that were delivered before the rate fell, if that was the last thing that it did.
    delivered_before: Option<u64>,
    /// What is lost at any rate.
    granted_ppm: u64,
}

impl Pace {
    /// Begins with so many chunks per second.
    pub fn new(chunks_per_second: u32) -> Self {
        let max = u64::from(CHUNKS_PER_SECOND_MAX);
        let rate = u64::from(chunks_per_second).clamp(CHUNKS_PER_SECOND_MIN.into(), max);
        Self {
            rate,
            bound: max,
            next_ns: 0,
            judged_ns: 0,
            has_lost: false,
            delivered_before: None,
            granted_ppm: 0,
        }
    }

    /// Chunks per second.
    pub fn rate(&self) -> u32 {
        self.rate.min(self.bound) as u32
    }

    /// Nothing is to be faster than this; 0: no bound is known.
    pub fn bound(&mut self, chunks_per_second: u32) {
        let (least, most) = (CHUNKS_PER_SECOND_MIN.into(), CHUNKS_PER_SECOND_MAX.into());
        self.bound =
            if chunks_per_second == 0 { most } else { u64::from(chunks_per_second).clamp(least, most) };
    }

    /// From when on a chunk may leave.
    pub fn next_ns(&self) -> u64 {
        self.next_ns
    }

    /// A chunk leaves.
    pub fn sent(&mut self, now_ns: u64) {
        let gap_ns = SECOND_NS / u64::from(self.rate());
        self.next_ns = self.next_ns.max(now_ns.saturating_sub(BURST * gap_ns)) + gap_ns;
    }

    /// A receiver that goes alone gets a little more than what has arrived in a second, of late: what a full link loses is not much then, and a free one is found.
    pub(crate) fn follow(&mut self, arrived_per_second: u32) {
        let rate = u64::from(arrived_per_second) * FOLLOWED_PER_MILLE / 1000;
        self.rate = rate.clamp(CHUNKS_PER_SECOND_MIN.into(), CHUNKS_PER_SECOND_MAX.into());
    }

    /// Whether a round trip has passed since it was judged.
    pub fn is_to_be_judged(&self, now_ns: u64, round_trip_ns: u64) -> bool {
        now_ns >= self.judged_ns.saturating_add(round_trip_ns)
    }

    /// Of so many chunks that left since it was judged so many were lost. Few say nothing.
    pub fn judge(&mut self, now_ns: u64, sent: u64, lost: u64) {
        let loss_ppm = lost.min(sent) * MILLION / sent.max(1);
        let passed_ns = (now_ns - self.judged_ns.min(now_ns)).max(1);
        let delivered =
            (u128::from(sent.saturating_sub(lost)) * u128::from(SECOND_NS) / u128::from(passed_ns)) as u64;
        self.judged_ns = now_ns;
        self.granted_ppm = self.granted_ppm.min(loss_ppm);
        let before = self.delivered_before.take();
        let is_lossy = loss_ppm > self.granted_ppm + LOSS_PPM;
        self.has_lost |= is_lossy;
        self.rate = match before.filter(|_| is_lossy) {
            Some(before) if delivered * 6 < before * 5 => {
                self.granted_ppm = loss_ppm;
                self.rate + self.rate / 2
            }
            _ if is_lossy => {
                self.delivered_before = Some(delivered);
                self.rate - self.rate / 3
            }
            _ if self.has_lost => self.rate + self.rate.div_ceil(GROWTH_DIVISOR),
            _ => self.rate * 2,
        };
        self.rate = self.rate.clamp(CHUNKS_PER_SECOND_MIN.into(), CHUNKS_PER_SECOND_MAX.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROUND_TRIP_NS: u64 = 1_000_000;

    /// A round trip of a link that carries so many chunks a second, and loses these of a million at any rate.
    fn pass(pace: &mut Pace, time: u64, link: u64, weather_ppm: u64) {
        let sent = u64::from(pace.rate()) * ROUND_TRIP_NS / SECOND_NS;
        let carried = sent.min(link * ROUND_TRIP_NS / SECOND_NS);
        let lost = sent - carried + carried * weather_ppm / MILLION;
        pace.judge(time * ROUND_TRIP_NS, sent, lost);
    }

    #[test]
    fn it_falls_by_a_third_above_two_hundredths_once_in_a_round_trip() {
        let mut pace = Pace::new(30_000);
        pace.judge(ROUND_TRIP_NS, 1_000, 20);
        assert_eq!(pace.rate(), 60_000, "two of a hundred are no reason");
        pace.judge(2 * ROUND_TRIP_NS, 1_000, 21);
        assert_eq!(pace.rate(), 40_000);
        assert!(!pace.is_to_be_judged(3 * ROUND_TRIP_NS - 1, ROUND_TRIP_NS));
        pace.judge(3 * ROUND_TRIP_NS, 1_000, 0);
        assert_eq!(pace.rate(), 42_500);
    }

    #[test]
    fn a_full_link_is_found_and_used() {
        let mut pace = Pace::new(200_000);
        let rates: Vec<u32> =
            (1..400).map(|time| (pass(&mut pace, time, 20_000, 0), pace.rate()).1).collect();
        assert!(rates[20..].iter().all(|rate| (13_000..23_000).contains(rate)), "{rates:?}");
    }

    #[test]
    fn loss_that_no_rate_ends_is_taken_for_granted_until_it_ends() {
        let mut pace = Pace::new(200_000);
        (1..100).for_each(|time| pass(&mut pace, time, 10_000_000, 200_000));
        assert_eq!(pace.rate(), CHUNKS_PER_SECOND_MAX);
        (100..103).for_each(|time| pass(&mut pace, time, 10_000_000, 0));
        let before = pace.rate();
        pass(&mut pace, 103, 10_000_000, 100_000);
        assert!(pace.rate() < before, "it is news again");
    }

    #[test]
    fn it_stays_within_its_bounds() {
        let mut pace = Pace::new(1);
        (1..100).for_each(|time| pace.judge(time * ROUND_TRIP_NS, 100, 100));
        assert_eq!(pace.rate(), CHUNKS_PER_SECOND_MIN);
        (100..1000).for_each(|time| pace.judge(time * ROUND_TRIP_NS, 100, 0));
        assert_eq!(pace.rate(), CHUNKS_PER_SECOND_MAX);
        pace.bound(5_000);
        assert_eq!(pace.rate(), 5_000);
        pace.bound(0);
        assert_eq!(pace.rate(), CHUNKS_PER_SECOND_MAX);
        pace.judge(u64::MAX, u64::MAX / MILLION, 1);
        assert_eq!(pace.rate(), CHUNKS_PER_SECOND_MAX);
    }

    #[test]
    fn after_a_pause_a_burst_leaves_and_no_more() {
        let mut pace = Pace::new(1_000);
        let leave = |pace: &mut Pace, now_ns: u64| {
            let mut left = 0;
            while pace.next_ns() <= now_ns {
                pace.sent(now_ns);
                left += 1;
            }
            left
        };
        assert_eq!(leave(&mut pace, 10 * SECOND_NS), BURST + 1);
        assert_eq!(leave(&mut pace, 11 * SECOND_NS), BURST + 1, "a second is no more than a burst");
        assert_eq!(leave(&mut pace, 11 * SECOND_NS + SECOND_NS / 100), 10);
    }
}
