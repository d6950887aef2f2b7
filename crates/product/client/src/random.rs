//! Random numbers for jitter.

/// SplitMix64 (Steele, Lea, Flood 2014): random enough to keep clients from retrying in step. Not a
/// library's generator, because the seeds of simulations that found bugs depend on exactly these
/// numbers.
#[derive(Clone, Debug)]
pub(crate) struct Jitter(pub(crate) u64);

impl Jitter {
    /// `nanoseconds` plus up to a quarter.
    pub(crate) fn spread(&mut self, nanoseconds: u64) -> u64 {
        nanoseconds + self.next() % (nanoseconds / 4 + 1)
    }

    /// A number below `end`, which is not 0.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jitter_adds_up_to_a_quarter() {
        let mut jitter = Jitter(1);
        let spread: Vec<_> = (0..4_000).map(|_| jitter.spread(400)).collect();
        for part in 400..=500 {
            assert!(spread.contains(&part), "{part} never occurs");
        }
        assert!(spread.iter().all(|part| (400..=500).contains(part)));
        assert_ne!(spread[..10], [0; 10].map(|_| Jitter(2).spread(400)));
        assert_eq!(jitter.spread(0), 0);
        // The published generator's first numbers from state 1234567.
        let mut jitter = Jitter(1_234_567);
        let numbers = [6_457_827_717_110_365_317_u64, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423];
        for number in numbers {
            assert_eq!(jitter.spread(1 << 62), (1 << 62) + number % ((1 << 60) + 1));
        }
    }
}
