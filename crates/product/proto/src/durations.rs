//! Latency histogram for operators: two buckets per doubling, so that quantiles are accurate to
//! within a factor of 1.5.
//!
//! ```text
//!   8 us   12 us   16 us   24 us  …  4.3 s   6.4 s   8.6 s   more
//! ```

use crate::Duration;
use core::sync::atomic::{AtomicU64, Ordering};

/// Upper bound of the first bucket, as a power of two of nanoseconds.
const FIRST_LOG2: u32 = 13;
/// Upper bound of the last bounded bucket, likewise.
const LAST_LOG2: u32 = 33;
/// Number of bounded buckets; one more holds all longer durations.
pub const BOUNDS: usize = 2 * (LAST_LOG2 - FIRST_LOG2) as usize + 1;

/// Upper bound of a bucket, in nanoseconds.
pub const fn bound_ns(bucket: usize) -> u64 {
    let octave = 1 << (FIRST_LOG2 + bucket as u32 / 2);
    if bucket.is_multiple_of(2) { octave } else { octave + octave / 2 }
}

fn bucket_of(took_ns: u64) -> usize {
    if took_ns <= bound_ns(0) {
        return 0;
    }
    // A duration equal to a bound belongs to that bound's bucket.
    let below = took_ns - 1;
    let octave = below.ilog2();
    let is_upper_half = below >> (octave - 1) & 1;
    ((2 * (octave - FIRST_LOG2) + 1) as usize + is_upper_half as usize).min(BOUNDS)
}

/// A histogram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Durations {
    counts: [u64; BOUNDS + 1],
    sum_ns: u64,
}

impl Default for Durations {
    fn default() -> Self {
        Self { counts: [0; BOUNDS + 1], sum_ns: 0 }
    }
}

impl Durations {
    /// Counts a duration.
    pub fn count_ns(&mut self, took_ns: u64) {
        self.counts[bucket_of(took_ns)] += 1;
        self.sum_ns = self.sum_ns.wrapping_add(took_ns);
    }

    /// Adds the counts of another histogram.
    pub fn add(&mut self, other: &Self) {
        self.counts.iter_mut().zip(other.counts).for_each(|(count, more)| *count += more);
        self.sum_ns = self.sum_ns.wrapping_add(other.sum_ns);
    }

    /// Counts by bucket; the last bucket is unbounded.
    pub fn counts(&self) -> &[u64] {
        &self.counts
    }

    /// Number of durations.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Sum of the durations.
    pub fn sum_ns(&self) -> u64 {
        self.sum_ns
    }
}

/// A histogram that one thread writes and all may read.
#[derive(Debug)]
pub struct SharedDurations {
    counts: [AtomicU64; BOUNDS + 1],
    sum_ns: AtomicU64,
}

impl Default for SharedDurations {
    fn default() -> Self {
        Self { counts: [const { AtomicU64::new(0) }; BOUNDS + 1], sum_ns: AtomicU64::new(0) }
    }
}

impl SharedDurations {
    /// Counts a duration; only one thread may call this.
    pub fn count(&self, took: Duration) {
        let took_ns = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        let add = |number: &AtomicU64, more| {
            number.store(number.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
        };
        add(&self.counts[bucket_of(took_ns)], 1);
        add(&self.sum_ns, took_ns);
    }

    /// The counts so far; may miss a concurrent one.
    pub fn read(&self) -> Durations {
        let mut read = Durations { sum_ns: self.sum_ns.load(Ordering::Relaxed), ..Durations::default() };
        read.counts.iter_mut().zip(&self.counts).for_each(|(to, from)| *to = from.load(Ordering::Relaxed));
        read
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bucket_bounds_are_inclusive() {
        assert_eq!((bound_ns(0), bound_ns(1), bound_ns(2)), (8_192, 12_288, 16_384));
        assert_eq!(bound_ns(BOUNDS - 1), 1 << LAST_LOG2);
        for bucket in 0..BOUNDS {
            assert_eq!(bucket_of(bound_ns(bucket)), bucket);
            assert_eq!(bucket_of(bound_ns(bucket) + 1), bucket + 1);
        }
        assert_eq!((bucket_of(0), bucket_of(1), bucket_of(u64::MAX)), (0, 0, BOUNDS));
    }

    #[test]
    fn counts_are_read_and_summed() {
        let (shared, mut own) = (SharedDurations::default(), Durations::default());
        for us in [1, 9, 9, 20_000_000] {
            shared.count(Duration::from_micros(us));
            own.count_ns(us * 1_000);
        }
        assert_eq!(shared.read(), own);
        assert_eq!((own.counts()[0], own.counts()[1], own.counts()[BOUNDS]), (1, 2, 1));
        let mut twice = own;
        twice.add(&own);
        assert_eq!((twice.count(), twice.sum_ns()), (8, 2 * 20_000_019_000));
    }
}
