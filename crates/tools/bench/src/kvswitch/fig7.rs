//! Fig. 7: balance and throughput against skew (a, b), big values (c, d), writes (e) and racks (f).

use super::experiment::{Experiment, Measured, run_all};
use super::popularity::Popularity;
use super::rack::System;
use super::rows::{frame_rate, lambda, row};
use super::trace::{Mix, SERVERS, chance};
use crate::error::Result;
use crate::report::{Goal, Row};
use crate::statistics::{median, precise, ratios};
use nicekv_switch_xdp::Hook;

const SYSTEMS: [System; 3] = [System::Original, System::NetCache, System::KvSwitch];
const SKEWS: [f64; 5] = [0.0, 0.9, 0.95, 0.99, 1.5];
const SKEW: f64 = 0.99;
const BIG: [f64; 3] = [0.1, 0.25, 0.5];
const WRITES: [f64; 5] = [0.03, 0.1, 0.2, 0.3, 0.5];
const RACKS: [u16; 5] = [32, 16, 8, 4, 2];
/// With γ = 1/2, T is below a thousandth after this many periods.
const RACKS_SETTLING: usize = 9;

pub(crate) fn run(quick: bool, kernel: Option<Hook>) -> Result<(Vec<Row>, Vec<String>)> {
    let all = run_all(&experiments(quick, kernel))?;
    let of = |is: &dyn Fn(&Experiment) -> bool| {
        all.iter().filter(|measured| is(&measured.experiment)).collect::<Vec<_>>()
    };
    let is_plain = |experiment: &Experiment| {
        experiment.mix.writes == 0.0 && experiment.mix.big == 0.0 && experiment.racks == 1
    };
    let skews = of(&is_plain);
    let bigs = of(&|experiment| {
        experiment.racks == 1
            && experiment.skew == SKEW
            && experiment.mix.writes == 0.0
            && experiment.system != System::Original
    });
    let writes =
        of(&|experiment| experiment.racks == 1 && experiment.skew == SKEW && experiment.mix.big == 0.0);
    let mut racks = of(&|experiment| {
        experiment.racks > 1
            || is_plain(experiment) && experiment.skew == SKEW && experiment.system == System::KvSwitch
    });
    racks.sort_by_key(|measured| measured.experiment.racks);
    let mut rows = by_skew(&skews);
    rows.extend(by_big(&bigs));
    rows.extend(by_writes(&writes));
    rows.extend(racks.iter().map(|measured| {
        let servers = measured.experiment.racks * SERVERS;
        let goal = (servers == 1_024).then_some(Goal::AtMost(0.018));
        let paper = (servers == 1_024).then_some(0.018);
        lambda(("7f", "servers", servers.into()), measured).goal(goal).paper(paper)
    }));
    rows.extend(all.iter().filter_map(frame_rate));
    Ok((rows, notes(&skews)))
}

fn experiments(quick: bool, kernel: Option<Hook>) -> Vec<Experiment> {
    let racks = |racks: &u16| {
        let periods = if quick { 3 } else { 5 };
        Experiment {
            racks: *racks,
            settling: RACKS_SETTLING,
            periods,
            ..Experiment::new(System::KvSwitch, SKEW)
        }
    };
    // A quick run leaves out those in between.
    let mut experiments: Vec<Experiment> =
        RACKS.iter().step_by(if quick { 3 } else { 1 }).map(racks).collect();
    let each = |mix: Mix, skew: f64, systems: &[System]| {
        systems.iter().map(|system| Experiment { mix, ..Experiment::new(*system, skew) }).collect::<Vec<_>>()
    };
    experiments.extend(SKEWS.iter().flat_map(|skew| each(Mix::GETS, *skew, &SYSTEMS)));
    experiments.extend(BIG.iter().flat_map(|big| each(Mix { big: *big, ..Mix::GETS }, SKEW, &SYSTEMS[1..])));
    experiments
        .extend(WRITES.iter().flat_map(|writes| each(Mix { writes: *writes, ..Mix::GETS }, SKEW, &SYSTEMS)));
    if kernel.is_some() && quick {
        // The rest is simulated without --kernel.
        experiments.retain(|experiment| {
            experiment.racks == 1 && experiment.mix.big == 0.0 && [0.0, SKEW].contains(&experiment.skew)
        });
        experiments.retain(|experiment| {
            [0.0, 0.2].contains(&experiment.mix.writes) && experiment.system != System::Original
        });
    }
    experiments.into_iter().map(|experiment| experiment.at(kernel)).collect()
}

