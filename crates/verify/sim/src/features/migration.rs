//! Runs in which partitions migrate to nodes with little load (TurboKV §5.1).

use crate::cluster::Scenario;
use crate::faults::Faults;
use crate::keyspace::{Key, Shape};
use nicekv_client::Coordination;
use nicekv_proto::Duration;
use nicekv_testkit::Random;

/// Chooses the seeds in which load moves partitions.
const MIGRATIONS: u64 = 0x6d_6967_7261_7465;

/// In a quarter of the seeds load moves the partitions of every keyspace that supports it. Such a
/// scenario also gets spare nodes, keys that are requested more than others, and balancing periods
/// that are short enough for a run.
pub(crate) fn draw(mut scenario: Scenario, seed: u64) -> Scenario {
    let mut random = Random::new(!(seed ^ MIGRATIONS));
    if random.below(4) > 0 {
        return scenario;
    }
    migrate(&mut scenario);
    scenario.nodes += random.below(3) as usize;
    if random.below(2) == 0 {
        // The fewer members a partition has, the less even the load is.
        scenario.keyspaces.iter_mut().filter(|shape| shape.migrates).for_each(|shape| shape.replicas = 2);
    }
    scenario.workload.skew = random.pick(&[1, 3, 8]);
    scenario.timing.balance_period = Duration::from_millis(random.pick(&[50, 100, 300]));
    // Switches count only the requests that they route.
    scenario.coordination = random.pick(&[Coordination::Switch, Coordination::Switch, scenario.coordination]);
    scenario
}

/// Lets load move the partitions of every keyspace that supports it, even if there is little load.
fn migrate(scenario: &mut Scenario) {
    for shape in scenario.keyspaces.iter_mut().filter(|shape| shape.can_be_reshaped()) {
        *shape = shape.that_migrates();
    }
    scenario.timing.balance_requests_min = 8;
}

/// Six nodes, few hot keys, and load that shifts all the time; no faults.
pub(crate) fn migrating(scenario: &mut Scenario) {
    scenario.nodes = 6;
    scenario.keyspaces = vec![Shape::multicast(1, 4)];
    scenario.workload.keys = Key::several(0, 40);
    (scenario.workload.skew, scenario.workload.calls) = (2, 1_200);
    (scenario.workload.window, scenario.workload.pause_ns_max) = (2, 8_000_000);
    scenario.faults = Faults::NONE;
    scenario.balancing = false;
    migrate(scenario);
    scenario.timing.balance_period = Duration::from_millis(50);
}
