//! What clients do otherwise with keys that are long. The runs that have some: [`crate::by_long_keys`].

use crate::keyspace::Key;
use nicekv_proto::OpId;
use nicekv_proto::limits::{DATAGRAM_BYTES_MAX, KERNEL_KEY_BYTES_MAX, small_value_bytes_max};

/// Of values in keyspaces without large ones: appends have room.
const ROOM_BYTES: usize = 56;

fn is_long(key: &Key) -> bool {
    key.name.len() > KERNEL_KEY_BYTES_MAX
}

/// How long the pieces of scans are: an answer must have room for a key.
pub(crate) fn piece_bytes(drawn: usize, keys: &[Key]) -> usize {
    if keys.iter().any(is_long) { DATAGRAM_BYTES_MAX } else { drawn }
}

/// The value of a set that is as usual: of a long key one that is too long for a datagram beside it as often as not, though it were not beside others, if there may
/// be large ones. It is another one than any other op's.
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
