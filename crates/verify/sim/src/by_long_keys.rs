//! Runs in which keys are long: so long that a message has room for one and not for two, or that a value which is small beside others is a large one.

use crate::cluster::Scenario;
use crate::keyspace::{Key, Shape};
use crate::random::Random;
use nicekv_proto::limits::{KERNEL_KEY_BYTES_MAX, KEY_BYTES_MAX};

/// Chooses the seeds in which some keys are long.
const LONG_KEYS: u64 = 0x6c_6f6e_676b_6579;
/// How long, in turn.
const BYTES: [usize; 4] = [KEY_BYTES_MAX, KERNEL_KEY_BYTES_MAX + 1, 700, KEY_BYTES_MAX];

/// In a quarter of the seeds every second key is long; all else is as it was drawn.
pub(crate) fn draw(mut scenario: Scenario, seed: u64) -> Scenario {
    if Random::new(!(seed ^ LONG_KEYS)).below(4) == 0 {
        lengthen(&mut scenario, 2);
    }
    scenario
}

/// Makes one of so many keys long.
fn lengthen(scenario: &mut Scenario, of: usize) {
    let long = scenario.workload.keys.iter_mut().step_by(of);
    for (key, bytes) in long.zip(BYTES.iter().cycle()) {
        key.name.resize(*bytes, b'-');
    }
}

/// Of this shape alone, with so many keys, all of them long.
pub fn of(scenario: &mut Scenario, shape: Shape, keys: usize) {
    scenario.keyspaces = vec![shape];
    scenario.workload.keys = Key::of(0, shape.order, keys);
    lengthen(scenario, 1);
}
