//! What a node is to discard, and what it has discarded: see [`crate::discard`].

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use nicekv_wire::control::Assign;
use nicekv_wire::{Epoch, PartitionId};

/// Most partitions that a process remembers to have discarded; beyond it the others stay until it is started again.
pub(crate) const DISCARDED_MAX: usize = 65_536;

/// See the module.
#[derive(Clone, Default)]
pub(crate) struct Discards {
    /// Told, and the last key that was removed.
    pub(crate) wanted: BTreeMap<PartitionId, Vec<u8>>,
    /// Removed; what is not durable yet is not told.
    pub(crate) logged: VecDeque<(u64, PartitionId)>,
    /// Discarded by this process, in which epoch.
    pub(crate) done: BTreeMap<PartitionId, Epoch>,
    /// The page that is being read.
    pub(crate) pending: Option<(u64, PartitionId)>,
    /// What may still be read before the next heartbeat.
    pub(crate) bytes_left: usize,
    pub(crate) pages_left: usize,
}

impl Discards {
    /// Whether this scan was asked for here.
    pub(crate) fn is_reading(&self, token: u64) -> bool {
        self.pending.is_some_and(|(pending, _)| pending == token)
    }

    /// The epoch in which this process has discarded the partition, unless the assignment is of a later one.
    pub(crate) fn fence(&self, assign: &Assign) -> Option<Epoch> {
        self.done.get(&assign.partition).copied().filter(|epoch| assign.epoch <= *epoch)
    }

    pub(crate) fn is_durable(&self, id: PartitionId) -> bool {
        self.logged.iter().all(|(_, logged)| *logged != id)
    }
}
