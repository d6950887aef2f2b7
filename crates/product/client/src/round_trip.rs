//! How long to wait for an answer (RFC 6298).
//!
//! Of an op that was sent more than once nobody knows which datagram was answered, so it is not measured (Karn). Alone that would be
//! wrong: replicas that are slower than the timeout would be sent everything twice for ever. So every timeout makes the following
//! ones longer, also of new ops, until an op is answered that was sent once: after a loss that is the next one, and of slow replicas
//! the first one whose timeout was long enough.

use crate::RetryPolicy;

/// Smoothed round-trip time and its variation, of one kind of request.
#[derive(Clone, Debug)]
pub(crate) struct RoundTrip {
    smoothed_ns: u64,
    variation_ns: u64,
    /// How often the timeout is doubled.
    backoff: u32,
    /// Timeouts until then are of the same silence.
    backed_off_until_ns: u64,
    policy: RetryPolicy,
}

/// After so many tries a timeout is as long as it gets.
const BACKED_OFF: u32 = 20;
/// The doubling by [`RoundTrip::timed_out`] stops here.
const BACKOFF_NS_MAX: u64 = 1_000_000_000;
/// The doubling from try to try stops here if others are answered meanwhile: then it is no outage whose end is to be noticed, but a loss, or a queue.
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

    /// Whether answers take longer than those do of which `all` is, by more than a timeout allows for.
    pub(crate) fn is_slower_than(&self, all: &Self) -> bool {
        self.smoothed_ns > all.smoothed_ns + self.policy.min.as_nanos() as u64
    }

    /// How long answers take of late; 0 before the first.
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

    /// Until when to wait for what was sent once, as far as is known by now: while nothing is answered at all, longer than was known then,
    /// but no longer than retries are apart at most.
    pub(crate) fn patient_until_ns(&self, sent_ns: u64) -> u64 {
        let silence_ns = if self.backoff == 0 { 0 } else { self.backed_off_until_ns };
        let latest_ns = sent_ns + self.timeout_ns(BACKED_OFF, false);
        (sent_ns + self.timeout_ns(0, false)).max(silence_ns).min(latest_ns)
    }

    /// Time to wait after try number `attempt` (from 0), in nanoseconds: doubles with each one, up to the policy's maximum, or the
    /// measured time if that is longer. After the first try it may be longer still, so that slow replicas are found out to be slow;
    /// retries go on no slower, so that the end of an outage is, or half a second apart while others are answered (`is_heard`).
    pub(crate) fn timeout_ns(&self, attempt: u32, is_heard: bool) -> u64 {
        let RetryPolicy { initial, min, max } = self.policy;
        let max_ns = (max.as_nanos() as u64).max(if is_heard { HEARD_NS_MAX } else { 0 });
        let measured = self.smoothed_ns + (4 * self.variation_ns).max(min.as_nanos() as u64);
        let measured = if self.smoothed_ns == 0 { initial.as_nanos() as u64 } else { measured };
        let doubled = measured.saturating_mul(1 << attempt.max(self.backoff).min(BACKED_OFF));
        // Queues that take longer than the maximum must not be made longer by retries.
        if attempt == 0 { doubled } else { doubled.min(measured.max(max_ns)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn timeouts_follow_the_round_trip_within_bounds_and_double() {
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
    fn the_mean_moves_by_an_eighth_and_the_variation_by_a_quarter() {
        let mut round_trip = RoundTrip::new(RetryPolicy::default());
        for (sample, timeout) in [(8, 8 + 4 * 4), (16, 9 + 4 * 5), (1, 8 + 4 * 5 + 4 * 3 / 4)] {
            round_trip.measured(sample * MS);
            assert_eq!(round_trip.timeout_ns(0, false), timeout * MS, "after {sample} ms");
        }
        let mut instant = RoundTrip::new(RetryPolicy::default());
        instant.measured(0);
        assert_eq!(instant.timeout_ns(0, false), 5 * MS + 1, "measured, though it took no time");
    }

    #[test]
    fn another_silence_begins_when_the_longer_timeout_is_over() {
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
    fn one_silence_doubles_the_timeout_once_and_one_answer_ends_it() {
        let mut round_trip = RoundTrip::new(RetryPolicy::default());
        (0..100).for_each(|_| round_trip.measured(20_000));
        let usual = round_trip.timeout_ns(0, false);
        // A window full of ops times out together.
        (0..1_000).for_each(|index| round_trip.timed_out(index));
        assert_eq!(round_trip.timeout_ns(0, false), 2 * usual);
        assert_eq!(round_trip.patient_until_ns(0), 2 * usual, "others are waited for as long");
        round_trip.measured(20_000);
        let now = (round_trip.timeout_ns(0, false), round_trip.patient_until_ns(7));
        assert_eq!(now, (usual, 7 + usual), "nothing stays of a loss");
        let mut now_ns = 1_000 * MS;
        for _ in 0..100 {
            round_trip.timed_out(now_ns);
            now_ns += round_trip.timeout_ns(0, false);
        }
        let longest = round_trip.timeout_ns(0, false);
        assert!((BACKOFF_NS_MAX..2 * BACKOFF_NS_MAX).contains(&longest), "{longest}");
        assert_eq!(
            round_trip.patient_until_ns(now_ns),
            now_ns + 100 * MS,
            "nor is waited for longer than for a retry"
        );
        assert_eq!(
            round_trip.timeout_ns(1, false),
            100 * MS,
            "a retry looks sooner whether the silence is over"
        );
    }
}
