//! Runs shaped to reveal bugs of chains (C1 to C10).

use crate::cluster::Scenario;
use crate::faults::Faults;
use crate::features::reshaping::reshaped;
use crate::keyspace::{Key, Shape};
use crate::scenarios::MILLISECOND_NS;
use nicekv_proto::Duration;

/// One keyspace of chains with few keys.
pub(crate) fn chains(scenario: &mut Scenario) {
    scenario.keyspaces = vec![Shape::chain(3, 0)];
    scenario.workload.keys = Key::several(0, 2);
}

/// The same; nodes crash and restart before requested syncs have completed.
pub(crate) fn chains_that_restart(scenario: &mut Scenario) {
    chains(scenario);
    scenario.faults = Faults { crash: 3_000, downtime_max_ns: 20 * MILLISECOND_NS, ..Faults::NONE };
    (scenario.faults.slow, scenario.faults.slow_factor) = (500_000, 20);
}

/// The same; nodes crash, and so many messages are lost that clients retry completed ops.
pub(crate) fn chains_losing_answers(scenario: &mut Scenario) {
    chains(scenario);
    scenario.faults =
        Faults { crash: 1_000, loss: 100_000, downtime_max_ns: 1_000 * MILLISECOND_NS, ..Faults::NONE };
}

/// The same; messages arrive late, and nodes restart, some with empty disks.
pub(crate) fn chains_with_late_messages(scenario: &mut Scenario) {
    chains(scenario);
    scenario.faults = Faults::LATE_MESSAGES;
}

/// The same; the operator drains nodes and adds them again.
pub(crate) fn chains_that_move(scenario: &mut Scenario) {
    chains(scenario);
    scenario.nodes = 5;
    scenario.faults = Faults { change_interval_ns: 200 * MILLISECOND_NS, ..Faults::NONE };
}

/// Two chains that the operator splits and merges all the time, while messages are lost, delayed
/// and duplicated.
pub(crate) fn chains_reshaped(scenario: &mut Scenario) {
    reshaped(scenario);
    scenario.keyspaces = vec![Shape::chain(3, 1)];
}

/// Nodes are often down for long, other nodes stand in for them repeatedly, and discard what they
/// held only slowly.
pub(crate) fn chains_with_spares(scenario: &mut Scenario) {
    scenario.nodes = 5;
    scenario.keyspaces = vec![Shape::chain(3, 0)];
    scenario.workload.keys = Key::several(0, 40);
    scenario.discard_bytes_per_second = 1_000;
    scenario.faults = Faults { crash: 1_000, downtime_max_ns: 1_500 * MILLISECOND_NS, ..Faults::NONE };
}

/// The same as [`by_clients`]; nodes pause, some until they are removed, with a lease that outlasts
/// the removal.
pub(crate) fn by_clients_of_paused_nodes(scenario: &mut Scenario) {
    by_clients(scenario);
    scenario.timing.lease = Duration::from_millis(500);
    scenario.faults = Faults { pause: 1_000, pause_max_ns: 500 * MILLISECOND_NS, ..Faults::NONE };
}

/// The same as [`chains`]; clients route by the directory.
pub(crate) fn by_clients(scenario: &mut Scenario) {
    chains(scenario);
    scenario.coordination = nicekv_client::Coordination::Client;
}
