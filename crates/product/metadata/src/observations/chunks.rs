//! What targets of chunks have said, and since when the round of garbage collection goes on.

use alloc::collections::BTreeMap;
use core::time::Duration;

use nicekv_proto::NodeId;
use serde::{Deserialize, Serialize};

use crate::config::nanoseconds;
use crate::state::State;

/// What a target says of itself, now and then.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TargetReport {
    /// Its node.
    pub node: u16,
    /// The map of groups that it goes by; older ones it refuses.
    pub version: u32,
    /// Whether all that it holds for groups that it is not in is held there, by that map (P13).
    pub has_moved: bool,
    /// Chunks of which there are too few copies, of those that it is to see to.
    pub under_replicated: u64,
    /// Chunks of which it does not know yet whether there are enough.
    pub unsettled: u64,
    /// The last round in which it has deleted what no name needs.
    pub swept: u64,
    /// Chunks that it holds.
    pub chunks: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// See the module.
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

    /// What a target has said last, to this leader.
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

    /// Whether the round has lasted so long.
    pub(crate) fn has_lasted(&self, now_ns: u64, interval: Duration) -> bool {
        now_ns >= self.began_ns + nanoseconds(interval)
    }
}
