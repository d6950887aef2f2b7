//! Runs with long keys: a message has room for one of them but not for two, and a value that fits
//! beside a short key is a large value beside a long one.

use crate::cluster::Scenario;
use crate::keyspace::{Key, Shape};
use nicekv_proto::OpId;
use nicekv_proto::limits::{DATAGRAM_BYTES_MAX, KERNEL_KEY_BYTES_MAX, KEY_BYTES_MAX, small_value_bytes_max};
use nicekv_testkit::Random;

/// Chooses the seeds in which some keys are long.
const LONG_KEYS: u64 = 0x6c_6f6e_676b_6579;
/// Lengths of long keys, in turn.
const BYTES: [usize; 4] = [KEY_BYTES_MAX, KERNEL_KEY_BYTES_MAX + 1, 700, KEY_BYTES_MAX];

/// In a quarter of the seeds every second key is long. The rest of the scenario stays as drawn.
pub(crate) fn draw(mut scenario: Scenario, seed: u64) -> Scenario {
    if Random::new(!(seed ^ LONG_KEYS)).below(4) == 0 {
        lengthen(&mut scenario, 2);
    }
    scenario
}

/// Makes every `of`-th key long.
fn lengthen(scenario: &mut Scenario, of: usize) {
    let long = scenario.workload.keys.iter_mut().step_by(of);
    for (key, bytes) in long.zip(BYTES.iter().cycle()) {
        key.name.resize(*bytes, b'-');
    }
}

/// Gives the scenario a single keyspace of this shape, with this number of long keys.
pub fn of(scenario: &mut Scenario, shape: Shape, keys: usize) {
    scenario.keyspaces = vec![shape];
    scenario.workload.keys = Key::of(0, shape.order, keys);
    lengthen(scenario, 1);
}

/// Space that is left for appends to a value in a keyspace without large values.
const ROOM_BYTES: usize = 56;

fn is_long(key: &Key) -> bool {
    key.name.len() > KERNEL_KEY_BYTES_MAX
}

/// The size of a scan's pieces: if some keys are long, an answer must have room for one.
pub(crate) fn piece_bytes(drawn: usize, keys: &[Key]) -> usize {
    if keys.iter().any(is_long) { DATAGRAM_BYTES_MAX } else { drawn }
}

/// The value of an ordinary set, unique to the op. For a long key, half of the values are just too
/// long for a datagram, if the keyspace may have large values.
pub(crate) fn value(short: Vec<u8>, op: OpId, (key, has_large_values): (&Key, bool)) -> Vec<u8> {
    if !is_long(key) {
        return short;
    }
    let small_max = small_value_bytes_max(key.name.len());
    let bytes = match op.sequence % 4 {
        _ if !has_large_values => small_max - ROOM_BYTES,
        0 => small_max,
        1 | 2 => small_max + 1 + op.sequence as usize * 37 % 700,
        _ => small_max - 1,
    };
    short.iter().chain(b"/").copied().cycle().take(bytes).collect()
}
