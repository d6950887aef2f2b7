//! Takeovers that are not finished: see [`crate::split::takeover`].

use alloc::collections::{BTreeMap, VecDeque};
use nicekv_proto::PartitionId;
use nicekv_proto::control::Assign;

#[derive(Clone, Default)]
pub(crate) struct Takeovers {
    /// Something is pending at a parent, which takes no requests meanwhile.
    pub(crate) waiting: BTreeMap<PartitionId, Assign>,
    /// The record of the takeover is not synced; until then it is not acknowledged.
    pub(crate) logged: VecDeque<(u64, PartitionId)>,
}

impl Takeovers {
    /// Whether some parent is about to end.
    pub(crate) fn waits(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Whether this parent is about to end.
    pub(crate) fn ends(&self, id: PartitionId) -> bool {
        let ends = |assign: &Assign| assign.parents.iter().any(|parent| parent.partition == id);
        self.waiting.values().any(ends)
    }

    /// Whether all takeovers here would survive a crash.
    pub(crate) fn are_durable(&self) -> bool {
        self.logged.is_empty()
    }

    /// Whether this partition may be acknowledged.
    pub(crate) fn is_durable(&self, id: PartitionId) -> bool {
        self.logged.iter().all(|(_, logged)| *logged != id)
    }
}
