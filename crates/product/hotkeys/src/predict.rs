//! The predicted load of a key in the next period (KVSwitch §4.1.1).

use crate::config::MILLION;

/// A load, in millionths of a request per period.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct MicroQueries(pub u64);

/// L̂ = α · L(previous period) + (1 − α) · L(this period). Counts are capped at 10¹², more packets
/// than a switch sees in a period, so that nothing overflows.
pub fn predict(history_ppm: u32, previous: u64, current: u64) -> MicroQueries {
    const COUNT_MAX: u64 = 1_000_000_000_000;
    let history = u64::from(history_ppm.min(MILLION));
    let present = u64::from(MILLION) - history;
    MicroQueries(history * previous.min(COUNT_MAX) + present * current.min(COUNT_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn previous_period_has_its_weight() {
        assert_eq!(predict(250_000, 100, 200), MicroQueries(175_000_000));
        assert_eq!(predict(0, 100, 200), MicroQueries(200_000_000), "α = 0 ignores the past");
        assert_eq!(predict(500_000, 0, 3), MicroQueries(1_500_000), "fractions are kept");
    }

    proptest! {
        #[test]
        fn prediction_lies_between_both_periods(history in 0..MILLION, previous: u32, current: u32) {
            let (previous, current) = (u64::from(previous), u64::from(current));
            let MicroQueries(predicted) = predict(history, previous, current);
            let [least, most] = [previous.min(current), previous.max(current)].map(|count| count * u64::from(MILLION));
            prop_assert!((least..=most).contains(&predicted));
        }

        #[test]
        fn nothing_overflows(history: u32, previous: u64, current: u64) {
            predict(history, previous, current);
        }
    }
}
