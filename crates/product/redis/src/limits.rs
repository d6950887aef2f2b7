//! Named bounds of commands.

/// An argument or a value of more bytes is large: its buffer must be granted before it is filled.
pub const SHORT_BYTES_MAX: usize = 4 << 10;
/// Arguments of one command, its name included.
pub const ARGUMENTS_MAX: usize = 1 << 20;
/// Longest argument that is read (as in Redis).
pub const ARGUMENT_BYTES_MAX: usize = 512 << 20;
/// Bytes kept of an argument that is longer than values may be, or that its command has no room
/// for. The rest is counted and dropped; the command is refused and the connection goes on.
pub const ARGUMENT_BYTES_KEPT: usize = 16 << 10;
/// Bytes of one command that are kept beside a value, including eight for each argument.
pub const COMMAND_BYTES_BESIDE: usize = 64 << 20;
/// Arguments of a command before the client has authenticated, where it has to (as in Redis).
pub const UNAUTHENTICATED_ARGUMENTS_MAX: i64 = 10;
/// Longest argument before that: nothing large, which would take memory from other clients.
pub const UNAUTHENTICATED_ARGUMENT_BYTES_MAX: usize = SHORT_BYTES_MAX;
/// Longest line of a request: a length, or an inline command.
pub const LINE_BYTES_MAX: usize = 64 << 10;
