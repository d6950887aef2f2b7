//! Maps commands to their handlers.

use crate::command::Command;
use crate::context::Handler;
use crate::handlers::{
    acl, authentication, bits, clients, connection, expiry, hashes, information, keys, numbers, objects,
    publishing, rename, scripts, server, settings, slow_log, strings, transactions,
};
use crate::table::for_each_command;

macro_rules! handlers {
    (
        $($name:literal $arity:literal, $kind:ident, $keys:ident $access:ident, [$($flag:ident)*]
            $(secret $secret:ident)? => $handler:path,
            [$($category:ident)*], $group:ident $since:literal $summary:literal;)*
        subcommands: $($rest:tt)*
    ) => {
        /// Handlers in the order of the command table.
        static HANDLERS: &[Handler] = &[$($handler),*];
    };
}

for_each_command!(handlers);

/// The implementation of a command.
pub fn handler(command: &Command) -> Handler {
    HANDLERS[command.number]
}
