//! The pace of a sender: a rate that adapts to loss.

/// The slowest pace …
pub const CHUNKS_PER_SECOND_MIN: u32 = 200;
/// … and the fastest.
pub const CHUNKS_PER_SECOND_MAX: u32 = 4_000_000;

/// Most chunks that may be sent at once after an idle time.
const BURST: u64 = 64;
/// Before the first loss, the rate doubles with each round trip. Afterwards it grows by one part in
/// this many.
const GROWTH_DIVISOR: u64 = 16;
/// Chunks sent to a unicast receiver per thousand that arrive: enough even if a quarter is always
/// lost.
const UNICAST_PER_MILLE: u64 = 1_350;
/// A sample of fewer chunks is too small to measure loss.
pub(crate) const SAMPLE_MIN: u64 = 512;
/// Loss above the baseline, in millionths, at which the sender slows down.
const LOSS_PPM: u64 = 20_000;
const MILLION: u64 = 1_000_000;
const SECOND_NS: u64 = 1_000_000_000;

/// A rate that adapts to loss, and the time of the next chunk. If more than 2 % of the chunks are
/// lost, the rate falls by a third, at most once per round trip; otherwise it grows.
///
/// If the link is full, it delivers as many chunks after the rate has fallen as before. If it
/// delivers fewer, the loss has another cause, which a lower rate would not cure. Then the rate
/// rises again, and this loss becomes the baseline until a lower loss is measured.
#[derive(Clone, Debug)]
pub struct Pace {
    rate: u64,
    /// Upper bound of the rate: what receivers can take.
    bound: u64,
    /// When the next chunk would leave if they were evenly spaced.
    next_ns: u64,
    adapted_ns: u64,
    has_lost: bool,
    /// Delivered chunks per second before the last change, if that change lowered the rate.
    delivered_before: Option<u64>,
    /// Loss that does not depend on the rate, in millionths.
    baseline_ppm: u64,
}

impl Pace {
    /// Starts at this rate, in chunks per second.
    pub fn new(chunks_per_second: u32) -> Self {
        let max = u64::from(CHUNKS_PER_SECOND_MAX);
        let rate = u64::from(chunks_per_second).clamp(CHUNKS_PER_SECOND_MIN.into(), max);
        Self {
            rate,
            bound: max,
            next_ns: 0,
            adapted_ns: 0,
            has_lost: false,
            delivered_before: None,
            baseline_ppm: 0,
        }
    }

    /// Chunks per second.
    pub fn rate(&self) -> u32 {
        self.rate.min(self.bound) as u32
    }

    /// Sets the upper bound of the rate, in chunks per second; 0: no bound.
    pub fn bound(&mut self, chunks_per_second: u32) {
        let (least, most) = (CHUNKS_PER_SECOND_MIN.into(), CHUNKS_PER_SECOND_MAX.into());
        self.bound =
            if chunks_per_second == 0 { most } else { u64::from(chunks_per_second).clamp(least, most) };
    }

    /// When the next chunk may be sent.
    pub fn next_ns(&self) -> u64 {
        self.next_ns
    }

    /// A chunk is sent at `now_ns`.
    pub fn sent(&mut self, now_ns: u64) {
        let gap_ns = SECOND_NS / u64::from(self.rate());
        self.next_ns = self.next_ns.max(now_ns.saturating_sub(BURST * gap_ns)) + gap_ns;
    }

    /// Sets the rate for a unicast receiver to a little more than arrives there, so that little is
    /// lost on a full link and the rate grows on a free one.
    pub(crate) fn follow(&mut self, arrived_per_second: u32) {
        let rate = u64::from(arrived_per_second) * UNICAST_PER_MILLE / 1000;
        self.rate = rate.clamp(CHUNKS_PER_SECOND_MIN.into(), CHUNKS_PER_SECOND_MAX.into());
    }

    /// Whether a round trip has passed since the last call of [`Self::adapt`].
    pub fn is_due(&self, now_ns: u64, round_trip_ns: u64) -> bool {
        now_ns >= self.adapted_ns.saturating_add(round_trip_ns)
    }

