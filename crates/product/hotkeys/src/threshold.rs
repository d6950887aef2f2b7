//! The threshold T (KVSwitch §4.1.3): it falls while load is uneven, and rises again when load is
//! even.
//!
//! The paper lowers T while the most loaded server is too far above the mean, and never raises it,
//! so after a single burst everything would stay copied for ever. Here, even load for some periods
//! raises T by one step. If that makes load uneven, T falls again, and the wait before the next
//! step doubles; a step that keeps load even halves the wait.
//!
//! T is a share of the mean load of a server, so that it also fits times of low load. Random
//! variation is no imbalance: if requests are spread evenly, n to a server on average, a server's
//! count has a standard deviation of √n.

use crate::config::{Config, MILLION};
use crate::predict::MicroQueries;

/// The wait doubles at most this many times.
const DOUBLINGS_MAX: u32 = 5;
/// A server may be this many standard deviations above the mean by chance, as one of 1,024 servers
/// is.
const CHANCE_DEVIATIONS: u64 = 3;

/// T, and how long load has been even.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Threshold {
    /// T as a share of the mean load of a server, in millionths.
    pub share_ppm: u32,
    even_periods: u32,
    /// How often the wait has been doubled.
    doublings: u32,
    /// The last change raised T.
    was_raised: bool,
}

/// How evenly load is spread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Load {
    Uneven,
    /// Not uneven, but not so even that T could rise.
    Fair,
    Even,
}

impl Threshold {
    /// Begins with T₀.
    pub fn new(config: &Config) -> Self {
        Self { share_ppm: config.threshold_start_ppm, even_periods: 0, doublings: 0, was_raised: false }
    }

    /// T of the next period, from the loads of this one.
    #[must_use]
    pub fn next(self, config: &Config, loads: &[u64]) -> Self {
        let (share, factor) = (u64::from(self.share_ppm), u64::from(config.threshold_factor_ppm));
        let load = judge(config, loads);
        let doublings = match (self.was_raised, load) {
            (false, _) => self.doublings,
            (true, Load::Uneven) => (self.doublings + 1).min(DOUBLINGS_MAX),
            (true, _) => self.doublings.saturating_sub(1),
        };
        let stays = Self { even_periods: 0, was_raised: false, doublings, ..self };
        match load {
            Load::Uneven => {
                let lower = (share * factor / u64::from(MILLION)) as u32;
                Self { share_ppm: lower.max(config.threshold_min_ppm), ..stays }
            }
            Load::Fair => stays,
            Load::Even if self.even_periods + 1 < config.calm_periods << doublings => {
                Self { even_periods: self.even_periods + 1, ..stays }
            }
            Load::Even => {
                // At least one millionth more, otherwise a small share would never rise.
                let higher = (share * u64::from(MILLION) / factor).max(share + 1);
                let share_ppm = higher.min(config.threshold_start_ppm.into()) as u32;
                Self { share_ppm, was_raised: share_ppm > self.share_ppm, ..stays }
            }
        }
    }

    /// T as a load, for servers with these loads. A holder gets about T requests of a key per
    /// period. T is at least `requests_min`: for fewer requests a copy is not worth its cost,
    /// however uneven load is.
    pub(crate) fn of(self, config: &Config, loads: &[u64]) -> MicroQueries {
        let micro = total(loads).saturating_mul(self.share_ppm.into()) / loads.len().max(1) as u128;
        let least = u128::from(config.requests_min) * u128::from(MILLION);
        MicroQueries(micro.max(least).min(u64::MAX.into()) as u64)
    }
}

fn total(loads: &[u64]) -> u128 {
    loads.iter().map(|load| u128::from(*load)).sum()
}

