//! How long each op took.

use crate::error::{BenchError, Result};

/// Most ops of a run that are remembered: more than any store here answers in a round.
const SAMPLES_MAX: usize = 20_000_000;

/// In nanoseconds, ascending once [`sorted`](Self::sorted).
#[derive(Clone, Debug, Default)]
pub(crate) struct Latencies(Vec<u32>);

impl Latencies {
    /// Longer than four seconds counts as four.
    pub(crate) fn note(&mut self, took_ns: u64) -> Result<()> {
        if self.0.len() == SAMPLES_MAX {
            return Err(BenchError::Failed(format!("a run has more than {SAMPLES_MAX} ops")));
        }
        self.0.push(u32::try_from(took_ns).unwrap_or(u32::MAX));
        Ok(())
    }

    pub(crate) fn sorted(mut self) -> Self {
        self.0.sort_unstable();
        self
    }

    pub(crate) fn extend(&mut self, other: &Self) {
        self.0.extend(&other.0);
    }

    /// In microseconds, of at least one.
    pub(crate) fn mean_us(&self) -> f64 {
        let sum: u64 = self.0.iter().map(|took_ns| u64::from(*took_ns)).sum();
        sum as f64 / self.0.len() as f64 / 1e3
    }

    /// What this part of all took at most, in microseconds.
    pub(crate) fn quantile_us(&self, part: f64) -> f64 {
        let place = (self.0.len() as f64 * part).ceil() as usize;
        f64::from(self.0[place.clamp(1, self.0.len()) - 1]) / 1e3
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_is_the_smallest_that_so_many_do_not_exceed() {
        let mut latencies = Latencies::default();
        (1..=100).rev().for_each(|us| latencies.note(us * 1_000).unwrap());
        let sorted = latencies.sorted();
        assert_eq!([0.5, 0.99, 1.0, 0.0].map(|part| sorted.quantile_us(part)), [50.0, 99.0, 100.0, 1.0]);
        assert_eq!(sorted.mean_us(), 50.5);
    }
}
