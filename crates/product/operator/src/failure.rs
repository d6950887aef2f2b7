//! Failures of commands: one line and an exit code.

use nicekv_config::ConfigError;
use std::fmt;
use std::process::ExitCode;

#[derive(Debug)]
pub enum Failure {
    /// The operation or check failed; exit code 1.
    Operation(String),
    /// A request timed out; exit code 1.
    NoAnswer(String),
    /// Wrong usage, or a problem of the environment; exit code 2.
    Environment(String),
}

impl Failure {
    pub fn environment(error: impl fmt::Display) -> Self {
        Self::Environment(error.to_string())
    }

    pub fn operation(error: impl fmt::Display) -> Self {
        Self::Operation(error.to_string())
    }

    pub fn exit_code(&self) -> ExitCode {
        match self {
            Self::Operation(_) | Self::NoAnswer(_) => ExitCode::from(1),
            Self::Environment(_) => ExitCode::from(2),
        }
    }
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Self {
        Self::environment(error)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Operation(line) | Self::NoAnswer(line) | Self::Environment(line)) = self;
        formatter.write_str(&nicekv_cli::one_line(line))
    }
}
