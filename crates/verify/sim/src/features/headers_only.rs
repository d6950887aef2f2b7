//! Runs in which switches match only headers, as those of OpenFlow do: clients address vnodes, and a
//! switch may go on by its old tables for a while after it has acknowledged new ones.

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
    let is_drawn = Random::new(!(seed ^ HEADERS)).below(3) == 0;
    let is_tree = !matches!(scenario.trunks, Trunks::Racks { .. });
    if is_drawn && is_tree && scenario.keyspaces.iter().all(is_possible) {
        scenario.matching = Matching::Headers;
    }
    scenario
}

fn is_possible(shape: &Shape) -> bool {
    !shape.is_chain && shape.order == KeyOrder::Hash && !shape.is_hot
}
