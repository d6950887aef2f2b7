//! Large values of quorum keyspaces (NICE §5, R14): any k of R replicas are enough, however long
//! the value is.

use crate::quorum;

use nicekv_sim::client::Workload;
use nicekv_sim::cluster::{Cluster, Scenario};
use nicekv_sim::faults::Faults;
use nicekv_sim::keyspace::{Key, Shape};
use quorum::*;

/// Maximum calls of unknown outcome: those in flight at one time.
const UNKNOWN_MAX: usize = 8;

/// Makes most sets put values of several chunks.
fn large(scenario: Scenario) -> Scenario {
    let workload =
        Workload { keys: Key::several(0, 3), large: 900_000, window: 2, calls: 0, ..scenario.workload };
    Scenario { clients: 4, workload, ..scenario }
}

fn run_calls(world: &mut Cluster, calls: usize) {
    world.add_calls(calls);
    let end_ns = world.now_ns() + 120_000 * MILLISECOND_NS;
    world.run_until(end_ns, |world| world.clients().iter().all(|client| client.is_done()));
    assert!(is_linearizable(world));
}

/// The longest time that a call took, in nanoseconds. The last node is slower by the factor
/// `slowness`.
fn longest_call_ns(replicas: u8, write_set: u8, slowness: u64) -> u64 {
    let mut scenario = large(scenario(replicas, write_set));
    scenario.faults.slow_factor = slowness;
    let mut world = ready(scenario, 21);
    let laggard = world.nodes().len() - 1;
    world.set_slow(laggard, true);
    run_calls(&mut world, 200);
    let calls: Vec<_> = world.clients().iter().flat_map(|client| &client.history).collect();
    // An epoch may begin. The outcome of calls in flight may then be unknown.
    let unknown = calls.iter().filter(|call| call.call.answered.is_none()).count();
    assert!(calls.len() >= 800 && unknown <= UNKNOWN_MAX, "{unknown} of {} unknown", calls.len());
    let values = world.nodes().iter().map(|node| node.core.as_ref().unwrap().status().values);
    assert!(values.map(|values| values.chunks).sum::<u64>() > 500, "values go in chunks");
    calls.iter().map(|call| call.ended_ns.unwrap() - call.called_ns).max().unwrap()
}

#[test]
fn a_slow_replica_delays_no_put_of_a_large_value() {
    for (replicas, write_set) in [(3, 2), (5, 3), (7, 4)] {
        let (healthy_ns, lagging_ns) =
            (longest_call_ns(replicas, write_set, 1), longest_call_ns(replicas, write_set, 100));
        println!("R = {replicas}, k = {write_set}: {healthy_ns} ns, with a laggard {lagging_ns} ns");
        assert!(healthy_ns < 50 * MILLISECOND_NS, "{healthy_ns} ns");
        assert!(lagging_ns <= 3 * healthy_ns, "{lagging_ns} ns instead of {healthy_ns} ns");
    }
}

/// Runs many seeds of a scenario with large values that `change` adapts.
fn survive(seeds: std::ops::Range<u64>, change: impl Fn(&mut Scenario)) {
    for seed in seeds {
        let mut scenario = large(scenario(3, 2));
        scenario.workload.calls = 120;
        scenario.faults_end_ns = 3_000 * MILLISECOND_NS;
        change(&mut scenario);
        let mut world = Cluster::new(scenario, seed);
        let end_ns = 120_000 * MILLISECOND_NS;
        world.run_until(end_ns, |world| world.clients().iter().all(|client| client.is_done()));
        assert!(is_linearizable(&world), "seed {seed}");
        let whole = |call: &&nicekv_sim::client::KeyCall| call.call.answered.is_some();
        let answered = world.clients().iter().flat_map(|client| &client.history).filter(whole).count();
        assert!(answered > 100, "seed {seed}: {answered} calls were answered");
    }
}

#[test]
fn large_values_survive_loss_and_crashes() {
    let (crash, downtime_max_ns) = (3_000, 200 * MILLISECOND_NS);
    let faults = Faults { loss: 50_000, duplication: 50_000, crash, downtime_max_ns, ..Faults::NONE };
    survive(1..25, |scenario| scenario.faults = faults);
}

#[test]
fn large_values_survive_power_losses_and_damage() {
    let faults = Faults { power_loss: 300, crash: 500, corruption: 5_000, ..Faults::NONE };
    survive(1..25, |scenario| scenario.faults = faults);
}

#[test]
fn large_values_are_copied_to_the_successor_of_a_member() {
    survive(1..25, |scenario| {
        (scenario.nodes, scenario.spares) = (4, 1);
        scenario.keyspaces = vec![Shape::quorum(3, 2)];
        let change_interval_ns = 100 * MILLISECOND_NS;
        scenario.faults = Faults { loss: 50_000, change_interval_ns, ..Faults::NONE };
    });
}
