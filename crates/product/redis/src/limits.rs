//! Named bounds of commands.

/// Arguments and values of more bytes are large: memory for them must be granted before they are
/// read.
pub const SHORT_BYTES_MAX: usize = 4 << 10;
/// Maximum arguments of one command, including its name.
pub const ARGUMENTS_MAX: usize = 1 << 20;
/// Longest argument that is read, as in Redis.
pub const ARGUMENT_BYTES_MAX: usize = 512 << 20;
/// Bytes kept of an argument that is longer than a value may be, or for which its command has no
/// room. The rest is counted and dropped; the command is refused, and the connection stays open.
pub const ARGUMENT_BYTES_KEPT: usize = 16 << 10;
/// Maximum bytes kept of one command in addition to a value, including eight for each argument.
pub const COMMAND_BYTES_BESIDE: usize = 64 << 20;
/// Maximum arguments of a command before a required login, as in Redis.
pub const UNAUTHENTICATED_ARGUMENTS_MAX: i64 = 10;
/// Longest argument before a required login: never large, so that it takes no memory from other
/// clients.
pub const UNAUTHENTICATED_ARGUMENT_BYTES_MAX: usize = SHORT_BYTES_MAX;
/// Longest line of a request: a line with a length, or an inline command.
pub const LINE_BYTES_MAX: usize = 64 << 10;
