//! Token buckets, by which uch-ccp paces its frames.

use super::setup::SECOND_NS;

/// Room for a frame of 9,000 bytes and a control message of 300.
const CAPACITY_BITS: u64 = 74_400;
/// The same in billionths of a bit, so that the amount added in a nanosecond is an integer.
const CAPACITY: u64 = CAPACITY_BITS * SECOND_NS;

/// A bucket that is full at first.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TokenBucket {
    level: u64,
    bits_per_second: u64,
    filled_ns: u64,
}

impl TokenBucket {
    pub(crate) fn new(bits_per_second: u64) -> Self {
        Self { level: CAPACITY, bits_per_second, filled_ns: 0 }
    }

    fn fill(&mut self, now_ns: u64) {
        let came = (now_ns - self.filled_ns).saturating_mul(self.bits_per_second);
        self.level = self.level.saturating_add(came).min(CAPACITY);
        self.filled_ns = now_ns;
    }

    pub(crate) fn set_rate(&mut self, now_ns: u64, bits_per_second: u64) {
        self.fill(now_ns);
        self.bits_per_second = bits_per_second;
    }

    /// When `bits` may be sent: now, or later if nothing else is taken. `u64::MAX` without a rate.
    pub(crate) fn ready_ns(&mut self, now_ns: u64, bits: u64) -> u64 {
        self.fill(now_ns);
        let lacks = (bits * SECOND_NS).saturating_sub(self.level);
        match lacks {
            0 => now_ns,
            _ if self.bits_per_second == 0 => u64::MAX,
            _ => now_ns + lacks.div_ceil(self.bits_per_second),
        }
    }

    /// Takes `bits`, or what is left.
    pub(crate) fn take(&mut self, now_ns: u64, bits: u64) {
        self.fill(now_ns);
        self.level = self.level.saturating_sub(bits * SECOND_NS);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bucket_limits_to_its_rate() {
        let mut bucket = TokenBucket::new(9_900_000_000);
        assert_eq!(bucket.ready_ns(100, 72_000), 100, "full at first");
        bucket.take(100, 72_000);
        // 69,600 bits are missing, and 9.9 are added per nanosecond.
        assert_eq!(bucket.ready_ns(100, 72_000), 100 + 7_031);
        assert_eq!(bucket.ready_ns(7_130, 72_000), 7_131);
        assert_eq!(bucket.ready_ns(7_131, 72_000), 7_131);
        bucket.set_rate(7_131, 0);
        bucket.take(1_000_000, 74_400);
        assert_eq!((bucket.ready_ns(1_000_000, 1), bucket.ready_ns(1_000_000, 0)), (u64::MAX, 1_000_000));
        bucket.set_rate(1_000_000, 1_000_000_000);
        assert_eq!(bucket.ready_ns(2_000_000, 74_400), 2_000_000, "no more than it holds");
    }
}
