//! Requests for 100 million keys by a Zipf distribution, without a table of all keys.
//!
//! The head, the most popular ranks, is drawn by an exact table ([`Zipf`]). A rank of the tail is
//! drawn by inverting the integral of x^−s, taken from half a rank before it to half a rank behind
//! it, and rounding. For rank k that integral differs from the true weight by the part s(s + 1) ÷
//! 24k², which beyond the head is below 10⁻¹¹: less than the rounding error of the inversion. So
//! every request has an exact rank, the HashPipe sees the true tail, and only the head takes
//! memory.
//!
//! Key and owner of a rank are computed by a hash when needed.

use crate::splitmix::Random;
use crate::zipf::Zipf;
use nicekv_hotkeys::HotKey;
use nicekv_proto::{KeyDigest, KeyspaceId};

/// Number of keys (KVSwitch §5.5).
pub(crate) const KEYS: u32 = 100_000_000;
/// Number of ranks of the head.
const HEAD: u32 = 1 << 18;

#[derive(Clone, Debug)]
pub(crate) struct Popularity {
    head: Zipf,
    head_share: f64,
    exponent: f64,
    /// The integrals from 1 to the beginning and to the end of the tail.
    tail: (f64, f64),
}

impl Popularity {
    pub(crate) fn new(exponent: f64) -> Self {
        let ends = [HEAD, KEYS].map(|rank| integral(f64::from(rank) + 0.5, exponent));
        let head: f64 = (1..=HEAD).map(|rank| f64::from(rank).powf(-exponent)).sum();
        let head_share = head / (head + ends[1] - ends[0]);
        Self { head: Zipf::new(HEAD, exponent), head_share, exponent, tail: (ends[0], ends[1]) }
    }

    /// Draws a rank, counted from 0.
    pub(crate) fn sample(&self, random: &mut Random) -> u32 {
        if random.fraction() < self.head_share {
            return self.head.sample(random);
        }
        let (from, to) = self.tail;
        let at = inverse(from + random.fraction() * (to - from), self.exponent);
        (at.round() as u32).clamp(HEAD + 1, KEYS) - 1
    }

    /// The share of the first `ranks` ranks of all requests. They must be in the head.
    pub(crate) fn share_of_first(&self, ranks: u32) -> f64 {
        let sum = |ranks: u32| (1..=ranks).map(|rank| f64::from(rank).powf(-self.exponent)).sum::<f64>();
        assert!(ranks <= HEAD);
        sum(ranks) / sum(HEAD) * self.head_share
    }
}

/// The integral of x to the power of −s, from 1.
fn integral(to: f64, exponent: f64) -> f64 {
    if exponent == 1.0 { to.ln() } else { (to.powf(1.0 - exponent) - 1.0) / (1.0 - exponent) }
}

fn inverse(value: f64, exponent: f64) -> f64 {
    if exponent == 1.0 {
        return value.exp();
    }
    (value * (1.0 - exponent) + 1.0).powf(1.0 / (1.0 - exponent))
}

/// The key of a rank: a hash of it.
pub(crate) fn key(rank: u32) -> HotKey {
    let mut random = Random(u64::from(rank) << 32);
    let digest = u128::from(random.next()) << 64 | u128::from(random.next());
    HotKey { keyspace: KeyspaceId::DEFAULT, digest: KeyDigest(digest.to_be_bytes()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn head_and_tail_follow_the_true_distribution() {
        const SAMPLES: u32 = 4_000_000;
        for exponent in [0.99, 1.5] {
            let (popularity, mut random) = (Popularity::new(exponent), Random(3));
            // Borders of bins at powers of 4; the last bins are in the tail.
            let borders: Vec<u32> = (0..13).map(|power| 1 << (2 * power)).chain([KEYS]).collect();
            let mut counts = vec![0_u32; borders.len()];
            for _ in 0..SAMPLES {
                let rank = popularity.sample(&mut random);
                counts[borders.partition_point(|border| *border <= rank)] += 1;
            }
            let weight = |rank: u32| f64::from(rank).powf(-exponent);
            // Sums all 100 million weights, the small ones first; the integral stands for this sum.
            let sums: Vec<f64> = std::iter::once((0, borders[0]))
                .chain(borders.windows(2).map(|pair| (pair[0], pair[1])))
                .map(|(from, to)| (from + 1..=to).rev().map(weight).sum())
                .collect();
            let total: f64 = sums.iter().sum();
            for (sum, count) in sums.iter().zip(counts) {
                let expected = sum / total * f64::from(SAMPLES);
                let deviations = (f64::from(count) - expected) / expected.max(1.0).sqrt();
                assert!(deviations.abs() < 5.0, "exponent {exponent}: {count}, expected {expected:.1}");
            }
        }
    }

    #[test]
    fn ten_thousand_keys_have_the_papers_share() {
        let share = Popularity::new(0.99).share_of_first(10_000);
        assert!((share - 0.4915).abs() < 0.002, "{share}");
    }
}