/// The experiment of a system with this skew and these shares of big values and writes.
fn find<'a>(
    all: &[&'a Measured],
    system: System,
    skew: f64,
    (big, writes): (f64, f64),
) -> Option<&'a Measured> {
    let is = |experiment: &Experiment| {
        (experiment.system, experiment.skew, experiment.mix.big, experiment.mix.writes)
            == (system, skew, big, writes)
    };
    all.iter().find(|measured| is(&measured.experiment)).copied()
}

fn by_skew(all: &[&Measured]) -> Vec<Row> {
    let mut rows = Vec::new();
    for measured in all {
        let Experiment { system, skew, .. } = measured.experiment;
        let paper = match (system, skew) {
            (System::KvSwitch, 0.9) => Some(0.015),
            (System::KvSwitch, 0.95) => Some(0.013),
            (System::KvSwitch, 0.99) => Some(0.017),
            (System::KvSwitch | System::NetCache, 1.5) => Some(0.017),
            _ => None,
        };
        let goal = (system == System::KvSwitch && skew > 0.0).then_some(Goal::AtMost(0.017));
        rows.push(lambda(("7a", "skew", skew), measured).paper(paper).goal(goal));
    }
    for measured in all {
        let experiment = &measured.experiment;
        let paper = match (experiment.system, experiment.skew) {
            (_, 0.0) | (System::KvSwitch, _) => Some(15.4),
            (System::Original, 0.99) => Some(2.1),
            (System::NetCache, 0.99) => Some(19.0),
            _ => None,
        };
        rows.push(throughput(("7b", "skew", experiment.skew), measured).paper(paper));
    }
    let pair = [SKEW, 0.0].map(|skew| find(all, System::KvSwitch, skew, (0.0, 0.0)));
    if let [Some(skewed), Some(uniform)] = pair {
        let kept = ratios(&skewed.throughputs(), &uniform.throughputs());
        let row =
            row(("7b", "skew", SKEW), &skewed.experiment, "kvswitch", ("throughput ÷ uniform", ""), kept);
        rows.push(row.paper(Some(1.0)).goal(Goal::AtLeast(0.98)));
    }
    rows
}

fn throughput(key: (&'static str, &'static str, f64), measured: &Measured) -> Row {
    let experiment = &measured.experiment;
    row(key, experiment, experiment.system.name(), ("throughput", "M/s"), measured.throughputs())
}

fn by_big(all: &[&Measured]) -> Vec<Row> {
    let paper =
        |experiment: &Experiment, of_few: f64, of_many: f64| match (experiment.system, experiment.mix.big) {
            (System::NetCache, 0.0) => Some(of_few),
            (System::NetCache, 0.5) => Some(of_many),
            _ => None,
        };
    let key = |panel, experiment: &Experiment| (panel, "big values, %", 100.0 * experiment.mix.big);
    let mut rows: Vec<Row> = Vec::new();
    for measured in all {
        let experiment = &measured.experiment;
        rows.push(lambda(key("7c", experiment), measured).paper(paper(experiment, 0.016, 0.24)));
    }
    if let [Some(none), Some(half)] = [0.0, 0.5].map(|big| find(all, System::KvSwitch, SKEW, (big, 0.0))) {
        let same = ratios(&half.lambdas, &none.lambdas);
        let key = key("7c", &half.experiment);
        let row = row(key, &half.experiment, "kvswitch", ("lambda ÷ without big", ""), same);
        rows.push(row.paper(Some(1.0)).goal(Goal::AtMost(1.0)));
    }
    let throughputs = all.iter().map(|measured| {
        let experiment = &measured.experiment;
        throughput(key("7d", experiment), measured).paper(paper(experiment, 19.0, 8.1))
    });
    rows.extend(throughputs);
    rows
}