    /// Adapts the rate. `sent` and `lost` count the chunks since the last call; small samples say
    /// little.
    pub fn adapt(&mut self, now_ns: u64, sent: u64, lost: u64) {
        let loss_ppm = lost.min(sent) * MILLION / sent.max(1);
        let passed_ns = (now_ns - self.adapted_ns.min(now_ns)).max(1);
        let delivered =
            (u128::from(sent.saturating_sub(lost)) * u128::from(SECOND_NS) / u128::from(passed_ns)) as u64;
        self.adapted_ns = now_ns;
        self.baseline_ppm = self.baseline_ppm.min(loss_ppm);
        let before = self.delivered_before.take();
        let is_lossy = loss_ppm > self.baseline_ppm + LOSS_PPM;
        self.has_lost |= is_lossy;
        self.rate = match before.filter(|_| is_lossy) {
            Some(before) if delivered * 6 < before * 5 => {
                self.baseline_ppm = loss_ppm;
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

    /// One round trip on a link that carries `link` chunks per second and loses `weather_ppm` at any rate.
    fn pass(pace: &mut Pace, time: u64, link: u64, weather_ppm: u64) {
        let sent = u64::from(pace.rate()) * ROUND_TRIP_NS / SECOND_NS;
        let carried = sent.min(link * ROUND_TRIP_NS / SECOND_NS);
        let lost = sent - carried + carried * weather_ppm / MILLION;
        pace.adapt(time * ROUND_TRIP_NS, sent, lost);
    }

    #[test]
    fn rate_falls_by_a_third_above_two_percent_once_per_round_trip() {
        let mut pace = Pace::new(30_000);
        pace.adapt(ROUND_TRIP_NS, 1_000, 20);
        assert_eq!(pace.rate(), 60_000, "2 % is tolerated");
        pace.adapt(2 * ROUND_TRIP_NS, 1_000, 21);
        assert_eq!(pace.rate(), 40_000);
        assert!(!pace.is_due(3 * ROUND_TRIP_NS - 1, ROUND_TRIP_NS));
        pace.adapt(3 * ROUND_TRIP_NS, 1_000, 0);
        assert_eq!(pace.rate(), 42_500);
    }

    #[test]
    fn pace_settles_at_the_rate_of_a_full_link() {
        let mut pace = Pace::new(200_000);
        let rates: Vec<u32> =
            (1..400).map(|time| (pass(&mut pace, time, 20_000, 0), pace.rate()).1).collect();
        assert!(rates[20..].iter().all(|rate| (13_000..23_000).contains(rate)), "{rates:?}");
    }

    #[test]
    fn loss_at_any_rate_becomes_the_baseline_until_it_ends() {
        let mut pace = Pace::new(200_000);
        (1..100).for_each(|time| pass(&mut pace, time, 10_000_000, 200_000));
        assert_eq!(pace.rate(), CHUNKS_PER_SECOND_MAX);
        (100..103).for_each(|time| pass(&mut pace, time, 10_000_000, 0));
        let before = pace.rate();
        pass(&mut pace, 103, 10_000_000, 100_000);
        assert!(pace.rate() < before, "the loss is above the new baseline");
    }

    #[test]
    fn rate_stays_within_its_bounds() {
        let mut pace = Pace::new(1);
        (1..100).for_each(|time| pace.adapt(time * ROUND_TRIP_NS, 100, 100));
        assert_eq!(pace.rate(), CHUNKS_PER_SECOND_MIN);
        (100..1000).for_each(|time| pace.adapt(time * ROUND_TRIP_NS, 100, 0));
        assert_eq!(pace.rate(), CHUNKS_PER_SECOND_MAX);
        pace.bound(5_000);
        assert_eq!(pace.rate(), 5_000);
        pace.bound(0);
        assert_eq!(pace.rate(), CHUNKS_PER_SECOND_MAX);
        pace.adapt(u64::MAX, u64::MAX / MILLION, 1);
        assert_eq!(pace.rate(), CHUNKS_PER_SECOND_MAX);
    }

    #[test]
    fn burst_after_an_idle_time_is_bounded() {
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
        assert_eq!(leave(&mut pace, 11 * SECOND_NS), BURST + 1, "an idle second allows only one burst");
        assert_eq!(leave(&mut pace, 11 * SECOND_NS + SECOND_NS / 100), 10);
    }
}
