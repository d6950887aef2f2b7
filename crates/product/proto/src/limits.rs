//! Named bounds of the packet formats.

/// Longest key, in bytes.
pub const KEY_BYTES_MAX: usize = 1024;
/// Longest key of which kernels and switches keep the value, in bytes: gets of longer ones go on to a node's process.
pub const KERNEL_KEY_BYTES_MAX: usize = 256;
/// Longest value that goes in one datagram, in bytes; longer ones, and shorter ones beside long keys ([`small_value_bytes_max`]), are long or large ([`crate::Form`]).
pub const VALUE_BYTES_MAX: usize = 1024;
/// Longest key and value together that go in one datagram, in bytes: whatever a message says beside them has room.
pub const PAIR_BYTES_MAX: usize = 1280;
/// Longest channel and message together, in bytes ([`crate::publish`]).
pub const PUBLISHED_BYTES_MAX: usize = HASH_BYTES_MAX;
/// Longest value, in bytes, unless clients and nodes are told otherwise.
pub const LARGE_VALUE_BYTES_MAX: u32 = 64 << 20;
/// Longest value of all, in bytes.
pub const LARGE_BYTES_MAX: u32 = 512 << 20;
/// Longest hash, in bytes of its [`Field`](crate::hash::Field)s with what they take beside their names and values: a transaction has room for one.
pub const HASH_BYTES_MAX: usize = 56 << 10;
/// Longest value that is put as a whole though no datagram has room for it ([`crate::Form::Long`]), in bytes; longer ones go in chunks.
pub const LONG_VALUE_BYTES_MAX: usize = HASH_BYTES_MAX;
/// Bytes of a chunk of a longer one.
pub const CHUNK_BYTES: usize = 1408;
/// Largest datagram (UDP payload), in bytes: an Ethernet MTU of 1500 less the IPv4 and UDP headers.
pub const DATAGRAM_BYTES_MAX: usize = 1472;
/// Longest message, in bytes: longer than a datagram it goes in several ([`crate::fragment`]).
pub const MESSAGE_BYTES_MAX: usize = 64_000;
/// Longest transaction, and longest list of its results, in bytes: each goes in one message, a transaction also in one of a node that passes it on.
pub const TRANSACTION_BYTES_MAX: usize = 60 << 10;
/// Most members of a partition's replica set.
pub const MEMBERS_MAX: usize = 9;
/// The UDP port that requests to vnodes and node-to-node messages use unless told otherwise.
pub const PORT_DEFAULT: u16 = 7400;

/// Longest value that goes in one datagram with a key of so many bytes, in bytes. A longer one is long or large ([`crate::Form`]).
pub const fn small_value_bytes_max(key_bytes: usize) -> usize {
    let room = PAIR_BYTES_MAX.saturating_sub(key_bytes);
    if room < VALUE_BYTES_MAX { room } else { VALUE_BYTES_MAX }
}

/// What kernels and switches keep has any small value.
const _: () = assert!(small_value_bytes_max(KERNEL_KEY_BYTES_MAX) == VALUE_BYTES_MAX);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_key_leaves_less_room_for_its_value() {
        let rooms = [1, 255, 256, 257, 1_000, KEY_BYTES_MAX, 5_000].map(small_value_bytes_max);
        assert_eq!(rooms, [1_024, 1_024, 1_024, 1_023, 280, 256, 0]);
    }
}
