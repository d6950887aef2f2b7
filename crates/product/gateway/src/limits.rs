//! Named bounds of a gateway.

/// Connections at once, unless configured otherwise; further ones are told so and closed.
pub const CONNECTIONS_MAX: usize = 16_384;
/// Connections accepted before others have their turn.
pub const ACCEPTS_MAX: usize = 256;
/// Connections that may wait to be accepted; the system may allow fewer (`net.core.somaxconn`). One that finds no room tries again after a
/// second, and a burst of them comes while the gateway is not even scheduled.
pub const BACKLOG: i32 = 4_096;
/// Bytes of large arguments and of large values in replies that all connections together may hold, unless configured otherwise; who needs more
/// waits. One command or reply may have half of it.
pub const LARGE_BYTES_MAX: usize = 256 << 20;
/// The least that can be configured: room for one value that is not large.
pub const LARGE_BYTES_MIN: usize = 1 << 20;
/// An argument or a value of more bytes is a large one.
pub const SHORT_BYTES_MAX: usize = 4 << 10;
/// Threads of one gateway.
pub const THREADS_MAX: usize = 64;
/// Bytes of commands and replies, less what is large, that all connections together may hold, unless configured otherwise. With more, the connection
/// that holds the most is told so and closed.
pub const MEMORY_BYTES_MAX: usize = 256 << 20;
/// Unanswered commands of one connection; then it is not read any further.
pub const PIPELINE_MAX: usize = 1_024;
/// Arguments of one command, its name included.
pub const ARGUMENTS_MAX: usize = 1 << 20;
/// Keys of one command that run beside other commands of the connection. One with more keys has the connection for itself.
pub const KEYS_SHARED_MAX: usize = 64;
/// Requests of one command under way at once: more would overrun the socket buffers of switch and nodes in one burst.
pub const KEYS_IN_FLIGHT_MAX: usize = 512;
/// Longest argument that is taken in (as in Redis).
pub const ARGUMENT_BYTES_MAX: usize = 512 << 20;
/// Of one that is longer than values may be ([`nicekv_client::Config::value_bytes_max`]), and of one for which its command has no room, so much is kept and the rest is only counted: the command is refused, the connection goes on.
pub const ARGUMENT_BYTES_KEPT: usize = 16 << 10;
/// Bytes of one command that are kept beside a value, eight for each of its arguments included.
pub const COMMAND_BYTES_BESIDE: usize = 64 << 20;
/// Arguments of a command of who has not logged in, and has to (as in Redis).
pub const STRANGERS_ARGUMENTS_MAX: i64 = 10;
/// The longest of them: nothing large, for which others would have to wait.
pub const STRANGERS_ARGUMENT_BYTES_MAX: usize = SHORT_BYTES_MAX;
/// TLS handshakes of all connections that are not done; with more, the oldest is given up.
pub const HANDSHAKES_MAX: usize = 512;
/// Longest line: a length, or an inline command.
pub const LINE_BYTES_MAX: usize = 64 << 10;
/// Replies of one connection that wait to be sent; with more, it is not read any further. One reply may exceed it.
pub const OUTPUT_BYTES_MAX: usize = 1 << 20;
/// Messages of one connection that listens, in bytes, that wait to be sent; with more, it is closed.
pub const LISTENER_OUTPUT_BYTES_MAX: usize = 8 << 20;
/// Bytes read from one connection before the others have their turn.
pub const READ_BYTES: usize = 64 << 10;
/// The same while more than half of the memory is in use.
pub const READ_BYTES_SCARCE: usize = 4 << 10;
/// Replies of one connection, in bytes, that wait for those of gets that it has asked for together with them.
pub const TOGETHER_BYTES_MAX: usize = 16 << 10;
