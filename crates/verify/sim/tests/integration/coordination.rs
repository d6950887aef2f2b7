//! Nodes or clients route requests by a directory (TurboKV §1): histories stay linearizable under
//! faults.

use nicekv_client::Coordination;
use nicekv_sim::judge;
use nicekv_sim::keyspace;

/// Runs chains in these seeds. Returns the number of calls, and of requests that nodes refused
/// since the client's directory was out of date.
fn run(coordination: Coordination, seeds: std::ops::Range<u64>) -> (usize, u64) {
    let mut totals = (0, 0);
    for seed in seeds {
        let mut scenario = judge::draw(seed);
        keyspace::make_chains(&mut scenario.keyspaces, scenario.nodes, seed);
        scenario.coordination = coordination;
        let report = judge::run(scenario, seed, None);
        assert!(report.violations.is_empty(), "{coordination:?}, seed {seed}: {:?}", report.violations);
        totals.0 += report.calls;
        totals.1 += report.tally.of("requests misdirected");
    }
    totals
}

#[test]
fn histories_are_linearizable_if_nodes_forward_requests() {
    let (calls, _) = run(Coordination::Server, 0..60);
    assert!(calls > 10_000, "{calls} calls");
}

#[test]
fn histories_are_linearizable_if_clients_hold_the_directory() {
    let (calls, misdirected) = run(Coordination::Client, 0..60);
    assert!(calls > 10_000, "{calls} calls");
    assert!(misdirected > 0, "no directory was ever out of date");
}
