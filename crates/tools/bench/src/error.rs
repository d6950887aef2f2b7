//! Why a bench ended without figures.

use nicekv_switch::BackendError;
use nicekv_switch_xdp::XdpError;
use std::fmt::Display;
use std::io;
use thiserror::Error;

/// Result of the crate.
pub(crate) type Result<T> = std::result::Result<T, BenchError>;

/// Why a bench failed: one line for the operator.
#[derive(Debug, Error)]
pub enum BenchError {
    /// Something that the bench needs is missing from the machine.
    #[error("{0}")]
    Environment(String),
    /// A store gave a wrong answer, or none: there are no figures.
    #[error("{0}")]
    Failed(String),
    /// Ctrl-C, or SIGTERM.
    #[error("interrupted")]
    Interrupted,
    /// A system call failed.
    #[error("cannot {operation}: {source}")]
    System {
        /// The failed operation.
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

    pub(crate) fn failed(why: impl Display) -> Self {
        Self::Failed(why.to_string())
    }

    pub(crate) fn system<E: Into<io::Error>>(operation: impl Into<String>) -> impl FnOnce(E) -> Self {
        let operation = operation.into();
        move |source| Self::System { operation, source: source.into() }
    }
}

/// The kernel refuses the switch's programs: it is too old, or this is not root.
impl From<XdpError> for BenchError {
    fn from(error: XdpError) -> Self {
        Self::Environment(error.to_string())
    }
}

impl From<BackendError> for BenchError {
    fn from(error: BackendError) -> Self {
        Self::failed(error)
    }
}
