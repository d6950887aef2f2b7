//! What a key will be asked in the next period (KVSwitch §4.1.1).

use crate::config::MILLION;

/// Millionths of a request in a period.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct MicroQueries(pub u64);

/// L̂ = α · L of the period before + (1 − α) · L of this one. Counts beyond 10¹² are taken for 10¹²: no switch has so many packets in a period, and nothing overflows.
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
    fn the_past_weighs_what_it_is_said_to() {
        assert_eq!(predict(250_000, 100, 200), MicroQueries(175_000_000));
        assert_eq!(predict(0, 100, 200), MicroQueries(200_000_000), "α = 0 forgets");
        assert_eq!(predict(500_000, 0, 3), MicroQueries(1_500_000), "halves are kept");
    }

    proptest! {
        #[test]
        fn a_prediction_lies_between_both_periods(history in 0..MILLION, previous: u32, current: u32) {
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
