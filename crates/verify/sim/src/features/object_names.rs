//! Runs in which keys are names of objects, which adopt rounds of garbage collection while nodes
//! fail (P8): after a name was listed in a round, it accepts no manifest with an older stamp.

use crate::cluster::Scenario;
use crate::keyspace::{Key, Shape};
use nicekv_client::Coordination;
use nicekv_proto::Duration;
use nicekv_testkit::Random;

/// Chooses the seeds with object names, and their parameters.
const NAMES: u64 = 0x6e_616d_6573;

/// In a twelfth of the seeds keys are names of objects. The faults stay as drawn.
pub(crate) fn draw(mut scenario: Scenario, seed: u64) -> Scenario {
    let mut random = Random::new(!(seed ^ NAMES));
    if random.below(12) == 0 {
        name(&mut scenario, Shape::multicast(random.pick(&[2, 3]), random.pick(&[0, 1, 2])));
        scenario.timing.collect_interval = Some(Duration::from_millis(random.pick(&[40, 100, 300])));
    }
    scenario
}

/// Object names in a fixed shape, with frequent rounds.
pub(crate) fn names(scenario: &mut Scenario) {
    name(scenario, Shape::multicast(3, 1));
    scenario.timing.collect_interval = Some(Duration::from_millis(40));
}

fn name(scenario: &mut Scenario, shape: Shape) {
    scenario.keyspaces = vec![shape.of_names()];
    scenario.workload.keys = Key::several(0, 8);
    scenario.workload.skew = 1;
    scenario.workload.calls = 200;
    (scenario.workload.large, scenario.workload.appends, scenario.workload.expiring) = (0, 0, 0);
    scenario.workload.scans = (5, 1_472, 2);
    (scenario.hot_interval_ns, scenario.coordination) = (0, Coordination::Switch);
}
