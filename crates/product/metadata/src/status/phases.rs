//! Status of splits and merges.

use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

/// A split or merge (R17).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReshapingStatus {
    /// Id of their keyspace.
    pub keyspace: u16,
    /// The parents, in the order of their vnodes.
    pub parents: Vec<u32>,
    /// The children, once they have ids.
    pub children: Vec<u32>,
    /// Its progress.
    pub phase: ReshapingPhase,
    /// What it waits for, in words.
    pub waits_for: String,
}

/// The progress of a [`ReshapingStatus`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ReshapingPhase {
    /// Not begun, or broken off.
    Waiting,
    /// The parents go on; their members form the children from their data.
    Forming,
    /// The parents accept no ops; open ones are decided.
    Sealed,
    /// The children exist; not all of their members have taken over.
    Succeeding,
}
