//! How long to wait for an answer (RFC 6298).
//!
//! An op that was sent more than once is not measured, because its answer may be to either datagram (Karn). That alone
//! would send everything twice for ever to replicas that are slower than the timeout. So each timeout lengthens those that
//! follow, of new ops too, until an op that was sent once is answered: after a loss that is the next op; with slow
//! replicas, the first op whose timeout was long enough.

use crate::RetryPolicy;

/// Smoothed round-trip time and its variation, for one kind of request.
#[derive(Clone, Debug)]
pub(crate) struct RoundTrip {
    smoothed_ns: u64,
    variation_ns: u64,
    /// How many times the timeout is doubled.
    backoff: u32,
    /// Timeouts before this time belong to one outage, and count once.
    backed_off_until_ns: u64,
    policy: RetryPolicy,
}

/// The timeout doubles at most this many times.
const DOUBLINGS_MAX: u32 = 20;
/// Doubling by [`RoundTrip::timed_out`] stops here.
const BACKOFF_NS_MAX: u64 = 1_000_000_000;
/// Doubling from try to try stops here while the destination answers others: that is a loss or a queue, not an outage
/// whose end must be noticed soon.
const HEARD_NS_MAX: u64 = 500_000_000;

impl RoundTrip {
    pub(crate) fn new(policy: RetryPolicy) -> Self {
        Self { smoothed_ns: 0, variation_ns: 0, backoff: 0, backed_off_until_ns: 0, policy }
    }

    /// An op that was sent once was answered after `sample_ns`.
    pub(crate) fn measured(&mut self, sample_ns: u64) {
        self.backoff = 0;
        if self.smoothed_ns == 0 {
            self.smoothed_ns = sample_ns.max(1);
            self.variation_ns = sample_ns / 2;
        } else {
            let deviation = self.smoothed_ns.abs_diff(sample_ns);
            self.variation_ns = (3 * self.variation_ns + deviation) / 4;
            self.smoothed_ns = (7 * self.smoothed_ns + sample_ns) / 8;
        }
    }

    /// Whether the average round trip exceeds that of `all` by more than the minimum timeout.
    pub(crate) fn is_slower_than(&self, all: &Self) -> bool {
        self.smoothed_ns > all.smoothed_ns + self.policy.min.as_nanos() as u64
    }

    /// How long an answer takes, as a moving average; 0 before the first.
    pub(crate) fn smoothed_ns(&self) -> u64 {
        self.smoothed_ns
    }

    /// An op was not answered in time.
    pub(crate) fn timed_out(&mut self, now_ns: u64) {
        if now_ns >= self.backed_off_until_ns && self.timeout_ns(0, false) < BACKOFF_NS_MAX {
            self.backoff += 1;
            self.backed_off_until_ns = now_ns + self.timeout_ns(0, false);
        }
    }

    /// Until when to wait for the answer to a datagram that was sent once, at `sent_ns`. During an
    /// outage that is later than it seemed when the datagram was sent, but never by more than the
    /// longest interval between retries.
    pub(crate) fn wait_until_ns(&self, sent_ns: u64) -> u64 {
        let silence_ns = if self.backoff == 0 { 0 } else { self.backed_off_until_ns };
        let latest_ns = sent_ns + self.timeout_ns(DOUBLINGS_MAX, false);
        (sent_ns + self.timeout_ns(0, false)).max(silence_ns).min(latest_ns)
    }

