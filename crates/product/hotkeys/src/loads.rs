//! Loads of servers. Packets are counted as they leave; the counters are never reset, and loads are
//! differences.

use alloc::vec::Vec;

/// Differences between readings of counters that only grow. (KVSwitch §4.2.6 resets the counters,
/// and loses what is counted in between.)
#[derive(Clone, Debug, Default)]
pub struct CounterDeltas {
    last: Vec<u64>,
}

impl CounterDeltas {
    /// The growth of each counter since the last reading. A counter below its last reading was
    /// reset by a restart: then the growth is its value.
    pub fn read(&mut self, counters: &[u64]) -> Vec<u64> {
        self.last.resize(counters.len(), 0);
        let grown = |(now, last): (&u64, &u64)| now.checked_sub(*last).unwrap_or(*now);
        let differences = counters.iter().zip(&self.last).map(grown).collect();
        self.last.copy_from_slice(counters);
        differences
    }
}

/// λ: the mean absolute deviation of the servers' loads from their mean, as a share of the mean
/// (KVSwitch's equation 2). Between 0 and 2 − 2/M; 0 without servers or without load.
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
        // After a restart, the servers have counted 2 and 7.
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
        // Of four servers, one is 30 % above the mean and one 30 % below.
        assert!((imbalance(&[130, 70, 100, 100]) - 0.15).abs() < 1e-12);
    }
}
