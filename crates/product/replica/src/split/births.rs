//! Births that are not over: see [`crate::split::birth`].

use alloc::collections::{BTreeMap, VecDeque};
use nicekv_proto::PartitionId;
use nicekv_proto::control::Assign;

/// See the module.
#[derive(Clone, Default)]
pub(crate) struct Births {
    /// For what is pending at a parent, which takes no request meanwhile.
    pub(crate) waiting: BTreeMap<PartitionId, Assign>,
    /// For their records to be durable: until then they are not told.
    pub(crate) logged: VecDeque<(u64, PartitionId)>,
}

impl Births {
    /// Whether any partition may be about to end.
    pub(crate) fn waits(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Whether this one is.
    pub(crate) fn ends(&self, id: PartitionId) -> bool {
        let ends = |assign: &Assign| assign.parents.iter().any(|parent| parent.partition == id);
        self.waiting.values().any(ends)
    }

    /// Whether all that were born here are, also after a crash.
    pub(crate) fn are_durable(&self) -> bool {
        self.logged.is_empty()
    }

    /// Whether this partition may be told to be there.
    pub(crate) fn is_durable(&self, id: PartitionId) -> bool {
        self.logged.iter().all(|(_, logged)| *logged != id)
    }
}
