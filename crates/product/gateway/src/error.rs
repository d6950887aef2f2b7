//! Errors of commands, in the words of Redis where it has them.

use crate::outage;
use nicekv_client::{OperationError, SubmitError};
use nicekv_proto::KeyspaceId;
use std::borrow::Cow;

/// Why a command is answered by an error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CommandError(Cow<'static, [u8]>);

impl CommandError {
    pub(crate) const SYNTAX: Self = Self::fixed("ERR syntax error");
    pub(crate) const NOT_AN_INTEGER: Self = Self::fixed("ERR value is not an integer or out of range");
    pub(crate) const NOT_A_FLOAT: Self = Self::fixed("ERR value is not a valid float");
    pub(crate) const NOT_FINITE: Self = Self::fixed("ERR increment would produce NaN or Infinity");

    pub(crate) const WRONG_TYPE: Self =
        Self::fixed("WRONGTYPE Operation against a key holding the wrong kind of value");

    pub(crate) const NOT_STRINGS: Self = Self::fixed("ERR The specified keys must contain string values");
    pub(crate) const NO_AUTH: Self = Self::fixed("NOAUTH Authentication required.");
    pub(crate) const OF_OBJECTS: Self = Self::fixed(
        "ERR nothing was changed: the keys of this keyspace are names of objects, which `nicekv object` alone changes",
    );
    pub(crate) const NO_CHANNEL: Self = Self::fixed("NOPERM No permissions to access a channel");
    pub(crate) const NO_KEY: Self = Self::fixed("NOPERM No permissions to access a key");
    pub(crate) const WRONG_PASSWORD: Self =
        Self::fixed("WRONGPASS invalid username-password pair or user is disabled.");
    pub(crate) const NO_PASSWORD: Self = Self::fixed(
        "ERR AUTH <password> called without any password configured for the default user. \
         Are you sure your configuration is correct?",
    );

    /// To a stranger, in protected mode.
    pub(crate) const DENIED: Self = Self::fixed(
        "DENIED this gateway is in protected mode: nobody needs a password, so clients of this host alone are served, by the loopback interface. \
         To be served from elsewhere, restart it with --password-file FILE or --acl-file FILE (password_file, acl_file in its configuration), \
         or set a password from this host by ACL SETUSER default >PASSWORD until it restarts; \
         or, if nobody else can reach it, with --no-protected-mode (protected_mode = false).",
    );

    pub(crate) const fn fixed(text: &'static str) -> Self {
        Self(Cow::Borrowed(text.as_bytes()))
    }

    pub(crate) fn text(text: String) -> Self {
        Self(Cow::Owned(text.into_bytes()))
    }

    pub(crate) fn bytes(text: Vec<u8>) -> Self {
        Self(Cow::Owned(text))
    }

    /// SELECT and COPY go to keyspaces by their numbers, which are these.
    pub(crate) fn no_such_database(keyspaces: &[KeyspaceId]) -> Self {
        let mut numbers: Vec<u16> = keyspaces.iter().map(|keyspace| keyspace.0).collect();
        numbers.sort_unstable();
        let numbers = numbers.iter().map(u16::to_string).collect::<Vec<_>>().join(", ");
        Self::text(format!(
            "ERR DB index is out of range: a database is a keyspace, and there are these: {numbers}; `nicekv keyspace create` makes others"
        ))
    }

    pub(crate) fn arity(command: &str) -> Self {
        Self::text(format!("ERR wrong number of arguments for '{command}' command"))
    }

    pub(crate) fn expire_time(command: &str) -> Self {
        Self::text(format!("ERR invalid expire time in '{command}' command"))
    }

    /// Why nothing of a transaction was executed, or may have been.
    pub(crate) fn of_transaction(error: OperationError) -> Self {
        match error {
            // By this word clients of Redis Cluster know what it is about.
            OperationError::CrossPartition => Self::text(format!("CROSSSLOT {error}")),
            OperationError::ResultTooLong { limit } => Self::text(format!(
                "EXECABORT Transaction discarded: its results would exceed the limit of {limit} bytes, or it reads a large value and writes to its key"
            )),
            other => other.into(),
        }
    }

    /// The same of a script.
    pub(crate) fn of_script(error: OperationError) -> Self {
        match error {
            OperationError::ResultTooLong { limit } => Self::text(format!(
                "ERR script discarded: its reply and its effects would exceed the limit of {limit} bytes"
            )),
            other => Self::of_transaction(other),
        }
    }

    pub(crate) fn hash_too_long(limit: usize) -> Self {
        Self::text(format!(
            "ERR hash would exceed the limit of {limit} bytes, 4 more for each field counted in"
        ))
    }

    /// Whether there is no such subcommand, or none with so many arguments.
    pub(crate) fn is_of_subcommand(&self) -> bool {
        self.0.starts_with(b"ERR unknown subcommand '")
            || (self.0.starts_with(b"ERR wrong number of arguments for '") && self.0.contains(&b'|'))
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
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
        match error {
            OperationError::OutcomeUnknown => {
                let cause = outage::cause();
                Self::text(format!(
                    "ERR {error}; read the key before you decide to send the command again{cause}"
                ))
            }
            OperationError::TimedOut => Self::text(format!("ERR {error}{}", outage::cause())),
            OperationError::WrongType => Self::WRONG_TYPE,
            other => Self::text(format!("ERR {other}")),
        }
    }
}
