//! How a command fails: one line, and an exit code.

use nicekv_bench::BenchError;
use std::fmt::{self, Write as _};
use std::process::ExitCode;

/// Why a command failed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The check or operation failed: exit code 1.
    Operation(String),
    /// Nobody answered a request before its deadline: exit code 1.
    NoAnswer(String),
    /// Usage or environment: exit code 2.
    Environment(String),
}

impl Failure {
    /// Usage or environment, told by `error`.
    pub(crate) fn environment(error: impl fmt::Display) -> Self {
        Self::Environment(error.to_string())
    }

    /// The operation failed, told by `error`.
    pub(crate) fn operation(error: impl fmt::Display) -> Self {
        Self::Operation(error.to_string())
    }

    /// A bench, or a simulation of one, failed.
    pub(crate) fn of_bench(error: BenchError) -> Self {
        match error.exit_code() {
            2 => Self::environment(error),
            _ => Self::operation(error),
        }
    }

    pub(crate) fn exit_code(&self) -> ExitCode {
        match self {
            Self::Operation(_) | Self::NoAnswer(_) => ExitCode::from(1),
            Self::Environment(_) => ExitCode::from(2),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Operation(line) | Self::NoAnswer(line) | Self::Environment(line)) = self;
        // One line without control characters, whatever a library or a peer has put into it.
        line.chars().try_for_each(|one| match one {
            '\n' => formatter.write_char(' '),
            one if one.is_control() => write!(formatter, "{}", one.escape_default()),
            one => formatter.write_char(one),
        })
    }
}
