//! Violations, and copies that are missing on purpose.

use nicekv_proto::chunk::ChunkId;
use std::collections::BTreeMap;

/// See the module.
#[derive(Clone, Debug, Default)]
pub(super) struct Judge {
    pub(super) violations: Vec<String>,
    pub(super) collected: u64,
    /// Copies that were damaged or lost on purpose, and not made again since.
    excused: BTreeMap<ChunkId, usize>,
}

impl Judge {
    pub(super) fn accuse(&mut self, violation: String) {
        self.violations.push(violation);
    }

    pub(super) fn excuse(&mut self, id: ChunkId) {
        *self.excused.entry(id).or_default() += 1;
    }

    /// All that was damaged or lost is there again.
    pub(super) fn excuse_no_more(&mut self) {
        self.excused.clear();
    }

    pub(super) fn excused(&self, id: &ChunkId) -> usize {
        self.excused.get(id).copied().unwrap_or_default()
    }
}
