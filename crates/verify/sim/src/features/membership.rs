//! Runs in which nodes leave, return, and stand in for each other.

use crate::cluster::Scenario;
use crate::faults::Faults;
use crate::keyspace::{Key, Shape};
use crate::scenarios::MILLISECOND_NS;

/// Nodes go often and for long, and others stand in for them.
pub(crate) fn with_handoffs(scenario: &mut Scenario) {
    scenario.nodes = 5;
    scenario.faults = Faults { crash: 1_000, downtime_max_ns: 1_500 * MILLISECOND_NS, ..Faults::NONE };
}

/// The operator drains nodes and adds them again, while little else goes wrong.
pub(crate) fn nodes_come_and_go(scenario: &mut Scenario) {
    scenario.nodes = 5;
    scenario.keyspaces = vec![Shape::multicast(3, 1)];
    scenario.workload.keys = Key::several(0, 20);
    scenario.faults = Faults { change_interval_ns: 200 * MILLISECOND_NS, ..Faults::NONE };
}

/// Nodes stand in for others again and again, and take long to discard what they hold then.
pub(crate) fn left_and_back(scenario: &mut Scenario) {
    with_handoffs(scenario);
    scenario.keyspaces = vec![Shape::multicast(3, 0)];
    scenario.workload.keys = Key::several(0, 40);
    scenario.discard_bytes_per_second = 1_000;
}

/// The same on busy machines, with more keys than are written meanwhile, and with switches that still send gets to who stood in: by the newest
/// tables it has none when it leaves.
pub(crate) fn late_with_handoffs(scenario: &mut Scenario) {
    with_handoffs(scenario);
    scenario.keyspaces = vec![Shape::multicast(3, 0)];
    scenario.workload.keys = Key::several(0, 100);
    scenario.clients = 10;
    scenario.faults.late_ns = 6 * MILLISECOND_NS;
    scenario.balancing = true;
    scenario.faults.agent_cut = 200_000;
}

/// Nodes go and come back quickly, while much is lost.
pub(crate) fn lossy_joins(scenario: &mut Scenario) {
    scenario.nodes = 3;
    scenario.keyspaces = vec![Shape::multicast(3, 0)];
    scenario.workload.keys.iter_mut().for_each(|key| key.keyspace = 0);
    scenario.faults = Faults {
        loss: 250_000,
        crash: 3_000,
        memory: 500_000,
        downtime_max_ns: 250 * MILLISECOND_NS,
        ..Faults::NONE
    };
}
