//! The shortest and the longest chain under random faults: one node, and nine.

use nicekv_sim::cluster::Scenario;
use nicekv_sim::faults::Faults;
use nicekv_sim::judge;
use nicekv_sim::keyspace::{Key, Shape};

fn survive(nodes: usize, replicas: usize, seeds: std::ops::Range<u64>) {
    for seed in seeds {
        let mut scenario = Scenario { nodes, spares: 0, ..judge::draw(seed) };
        // With one replica nothing stored may be lost. With nine of ten nodes, the operator cannot
        // replace members.
        let (change_interval_ns, memory) = (0, if replicas == 1 { 0 } else { scenario.faults.memory });
        let (corruption, replacement) = match replicas {
            1 => (0, 0),
            _ => (scenario.faults.corruption, scenario.faults.replacement),
        };
        if replicas == 9 && nodes > replicas {
            scenario.faults.reshape_interval_ns = 0;
        }
        scenario.faults = Faults { change_interval_ns, memory, corruption, replacement, ..scenario.faults };
        scenario.keyspaces = vec![Shape::chain(replicas, 1)];
        scenario.workload.keys = Key::several(0, 8);
        let report = judge::run(scenario, seed, None);
        let violations = report.violations.join("\n");
        assert!(violations.is_empty(), "R = {replicas}, {nodes} nodes, seed {seed}: {violations}");
        assert!(report.calls > report.unknown, "seed {seed}: nothing was answered");
    }
}

#[test]
fn a_chain_of_one_node_is_head_and_tail() {
    survive(3, 1, 0..20);
}

#[test]
fn a_chain_of_nine_has_no_spare() {
    survive(9, 9, 0..8);
    // There is one spare node, but a chain of nine originals has no room for it.
    survive(10, 9, 8..16);
}
