//! Runs in which the metadata service loses its store or its process.

use crate::cluster::Scenario;
use crate::faults::{Faults, StoreFaults};
use nicekv_proto::Duration;
use nicekv_testkit::Random;

const MILLISECOND_NS: u64 = 1_000_000;
const SECOND_NS: u64 = 1_000 * MILLISECOND_NS;

/// Three instances of the metadata service, and a store that sometimes does not answer.
pub(crate) fn share_store(scenario: &mut Scenario, random: &mut Random) {
    scenario.instances = 3;
    scenario.store_lease = Duration::from_millis(random.pick(&[200, 300, 500]));
    scenario.store_faults = StoreFaults {
        lost: random.pick(&[0, 10_000, 200_000]),
        late: random.pick(&[0, 10_000, 200_000]),
        late_max_ns: random.pick(&[20_000_000, SECOND_NS]),
        outage: random.pick(&[0, 5_000, 50_000]),
        outage_max_ns: random.pick(&[300_000_000, SECOND_NS]),
    };
}

/// Instances of the metadata service lose their store repeatedly, and nodes fail meanwhile.
pub(crate) fn shared_store(scenario: &mut Scenario) {
    scenario.instances = 3;
    scenario.store_lease = Duration::from_millis(200);
    scenario.store_faults = StoreFaults {
        lost: 20_000,
        late: 20_000,
        late_max_ns: 500 * MILLISECOND_NS,
        outage: 50_000,
        outage_max_ns: 800 * MILLISECOND_NS,
    };
    scenario.faults.loss = scenario.faults.loss.max(10_000);
    scenario.faults.cut_interval_ns = 200 * MILLISECOND_NS;
}

/// The metadata service needs long to persist its decisions, and often crashes before that.
pub(crate) fn forgetful_metadata(scenario: &mut Scenario) {
    scenario.faults = Faults {
        crash: 2_000,
        metadata_crash: 60_000,
        disk_max_ns: 30 * MILLISECOND_NS,
        downtime_max_ns: 30 * MILLISECOND_NS,
        ..Faults::NONE
    };
}
