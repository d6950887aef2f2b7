//! Takeovers that are not finished; see [`crate::split::takeover`].

use alloc::collections::{BTreeMap, VecDeque};
use nicekv_proto::PartitionId;
use nicekv_proto::control::Assign;

#[derive(Clone, Default)]
pub(crate) struct Takeovers {
    /// Takeovers that wait until requests of their parents have completed; meanwhile the parents
    /// accept no new requests.
    pub(crate) waiting: BTreeMap<PartitionId, Assign>,
    /// Takeovers whose record is not synced yet, with the record's number. They are acknowledged
    /// when it is.
    pub(crate) logged: VecDeque<(u64, PartitionId)>,
}

impl Takeovers {
    /// Whether a takeover waits for its parents' requests.
    pub(crate) fn waits(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Whether this parent is about to end.
    pub(crate) fn ends(&self, id: PartitionId) -> bool {
        let ends = |assign: &Assign| assign.parents.iter().any(|parent| parent.partition == id);
        self.waiting.values().any(ends)
    }

    /// Whether the records of all takeovers are synced.
    pub(crate) fn are_durable(&self) -> bool {
        self.logged.is_empty()
    }

    /// Whether this partition's takeover, if there was one, is synced, so that its epoch may be
    /// acknowledged.
    pub(crate) fn is_durable(&self, id: PartitionId) -> bool {
        self.logged.iter().all(|(_, logged)| *logged != id)
    }
}
