//! Named bounds of a gateway.

/// Connections at once, unless configured otherwise; further ones are told so and closed.
pub const CONNECTIONS_MAX: usize = 16_384;
/// Unanswered commands of one connection; then it is not read any further.
pub const PIPELINE_MAX: usize = 1_024;
/// Arguments of one command, its name included. More than half of the client's window would starve the others.
pub const ARGUMENTS_MAX: usize = 8_192;
/// Longest argument that is taken in (as in Redis); what exceeds [`ARGUMENT_BYTES_KEPT`] is only counted.
pub const ARGUMENT_BYTES_MAX: usize = 512 << 20;
/// Bytes of one argument that are kept. Longer ones are of no use here: keys and values are shorter.
pub const ARGUMENT_BYTES_KEPT: usize = 16 << 10;
/// Bytes of one command that are kept.
pub const COMMAND_BYTES_MAX: usize = 4 << 20;
/// Longest line: a length, or an inline command.
pub const LINE_BYTES_MAX: usize = 64 << 10;
/// Replies of one connection that wait to be sent; with more, it is not read any further. One reply may exceed it.
pub const OUTPUT_BYTES_MAX: usize = 1 << 20;
/// Bytes read from one connection before the others have their turn.
pub const READ_BYTES: usize = 64 << 10;
