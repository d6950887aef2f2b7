//! Medians and spreads over the rounds of a run.

/// Minimum rounds that give a median worth printing.
pub const ROUNDS_MIN: u32 = 5;

/// Median and extremes of a figure over the rounds of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Summary {
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
}

impl Summary {
    /// Panics if there are no figures, or one that is not finite.
    pub(crate) fn of(figures: &[f64]) -> Self {
        let mut sorted = figures.to_vec();
        assert!(!sorted.is_empty() && sorted.iter().all(|figure| figure.is_finite()));
        sorted.sort_by(f64::total_cmp);
        let (low, high) = (sorted[(sorted.len() - 1) / 2], sorted[sorted.len() / 2]);
        Self { median: (low + high) / 2.0, min: sorted[0], max: sorted[sorted.len() - 1] }
    }
}

pub(crate) fn median(figures: &[f64]) -> f64 {
    Summary::of(figures).median
}

/// The mean; 0 without figures.
pub(crate) fn mean(figures: &[f64]) -> f64 {
    figures.iter().sum::<f64>() / figures.len().max(1) as f64
}

/// Ratios round by round, which are not the ratio of the medians: what slows the machine for a
/// while slows both sides of a round.
pub(crate) fn ratios(ours: &[f64], theirs: &[f64]) -> Vec<f64> {
    ours.iter().zip(theirs).map(|(ours, theirs)| ours / theirs).collect()
}

/// One metric in each round: ours and the peer's, measured one after the other.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Rounds {
    pub(crate) ours: Vec<f64>,
    pub(crate) peers: Vec<f64>,
}

impl Rounds {
    pub(crate) fn push(&mut self, ours: f64, peers: f64) {
        self.ours.push(ours);
        self.peers.push(peers);
    }

    /// Ours ÷ the peer's, round by round.
    pub(crate) fn ratios(&self) -> Vec<f64> {
        ratios(&self.ours, &self.peers)
    }
}

/// Measures both sides of a round, ours (0) and the peer's (1). The side that is first in one round
/// is second in the next.
pub(crate) fn in_turn<T, E>(round: u32, mut measure: impl FnMut(usize) -> Result<T, E>) -> Result<[T; 2], E> {
    if round % 2 == 1 {
        let ours = measure(0)?;
        return Ok([ours, measure(1)?]);
    }
    let peers = measure(1)?;
    Ok([measure(0)?, peers])
}

/// A figure as people read it: no digits that say nothing.
pub(crate) fn figure(value: f64) -> String {
    if value >= 1_000.0 { format!("{value:.0}") } else { format!("{value:.1}") }
}

/// A figure that may be a small share or a ratio.
pub(crate) fn precise(value: f64) -> String {
    match value.abs() {
        10.0.. => figure(value),
        1.0.. => format!("{value:.3}"),
        _ => format!("{value:.4}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_of_an_even_number_lies_between_the_middle_ones() {
        assert_eq!(Summary::of(&[4.0, 1.0, 3.0]), Summary { median: 3.0, min: 1.0, max: 4.0 });
        assert_eq!(Summary::of(&[4.0, 1.0, 3.0, 2.0]), Summary { median: 2.5, min: 1.0, max: 4.0 });
    }

    #[test]
    fn ratios_are_taken_within_a_round() {
        // In the second round the machine was ten times slower, for both sides.
        let rounds = Rounds { ours: vec![20.0, 2.0, 30.0], peers: vec![10.0, 1.0, 10.0] };
        assert_eq!(Summary::of(&rounds.ratios()), Summary { median: 2.0, min: 2.0, max: 3.0 });
        assert_eq!(median(&rounds.ours) / median(&rounds.peers), 2.0);
    }
}
