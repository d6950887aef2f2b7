//! Why a configuration is refused.

use std::fmt::Display;

/// One line: the file, and if known the line and the field; what is wrong; what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ConfigError(String);

impl ConfigError {
    pub fn new(reason: impl Display) -> Self {
        Self(reason.to_string())
    }
}
