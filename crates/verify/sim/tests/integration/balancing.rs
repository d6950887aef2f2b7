//! Replicas serve equal shares of the gets of a hot object, whichever clients ask, also after load
//! shifts (NICE §4.5).

use nicekv_proto::Duration;
use nicekv_sim::checker::Action;
use nicekv_sim::cluster::{Cluster, Fault, Scenario};
use nicekv_sim::faults::Faults;
use nicekv_sim::judge;
use nicekv_sim::keyspace::{Key, Shape};
use nicekv_sim::network::Pace;
use std::collections::BTreeMap;

const MILLISECOND_NS: u64 = 1_000_000;
const REPLICAS: usize = 3;

/// One key, and no calls but those that the test makes.
fn hot(clients: usize) -> Scenario {
    let mut scenario = judge::draw(1);
    (scenario.nodes, scenario.spares, scenario.instances, scenario.edges) = (4, 0, 1, false);
    (scenario.switches, scenario.clients, scenario.balancing) = (1, clients, true);
    (scenario.pace, scenario.faults) = (Pace::VARYING, Faults::NONE);
    scenario.keyspaces = vec![Shape::multicast(REPLICAS, 0)];
    (scenario.workload.keys, scenario.workload.calls) = (Key::several(0, 1), 0);
    scenario.timing.divide_interval = Duration::from_millis(200);
    scenario.timing.divide_gets_min = 50;
    scenario
}

/// Each of these clients gets the key once per millisecond. Returns how many gets went to each
/// node.
fn ask(cluster: &mut Cluster, milliseconds: u64, clients: &[usize]) -> BTreeMap<usize, u64> {
    let before = cluster.tally().asked;
    for _ in 0..milliseconds {
        clients.iter().for_each(|client| cluster.call(*client, 0, Action::Get));
        let end_ns = cluster.now_ns() + MILLISECOND_NS;
        cluster.run_until(end_ns, |_| false);
    }
    let mut asked = cluster.tally().asked;
    asked.iter_mut().for_each(|(node, count)| *count -= before.get(node).copied().unwrap_or(0));
    asked.retain(|_, count| *count > 0);
    asked
}

#[track_caller]
fn assert_equal(asked: &BTreeMap<usize, u64>) {
    let fair = asked.values().sum::<u64>() / REPLICAS as u64;
    let is_fair = |count: &u64| (fair * 9 / 10..=fair * 11 / 10).contains(count);
    assert!(asked.len() == REPLICAS && asked.values().all(is_fair), "{asked:?}, an equal share is {fair}");
}

#[test]
fn replicas_of_a_hot_object_serve_equal_shares_after_load_shifts_and_a_crash() {
    for seed in 1..=3 {
        let mut cluster = Cluster::new(hot(9), seed);
        cluster.run_until(1_000 * MILLISECOND_NS, judge::is_whole);
        ask(&mut cluster, 800, &[0, 1, 2]);
        assert_equal(&ask(&mut cluster, 300, &[0, 1, 2]));
        // Six other clients. The same replica answered adjacent ones before.
        ask(&mut cluster, 1_200, &[3, 4, 5, 6, 7, 8]);
        assert_equal(&ask(&mut cluster, 300, &[3, 4, 5, 6, 7, 8]));
        // A replica crashes, and another node stands in for it.
        let dead = *cluster.tally().asked.keys().next().expect("somebody was asked");
        cluster.inject(Fault::Crash { node: dead, kept: nicekv_sim::node::Kept::All, downtime_ns: None });
        ask(&mut cluster, 1_500, &[3, 4, 5, 6, 7, 8]);
        assert_equal(&ask(&mut cluster, 300, &[3, 4, 5, 6, 7, 8]));
        assert_eq!(cluster.violation(), None, "seed {seed}");
        let calls = cluster.clients().iter().flat_map(|client| client.history());
        let ended: Vec<bool> = calls.map(|call| call.call.answered.is_some()).collect();
        assert!(ended.iter().filter(|is_answered| **is_answered).count() * 100 >= ended.len() * 99);
    }
}

/// In random runs, nodes report who sends gets, and divisions change.
#[test]
fn random_runs_change_the_division_of_load() {
    let mut divided = 0;
    for seed in 1..=24 {
        let report = judge::run(judge::draw(seed), seed, None);
        assert_eq!(report.violations, [""; 0], "seed {seed}");
        divided += report.tally.of("partitions divided otherwise by load");
    }
    assert!(divided >= 5, "{divided}");
}
