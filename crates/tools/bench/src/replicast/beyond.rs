//! What the paper's tool leaves out, each by itself and all together, beside a run without it.

use super::cells::Runs;
use super::lines::{Line, averages};
use super::setup::{Beyond, Protocol, Setup};
use super::tally::mean;

/// A cell without anything, and with each.
pub(crate) fn setups(plain: &Setup, all: Beyond) -> Vec<Setup> {
    let none = Beyond::default();
    let negotiates = plain.protocol != Protocol::UchCcp;
    // Retries are for windows in common, and clocks for windows at all.
    let all = Beyond {
        is_retried: all.is_retried && plain.protocol == Protocol::M,
        is_apart: all.is_apart && negotiates,
        ..all
    };
    let each = [
        none,
        Beyond { is_retried: all.is_retried, ..none },
        Beyond { is_hashed: all.is_hashed, ..none },
        Beyond { gets_percent: all.gets_percent, ..none },
        Beyond { loss_ppm: all.loss_ppm, ..none },
        Beyond { is_apart: all.is_apart, ..none },
        all,
    ];
    let mut beyond: Vec<Beyond> = Vec::new();
    each.into_iter().for_each(|one| {
        if !beyond.contains(&one) {
            beyond.push(one);
        }
    });
    beyond.into_iter().map(|beyond| Setup { beyond, ..*plain }).collect()
}

/// Averages of all, those with something beside those without, and what was lost and asked for again.
pub(crate) fn lines(runs: &Runs) -> Vec<Line> {
    let mut lines = Vec::new();
    for measured in &runs.all {
        let setup = &measured.setup;
        let plain = runs.find(|other| *other == Setup { beyond: Beyond::default(), ..*setup });
        let key = ("beyond", "", 0.0);
        let plain = plain.map(|plain| averages(key, plain));
        for (place, line) in averages(key, measured).into_iter().enumerate() {
            let beside = plain.as_ref().map(|plain| ("plain", plain[place].mean()));
            let is_plain = setup.beyond == Beyond::default();
            lines.push(Line { beside: beside.filter(|_| !is_plain), bound: None, ..line });
        }
        let counts = [
            ("chunks without a window", measured.each(|outcome| outcome.tally.without_window as f64)),
            ("datagrams lost", measured.each(|outcome| outcome.tally.lost as f64)),
            ("times that acks were missed", measured.each(|outcome| outcome.tally.missed as f64)),
            ("bids refused", measured.each(|outcome| outcome.tally.refused as f64)),
        ];
        let counted = counts.into_iter().filter(|(_, figures)| mean(figures) > 0.0);
        lines.extend(counted.map(|(metric, figures)| Line::of(key, setup, (metric, ""), figures)));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replicast::cells::measure;

    const ALL: Beyond =
        Beyond { is_retried: true, is_hashed: true, gets_percent: 30, loss_ppm: 1_000, is_apart: true };

    #[test]
    fn each_is_by_itself_and_with_the_others() {
        let count = |protocol| setups(&Setup::new(protocol, 16, 1_000), ALL).len();
        assert_eq!(Protocol::ALL.map(count), [5, 7, 6]);
        let none = setups(&Setup::new(Protocol::M, 16, 1_000), Beyond::default());
        assert_eq!(none, [Setup::new(Protocol::M, 16, 1_000)]);
    }

    #[test]
    fn chunks_are_done_whatever_there_is_beyond() {
        for protocol in Protocol::ALL {
            for setup in setups(&Setup::new(protocol, 128, 1_000), ALL) {
                let runs = measure(&[setup], &(1..=2));
                for outcome in &runs.all[0].outcomes {
                    let tally = &outcome.tally;
                    assert!(outcome.chunks_per_second > 20_000.0, "{setup:?}: {}", outcome.chunks_per_second);
                    assert_eq!(tally.lost > 0, setup.beyond.loss_ppm > 0, "{setup:?}");
                    assert!(tally.refused == 0 && (tally.missed == 0 || tally.lost > 0), "{setup:?}");
                }
                let lines = lines(&runs);
                assert!(lines.len() >= 3 && lines.iter().all(|line| line.beside.is_none()), "{lines:?}");
            }
        }
    }

    /// Of what is lost nothing is missing in the end: every initiator goes on.
    #[test]
    fn whoever_loses_much_still_goes_on() {
        let beyond = Beyond { loss_ppm: 20_000, ..Beyond::default() };
        for protocol in [Protocol::M, Protocol::H] {
            let setup = Setup { beyond, ..Setup::new(protocol, 16, 1_000) };
            let outcome = crate::replicast::cells::run(&setup, 1);
            assert!(
                outcome.tally.missed > 0 && outcome.chunks_per_second > 20_000.0,
                "{:?}",
                outcome.tally.missed
            );
        }
    }
}
