//! Overload: requests beyond the capacity of the nodes wait in the clients, are sent once, and do
//! not delay the answers to others.

use nicekv_sim::cluster::{Cluster, Scenario};
use nicekv_sim::{judge, plants};

const SECOND_NS: u64 = 1_000_000_000;

fn overloaded(seed: u64) -> Scenario {
    let mut scenario = judge::draw(seed);
    plants::overloaded(&mut scenario);
    scenario
}

#[test]
fn few_requests_are_retransmitted_under_overload() {
    for seed in 1..=2 {
        let report = judge::run(overloaded(seed), seed, None);
        assert_eq!(report.violations, [""; 0], "seed {seed}");
        assert_eq!(report.unknown, 0, "seed {seed}");
    }
}

/// Number of calls that are answered in the first second after the first answer, in a complete
/// cluster.
fn goodput(seed: u64, window: usize) -> usize {
    let mut scenario = overloaded(seed);
    (scenario.workload.window, scenario.workload.calls) = (window, usize::MAX);
    let mut cluster = Cluster::new(scenario, seed);
    let answered = |cluster: &Cluster| -> usize {
        let calls = cluster.clients().iter().flat_map(|client| client.history());
        calls.filter(|call| call.call.answered.is_some()).count()
    };
    cluster.run_until(SECOND_NS, |_| false);
    let before = answered(&cluster);
    let end_ns = cluster.now_ns() + SECOND_NS / 2;
    cluster.run_until(end_ns, |_| false);
    answered(&cluster) - before
}

#[test]
fn throughput_holds_at_ten_times_the_load() {
    let (enough, tenfold) = (goodput(1, 100), goodput(1, 1_000));
    assert!(tenfold * 10 >= enough * 9, "{enough} calls answered, {tenfold} with ten times as many at once");
}
