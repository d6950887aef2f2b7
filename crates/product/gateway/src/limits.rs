//! Named bounds of a gateway.

/// Default limit of open connections; further ones are refused with an error.
pub const CONNECTIONS_MAX: usize = 16_384;
/// Maximum connections accepted in one turn.
pub const ACCEPTS_MAX: usize = 256;
/// Maximum connections that wait to be accepted; the system may allow fewer (`net.core.somaxconn`).
/// A client that is turned away retries after a second, and bursts arrive while the gateway is not
/// scheduled.
pub const BACKLOG: i32 = 4_096;
/// Default limit of memory for large arguments and for large values in replies, of all connections
/// together. When it is used up, further ones wait. One command or reply may use at most half.
pub const LARGE_BYTES_MAX: usize = 256 << 20;
/// The smallest configurable limit; it still has room for one short value.
pub const LARGE_BYTES_MIN: usize = 1 << 20;
/// Maximum threads of one gateway.
pub const THREADS_MAX: usize = 64;
/// Default limit of memory for commands and replies of all connections together, without large
/// values. If it is exceeded, the connection that holds the most is closed with an error.
pub const MEMORY_BYTES_MAX: usize = 256 << 20;
/// Maximum unanswered commands of one connection; it is not read while it has as many.
pub const PIPELINE_MAX: usize = 1_024;
/// Maximum keys of a command that runs concurrently with other commands of its connection. A
/// command with more keys runs alone.
pub const KEYS_SHARED_MAX: usize = 64;
/// Maximum unfinished TLS handshakes of all connections; a further one displaces the oldest.
pub const HANDSHAKES_MAX: usize = 512;
/// Unsent reply bytes at which a connection is no longer read. One reply may exceed it.
pub const OUTPUT_BYTES_MAX: usize = 1 << 20;
/// Unsent bytes of published messages at which a subscriber is closed.
pub const SUBSCRIBER_OUTPUT_BYTES_MAX: usize = 8 << 20;
/// Maximum bytes read from one connection in a turn.
pub const READ_BYTES: usize = 64 << 10;
/// The same, while more than half of the memory limit is in use.
pub const READ_BYTES_SCARCE: usize = 4 << 10;
/// Small replies up to this many bytes may wait for the replies to gets that were issued with them.
pub const DELAYED_BYTES_MAX: usize = 16 << 10;
