//! An empty key under faults: pages that end with it continue after it, and pages that start before
//! it contain it.

use nicekv_sim::cluster::{Scenario, Tally};
use nicekv_sim::keyspace::{Key, Shape};
use nicekv_sim::{features, judge};
use std::io::Write;

/// Seeds of each test in `.ci/long`.
const SEEDS: u64 = 25;

/// Random runs with few keys, one of them empty, in a scenario that `change` adapts.
fn survive(what: &str, shape: Shape, change: impl Fn(&mut Scenario)) -> Tally {
    let (mut tally, mut calls) = (Tally::default(), 0);
    let seeds = crate::sampled(SEEDS);
    for seed in 1..=seeds {
        let mut scenario = judge::draw(seed);
        scenario.keyspaces = vec![shape];
        scenario.workload.keys = Key::of(0, shape.order, 6);
        features::empty_keys::of(&mut scenario);
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

/// Scans with pieces as short as possible: one or two keys.
fn scan(scenario: &mut Scenario) {
    scenario.workload.scans = (10, 0, 1);
}

#[test]
fn the_empty_key_survives_in_multicast_keyspaces() {
    survive("multicast", Shape::multicast(3, 0), scan);
    survive("multicast, in their order", Shape::multicast(3, 2).by_range(), scan);
}

#[test]
fn the_empty_key_survives_in_quorum_keyspaces() {
    survive("quorum", Shape::quorum(3, 2), |_| {});
}

#[test]
fn the_empty_key_survives_in_chain_keyspaces() {
    survive("chains", Shape::chain(3, 1), scan);
    survive("chains, in their order", Shape::chain(3, 1).by_range(), scan);
}

#[test]
fn the_empty_key_survives_crashes_and_damage() {
    survive("damage", Shape::multicast(3, 0), |scenario| {
        (scenario.faults.crash, scenario.faults.corruption) = (500, 3_000);
    });
}
