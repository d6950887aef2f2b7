//! Runs in which some values are hashes: clients set, remove and increment their fields while nodes
//! fail.

use crate::checker::model::Change;
use crate::cluster::Scenario;
use crate::keyspace::{Key, Shape};
use nicekv_proto::OpId;
use nicekv_proto::hash::{Field, Name};
use nicekv_testkit::Random;

/// Chooses the seeds with hashes, and how many.
const HASHES: u64 = 0x6861_7368_6573;
/// Length of a long field value: messages with a few of them need several fragments.
const LONG_BYTES: usize = 700;
/// Number of distinct field names.
const NAMES: u64 = 4;

/// In a sixth of the seeds some updates change hash fields. The rest of the scenario stays as
/// drawn.
pub(crate) fn draw(mut scenario: Scenario, seed: u64) -> Scenario {
    let mut random = Random::new(!(seed ^ HASHES));
    let has_names = scenario.keyspaces.iter().any(|shape| shape.has_names);
    if random.below(6) == 0 && !has_names {
        scenario.workload.hashes = random.pick(&[300_000, 600_000, 900_000]);
    }
    scenario
}

/// Many hashes at three members, which crash and restart.
pub(crate) fn hashes(scenario: &mut Scenario) {
    scenario.keyspaces = vec![Shape::multicast(3, 0)];
    scenario.workload.keys = Key::several(0, 8);
    scenario.workload.hashes = 800_000;
    (scenario.workload.large, scenario.workload.appends) = (0, 0);
}

/// Draws a change of fields. `value` is unique to the op, and a number.
pub(crate) fn change(op: OpId, value: Vec<u8>, random: &mut Random) -> Change {
    match random.below(8) {
        0..4 => {
            let mut fields = Vec::new();
            for _ in 0..random.between(1, 3) {
                let long = [b"t", &value[..], &[b'x'; LONG_BYTES]].concat();
                let value = if (op.sequence + random.below(2)).is_multiple_of(3) { &long } else { &value };
                Field { name: &name(random), value }.append(&mut fields);
            }
            Change::SetFields { fields, only_new: random.below(4) == 0 }
        }
        4..6 => Change::IncrementField { name: name(random), delta: 1 },
        _ => {
            let mut names = Vec::new();
            for _ in 0..random.between(1, 3) {
                Name { name: &name(random) }.append(&mut names);
            }
            Change::RemoveFields(names)
        }
    }
}

fn name(random: &mut Random) -> Vec<u8> {
    format!("field {}", random.below(NAMES)).into_bytes()
}
