//! Loads of servers: counted where a packet leaves, never reset, read as differences.

use alloc::vec::Vec;

/// Differences between readings of counters that only grow. (KVSwitch §4.2.6 resets them, and loses what comes meanwhile.)
#[derive(Clone, Debug, Default)]
pub struct CounterDeltas {
    last: Vec<u64>,
}

impl CounterDeltas {
    /// The growth of each counter since the last reading. A counter below its last reading was reset by a restart.
    pub fn read(&mut self, counters: &[u64]) -> Vec<u64> {
        self.last.resize(counters.len(), 0);
        let grown = |(now, last): (&u64, &u64)| now.checked_sub(*last).unwrap_or(*now);
        let differences = counters.iter().zip(&self.last).map(grown).collect();
        self.last.copy_from_slice(counters);
        differences
    }
}

/// λ: the mean deviation of servers' loads from their mean, as a share of it (KVSwitch's equation 2). From 0 to 2 − 2/M; 0
/// without servers or load.
pub fn imbalance(loads: &[u64]) -> f64 {
    let total: u64 = loads.iter().sum();
    if total == 0 {
        return 0.0;
    }
    let mean = total as f64 / loads.len() as f64;
    let distance: f64 = loads.iter().map(|load| (*load as f64 - mean).abs()).sum();
    distance / total as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deltas_add_up_over_restarts() {
        let mut differences = CounterDeltas::default();
        assert_eq!(differences.read(&[5, 0]), [5, 0]);
        assert_eq!(differences.read(&[5, 3]), [0, 3]);
        // Restarted, and counted 2 and 7 since.
        assert_eq!(differences.read(&[2, 7]), [2, 4]);
        assert_eq!(differences.read(&[2, 7, 1]), [0, 0, 1], "one more server");
        assert_eq!(differences.read(&[3]), [1]);
    }

    #[test]
    fn imbalance_has_the_papers_extremes() {
        assert_eq!((imbalance(&[]), imbalance(&[0, 0])), (0.0, 0.0));
        assert_eq!(imbalance(&[7; 32]), 0.0);
        let mut all_on_one = [0; 32];
        all_on_one[3] = 1_000;
        assert!((imbalance(&all_on_one) - (2.0 - 2.0 / 32.0)).abs() < 1e-12);
        // One at 30 % above, one as much below, of four.
        assert!((imbalance(&[130, 70, 100, 100]) - 0.15).abs() < 1e-12);
    }
}
