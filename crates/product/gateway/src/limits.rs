//! Named bounds of a gateway.

/// Default limit of connections; further ones are closed with an error.
pub const CONNECTIONS_MAX: usize = 16_384;
/// Connections accepted in one turn.
pub const ACCEPTS_MAX: usize = 256;
/// Connections that may wait to be accepted; the system may allow fewer (`net.core.somaxconn`). A client
/// that finds no room retries after a second, and bursts arrive while the gateway is not scheduled.
pub const BACKLOG: i32 = 4_096;
/// Default limit of large arguments and large values in replies of all connections together; further
/// ones wait. One command or reply may have half of it.
pub const LARGE_BYTES_MAX: usize = 256 << 20;
/// The least that can be configured: room for one short value.
pub const LARGE_BYTES_MIN: usize = 1 << 20;
/// Threads of one gateway.
pub const THREADS_MAX: usize = 64;
/// Default limit of commands and replies of all connections together, without large values. Beyond it,
/// the connection that holds the most is closed with an error.
pub const MEMORY_BYTES_MAX: usize = 256 << 20;
/// Unanswered commands of one connection; then it is not read.
pub const PIPELINE_MAX: usize = 1_024;
/// Keys of one command that runs beside other commands of the connection. A command with more keys runs
/// alone.
pub const KEYS_SHARED_MAX: usize = 64;
/// Unfinished TLS handshakes of all connections; with more, the oldest is given up.
pub const HANDSHAKES_MAX: usize = 512;
/// Bytes of replies of one connection that wait to be sent; with more, it is not read. One reply may
/// exceed it.
pub const OUTPUT_BYTES_MAX: usize = 1 << 20;
/// Bytes of messages that wait to be sent to one subscriber; with more, it is closed.
pub const SUBSCRIBER_OUTPUT_BYTES_MAX: usize = 8 << 20;
/// Bytes read from one connection in a turn.
pub const READ_BYTES: usize = 64 << 10;
/// The same while more than half of the memory limit is in use.
pub const READ_BYTES_SCARCE: usize = 4 << 10;
/// Bytes of replies of one connection that wait for the replies of gets issued together with them.
pub const DELAYED_BYTES_MAX: usize = 16 << 10;
