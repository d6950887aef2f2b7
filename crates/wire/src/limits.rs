//! Named bounds of the packet formats.

/// Longest key, in bytes.
pub const KEY_BYTES_MAX: usize = 256;
/// Longest value, in bytes (larger ones need the chunked transport).
pub const VALUE_BYTES_MAX: usize = 1024;
/// Largest datagram (UDP payload), in bytes: an Ethernet MTU of 1500 less the IPv4 and UDP headers.
pub const DATAGRAM_BYTES_MAX: usize = 1472;
/// Most members of a partition's replica set.
pub const MEMBERS_MAX: usize = 9;
/// The UDP port that requests to vnodes and node-to-node messages use unless told otherwise.
pub const PORT_DEFAULT: u16 = 7400;
