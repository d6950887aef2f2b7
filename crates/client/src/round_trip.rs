//! How long to wait for an answer (RFC 6298).

use crate::RetryPolicy;

/// Smoothed round-trip time and its variation, of one kind of request.
#[derive(Clone, Debug)]
pub(crate) struct RoundTrip {
    smoothed_ns: u64,
    variation_ns: u64,
    policy: RetryPolicy,
}

impl RoundTrip {
    pub(crate) fn new(policy: RetryPolicy) -> Self {
        Self { smoothed_ns: 0, variation_ns: 0, policy }
    }

    /// An op was answered `sample_ns` after it was *first* sent. Of one that was sent again nobody knows which datagram was answered.
    /// To leave those out (Karn) would be wrong here: replicas that are slower than the timeout would be sent everything twice for
    /// ever, and be slower still. Counting from the first is too long after a loss, and soon forgotten.
    pub(crate) fn measured(&mut self, sample_ns: u64) {
        if self.smoothed_ns == 0 {
            self.smoothed_ns = sample_ns.max(1);
            self.variation_ns = sample_ns / 2;
        } else {
            let deviation = self.smoothed_ns.abs_diff(sample_ns);
            self.variation_ns = (3 * self.variation_ns + deviation) / 4;
            self.smoothed_ns = (7 * self.smoothed_ns + sample_ns) / 8;
        }
    }

    /// Time to wait after try number `attempt` (from 0), in nanoseconds: doubles with each one, up to the policy's maximum, or the measured time if that is longer.
    pub(crate) fn timeout_ns(&self, attempt: u32) -> u64 {
        let RetryPolicy { initial, min, max } = self.policy;
        let measured = self.smoothed_ns + (4 * self.variation_ns).max(min.as_nanos() as u64);
        let first = if self.smoothed_ns == 0 { initial.as_nanos() as u64 } else { measured };
        // Queues that take longer than the maximum must not be made longer by retries.
        first.saturating_mul(1 << attempt.min(20)).min(first.max(max.as_nanos() as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn timeouts_follow_the_round_trip_within_bounds_and_double() {
        let mut round_trip = RoundTrip::new(RetryPolicy::default());
        assert_eq!(round_trip.timeout_ns(0), 20 * MS, "nothing measured yet");
        (0..100).for_each(|_| round_trip.measured(20_000));
        assert_eq!(round_trip.timeout_ns(0), 2 * MS + 20_000, "never below the minimum");
        (0..100).for_each(|_| round_trip.measured(10 * MS));
        let settled = round_trip.timeout_ns(0);
        assert!((11 * MS..13 * MS).contains(&settled), "{settled}");
        assert_eq!(round_trip.timeout_ns(1), 2 * settled);
        assert_eq!(round_trip.timeout_ns(60), 100 * MS, "doubled up to the maximum");
        (0..100).for_each(|_| round_trip.measured(800 * MS));
        let slow = round_trip.timeout_ns(60);
        assert!((800 * MS..850 * MS).contains(&slow), "{slow}: as slow as the replicas");
    }
}
