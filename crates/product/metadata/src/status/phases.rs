//! Status of splits and merges.

use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

/// A split or merge (R17).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReshapingStatus {
    /// The id of the keyspace.
    pub keyspace: u16,
    /// The parents, in the order of their vnodes.
    pub parents: Vec<u32>,
    /// The children, once they have ids.
    pub children: Vec<u32>,
    pub phase: ReshapingPhase,
    /// The condition that the split or merge waits for.
    pub waits_for: String,
}

/// The progress of a [`ReshapingStatus`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ReshapingPhase {
    /// The request waits: it has not begun, or was broken off.
    Waiting,
    /// The parents accept ops. Their members form the children from their data.
    Forming,
    /// The parents accept no new ops, and decide those that are open.
    Sealed,
    /// The children exist, but not all of their members have taken over.
    Succeeding,
}
