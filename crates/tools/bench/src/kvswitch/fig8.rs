//! Fig. 8: how many of the K hottest keys are predicted (a), and the share of all requests that is
//! for predicted and for hottest keys (b).

use super::accuracy::Accuracy;
use super::experiment::{Experiment, Measured, run_all};
use super::popularity::Popularity;
use super::rack::System;
use super::rows::{frame_rate, row};
use crate::error::Result;
use crate::report::{Goal, Row};
use crate::statistics::precise;
use nicekv_hotkeys::Config;
use nicekv_switch_xdp::Hook;

const KEYS: [u32; 6] = [1_000, 2_000, 4_000, 6_000, 8_000, 10_000];
const SKEWS: [f64; 3] = [0.9, 0.95, 0.99];
const SKEW: f64 = 0.99;

pub(crate) fn run(quick: bool, kernel: Option<Hook>) -> Result<(Vec<Row>, Vec<String>)> {
    // A quick run leaves out most of them.
    let keys = KEYS
        .iter()
        .filter(|keys| !quick || [1_000, 10_000].contains(*keys) || kernel.is_none() && **keys == 4_000);
    let experiment = |(keys, skew): (u32, f64)| {
        let config = Config { keys_max: keys, ..Config::default() };
        let experiment = Experiment { config, is_judged: true, ..Experiment::new(System::KvSwitch, skew) };
        experiment.at(kernel)
    };
    let skews = if quick && kernel.is_some() { &SKEWS[2..] } else { &SKEWS[..] };
    let experiments: Vec<Experiment> =
        keys.flat_map(|keys| skews.iter().map(move |skew| (*keys, *skew))).map(experiment).collect();
    let all = run_all(&experiments)?;
    let mut rows: Vec<Row> = all.iter().flat_map(found).collect();
    rows.extend(all.iter().filter(|measured| measured.experiment.skew == SKEW).flat_map(shares));
    rows.extend(all.iter().filter_map(frame_rate));
    let share = |keys| precise(100.0 * Popularity::new(SKEW).share_of_first(keys));
    let note = format!(
        "8b: by the formula the first 1,000 of 100 million keys have {} % of all requests at zipf 0.99 (the paper says 27.9), the first 10,000 {} % (49.1, and 49.15 in its §5.5).",
        share(1_000),
        share(10_000)
    );
    Ok((rows, vec![note, "The hottest keys are those of each period's own counts: which are the last of them is chance, and exact counting misses some, too.".into()]))
}

fn each(measured: &Measured, take: impl Fn(&Accuracy) -> f64) -> Vec<f64> {
    measured.accuracies.iter().map(take).collect()
}

fn found(measured: &Measured) -> [Row; 2] {
    let experiment = &measured.experiment;
    let keys = experiment.config.keys_max;
    let (paper, is_target) = match (keys, experiment.skew) {
        (1_000, SKEW) => (Some(0.951), true),
        (10_000, SKEW) => (Some(0.517), true),
        _ => (None, false),
    };
    let name = match experiment.skew {
        0.9 => ["hashpipe, zipf 0.9", "exact counting, zipf 0.9"],
        0.95 => ["hashpipe, zipf 0.95", "exact counting, zipf 0.95"],
        _ => ["hashpipe, zipf 0.99", "exact counting, zipf 0.99"],
    };
    let found = |system, figures| {
        row(("8a", "K", keys.into()), experiment, system, ("of the K hottest found", ""), figures)
    };
    let goal = is_target.then_some(paper).flatten().map(Goal::AtLeast);
    [
        found(name[0], each(measured, |accuracy| accuracy.found)).paper(paper).goal(goal),
        found(name[1], each(measured, |accuracy| accuracy.found_exactly)),
    ]
}

fn shares(measured: &Measured) -> [Row; 3] {
    let experiment = &measured.experiment;
    let keys = experiment.config.keys_max;
    let paper = match keys {
        1_000 => [Some(0.278), Some(0.279)],
        10_000 => [Some(0.473), Some(0.491)],
        _ => [None; 2],
    };
    let share = |system, figures| {
        row(("8b", "K", keys.into()), experiment, system, ("part of all requests", ""), figures)
    };
    [
        share("expected keys", each(measured, |accuracy| accuracy.expected_share)).paper(paper[0]),
        share("hottest keys", each(measured, |accuracy| accuracy.hottest_share)).paper(paper[1]),
        share("formula", vec![Popularity::new(experiment.skew).share_of_first(keys)]),
    ]
}
