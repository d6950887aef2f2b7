//! The random generator of the simulator: splitmix64.
//!
//! Not `fastrand`: tests and documents cite seeds, which mean something only as long as the same
//! numbers are drawn from them.

/// A sequence of random numbers that a seed determines.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The sequence of a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x2545_f491_4f6c_dd1d) ^ 0x6a09_e667_f3bc_c908)
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// 0 to `bound - 1`; 0 if `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        if bound == 0 { 0 } else { self.bits() % bound }
    }

    /// `low` to `high`.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    /// `-max` to `max`.
    pub fn around(&mut self, max: u64) -> i64 {
        self.between(0, 2 * max) as i64 - max as i64
    }

    /// True with a probability of `millionths` / 1,000,000.
    pub fn chance(&mut self, millionths: u64) -> bool {
        millionths > 0 && self.below(1_000_000) < millionths
    }

    /// One of `choices`, which is not empty.
    pub fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize]
    }
}
