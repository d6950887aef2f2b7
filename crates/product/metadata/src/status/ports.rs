//! Nodes whose configured port a switch does not have.

use alloc::string::String;

use serde::{Deserialize, Serialize};

/// A node at a port that a switch does not have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MissingPort {
    /// The node's id.
    pub node: u16,
    /// Its name.
    pub name: String,
    /// The port in the node's configuration.
    pub port: u16,
}
