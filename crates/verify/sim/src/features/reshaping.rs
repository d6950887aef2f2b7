//! Runs shaped to reveal bugs of splits and merges (R17).

use crate::cluster::Scenario;
use crate::faults::Faults;
use crate::keyspace::{Key, Shape};
use crate::scenarios::MILLISECOND_NS;

/// The operator splits and merges partitions all the time, while messages are lost, delayed and
/// duplicated.
pub(crate) fn reshaped(scenario: &mut Scenario) {
    scenario.nodes = 3;
    scenario.keyspaces = vec![Shape::multicast(3, 1)];
    scenario.workload.keys = Key::several(0, 8);
    scenario.workload.window = 2;
    scenario.faults = Faults {
        loss: 50_000,
        duplication: 50_000,
        delay: 50_000,
        delay_max_ns: 20 * MILLISECOND_NS,
        reshape_interval_ns: 80 * MILLISECOND_NS,
        ..Faults::NONE
    };
}

/// The same on busy machines, which handle larger batches.
pub(crate) fn reshaped_busily(scenario: &mut Scenario) {
    reshaped(scenario);
    scenario.workload.keys = Key::several(0, 40);
    (scenario.workload.calls, scenario.workload.window) = (1_500, 4);
    scenario.workload.pause_ns_max = 2 * MILLISECOND_NS;
    scenario.faults.late_ns = 10 * MILLISECOND_NS;
    scenario.faults.reshape_interval_ns = 40 * MILLISECOND_NS;
}

/// The same; pages from the disk are late, so that much is written while one is read.
pub(crate) fn reshaped_with_late_pages(scenario: &mut Scenario) {
    reshaped_busily(scenario);
    scenario.workload.large = 0;
    (scenario.workload.calls, scenario.faults.late_disk_ns) = (700, 10 * MILLISECOND_NS);
}

/// The same as [`reshaped`], and nodes crash.
pub(crate) fn reshaped_with_crashes(scenario: &mut Scenario) {
    reshaped(scenario);
    (scenario.faults.crash, scenario.faults.downtime_max_ns) = (500, 300 * MILLISECOND_NS);
}

/// The same, and all hosts lose power at once.
pub(crate) fn reshaped_with_losses_of_power(scenario: &mut Scenario) {
    reshaped(scenario);
    (scenario.faults.power_loss, scenario.faults.disk_max_ns) = (300, 5 * MILLISECOND_NS);
    (scenario.workload.keys, scenario.workload.window) = (Key::several(0, 2), 4);
}

/// The same as [`reshaped`], and nodes get older disks, from before some splits and merges.
pub(crate) fn reshaped_with_older_disks(scenario: &mut Scenario) {
    reshaped(scenario);
    scenario.workload.keys = Key::several(0, 20);
    let downtime_max_ns = 50 * MILLISECOND_NS;
    scenario.faults = Faults { crash: 2_000, downtime_max_ns, disk_older: 1_000_000, ..scenario.faults };
    (scenario.faults.loss, scenario.faults.delay) = (0, 0);
}
