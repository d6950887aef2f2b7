//! Errors of commands; where Redis has the same error, with its text.

use alloc::borrow::Cow;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use nicekv_client::{OperationError, SubmitError};
use nicekv_proto::KeyspaceId;

/// The error reply of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandError(Cow<'static, [u8]>);

impl CommandError {
    pub const SYNTAX: Self = Self::fixed("ERR syntax error");
    pub const NOT_AN_INTEGER: Self = Self::fixed("ERR value is not an integer or out of range");
    pub const NOT_A_FLOAT: Self = Self::fixed("ERR value is not a valid float");
    pub const NOT_FINITE: Self = Self::fixed("ERR increment would produce NaN or Infinity");

    pub const WRONG_TYPE: Self =
        Self::fixed("WRONGTYPE Operation against a key holding the wrong kind of value");

    pub const NOT_STRINGS: Self = Self::fixed("ERR The specified keys must contain string values");
    pub const NO_AUTH: Self = Self::fixed("NOAUTH Authentication required.");
    pub const NAMES_OF_OBJECTS: Self = Self::fixed(
        "ERR nothing was changed: the keys of this keyspace are names of objects, which only `nicekv object` changes",
    );
    pub const NO_CHANNEL: Self = Self::fixed("NOPERM No permissions to access a channel");
    pub const NO_KEY: Self = Self::fixed("NOPERM No permissions to access a key");
    pub const WRONG_PASSWORD: Self =
        Self::fixed("WRONGPASS invalid username-password pair or user is disabled.");
    pub const NO_PASSWORD: Self = Self::fixed(
        "ERR AUTH <password> called without any password configured for the default user. \
         Are you sure your configuration is correct?",
    );

    /// Sent to clients on other hosts in protected mode.
    pub const DENIED: Self = Self::fixed(
        "DENIED this gateway is in protected mode: no password is needed, so only clients on this host are served, through the loopback interface. \
         To be served from elsewhere, restart it with --password-file FILE or --acl-file FILE (password_file, acl_file in its configuration), \
         or set a password from this host by ACL SETUSER default >PASSWORD until it restarts; \
         or, if nobody else can reach it, with --no-protected-mode (protected_mode = false).",
    );

    pub const fn fixed(text: &'static str) -> Self {
        Self(Cow::Borrowed(text.as_bytes()))
    }

    pub fn text(text: String) -> Self {
        Self(Cow::Owned(text.into_bytes()))
    }

    pub fn bytes(text: Vec<u8>) -> Self {
        Self(Cow::Owned(text))
    }

    /// The number given to SELECT or COPY is not one of these keyspaces.
    pub fn no_such_database(keyspaces: &[KeyspaceId]) -> Self {
        let mut numbers: Vec<u16> = keyspaces.iter().map(|keyspace| keyspace.0).collect();
        numbers.sort_unstable();
        let numbers = numbers.iter().map(u16::to_string).collect::<Vec<_>>().join(", ");
        Self::text(format!(
            "ERR DB index is out of range: a database is a keyspace, and there are these: {numbers}; `nicekv keyspace create` makes others"
        ))
    }

    pub fn arity(command: &str) -> Self {
        Self::text(format!("ERR wrong number of arguments for '{command}' command"))
    }

    pub fn expire_time(command: &str) -> Self {
        Self::text(format!("ERR invalid expire time in '{command}' command"))
    }

    /// The error for a failed request. `cause` is appended if no replica has answered; it is empty,
    /// or begins with a semicolon.
    pub fn of_operation(error: OperationError, cause: &str) -> Self {
        match error {
            OperationError::OutcomeUnknown => Self::text(format!(
                "ERR {error}; read the key before you decide to send the command again{cause}"
            )),
            OperationError::TimedOut => Self::text(format!("ERR {error}{cause}")),
            OperationError::WrongType => Self::WRONG_TYPE,
            other => Self::text(format!("ERR {other}")),
        }
    }

    /// The error for a transaction that failed as a whole.
    pub fn of_transaction(error: OperationError, cause: &str) -> Self {
        match error {
            // Clients of Redis Cluster know this error code.
            OperationError::CrossPartition => Self::text(format!("CROSSSLOT {error}")),
            OperationError::ResultTooLong { limit } => Self::text(format!(
                "EXECABORT Transaction discarded: its results would exceed the limit of {limit} bytes, or it reads a large value and writes to its key"
            )),
            other => Self::of_operation(other, cause),
        }
    }

    /// The error for a script that failed as a whole.
    pub fn of_script(error: OperationError, cause: &str) -> Self {
        match error {
            OperationError::ResultTooLong { limit } => Self::text(format!(
                "ERR script discarded: its reply and its effects would exceed the limit of {limit} bytes"
            )),
            other => Self::of_transaction(other, cause),
        }
    }

    pub fn hash_too_long(limit: usize) -> Self {
        Self::text(format!(
            "ERR hash would exceed the limit of {limit} bytes, counting 4 more for each field"
        ))
    }

    /// Whether the error is about a subcommand: it is unknown, or has a wrong number of arguments.
    pub fn is_about_subcommand(&self) -> bool {
        self.0.starts_with(b"ERR unknown subcommand '")
            || (self.0.starts_with(b"ERR wrong number of arguments for '") && self.0.contains(&b'|'))
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl From<SubmitError> for CommandError {
    fn from(error: SubmitError) -> Self {
        Self::text(format!("ERR {error}"))
    }
}

impl From<OperationError> for CommandError {
    fn from(error: OperationError) -> Self {
        Self::of_operation(error, "")
    }
}

/// The error for an unknown subcommand. `command`: the command's name in capitals.
pub fn unknown_subcommand(command: &str, subcommand: &[u8]) -> CommandError {
    let shown = String::from_utf8_lossy(&subcommand[..subcommand.len().min(128)]);
    CommandError::text(format!("ERR unknown subcommand '{shown}'. Try {command} HELP."))
}
