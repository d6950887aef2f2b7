//! Runs in which switches have entries of hot keys, and nodes hold copies of keys that others own
//! (H1 to H9).
//!
//! Entries change at random, whatever the load: any keys, any holders (members of the partition,
//! too), at any time, and the messages about it may be lost. No real policy does worse, and only
//! performance may depend on the policy.

use crate::cluster::Scenario;
use crate::faults::Faults;
use crate::keyspace::{Key, Shape};
use nicekv_client::Coordination;
use nicekv_proto::{Duration, KeyOrder};
use nicekv_testkit::Random;

const MILLISECOND_NS: u64 = 1_000_000;
/// Chooses the seeds with hot keys, and their parameters.
const HOT: u64 = 0x686f_7473;

/// In a quarter of the seeds, keyspaces with a primary have hot keys. Needs one switch, or a tree
/// of them.
pub(crate) fn draw(mut scenario: Scenario, seed: u64) -> Scenario {
    let mut random = Random::new(!(seed ^ HOT));
    let is_drawn = random.below(4) == 0;
    let is_multicast = |shape: &Shape| !shape.is_quorum() && !shape.is_chain;
    let has_one_way = !scenario.edges && (scenario.switch_count() == 1 || scenario.has_trunks());
    if is_drawn && has_one_way && scenario.keyspaces.iter().any(is_multicast) {
        let hot = scenario.keyspaces.iter_mut().filter(|shape| is_multicast(shape));
        hot.for_each(|shape| *shape = shape.with_hot_keys());
        scenario.hot_interval_ns = random.pick(&[5, 30, 200]) * MILLISECOND_NS;
        scenario.coordination = Coordination::Switch;
    }
    scenario
}

/// The name of a world, and the function that turns a random scenario into it.
pub type World = (&'static str, fn(&mut Scenario));

/// The worlds in which planted bugs of hot keys are hunted. Without a planted bug they have no
/// violation.
pub const WORLDS: [World; 10] = [
    ("shared", shared),
    ("lossy", lossy),
    ("restless", restless),
    ("among switches", among_switches),
    ("removed", removed),
    ("led by turns", led_by_turns),
    ("led by turns among switches", led_by_turns_among_switches),
    ("switches start again", switches_start_again),
    ("alike", alike),
    ("silent", silent),
];

/// Few keys that all clients read and update, at five nodes of which three are members. Kernels
/// answer gets if the seed says so.
pub(crate) fn shared(scenario: &mut Scenario) {
    (scenario.edges, scenario.hides_sources, scenario.switches) = (false, false, 1);
    scenario.trunks = crate::trunks::Trunks::None;
    (scenario.nodes, scenario.coordination) = (5, Coordination::Switch);
    scenario.keyspaces = vec![Shape::multicast(3, 0).with_hot_keys()];
    scenario.workload.keys = Key::of(0, KeyOrder::Hash, 2);
    (scenario.workload.pause_ns_max, scenario.workload.window) = (2 * MILLISECOND_NS, 1);
    (scenario.clients, scenario.workload.calls) = (4, 500);
    (scenario.workload.expiring, scenario.workload.gets) = (0, 850_000);
    scenario.hot_interval_ns = 40 * MILLISECOND_NS;
}

/// Datagrams are lost often: ops may reach members on a path that bypasses the switch's count, and
/// queries of switch counters stay unanswered.
pub(crate) fn lossy(scenario: &mut Scenario) {
    shared(scenario);
    scenario.faults = Faults { loss: 200_000, ..Faults::NONE };
}

/// Hot entries change all the time.
pub(crate) fn restless(scenario: &mut Scenario) {
    shared(scenario);
    scenario.hot_interval_ns = 4 * MILLISECOND_NS;
}

/// The kernels of holders answer gets.
pub(crate) fn in_kernels(scenario: &mut Scenario) {
    shared(scenario);
    scenario.kernel_gets = true;
}

/// The same, and hot entries change all the time.
pub(crate) fn restless_in_kernels(scenario: &mut Scenario) {
    restless(scenario);
    scenario.kernel_gets = true;
}

/// The same as [`shared`] at three switches in a row.
pub(crate) fn among_switches(scenario: &mut Scenario) {
    shared(scenario);
    (scenario.switches, scenario.trunks, scenario.nodes) = (3, crate::trunks::Trunks::Chain, 6);
}

/// Members pause for long and are removed, while hot entries still lead to them.
pub(crate) fn removed(scenario: &mut Scenario) {
    shared(scenario);
    scenario.timing.lease = Duration::from_millis(500);
    scenario.workload.pause_ns_max = 10 * MILLISECOND_NS;
    scenario.faults = Faults { pause: 4_000, pause_max_ns: 300 * MILLISECOND_NS, ..Faults::NONE };
}

/// The same with copies at nodes only, so that nodes receive more gets.
pub(crate) fn removed_holders(scenario: &mut Scenario) {
    removed(scenario);
    scenario.hot_values = false;
    // Long enough that entries outlive a member's removal, and short enough that new entries come.
    scenario.hot_interval_ns = 60 * MILLISECOND_NS;
}

/// The primary changes often, while switches keep their hot entries.
pub(crate) fn led_by_turns(scenario: &mut Scenario) {
    shared(scenario);
    scenario.hot_interval_ns = 1_000 * MILLISECOND_NS;
    (scenario.workload.pause_ns_max, scenario.workload.calls) = (MILLISECOND_NS, 2_000);
    scenario.faults = Faults {
        pause: 1_000,
        pause_max_ns: 300 * MILLISECOND_NS,
        crash: 300,
        downtime_max_ns: 200 * MILLISECOND_NS,
        ..Faults::NONE
    };
}

/// The same at three switches in a row: copies of an earlier primary are at another switch.
pub(crate) fn led_by_turns_among_switches(scenario: &mut Scenario) {
    led_by_turns(scenario);
    (scenario.switches, scenario.trunks, scenario.nodes) = (3, crate::trunks::Trunks::Chain, 6);
}

/// Switches restart, and lose their entries and copies.
pub(crate) fn switches_start_again(scenario: &mut Scenario) {
    shared(scenario);
    scenario.faults = Faults { switch_crash: 100_000, agent_cut: 100_000, ..scenario.faults };
}

/// Keys that have the same digest, since they are ordered and have a common prefix.
pub(crate) fn alike(scenario: &mut Scenario) {
    shared(scenario);
    scenario.keyspaces = vec![Shape::multicast(3, 0).by_range().with_hot_keys()];
    let name = |last: u8| [b"alike in the beginning "[..].to_vec(), vec![last]].concat();
    scenario.workload.keys = (b'a'..b'd').map(|last| Key { keyspace: 0, name: name(last) }).collect();
}

/// Clients send once, seldom an update, and give up soon. So much is lost that owners often have no
/// evidence, and must wait for leases to expire.
pub(crate) fn silent(scenario: &mut Scenario) {
    shared(scenario);
    scenario.faults = Faults { loss: 200_000, ..Faults::NONE };
    scenario.workload.keys = Key::of(0, KeyOrder::Hash, 1);
    (scenario.workload.timeout_ns, scenario.workload.retry_min) =
        (4 * MILLISECOND_NS, Duration::from_secs(1));
    (scenario.workload.pause_ns_max, scenario.workload.calls) = (4 * MILLISECOND_NS, 1_500);
    (scenario.workload.gets, scenario.clients) = (970_000, 3);
    scenario.hot_interval_ns = 1_000 * MILLISECOND_NS;
}
