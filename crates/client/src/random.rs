//! Jitter.

/// SplitMix64 (Steele, Lea, Flood 2014): enough to keep clients from retrying in step.
#[derive(Clone, Debug)]
pub(crate) struct Jitter(pub(crate) u64);

impl Jitter {
    /// `nanoseconds` and up to a quarter more.
    pub(crate) fn spread(&mut self, nanoseconds: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^= z >> 31;
        nanoseconds + z % (nanoseconds / 4 + 1)
    }
}
