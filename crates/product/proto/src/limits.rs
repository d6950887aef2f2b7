//! Named bounds of the packet formats.

/// Longest key, in bytes.
pub const KEY_BYTES_MAX: usize = 1024;
/// Longest key whose value kernels and switches hold, in bytes: gets of longer keys reach a node's
/// process.
pub const KERNEL_KEY_BYTES_MAX: usize = 256;
/// Longest value that fits one datagram, in bytes. Longer values, and shorter ones next to long
/// keys ([`small_value_bytes_max`]), are long or large ([`crate::Form`]).
pub const VALUE_BYTES_MAX: usize = 1024;
/// Longest key and value together that fit one datagram with everything else that a message
/// carries, in bytes.
pub const PAIR_BYTES_MAX: usize = 1280;
/// Longest channel and message together, in bytes ([`crate::publish`]).
pub const PUBLISHED_BYTES_MAX: usize = HASH_BYTES_MAX;
/// Default of the longest value, in bytes.
pub const LARGE_VALUE_BYTES_MAX: u32 = 64 << 20;
/// Upper bound of the longest value, in bytes.
pub const LARGE_BYTES_MAX: u32 = 512 << 20;
/// Longest hash, in bytes, including the overhead of its [`Field`](crate::hash::Field)s: it fits a
/// transaction.
pub const HASH_BYTES_MAX: usize = 56 << 10;
/// Longest value that is sent whole in several datagrams ([`crate::Form::Long`]), in bytes; longer
/// values are sent in chunks.
pub const LONG_VALUE_BYTES_MAX: usize = HASH_BYTES_MAX;
/// Chunk of a large value, in bytes.
pub const CHUNK_BYTES: usize = 1408;
/// Largest datagram (UDP payload), in bytes: an Ethernet MTU of 1500 less the IPv4 and UDP headers.
pub const DATAGRAM_BYTES_MAX: usize = 1472;
/// Longest message, in bytes; if longer than a datagram, it is sent in fragments
/// ([`crate::fragment`]).
pub const MESSAGE_BYTES_MAX: usize = 64_000;
/// Longest transaction, and longest list of its results, in bytes: each fits one message, a
/// transaction also when a node forwards it.
pub const TRANSACTION_BYTES_MAX: usize = 60 << 10;
/// Most members of a partition's replica set.
pub const MEMBERS_MAX: usize = 9;
/// Default UDP port of requests and node-to-node messages.
pub const PORT_DEFAULT: u16 = 7400;

/// Longest value that fits one datagram next to a key of `key_bytes` bytes. Longer values are long
/// or large ([`crate::Form`]).
pub const fn small_value_bytes_max(key_bytes: usize) -> usize {
    let room = PAIR_BYTES_MAX.saturating_sub(key_bytes);
    if room < VALUE_BYTES_MAX { room } else { VALUE_BYTES_MAX }
}

/// Next to a key that kernels and switches can hold, any small value fits a datagram.
const _: () = assert!(small_value_bytes_max(KERNEL_KEY_BYTES_MAX) == VALUE_BYTES_MAX);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_key_shortens_the_small_value_limit() {
        let rooms = [1, 255, 256, 257, 1_000, KEY_BYTES_MAX, 5_000].map(small_value_bytes_max);
        assert_eq!(rooms, [1_024, 1_024, 1_024, 1_023, 280, 256, 0]);
    }
}
