//! Keys of up to 1,024 bytes under faults: a message has no room for two of them, and a value of
//! some hundred bytes is a large value.

use nicekv_sim::cluster::{Scenario, Tally};
use nicekv_sim::keyspace::Shape;
use nicekv_sim::{features, judge};
use std::io::Write;

const MILLISECOND_NS: u64 = 1_000_000;
/// Seeds of each test in `.ci/long`.
const SEEDS: u64 = 25;

/// Random runs with long keys only, in a scenario that `change` adapts.
fn survive(what: &str, shape: Shape, change: impl Fn(&mut Scenario)) -> Tally {
    let (mut tally, mut calls) = (Tally::default(), 0);
    let seeds = crate::sampled(SEEDS);
    for seed in 1..=seeds {
        let mut scenario = judge::draw(seed);
        features::long_keys::of(&mut scenario, shape, 12);
        change(&mut scenario);
        let report = judge::run(scenario, seed, None);
        assert_eq!(report.violations, [""; 0], "{what}, seed {seed}");
        assert_eq!(report.too_large, 0, "{what}, seed {seed}: its histories are not judged");
        calls += report.calls;
        tally.add(&report.tally);
    }
    writeln!(std::io::stderr(), "{what}, {seeds} seeds: {calls} calls; {tally:?}").expect("it is open");
    assert!(calls > 400 * seeds as usize, "{what}: {calls}");
    tally
}

#[test]
fn long_keys_survive_in_multicast_keyspaces() {
    survive("multicast", Shape::multicast(3, 1), |_| {});
    survive("multicast, in their order", Shape::multicast(3, 2).by_range(), |_| {});
}

#[test]
fn long_keys_survive_in_quorum_keyspaces() {
    survive("quorum", Shape::quorum(3, 2), |_| {});
}

#[test]
fn long_keys_survive_in_chain_keyspaces() {
    survive("chains", Shape::chain(3, 1), |_| {});
    survive("chains, in their order", Shape::chain(3, 1).by_range(), |_| {});
}

#[test]
fn long_keys_survive_appends_crashes_and_damage() {
    let tally = survive("damage", Shape::multicast(3, 0), |scenario| {
        scenario.workload.appends = 300_000;
        scenario.workload.timeout_ns = 4_000 * MILLISECOND_NS;
        (scenario.faults.crash, scenario.faults.corruption) = (500, 3_000);
    });
    assert!(tally.of("values made by primaries") > 4 * crate::sampled(SEEDS));
}
