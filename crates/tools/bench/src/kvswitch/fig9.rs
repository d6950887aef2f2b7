//! Fig. 9: the threshold (a), keys that are copied (b) and copies at a server (c), beside copies of
//! every hot key on all servers; and the effect of the parameters.

use super::experiment::{Experiment, Measured, run_all};
use super::rack::System;
use super::rows::{THRESHOLD, frame_rate, lambda, row};
use crate::error::Result;
use crate::report::{Goal, Row};
use nicekv_hotkeys::Config;
use nicekv_switch_xdp::Hook;

const KEYS: [u32; 5] = [1_000, 2_000, 4_000, 6_000, 10_000];
const SKEWS: [f64; 3] = [0.9, 0.95, 0.99];
const SKEW: f64 = 0.99;

pub(crate) fn run(quick: bool, kernel: Option<Hook>) -> Result<(Vec<Row>, Vec<String>)> {
    let skews = if quick { &SKEWS[2..] } else { &SKEWS[..] };
    let keys = KEYS.iter().filter(|keys| !quick || [1_000, 4_000, 10_000].contains(*keys));
    let experiment = |system, keys: u32, skew| Experiment {
        config: Config { keys_max: keys, ..Config::default() },
        ..Experiment::new(system, skew).at(kernel)
    };
    let systems = [System::KvSwitch, System::Everywhere];
    let mut experiments: Vec<Experiment> = keys
        .flat_map(|keys| {
            skews.iter().flat_map(move |skew| systems.map(|system| experiment(system, *keys, *skew)))
        })
        .collect();
    let compared = experiments.len();
    experiments.extend(parameters().map(|(_, config)| Experiment {
        config,
        is_judged: true,
        ..Experiment::new(System::KvSwitch, SKEW)
    }));
    let all = run_all(&experiments)?;
    let mut rows: Vec<Row> = all[..compared].iter().flat_map(copies).collect();
    let full = |measured: &&Measured| {
        let Experiment { system, skew, config, .. } = measured.experiment;
        system == System::KvSwitch && skew == SKEW && config.keys_max == Config::default().keys_max
    };
    rows.extend(all[..compared].iter().find(full).into_iter().flat_map(thresholds));
    let varied = parameters().zip(&all[compared..]);
    rows.extend(varied.flat_map(|((name, _), measured)| with_parameters(name, measured)));
    let notes = vec![
        "9a: the paper's lambdas of 0.168 (everywhere) and 0.164 are ten times those of its Fig. 7a (0.017) for the same experiment.".into(),
        "9c: copies beside what a server owns; the paper's 529 and 988 are at K of 1,000 and 10,000. Everywhere is all K keys but those that it owns.".into(),
    ];
    rows.extend(all.iter().filter_map(frame_rate));
    Ok((rows, notes))
}

/// The default parameters, then each with one parameter changed.
fn parameters() -> impl Iterator<Item = (&'static str, Config)> {
    let config = Config::default();
    let alpha = |history_ppm| Config { history_ppm, ..config };
    let gamma = |threshold_factor_ppm| Config { threshold_factor_ppm, ..config };
    let bound = |imbalance_max_ppm| Config { imbalance_max_ppm, ..config };
    let stages = |stages| Config { stages, ..config };
    [
        ("defaults", config),
        ("bound 5 %", bound(50_000)),
        ("bound 30 %", bound(300_000)),
        ("alpha 0", alpha(0)),
        ("alpha 0.8", alpha(800_000)),
        ("gamma 0.8", gamma(800_000)),
        ("d = 2", stages(2)),
        ("d = 8", stages(8)),
    ]
    .into_iter()
}

fn copies(measured: &Measured) -> [Row; 4] {
    let experiment = &measured.experiment;
    let (keys, system) = (experiment.config.keys_max, experiment.system.name());
    let is_full = keys == 10_000 && experiment.skew == SKEW && experiment.system == System::KvSwitch;
    let of =
        |panel, metric, figures| row((panel, "K", keys.into()), experiment, system, (metric, ""), figures);
    let per_server = measured.copies_per_server();
    let of_all = per_server.iter().map(|copies| copies / f64::from(keys)).collect();
    let paper_copies = match (keys, is_full) {
        (_, true) => Some(988.0),
        (1_000, _) if experiment.system == System::KvSwitch && experiment.skew == SKEW => Some(529.0),
        _ => None,
    };
    let only_full = |value: f64| is_full.then_some(value);
    [
        lambda(("9a", "K", keys.into()), measured),
        of("9b", "part of K that is copied", measured.copied())
            .paper(only_full(0.7))
            .goal(only_full(0.7).map(Goal::AtMost)),
        of("9c", "copies at a server", per_server).paper(paper_copies),
        of("9c", "copies at a server ÷ K", of_all)
            .paper(only_full(0.0988))
            .goal(only_full(0.0988).map(Goal::AtMost)),
    ]
}

/// T of each period from the start.
fn thresholds(measured: &Measured) -> Vec<Row> {
    let of = |(period, share): (usize, &f64)| {
        let key = ("9a", "period", period as f64);
        row(key, &measured.experiment, "kvswitch", (THRESHOLD, ""), vec![*share])
    };
    measured.thresholds.iter().enumerate().map(of).collect()
}

fn with_parameters(name: &'static str, measured: &Measured) -> [Row; 5] {
    let of =
        |metric, figures| row(("parameters", "", 0.0), &measured.experiment, name, (metric, ""), figures);
    [
        of("lambda", measured.lambdas.clone()),
        of("part of K that is copied", measured.copied()),
        of("copies at a server", measured.copies_per_server()),
        of("entries installed anew in a period", measured.reinstalled()),
        of("of the K hottest found", measured.accuracies.iter().map(|accuracy| accuracy.found).collect()),
    ]
}
