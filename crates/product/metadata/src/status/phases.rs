//! What is told of partitions that are split or merged.

use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

/// Partitions that are split or merged (R17).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReshapingStatus {
    /// Number of their keyspace.
    pub keyspace: u16,
    /// Those that are to be others, in the order of their vnodes.
    pub parents: Vec<u32>,
    /// Those that are to be, or have come to be, once they are numbered.
    pub children: Vec<u32>,
    /// How far it is.
    pub phase: ReshapingPhase,
    /// What it waits for, for people.
    pub waits_for: String,
}

/// How far a [`ReshapingStatus`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ReshapingPhase {
    /// It has not begun, or was broken off.
    Waiting,
    /// The parents go on; their members make the children of what they hold.
    Forming,
    /// The parents take no op any more, what is open is decided.
    Sealed,
    /// The children are there, and not all of their members yet.
    Succeeding,
}
