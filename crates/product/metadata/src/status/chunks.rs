//! Status of storage targets and their chunks (P8).

use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::observe::TargetReport;

/// Chunks of objects, and their targets.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChunksStatus {
    /// Version of the map of groups.
    pub version: u32,
    /// Round of garbage collection.
    pub round: u64,
    /// Whether names have adopted that round.
    pub is_adopted: bool,
    /// Whether chunks are being moved to other groups (P13).
    pub is_moving: bool,
    /// Number of chunks known to have too few copies (P11).
    pub under_replicated: u64,
    /// Number of chunks whose number of copies is not known yet, summed over targets.
    pub unsettled: u64,
    /// Targets by group and place.
    pub targets: Vec<TargetStatus>,
}

/// A storage target.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TargetStatus {
    /// The name of its node.
    pub name: String,
    /// The index of its group.
    pub group: usize,
    /// Whether its node is live.
    pub live: bool,
    /// The target's last report to this leader; `None` if there is none yet.
    pub report: Option<TargetReport>,
}

impl ChunksStatus {
    /// Live targets that have not yet deleted the unneeded chunks of this round.
    pub fn unswept(&self) -> impl Iterator<Item = &TargetStatus> {
        let is_behind = |target: &&TargetStatus| target.report.is_none_or(|report| report.swept < self.round);
        self.targets.iter().filter(|target| target.live).filter(is_behind)
    }

    /// Number of chunks on all targets together, including copies, and their bytes.
    pub fn held(&self) -> (u64, u64) {
        let reports = || self.targets.iter().filter_map(|target| target.report);
        (reports().map(|report| report.chunks).sum(), reports().map(|report| report.bytes).sum())
    }
}
