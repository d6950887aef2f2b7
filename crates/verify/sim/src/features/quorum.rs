//! Runs shaped to reveal bugs of quorum keyspaces (R14).

use crate::cluster::Scenario;
use crate::faults::Faults;
use crate::keyspace::{Key, Shape};
use crate::scenarios::MILLISECOND_NS;
use nicekv_proto::Duration;

/// A single quorum keyspace with few keys.
pub(crate) fn by_quorum(scenario: &mut Scenario) {
    scenario.keyspaces = vec![Shape::quorum(3, 2)];
    scenario.workload.keys = Key::several(0, 2);
}

/// The same with storage in memory, which crashes lose repeatedly; many datagrams are lost, too.
pub(crate) fn by_quorum_in_memory(scenario: &mut Scenario) {
    by_quorum(scenario);
    scenario.faults = Faults { loss: 250_000, memory: 1_000_000, ..Faults::NONE };
    (scenario.faults.crash, scenario.faults.downtime_max_ns) = (3_000, 20 * MILLISECOND_NS);
}

/// Many datagrams are lost, and stored values are damaged repeatedly.
pub(crate) fn damage_by_quorum(scenario: &mut Scenario) {
    by_quorum(scenario);
    scenario.timing.fence_interval = Duration::from_millis(20);
    scenario.faults = Faults { loss: 250_000, corruption: 20_000, ..Faults::NONE };
}

/// Many datagrams are lost, duplicated or delayed, and tombstones are deleted as early as possible.
pub(crate) fn deletions_by_quorum(scenario: &mut Scenario) {
    by_quorum(scenario);
    scenario.timing.fence_interval = Duration::from_millis(20);
    scenario.faults = Faults {
        loss: 200_000,
        duplication: 500_000,
        delay: 300_000,
        delay_max_ns: 1_500 * MILLISECOND_NS,
        ..Faults::NONE
    };
}

/// Tombstones are deleted as early as possible, by busy machines that handle larger batches.
pub(crate) fn deletions_at_busy_nodes(scenario: &mut Scenario) {
    by_quorum(scenario);
    scenario.timing.fence_interval = Duration::from_millis(20);
    scenario.workload.pause_ns_max = 10 * MILLISECOND_NS;
    scenario.faults =
        Faults { late_ns: 5 * MILLISECOND_NS, late_disk_ns: 5 * MILLISECOND_NS, ..Faults::NONE };
}

/// The operator adds and drains nodes all the time, so that members are replaced, and many
/// datagrams are lost.
pub(crate) fn places_change(scenario: &mut Scenario) {
    by_quorum(scenario);
    (scenario.nodes, scenario.spares) = (4, 1);
    scenario.workload.keys = Key::several(0, 8);
    scenario.workload.calls = 300;
    scenario.faults = Faults { loss: 250_000, change_interval_ns: 100 * MILLISECOND_NS, ..Faults::NONE };
}

/// The same; tombstones are deleted as early as possible, and replaced members discard their data
/// late.
pub(crate) fn places_change_and_deletions(scenario: &mut Scenario) {
    places_change(scenario);
    scenario.timing.fence_interval = Duration::from_millis(20);
    scenario.discard_bytes_per_second = 1_000;
}

/// Nodes that may hold the only copy of a put are drained or removed, and crash.
pub(crate) fn sole_holders_leave(scenario: &mut Scenario) {
    places_change(scenario);
    scenario.keyspaces = vec![Shape::quorum(3, 1)];
    scenario.faults.crash = 1_000;
    scenario.faults.downtime_max_ns = 800 * MILLISECOND_NS;
}
