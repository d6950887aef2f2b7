//! Exact samples of a Zipf distribution over a finite number of ranks, by Walker's alias table
//! (Vose 1991): one lookup per sample, for any exponent. YCSB's generator approximates a sum, and
//! works for exponents below 1 only.

use crate::splitmix::Random;

/// Ranks, counted from 0. Rank k is drawn in proportion to (k + 1)^-exponent; exponent 0 is the
/// uniform distribution.
#[derive(Clone, Debug)]
pub(crate) struct Zipf {
    /// For each rank: the probability of the rank itself, and the alias drawn otherwise.
    places: Vec<(f64, u32)>,
}

impl Zipf {
    pub(crate) fn new(ranks: u32, exponent: f64) -> Self {
        assert!(ranks > 0);
        let weights: Vec<f64> = (1..=ranks).map(|rank| f64::from(rank).powf(-exponent)).collect();
        let total: f64 = weights.iter().sum();
        // The mean share is 1: ranks above it fill up those below.
        let mut shares: Vec<f64> = weights.iter().map(|weight| weight * f64::from(ranks) / total).collect();
        let mut places: Vec<(f64, u32)> = (0..ranks).map(|rank| (1.0, rank)).collect();
        let (mut small, mut large): (Vec<u32>, Vec<u32>) =
            (0..ranks).partition(|rank| shares[*rank as usize] < 1.0);
        while let (Some(less), Some(&more)) = (small.pop(), large.last()) {
            let missing = 1.0 - shares[less as usize];
            places[less as usize] = (shares[less as usize], more);
            shares[more as usize] -= missing;
            if shares[more as usize] < 1.0 {
                large.pop();
                small.push(more);
            }
        }
        Self { places }
    }

    pub(crate) fn sample(&self, random: &mut Random) -> u32 {
        let place = random.below(self.places.len() as u32);
        let (itself, alias) = self.places[place as usize];
        if random.fraction() < itself { place } else { alias }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RANKS: u32 = 100_000;
    const SAMPLES: u32 = 2_000_000;
    /// Ranks are merged into bins with at least this many expected samples.
    const EXPECTED_MIN: f64 = 100.0;

    /// Draws with one exponent, tests against another: by how many standard deviations chi-square
    /// exceeds its mean.
    fn excess(drawn: f64, judged: f64) -> f64 {
        let (zipf, mut random) = (Zipf::new(RANKS, drawn), Random(7));
        let mut counts = vec![0_u32; RANKS as usize];
        (0..SAMPLES).for_each(|_| counts[zipf.sample(&mut random) as usize] += 1);
        let weight = |rank: usize| ((rank + 1) as f64).powf(-judged);
        let total: f64 = (0..RANKS as usize).map(weight).sum();
        let (mut chi_square, mut bins) = (0.0, 0);
        let (mut expected, mut seen) = (0.0, 0.0);
        for (rank, count) in counts.iter().enumerate() {
            expected += weight(rank) * f64::from(SAMPLES) / total;
            seen += f64::from(*count);
            if expected >= EXPECTED_MIN {
                chi_square += (seen - expected) * (seen - expected) / expected;
                bins += 1;
                (expected, seen) = (0.0, 0.0);
            }
        }
        // The remainder makes no bin, so that all bins but the last are free.
        let freedom = f64::from(bins - 1);
        (chi_square - freedom) / (2.0 * freedom).sqrt()
    }

    #[test]
    fn samples_follow_the_true_distribution() {
        for exponent in [0.0, 0.9, 0.95, 0.99, 1.2] {
            let excess = excess(exponent, exponent);
            assert!(excess.abs() < 4.0, "exponent {exponent}: {excess:.1} standard deviations");
        }
    }

    #[test]
    fn another_exponent_is_detected() {
        assert!(excess(0.95, 0.96) > 20.0 && excess(1.2, 1.19) > 20.0);
    }

    #[test]
    fn a_single_rank_is_always_drawn() {
        assert_eq!(Zipf::new(1, 1.2).sample(&mut Random(1)), 0);
    }
}
