//! Fig. 9: the threshold (a), keys that are copied (b) and copies at a server (c), beside copies of every hot key everywhere; and what the parameters do.

use super::cells::{Cell, Measured, measure};
use super::lines::{Line, THRESHOLD, fed, lambda};
use super::rack::System;
use crate::error::Result;
use crate::report::Goal;
use nicekv_hotkeys::Config;
use nicekv_switch_xdp::Hook;

const KEYS: [u32; 5] = [1_000, 2_000, 4_000, 6_000, 10_000];
const SKEWS: [f64; 3] = [0.9, 0.95, 0.99];
const SKEW: f64 = 0.99;

pub(crate) fn run(quick: bool, kernel: Option<Hook>) -> Result<(Vec<Line>, Vec<String>)> {
    let skews = if quick { &SKEWS[2..] } else { &SKEWS[..] };
    let keys = KEYS.iter().filter(|keys| !quick || [1_000, 4_000, 10_000].contains(*keys));
    let cell = |system, keys: u32, skew| Cell {
        config: Config { keys_max: keys, ..Config::default() },
        ..Cell::new(system, skew).at(kernel)
    };
    let systems = [System::KvSwitch, System::Everywhere];
    let mut cells: Vec<Cell> = keys
        .flat_map(|keys| skews.iter().flat_map(move |skew| systems.map(|system| cell(system, *keys, *skew))))
        .collect();
    let compared = cells.len();
    cells.extend(parameters().map(|(_, config)| Cell {
        config,
        is_judged: true,
        ..Cell::new(System::KvSwitch, SKEW)
    }));
    let all = measure(&cells)?;
    let mut lines: Vec<Line> = all[..compared].iter().flat_map(copies).collect();
    let full = |measured: &&Measured| {
        let Cell { system, skew, config, .. } = measured.cell;
        system == System::KvSwitch && skew == SKEW && config.keys_max == Config::default().keys_max
    };
    lines.extend(all[..compared].iter().find(full).into_iter().flat_map(thresholds));
    let varied = parameters().zip(&all[compared..]);
    lines.extend(varied.flat_map(|((name, _), measured)| chosen(name, measured)));
    let notes = vec![
        "9a: the paper's lambdas of 0.168 (everywhere) and 0.164 are ten times those of its Fig. 7a (0.017) for the same experiment.".into(),
        "9c: copies beside what a server owns; the paper's 529 and 988 are at K of 1,000 and 10,000. Everywhere is all K keys but those that it owns.".into(),
    ];
    lines.extend(all.iter().filter_map(fed));
    Ok((lines, notes))
}

/// The defaults, and one parameter after the other changed.
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

fn copies(measured: &Measured) -> [Line; 4] {
    let cell = &measured.cell;
    let (keys, system) = (cell.config.keys_max, cell.system.name());
    let is_full = keys == 10_000 && cell.skew == SKEW && cell.system == System::KvSwitch;
    let line =
        |panel, metric, figures| Line::of((panel, "K", keys.into()), (cell, system), (metric, ""), figures);
    let per_server = measured.copies_per_server();
    let of_all = per_server.iter().map(|copies| copies / f64::from(keys)).collect();
    let paper_copies = match (keys, is_full) {
        (_, true) => Some(988.0),
        (1_000, _) if cell.system == System::KvSwitch && cell.skew == SKEW => Some(529.0),
        _ => None,
    };
    let only_full = |value: f64| is_full.then_some(value);
    [
        lambda(("9a", "K", keys.into()), measured),
        line("9b", "part of K that is copied", measured.copied())
            .paper(only_full(0.7))
            .goal(only_full(0.7).map(Goal::AtMost)),
        line("9c", "copies at a server", per_server).paper(paper_copies),
        line("9c", "copies at a server ÷ K", of_all)
            .paper(only_full(0.0988))
            .goal(only_full(0.0988).map(Goal::AtMost)),
    ]
}

/// T of each period from the start.
fn thresholds(measured: &Measured) -> Vec<Line> {
    let line = |(period, share): (usize, &f64)| {
        let key = ("9a", "period", period as f64);
        Line::of(key, (&measured.cell, "kvswitch"), (THRESHOLD, ""), vec![*share])
    };
    measured.thresholds.iter().enumerate().map(line).collect()
}

fn chosen(name: &'static str, measured: &Measured) -> [Line; 5] {
    let line =
        |metric, figures| Line::of(("parameters", "", 0.0), (&measured.cell, name), (metric, ""), figures);
    [
        line("lambda", measured.lambdas.clone()),
        line("part of K that is copied", measured.copied()),
        line("copies at a server", measured.copies_per_server()),
        line("entries installed anew in a period", measured.reinstalled()),
        line("of the K hottest found", measured.accuracies.iter().map(|accuracy| accuracy.found).collect()),
    ]
}
