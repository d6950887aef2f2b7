//! Runs in which scans cross a tree of switches, which splits them: coarse records in the upper
//! levels, exact ones in the racks (TurboKV §4.3, §6).

use crate::cluster::Scenario;
use crate::keyspace::{Key, Shape};
use crate::trunks::Trunks;
use nicekv_client::Coordination;
use nicekv_testkit::Random;

/// Chooses the seeds with trees, and their parameters.
const TREES: u64 = 0x74_7265_6573;

/// In an eighth of the seeds clients scan ordered keys over a tree of switches. The faults, and
/// whether load moves partitions, stay as drawn.
pub(crate) fn draw(mut scenario: Scenario, seed: u64) -> Scenario {
    let mut random = Random::new(!(seed ^ TREES));
    if random.below(8) == 0 {
        grow(&mut scenario, &mut random);
    }
    scenario
}

/// Scans over a tree of switches, in a fixed shape.
pub(crate) fn trees(scenario: &mut Scenario) {
    scenario.trunks = Trunks::Racks { cores: 2, pods: 2, racks: 2 };
    (scenario.nodes, scenario.keyspaces) = (6, vec![Shape::chain(3, 3).by_range()]);
    scan(scenario, 3, (5, 700, 8));
}

fn grow(scenario: &mut Scenario, random: &mut Random) {
    let (cores, pods, racks) = (random.pick(&[1, 2]), random.pick(&[1, 2, 2, 3]), random.pick(&[1, 2, 3]));
    scenario.trunks = Trunks::Racks { cores, pods, racks };
    scenario.nodes = random.pick(&[4, 5, 6, 8]);
    let (replicas, bits) =
        (random.pick(&[1, 2, 3, 3]).max(least_replicas(scenario)), random.pick(&[2, 3, 4]));
    let shape = match random.below(2) {
        0 => Shape::chain(replicas, bits),
        _ => Shape::multicast(replicas, bits),
    };
    let migrates = scenario.keyspaces.iter().any(|shape| shape.migrates);
    let shape = if migrates { shape.that_migrates() } else { shape };
    scenario.keyspaces = vec![shape.by_range()];
    let pieces = (random.pick(&[300, 700, 1_472]), random.pick(&[3, 8, 16, 64]));
    scan(scenario, bits, (random.pick(&[3, 5, 10]), pieces.0, pieces.1));
}

/// Clients scan keys at the borders of `2^bits` partitions. Clients do not know the partitions, so
/// switches split the scans.
fn scan(scenario: &mut Scenario, bits: u8, scans: (usize, usize, u8)) {
    (scenario.edges, scenario.hides_sources) = (false, false);
    scenario.workload.keys = Key::at_borders(0, bits, scenario.workload.keys.len().clamp(8, 40));
    scenario.workload.scans = scans;
    scenario.coordination = Coordination::Switch;
}

/// Minimum replicas: data that one node loses or damages must exist elsewhere.
fn least_replicas(scenario: &Scenario) -> usize {
    let faults = &scenario.faults;
    let loses =
        faults.memory > 0 || faults.corruption > 0 || faults.replacement > 0 || faults.change_interval_ns > 0;
    if loses { 2 } else { 1 }
}
