//! How long each operation took, as a histogram.

use hdrhistogram::Histogram;

/// Latencies in nanoseconds, each exact to one part in a thousand.
#[derive(Clone, Debug)]
pub(crate) struct Latencies(Histogram<u64>);

impl Default for Latencies {
    fn default() -> Self {
        Self(Histogram::new(3).expect("three significant digits are allowed"))
    }
}

impl Latencies {
    pub(crate) fn record(&mut self, took_ns: u64) {
        self.0.record(took_ns).expect("the histogram resizes itself");
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.0.add(&other.0).expect("the histogram resizes itself");
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn mean_us(&self) -> f64 {
        self.0.mean() / 1e3
    }

    /// The latency that `quantile` (0.99: 99 %) of the operations did not exceed, in microseconds.
    pub(crate) fn quantile_us(&self, quantile: f64) -> f64 {
        self.0.value_at_quantile(quantile) as f64 / 1e3
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_within_a_thousandth() {
        let mut latencies = Latencies::default();
        (1..=50).for_each(|us| latencies.record(us * 1_000));
        let mut slower = Latencies::default();
        (51..=100).for_each(|us| slower.record(us * 1_000));
        latencies.add(&slower);
        for (quantile, expected_us) in [(0.0, 1.0), (0.5, 50.0), (0.99, 99.0), (1.0, 100.0)] {
            let us = latencies.quantile_us(quantile);
            assert!((us / expected_us - 1.0).abs() <= 0.001, "{quantile}: {us} us");
        }
        assert!((latencies.mean_us() / 50.5 - 1.0).abs() <= 0.001);
    }
}
