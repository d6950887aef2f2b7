//! Why a bench ended without figures.

use std::io;
use thiserror::Error;

/// Result of the crate.
pub(crate) type Result<T> = std::result::Result<T, BenchError>;

/// Why a bench failed: one line for the operator.
#[derive(Debug, Error)]
pub enum BenchError {
    /// Something that the bench needs is not there.
    #[error("{0}")]
    Environment(String),
    /// A store answered wrongly, or not at all: there are no figures.
    #[error("{0}")]
    Failed(String),
    /// Ctrl-C, or SIGTERM.
    #[error("interrupted")]
    Interrupted,
    /// The system refused something.
    #[error("cannot {operation}: {source}")]
    System {
        /// What was tried.
        operation: String,
        /// Its error.
        source: io::Error,
    },
}

impl BenchError {
    /// As for every command: 1 is a failed operation, 2 usage or environment.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Environment(_) => 2,
            Self::Failed(_) | Self::Interrupted | Self::System { .. } => 1,
        }
    }

    pub(crate) fn system<E: Into<io::Error>>(operation: impl Into<String>) -> impl FnOnce(E) -> Self {
        let operation = operation.into();
        move |source| Self::System { operation, source: source.into() }
    }
}