fn by_writes(all: &[&Measured]) -> Vec<Row> {
    let key = |experiment: &Experiment| ("7e", "writes, %", 100.0 * experiment.mix.writes);
    let mut rows: Vec<Row> = all.iter().map(|measured| lambda(key(&measured.experiment), measured)).collect();
    let pair = [System::KvSwitch, System::NetCache].map(|system| find(all, system, SKEW, (0.0, 0.2)));
    if let [Some(ours), Some(theirs)] = pair {
        let below = ratios(&ours.lambdas, &theirs.lambdas);
        let key = key(&ours.experiment);
        let row = row(key, &ours.experiment, "kvswitch", ("lambda ÷ netcache", ""), below);
        rows.push(row.goal(Goal::AtMost(1.0)));
    }
    for measured in all {
        let experiment = &measured.experiment;
        rows.push(throughput(key(experiment), measured));
        let ops = measured.ops_per_request();
        let metric = ("ops per request of servers", "");
        rows.push(row(key(experiment), experiment, experiment.system.name(), metric, ops));
    }
    rows
}

fn notes(skews: &[&Measured]) -> Vec<String> {
    let mut notes = vec![format!(
        "lambda of a perfectly even load is {} by chance alone: the root of 2 ÷ πn",
        precise(chance())
    )];
    if let Some(original) = find(skews, System::Original, SKEW, (0.0, 0.0)) {
        let top = Popularity::new(SKEW).share_of_first(1);
        notes.push(format!(
            "7b: the paper's 2.1 of 15.4 M/s at zipf 0.99 needs a server with {:.1} % of all requests. The hottest key has {:.1} %, with an even share of the rest {:.1} %: {} M/s until the first \
             server is full, {} M/s if 30 M/s are sent and each drops what is too much.",
            100.0 * 15.4 / 32.0 / 2.1,
            100.0 * top,
            100.0 * (top + (1.0 - top) / f64::from(SERVERS)),
            precise(median(&original.throughputs())),
            precise(median(&original.throughputs_with_drops())),
        ));
    }
    if let Some(netcache) = find(skews, System::NetCache, SKEW, (0.0, 0.0)) {
        let first = Popularity::new(SKEW).share_of_first(netcache.experiment.config.keys_max);
        notes.push(format!(
            "7b, 7d: NetCache with {} keys answers {:.1} % of requests in the switch, so that servers carry {} M/s; the paper's 19.0 is less than its client's 30.",
            netcache.experiment.config.keys_max,
            100.0 * first,
            precise(15.4 / (1.0 - first)),
        ));
    }
    notes.push("7e: a write of a copied key is an op of each holder, which evens load out and costs throughput; throughput counts them.".into());
    notes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quick_runs_keep_the_ends_and_all_targets() {
        for quick in [false, true] {
            let experiments = experiments(quick, None);
            let has = |is: &dyn Fn(&Experiment) -> bool| experiments.iter().any(is);
            assert!(
                has(&|experiment| experiment.racks == 32) && has(&|experiment| experiment.mix.big == 0.5)
            );
            for system in SYSTEMS {
                assert!(has(&|experiment| experiment.system == system && experiment.mix.writes == 0.2));
                for skew in SKEWS {
                    assert!(has(&|experiment| experiment.system == system
                        && experiment.skew == skew
                        && experiment.mix.writes == 0.0));
                }
            }
        }
    }
}
