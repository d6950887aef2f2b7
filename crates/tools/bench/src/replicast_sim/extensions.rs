//! The extensions of the simulation, each by itself and all together, beside a run without any.

use super::rows::{averages, row};
use super::runs::Runs;
use super::setup::{Extensions, Protocol, Setup};
use crate::report::Row;
use crate::statistics::mean;

/// A setup without extensions, with each, and with all.
pub(crate) fn setups(plain: &Setup, all: Extensions) -> Vec<Setup> {
    let none = Extensions::default();
    let negotiates = plain.protocol != Protocol::UchCcp;
    // Only common windows need retries, and only windows need clocks.
    let all = Extensions {
        is_retried: all.is_retried && plain.protocol == Protocol::M,
        is_apart: all.is_apart && negotiates,
        ..all
    };
    let each = [
        none,
        Extensions { is_retried: all.is_retried, ..none },
        Extensions { is_hashed: all.is_hashed, ..none },
        Extensions { gets_percent: all.gets_percent, ..none },
        Extensions { loss_ppm: all.loss_ppm, ..none },
        Extensions { is_apart: all.is_apart, ..none },
        all,
    ];
    let mut distinct: Vec<Extensions> = Vec::new();
    for extensions in each {
        if !distinct.contains(&extensions) {
            distinct.push(extensions);
        }
    }
    distinct.into_iter().map(|extensions| Setup { extensions, ..*plain }).collect()
}

/// Averages of all setups, those with extensions beside those without, and counts of losses and
/// repetitions.
pub(crate) fn rows(runs: &Runs) -> Vec<Row> {
    let mut rows = Vec::new();
    for measured in &runs.all {
        let setup = &measured.setup;
        let plain = runs.find(|other| *other == Setup { extensions: Extensions::default(), ..*setup });
        let plain = plain.filter(|_| setup.extensions != Extensions::default());
        let key = ("beyond", "", 0.0);
        let plain = plain.map(|plain| averages(key, plain));
        for (place, average) in averages(key, measured).into_iter().enumerate() {
            let average = Row { paper: None, ratio: None, goal: None, ..average };
            rows.push(match &plain {
                Some(plain) => {
                    let ratio = average.average() / plain[place].average();
                    average.ratio("plain", ratio)
                }
                None => average,
            });
        }
        let counts = [
            ("chunks without a window", measured.each(|outcome| outcome.metrics.without_window as f64)),
            ("datagrams lost", measured.each(|outcome| outcome.metrics.lost as f64)),
            ("times that acks were missed", measured.each(|outcome| outcome.metrics.missed as f64)),
            ("bids refused", measured.each(|outcome| outcome.metrics.refused as f64)),
        ];
        let counted = counts.into_iter().filter(|(_, figures)| mean(figures) > 0.0);
        rows.extend(counted.map(|(metric, figures)| row(key, setup, (metric, ""), figures)));
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replicast_sim::runs::measure;

    const ALL: Extensions =
        Extensions { is_retried: true, is_hashed: true, gets_percent: 30, loss_ppm: 1_000, is_apart: true };

    #[test]
    fn extensions_are_simulated_one_by_one_and_together() {
        let count = |protocol| setups(&Setup::new(protocol, 16, 1_000), ALL).len();
        assert_eq!(Protocol::ALL.map(count), [5, 7, 6]);
        let none = setups(&Setup::new(Protocol::M, 16, 1_000), Extensions::default());
        assert_eq!(none, [Setup::new(Protocol::M, 16, 1_000)]);
    }

    #[test]
    fn chunks_are_completed_with_all_extensions() {
        for protocol in Protocol::ALL {
            for setup in setups(&Setup::new(protocol, 128, 1_000), ALL) {
                let runs = measure(&[setup], &(1..=2));
                for outcome in &runs.all[0].outcomes {
                    let metrics = &outcome.metrics;
                    assert!(outcome.chunks_per_second > 20_000.0, "{setup:?}: {}", outcome.chunks_per_second);
                    assert_eq!(metrics.lost > 0, setup.extensions.loss_ppm > 0, "{setup:?}");
                    assert!(metrics.refused == 0 && (metrics.missed == 0 || metrics.lost > 0), "{setup:?}");
                }
                let rows = rows(&runs);
                assert!(rows.len() >= 3 && rows.iter().all(|row| row.ratio.is_none()), "{rows:?}");
            }
        }
    }

    /// Lost datagrams are repeated until every chunk is complete.
    #[test]
    fn heavy_losses_stop_no_initiator() {
        let extensions = Extensions { loss_ppm: 20_000, ..Extensions::default() };
        for protocol in [Protocol::M, Protocol::H] {
            let setup = Setup { extensions, ..Setup::new(protocol, 16, 1_000) };
            let outcome = crate::replicast_sim::runs::run(&setup, 1);
            assert!(
                outcome.metrics.missed > 0 && outcome.chunks_per_second > 20_000.0,
                "{:?}",
                outcome.metrics.missed
            );
        }
    }
}
