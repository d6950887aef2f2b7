//! Records violations, and which copies are missing because of injected faults.

use nicekv_proto::chunk::ChunkId;
use std::collections::BTreeMap;

#[derive(Clone, Debug, Default)]
pub(super) struct Judge {
    pub(super) violations: Vec<String>,
    pub(super) collected: u64,
    /// Number of copies of a chunk that injected faults have damaged or lost, and that are not
    /// restored yet.
    excused: BTreeMap<ChunkId, usize>,
}

impl Judge {
    pub(super) fn accuse(&mut self, violation: String) {
        self.violations.push(violation);
    }

    pub(super) fn excuse(&mut self, id: ChunkId) {
        *self.excused.entry(id).or_default() += 1;
    }

    /// From now on no copy may be missing: everything that was damaged or lost is restored.
    pub(super) fn excuse_no_more(&mut self) {
        self.excused.clear();
    }

    pub(super) fn excused(&self, id: &ChunkId) -> usize {
        self.excused.get(id).copied().unwrap_or_default()
    }
}
