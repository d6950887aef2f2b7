//! Runs in which switches match only headers, as those of OpenFlow do: clients address vnodes, and a
//! switch may keep using its old tables for a while after it has acknowledged new ones.

use crate::cluster::Scenario;
use crate::keyspace::Shape;
use crate::trunks::Trunks;
use nicekv_proto::KeyOrder;
use nicekv_switch::Matching;
use nicekv_testkit::Random;

/// Chooses the seeds with such switches.
const HEADERS: u64 = 0x68_6561_6465_7273;

/// In a third of the seeds in which such switches can serve every keyspace and their trunks form a
/// tree.
pub(crate) fn draw(mut scenario: Scenario, seed: u64) -> Scenario {
    if Random::new(!(seed ^ HEADERS)).below(3) == 0 {
        scenario.matching = Matching::Headers;
    }
    where_possible(scenario)
}

/// Keeps such switches only if they can serve the scenario: it may have been changed after it was
/// drawn.
pub(crate) fn where_possible(mut scenario: Scenario) -> Scenario {
    let is_tree = !matches!(scenario.trunks, Trunks::Racks { .. });
    if !is_tree || scenario.hot_interval_ns > 0 || !scenario.keyspaces.iter().all(is_possible) {
        scenario.matching = Matching::Messages;
    }
    scenario
}

fn is_possible(shape: &Shape) -> bool {
    !shape.is_chain && shape.order == KeyOrder::Hash && !shape.is_hot
}
