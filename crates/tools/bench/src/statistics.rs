//! Medians and spreads of rounds.

/// Fewer rounds make no median.
pub const ROUNDS_MIN: u32 = 5;

/// Median and extremes of a figure over the rounds of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Summary {
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
}

impl Summary {
    /// Of at least one finite figure.
    pub(crate) fn of(figures: impl IntoIterator<Item = f64>) -> Self {
        let mut sorted: Vec<f64> = figures.into_iter().collect();
        assert!(!sorted.is_empty() && sorted.iter().all(|figure| figure.is_finite()));
        sorted.sort_by(f64::total_cmp);
        let (low, high) = (sorted[(sorted.len() - 1) / 2], sorted[sorted.len() / 2]);
        Self { median: (low + high) / 2.0, min: sorted[0], max: sorted[sorted.len() - 1] }
    }
}

/// What one metric was in each round: ours and the peer's, measured one after the other.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Rounds {
    pub(crate) pairs: Vec<(f64, f64)>,
}

impl Rounds {
    pub(crate) fn ours(&self) -> Summary {
        Summary::of(self.pairs.iter().map(|pair| pair.0))
    }

    pub(crate) fn peers(&self) -> Summary {
        Summary::of(self.pairs.iter().map(|pair| pair.1))
    }

    /// Of the ratios of each round, which is not the ratio of the medians: what slows the machine for a while slows both
    /// halves of a round.
    pub(crate) fn ratios(&self) -> Summary {
        Summary::of(self.pairs.iter().map(|(ours, peers)| ours / peers))
    }

    /// Ours in other rounds, each beside ours in the same round here.
    pub(crate) fn ours_beside(&self, other: &Self) -> Summary {
        Summary::of(self.pairs.iter().zip(&other.pairs).map(|(here, there)| there.0 / here.0))
    }

    /// The peer's, likewise.
    pub(crate) fn peers_beside(&self, other: &Self) -> Summary {
        Summary::of(self.pairs.iter().zip(&other.pairs).map(|(here, there)| there.1 / here.1))
    }
}

/// Measures both sides of a round, ours (0) and the peer's (1): who is first in one round is second in the next.
pub(crate) fn in_turn<T, E>(round: u32, mut measure: impl FnMut(usize) -> Result<T, E>) -> Result<[T; 2], E> {
    if round % 2 == 1 {
        let ours = measure(0)?;
        return Ok([ours, measure(1)?]);
    }
    let peers = measure(1)?;
    Ok([measure(0)?, peers])
}

/// A figure as people read it.
pub(crate) fn figure(value: f64) -> String {
    if value >= 1_000.0 { format!("{value:.0}") } else { format!("{value:.1}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_an_even_number_lies_between_the_middle_ones() {
        assert_eq!(Summary::of([4.0, 1.0, 3.0]), Summary { median: 3.0, min: 1.0, max: 4.0 });
        assert_eq!(Summary::of([4.0, 1.0, 3.0, 2.0]), Summary { median: 2.5, min: 1.0, max: 4.0 });
    }

    #[test]
    fn ratios_are_taken_within_a_round() {
        // The machine was ten times slower in the second round, for both.
        let rounds = Rounds { pairs: vec![(20.0, 10.0), (2.0, 1.0), (30.0, 10.0)] };
        assert_eq!(rounds.ratios(), Summary { median: 2.0, min: 2.0, max: 3.0 });
        assert_eq!(rounds.ours().median / rounds.peers().median, 2.0);
    }
}
