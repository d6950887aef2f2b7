//! Reports of storage targets about their chunks, and the duration of the current round of garbage
//! collection.

use alloc::collections::BTreeMap;
use core::time::Duration;

use nicekv_proto::NodeId;
use serde::{Deserialize, Serialize};

use crate::config::nanoseconds;
use crate::state::State;

/// A periodic report of a target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TargetReport {
    /// The target's node.
    pub node: u16,
    /// Version of the target's map of groups. The target refuses older maps.
    pub version: u32,
    /// Whether the target has moved everything: what it holds for groups that it is not in, by that
    /// map, is also held there (P13).
    pub has_moved: bool,
    /// Number of chunks with too few copies, among those for which the target is responsible.
    pub under_replicated: u64,
    /// Number of chunks whose number of copies the target does not know yet.
    pub unsettled: u64,
    /// The last round in which the target has deleted unneeded chunks.
    pub swept: u64,
    /// Number of chunks that the target holds.
    pub chunks: u64,
    /// Size of these chunks in bytes.
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

    /// The last report that a target has sent to this leader.
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

    /// Whether the current round has lasted for at least `interval`.
    pub(crate) fn has_lasted(&self, now_ns: u64, interval: Duration) -> bool {
        now_ns >= self.began_ns + nanoseconds(interval)
    }
}
