//! Nodes are added, drained and removed while they hold replicas of quorum keyspaces (R14), for all
//! k and under faults.

use nicekv_proto::Duration;
use nicekv_sim::cluster::{Scenario, Tally};
use nicekv_sim::faults::Faults;
use nicekv_sim::judge;
use nicekv_sim::keyspace::{Key, Shape};

const MILLISECOND_NS: u64 = 1_000_000;
/// Random runs of each shape in `.ci/long`.
const SEEDS: u64 = 24;

/// So few keys and calls that the history can be judged, and an operator who changes their mind
/// often.
fn restless(seed: u64, replicas: usize, write_set: u8, faults: Faults) -> Scenario {
    let mut scenario = judge::draw(seed);
    (scenario.nodes, scenario.spares) = (replicas + 1, 1);
    scenario.keyspaces = vec![Shape::quorum(replicas, write_set)];
    scenario.workload.keys = Key::several(0, 8);
    scenario.workload.calls = 300;
    scenario.workload.timeout_ns = 1_000 * MILLISECOND_NS;
    scenario.timing.fence_interval = Duration::from_millis(20);
    scenario.faults = Faults { change_interval_ns: 100 * MILLISECOND_NS, ..faults };
    scenario
}

fn survives(what: &str, faults: Faults) -> Tally {
    let (seeds, mut tally) = (crate::sampled(SEEDS), Tally::default());
    for (replicas, write_set) in [(3, 1), (3, 2), (3, 3), (1, 1), (5, 3)] {
        let mut of_shape = Tally::default();
        for seed in 1..=seeds {
            let report = judge::run(restless(seed, replicas, write_set, faults), seed, None);
            let violations = report.violations.join("\n");
            assert!(
                violations.is_empty(),
                "{what}, R = {replicas}, k = {write_set}, seed {seed}: {violations}"
            );
            assert_eq!(
                report.too_large, 0,
                "{what}, R = {replicas}, k = {write_set}, seed {seed} is not judged"
            );
            of_shape.add(&report.tally);
        }
        let taken = of_shape.faults.get("members' places taken by others").copied().unwrap_or(0);
        println!("{what}, R = {replicas}, k = {write_set}: {taken} places taken");
        assert!(taken >= seeds, "{what}, R = {replicas}, k = {write_set}: only {taken} places were taken");
        tally.add(&of_shape);
    }
    tally
}

#[test]
fn members_are_replaced_under_load() {
    survives("nothing fails", Faults::NONE);
}

#[test]
fn members_are_replaced_while_messages_are_lost_delayed_and_duplicated() {
    let faults = Faults {
        loss: 200_000,
        duplication: 300_000,
        delay: 200_000,
        delay_max_ns: 100 * MILLISECOND_NS,
        stream_break: 100_000,
        ..Faults::NONE
    };
    survives("the network fails", faults);
}

#[test]
fn members_are_replaced_while_processes_crash_and_restart() {
    let faults = Faults { loss: 50_000, crash: 500, downtime_max_ns: 200 * MILLISECOND_NS, ..Faults::NONE };
    let tally = survives("processes fail", faults);
    let broken_off = tally.faults.get("successions broken off").copied().unwrap_or(0);
    assert!(broken_off * 3 >= crate::sampled(SEEDS), "only {broken_off} successions were broken off");
}

#[test]
fn members_are_replaced_during_network_partitions() {
    let faults = Faults {
        cut_interval_ns: 150 * MILLISECOND_NS,
        pause: 200,
        pause_max_ns: 300 * MILLISECOND_NS,
        ..Faults::NONE
    };
    survives("hosts do not hear each other", faults);
}