fn judge(config: &Config, loads: &[u64]) -> Load {
    let mean = (total(loads) / loads.len().max(1) as u128) as u64;
    let most = loads.iter().copied().max().unwrap_or(0);
    let above = most.saturating_sub(mean).saturating_sub(CHANCE_DEVIATIONS * mean.isqrt());
    let bound = (u128::from(mean) * u128::from(config.imbalance_max_ppm) / u128::from(MILLION)) as u64;
    match above {
        above if above > bound => Load::Uneven,
        above if above > bound / 2 => Load::Fair,
        _ => Load::Even,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIG: Config = Config {
        keys_max: 100,
        stages: 2,
        history_ppm: 0,
        requests_min: 1,
        threshold_start_ppm: 100_000,
        threshold_min_ppm: 1_000,
        threshold_factor_ppm: 500_000,
        imbalance_max_ppm: 100_000,
        calm_periods: 3,
        slack_ppm: 0,
        values_max: 0,
        holders_max: 63,
    };
    const EVEN: [u64; 4] = [1_000_000; 4];
    const UNEVEN: [u64; 4] = [1_300_000, 900_000, 900_000, 900_000];
    const FAIR: [u64; 4] = [1_080_000, 980_000, 970_000, 970_000];

    fn after(threshold: Threshold, loads: &[u64], periods: u32) -> Threshold {
        (0..periods).fold(threshold, |threshold, _| threshold.next(&CONFIG, loads))
    }

    #[test]
    fn threshold_falls_by_its_factor_down_to_its_minimum() {
        let first = Threshold::new(&CONFIG);
        assert_eq!(
            [1, 2, 3].map(|periods| after(first, &UNEVEN, periods).share_ppm),
            [50_000, 25_000, 12_500]
        );
        assert_eq!(after(first, &UNEVEN, 100).share_ppm, CONFIG.threshold_min_ppm);
        assert_eq!(after(first, &FAIR, 100).share_ppm, CONFIG.threshold_start_ppm, "good enough");
        assert_eq!(first.of(&CONFIG, &EVEN), MicroQueries(100_000 * 1_000_000));
        let least = MicroQueries(u64::from(CONFIG.requests_min) * u64::from(MILLION));
        assert_eq!(
            (first.of(&CONFIG, &[]), first.of(&CONFIG, &[9; 3])),
            (least, least),
            "a copy for fewer requests is not worth its cost"
        );
    }

    #[test]
    fn threshold_recovers_after_a_burst() {
        let low = after(Threshold::new(&CONFIG), &UNEVEN, 100);
        assert_eq!(after(low, &EVEN, 2).share_ppm, low.share_ppm);
        assert_eq!(after(low, &EVEN, 3).share_ppm, 2 * low.share_ppm);
        assert_eq!(after(low, &FAIR, 1_000).share_ppm, low.share_ppm, "a raise would make fair load uneven");
        assert_eq!(after(low, &EVEN, 1_000).share_ppm, CONFIG.threshold_start_ppm);
    }

    /// Load is even with one share, and uneven with the next higher one.
    #[test]
    fn failed_raises_become_rare() {
        let mut threshold = after(Threshold::new(&CONFIG), &UNEVEN, 3);
        let border = threshold.share_ppm;
        let mut tries = Vec::new();
        for period in 0..1_000 {
            threshold = threshold.next(&CONFIG, if threshold.share_ppm > border { &UNEVEN } else { &EVEN });
            if threshold.share_ppm > border {
                tries.push(period);
            }
        }
        let waits: Vec<i32> = tries.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert!(waits.windows(2).all(|pair| pair[1] >= pair[0]), "{waits:?}");
        assert!(waits.last() >= Some(&(3 << 4)), "{waits:?}");
    }

    #[test]
    fn chance_is_no_imbalance() {
        // With 100 requests per server, deviations of 13 and 8 are chance, although 13 exceeds the
        // maximum imbalance of 10 %.
        let first = Threshold::new(&CONFIG);
        assert_eq!(first.next(&CONFIG, &[113, 92, 95, 100]).share_ppm, first.share_ppm);
        assert_ne!(first.next(&CONFIG, &[160, 80, 80, 80]).share_ppm, first.share_ppm);
        // The same shares of many requests are an imbalance.
        assert_ne!(first.next(&CONFIG, &[1_130_000, 920_000, 950_000, 1_000_000]).share_ppm, first.share_ppm);
        assert_eq!(first.next(&CONFIG, &[]).share_ppm, first.share_ppm);
        assert_eq!(first.next(&CONFIG, &[u64::MAX; 2]).share_ppm, first.share_ppm, "nothing overflows");
    }
}