    /// Time to wait after try number `attempt` (from 0), in nanoseconds. It doubles with each try, up to the policy's
    /// maximum or the measured time, whichever is longer. The first wait may be longer still, to learn how slow the
    /// replicas are. Retries stay frequent to notice the end of an outage, but are half a second apart while the
    /// destination answers others (`is_heard`).
    pub(crate) fn timeout_ns(&self, attempt: u32, is_heard: bool) -> u64 {
        let RetryPolicy { initial, min, max } = self.policy;
        let max_ns = (max.as_nanos() as u64).max(if is_heard { HEARD_NS_MAX } else { 0 });
        let measured = self.smoothed_ns + (4 * self.variation_ns).max(min.as_nanos() as u64);
        let measured = if self.smoothed_ns == 0 { initial.as_nanos() as u64 } else { measured };
        let doubled = measured.saturating_mul(1 << attempt.max(self.backoff).min(DOUBLINGS_MAX));
        // Retries must not lengthen queues that already take longer than the maximum.
        if attempt == 0 { doubled } else { doubled.min(measured.max(max_ns)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn timeout_follows_the_round_trip_within_bounds_and_doubles() {
        let mut round_trip = RoundTrip::new(RetryPolicy::default());
        assert_eq!(round_trip.timeout_ns(0, false), 20 * MS, "nothing measured yet");
        (0..100).for_each(|_| round_trip.measured(20_000));
        assert_eq!(round_trip.timeout_ns(0, false), 5 * MS + 20_000, "never below the minimum");
        (0..100).for_each(|_| round_trip.measured(10 * MS));
        let settled = round_trip.timeout_ns(0, false);
        assert!((14 * MS..16 * MS).contains(&settled), "{settled}");
        assert_eq!(round_trip.timeout_ns(1, false), 2 * settled);
        assert_eq!(round_trip.timeout_ns(60, false), 100 * MS, "doubled up to the maximum");
        (0..100).for_each(|_| round_trip.measured(800 * MS));
        let slow = round_trip.timeout_ns(60, false);
        assert!((800 * MS..850 * MS).contains(&slow), "{slow}: as slow as the replicas");
    }

    #[test]
    fn mean_moves_by_an_eighth_and_variation_by_a_quarter() {
        let mut round_trip = RoundTrip::new(RetryPolicy::default());
        for (sample, timeout) in [(8, 8 + 4 * 4), (16, 9 + 4 * 5), (1, 8 + 4 * 5 + 4 * 3 / 4)] {
            round_trip.measured(sample * MS);
            assert_eq!(round_trip.timeout_ns(0, false), timeout * MS, "after {sample} ms");
        }
        let mut instant = RoundTrip::new(RetryPolicy::default());
        instant.measured(0);
        assert_eq!(instant.timeout_ns(0, false), 5 * MS + 1, "measured, though it took 0 ns");
    }

    #[test]
    fn backoff_doubles_again_only_after_the_longer_timeout() {
        let mut round_trip = RoundTrip::new(RetryPolicy::default());
        round_trip.timed_out(0);
        assert_eq!(round_trip.timeout_ns(0, false), 40 * MS);
        round_trip.timed_out(40 * MS - 1);
        assert_eq!(round_trip.timeout_ns(0, false), 40 * MS);
        round_trip.timed_out(40 * MS);
        assert_eq!((round_trip.timeout_ns(0, false), round_trip.timeout_ns(1, false)), (80 * MS, 80 * MS));
        assert_eq!(
            [2, 3].map(|attempt| round_trip.timeout_ns(attempt, false)),
            [80 * MS, 100 * MS],
            "the greater of both"
        );
    }

    #[test]
    fn one_outage_doubles_the_timeout_once_and_one_answer_resets_it() {
        let mut round_trip = RoundTrip::new(RetryPolicy::default());
        (0..100).for_each(|_| round_trip.measured(20_000));
        let usual = round_trip.timeout_ns(0, false);
        // A window full of ops times out at the same time.
        (0..1_000).for_each(|index| round_trip.timed_out(index));
        assert_eq!(round_trip.timeout_ns(0, false), 2 * usual);
        assert_eq!(round_trip.wait_until_ns(0), 2 * usual, "other ops wait as long");
        round_trip.measured(20_000);
        let now = (round_trip.timeout_ns(0, false), round_trip.wait_until_ns(7));
        assert_eq!(now, (usual, 7 + usual), "a loss leaves no trace");
        let mut now_ns = 1_000 * MS;
        for _ in 0..100 {
            round_trip.timed_out(now_ns);
            now_ns += round_trip.timeout_ns(0, false);
        }
        let longest = round_trip.timeout_ns(0, false);
        assert!((BACKOFF_NS_MAX..2 * BACKOFF_NS_MAX).contains(&longest), "{longest}");
        assert_eq!(
            round_trip.wait_until_ns(now_ns),
            now_ns + 100 * MS,
            "no longer than the interval between retries"
        );
        assert_eq!(
            round_trip.timeout_ns(1, false),
            100 * MS,
            "a retry checks sooner whether the outage is over"
        );
    }
}
