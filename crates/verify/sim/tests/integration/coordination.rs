//! Nodes or clients route requests by a directory (TurboKV §1): histories stay linearizable under
//! faults.

use nicekv_client::Coordination;
use nicekv_sim::judge;
use nicekv_sim::keyspace;

/// Seeds of each test in `.ci/long`.
const SEEDS: u64 = 60;

/// Runs chains in some seeds. Returns the number of calls, and of requests that nodes refused
/// since the client's directory was out of date.
fn run(coordination: Coordination) -> (u64, u64) {
    let mut totals = (0, 0);
    let seeds = crate::sampled(SEEDS);
    for seed in 0..seeds {
        let mut scenario = judge::draw(seed);
        keyspace::make_chains(&mut scenario.keyspaces, scenario.nodes, seed);
        scenario.coordination = coordination;
        let report = judge::run(scenario, seed, None);
        assert!(report.violations.is_empty(), "{coordination:?}, seed {seed}: {:?}", report.violations);
        totals.0 += report.calls as u64;
        totals.1 += report.tally.of("requests misdirected");
    }
    assert!(totals.0 * SEEDS > 10_000 * seeds, "{} calls", totals.0);
    totals
}

#[test]
fn histories_are_linearizable_if_nodes_forward_requests() {
    run(Coordination::Server);
}

#[test]
fn histories_are_linearizable_if_clients_hold_the_directory() {
    let (_, misdirected) = run(Coordination::Client);
    assert!(misdirected > 0, "no directory was ever out of date");
}
