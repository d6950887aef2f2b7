//! Runs in which nodes' kernels answer gets (G1 to G8).

use crate::cluster::Scenario;
use crate::faults::Faults;
use crate::keyspace::{Key, Shape};
use nicekv_proto::Duration;
use nicekv_testkit::Random;

const MILLISECOND_NS: u64 = 1_000_000;
/// Chooses the seeds in which kernels answer gets, if kernels see the clients' addresses.
const KERNELS: u64 = 0x6b_6572_6e65_6c73;

/// Whether kernels answer gets in this seed.
pub(crate) fn drawn(seed: u64) -> bool {
    Random::new(seed ^ KERNELS).below(2) == 0
}

/// Few keys that all clients read and update.
pub(crate) fn shared(scenario: &mut Scenario) {
    (scenario.kernel_gets, scenario.hides_sources, scenario.balancing) = (true, false, true);
    scenario.keyspaces = vec![Shape::multicast(3, 0)];
    scenario.workload.keys = Key::of(0, nicekv_proto::KeyOrder::Hash, 2);
    scenario.workload.pause_ns_max = 2 * MILLISECOND_NS;
    (scenario.clients, scenario.workload.calls) = (4, 200);
}

/// More keys than the kernel's table has room for.
pub(crate) fn crowded(scenario: &mut Scenario) {
    shared(scenario);
    scenario.workload.keys = Key::of(0, nicekv_proto::KeyOrder::Hash, 40);
    (scenario.workload.calls, scenario.workload.window, scenario.workload.gets) = (400, 8, 600_000);
}

/// Nodes pause, and are removed while unreachable switches still send gets to them.
pub(crate) fn removed(scenario: &mut Scenario) {
    shared(scenario);
    scenario.edges = true;
    scenario.timing.lease = Duration::from_millis(500);
    scenario.workload.pause_ns_max = 30 * MILLISECOND_NS;
    scenario.faults = Faults {
        agent_cut: 200_000,
        pause: 2_000,
        pause_max_ns: 1_000 * MILLISECOND_NS,
        downtime_max_ns: 1_000 * MILLISECOND_NS,
        ..Faults::NONE
    };
}

/// Processes are killed, and their nodes restart.
pub(crate) fn killed(scenario: &mut Scenario) {
    shared(scenario);
    scenario.workload.pause_ns_max = 10 * MILLISECOND_NS;
    scenario.faults = Faults { crash: 4_000, downtime_max_ns: 300 * MILLISECOND_NS, ..Faults::NONE };
}

/// Keys that have the same digest, since they are ordered and have a common prefix.
pub(crate) fn alike(scenario: &mut Scenario) {
    shared(scenario);
    scenario.keyspaces = vec![Shape::multicast(3, 0).by_range()];
    let name = |last: u8| [b"alike in the beginning "[..].to_vec(), vec![last]].concat();
    scenario.workload.keys = (b'a'..b'd').map(|last| Key { keyspace: 0, name: name(last) }).collect();
}

/// Values expire, and nodes' clocks differ.
pub(crate) fn expiring(scenario: &mut Scenario) {
    shared(scenario);
    scenario.workload.expiring = 600_000;
    scenario.workload.pause_ns_max = 20 * MILLISECOND_NS;
}
