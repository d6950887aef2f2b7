//! Reports of storage targets about their chunks, and the duration of the current round of garbage collection.

use alloc::collections::BTreeMap;
use core::time::Duration;

use nicekv_proto::NodeId;
use serde::{Deserialize, Serialize};

use crate::config::nanoseconds;
use crate::state::State;

/// A periodic report of a target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TargetReport {
    /// Its node.
    pub node: u16,
    /// Version of its map of groups; it refuses older ones.
    pub version: u32,
    /// Whether everything that it holds for groups that it is not in is also held there, by that map (P13).
    pub has_moved: bool,
    /// Chunks with too few copies, among those that it is responsible for.
    pub under_replicated: u64,
    /// Chunks whose number of copies it does not know yet.
    pub unsettled: u64,
    /// The last round in which it has deleted unneeded chunks.
    pub swept: u64,
    /// Chunks that it holds.
    pub chunks: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// The reports of all targets.
#[derive(Clone)]
pub(crate) struct ChunkReports {
    began_ns: u64,
    reports: BTreeMap<NodeId, TargetReport>,
}

impl ChunkReports {
    pub(crate) fn new(now_ns: u64) -> Self {
        Self { began_ns: now_ns, reports: BTreeMap::new() }
    }

    pub(crate) fn note(&mut self, report: &TargetReport) {
        self.reports.insert(NodeId(report.node), *report);
    }

    /// The last report of a target to this leader.
    pub(crate) fn of(&self, node: NodeId) -> Option<&TargetReport> {
        self.reports.get(&node)
    }

    pub(crate) fn handle_change(&mut self, before: &State, after: &State, now_ns: u64) {
        let round = |state: &State| state.chunks.as_ref().map(|chunks| chunks.round);
        if round(before) != round(after) {
            self.began_ns = now_ns;
        }
        self.reports.retain(|node, _| after.chunks.as_ref().is_some_and(|chunks| chunks.has(*node)));
    }

    /// Whether the round has lasted for this long.
    pub(crate) fn has_lasted(&self, now_ns: u64, interval: Duration) -> bool {
        now_ns >= self.began_ns + nanoseconds(interval)
    }
}
