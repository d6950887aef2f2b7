//! Runs in which nodes leave, return, and stand in for each other.

use crate::cluster::Scenario;
use crate::faults::Faults;
use crate::keyspace::{Key, Shape};
use crate::scenarios::MILLISECOND_NS;

/// Nodes are often down for long, and others stand in for them.
pub(crate) fn with_handoffs(scenario: &mut Scenario) {
    scenario.nodes = 5;
    scenario.faults = Faults { crash: 1_000, downtime_max_ns: 1_500 * MILLISECOND_NS, ..Faults::NONE };
}

/// The operator drains nodes and adds them again; there are few other faults.
pub(crate) fn nodes_come_and_go(scenario: &mut Scenario) {
    scenario.nodes = 5;
    scenario.keyspaces = vec![Shape::multicast(3, 1)];
    scenario.workload.keys = Key::several(0, 20);
    scenario.faults = Faults { change_interval_ns: 200 * MILLISECOND_NS, ..Faults::NONE };
}

/// Nodes stand in for others repeatedly, and discard what they held only slowly.
pub(crate) fn left_and_back(scenario: &mut Scenario) {
    with_handoffs(scenario);
    scenario.keyspaces = vec![Shape::multicast(3, 0)];
    scenario.workload.keys = Key::several(0, 40);
    scenario.discard_bytes_per_second = 1_000;
}

/// Nodes stand in for others on busy machines. There are more keys than are written during one
/// absence, and switches with old tables still send gets to a node that stood in and has left.
pub(crate) fn late_with_handoffs(scenario: &mut Scenario) {
    with_handoffs(scenario);
    scenario.keyspaces = vec![Shape::multicast(3, 0)];
    scenario.workload.keys = Key::several(0, 100);
    scenario.clients = 10;
    scenario.faults.late_ns = 6 * MILLISECOND_NS;
    scenario.balancing = true;
    scenario.faults.agent_cut = 200_000;
}
