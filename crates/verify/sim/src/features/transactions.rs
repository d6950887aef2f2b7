//! Runs in which clients execute transactions on a few co-located keys while nodes fail (T1 to T4).
//! Transactions, and calls on a single one of the keys, are checked together: there must be one
//! order of all.

use crate::client::transactions::TAG;
use crate::cluster::Scenario;
use crate::faults::Faults;
use crate::keyspace::{Key, Shape};
use nicekv_proto::limits::LONG_VALUE_BYTES_MAX;
use nicekv_testkit::Random;

/// Chooses the seeds with transactions, and their parameters.
const TRANSACTIONS: u64 = 0x74_7261_6e73;
const MILLISECOND_NS: u64 = 1_000_000;

/// In a twelfth of the seeds clients have transactions. The faults stay as drawn.
pub(crate) fn draw(mut scenario: Scenario, seed: u64) -> Scenario {
    let mut random = Random::new(!(seed ^ TRANSACTIONS));
    if random.below(12) > 0 {
        return scenario;
    }
    let (replicas, bits) = (random.pick(&[2, 3, 3]), random.pick(&[0, 0, 1, 2]));
    let shape = match random.below(3) {
        0 => Shape::chain(replicas, bits),
        _ => Shape::multicast(replicas, bits),
    };
    let shape = if random.below(4) == 0 { shape.by_range() } else { shape };
    transact(&mut scenario, shape, random.pick(&[2, 3]));
    scenario.workload.transactions = random.pick(&[200_000, 500_000, 900_000]);
    script(&mut scenario, random.pick(&[0, 100_000, 400_000]));
    scenario.faults.deadly = random.pick(&[0, 0, 0, 10_000]);
    scenario
}

fn transact(scenario: &mut Scenario, shape: Shape, keys: usize) {
    scenario.keyspaces = vec![shape];
    scenario.workload.keys = keys_together(keys);
    (scenario.workload.skew, scenario.workload.window) = (1, 1);
    (scenario.workload.calls, scenario.clients) = (60, scenario.clients.min(4));
    // Calls of unknown outcome make a history hard to judge.
    (scenario.workload.timeout_ns, scenario.workload.pause_ns_max) =
        (2_000 * MILLISECOND_NS, 60 * MILLISECOND_NS);
    (scenario.workload.large, scenario.workload.appends, scenario.workload.gets) = (0, 0, 0);
    scenario.workload.scans = (0, 0, 1);
    (scenario.workload.transactions, scenario.workload.scripts) = (500_000, 0);
    scenario.hot_interval_ns = 0;
}

/// Co-located keys of the first keyspace: all in one partition, with either key order.
fn keys_together(count: usize) -> Vec<Key> {
    let name = |number: usize| [TAG, number.to_string().as_bytes()].concat();
    (0..count).map(|number| Key { keyspace: 0, name: name(number) }).collect()
}

/// Transactions at three members.
pub(crate) fn transactions(scenario: &mut Scenario) {
    transact(scenario, Shape::multicast(3, 0), 3);
}

/// The same, with scripts among the steps.
pub(crate) fn scripts(scenario: &mut Scenario) {
    transactions(scenario);
    script(scenario, 300_000);
}

/// Makes `steps` of a million steps scripts. They read values of any length.
fn script(scenario: &mut Scenario, steps: u64) {
    scenario.workload.scripts = steps;
    scenario.workload.large = if steps > 0 { 300_000 } else { 0 };
    scenario.workload.whole_bytes_max = LONG_VALUE_BYTES_MAX;
}

/// Transactions at three members; nodes crash and restart.
pub(crate) fn with_restarts(scenario: &mut Scenario) {
    transactions(scenario);
    scenario.nodes = 3;
    scenario.faults =
        Faults { crash: 2_000, loss: 20_000, downtime_max_ns: 400 * MILLISECOND_NS, ..Faults::NONE };
}

/// Two contended keys, while members crash and are replaced: ops reach nodes in different orders,
/// and a new primary has not received earlier decisions and must have the ops acknowledged again.
pub(crate) fn with_failovers(scenario: &mut Scenario) {
    transact(scenario, Shape::multicast(3, 0), 2);
    scenario.nodes = 5;
    (scenario.clients, scenario.workload.calls) = (4, 300);
    (scenario.workload.pause_ns_max, scenario.workload.expiring) = (2 * MILLISECOND_NS, 0);
    scenario.faults =
        Faults { crash: 10_000, loss: 250_000, downtime_max_ns: 400 * MILLISECOND_NS, ..Faults::NONE };
}

/// Transactions and scripts, of which some crash each process that evaluates them; no other faults.
pub(crate) fn deadly(scenario: &mut Scenario) {
    scripts(scenario);
    scenario.faults = Faults { deadly: 15_000, downtime_max_ns: 20 * MILLISECOND_NS, ..Faults::NONE };
}
