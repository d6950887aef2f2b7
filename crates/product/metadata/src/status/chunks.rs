//! What operators may know of the targets of chunks (P8).

use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::observations::TargetReport;

/// Chunks of objects, and who holds them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChunksStatus {
    /// Of the map of groups.
    pub version: u32,
    /// Of garbage collection.
    pub round: u64,
    /// Whether names have adopted that round.
    pub is_adopted: bool,
    /// Whether chunks move to other groups (P13).
    pub is_moving: bool,
    /// Chunks of which there are too few copies, as far as is known (P11).
    pub under_replicated: u64,
    /// Chunks of which targets do not know yet whether there are enough, counted by each.
    pub unsettled: u64,
    /// By group, and by place.
    pub targets: Vec<TargetStatus>,
}

/// A target of chunks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TargetStatus {
    /// Its node.
    pub name: String,
    /// Its group.
    pub group: usize,
    /// Whether its node is there.
    pub live: bool,
    /// What it has told this leader; none: nothing yet.
    pub report: Option<TargetReport>,
}

impl ChunksStatus {
    /// Targets that are there and have not deleted yet what no name needs in this round.
    pub fn unswept(&self) -> impl Iterator<Item = &TargetStatus> {
        let is_behind = |target: &&TargetStatus| target.report.is_none_or(|report| report.swept < self.round);
        self.targets.iter().filter(|target| target.live).filter(is_behind)
    }

    /// Chunks that all targets hold together, copies counted, and their bytes.
    pub fn held(&self) -> (u64, u64) {
        let reports = || self.targets.iter().filter_map(|target| target.report);
        (reports().map(|report| report.chunks).sum(), reports().map(|report| report.bytes).sum())
    }
}
