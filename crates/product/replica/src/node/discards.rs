//! State of [`crate::node::discard`].

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use nicekv_proto::control::Assign;
use nicekv_proto::{Epoch, PartitionId};

/// How many discarded partitions a process remembers. Beyond it the oldest are forgotten, for which
/// no late assignment can be under way any more.
const DISCARDED_MAX: usize = 65_536;

#[derive(Clone, Default)]
pub(crate) struct Discards {
    /// Partitions to discard, each with the last key that was removed.
    pub(crate) wanted: BTreeMap<PartitionId, Option<Vec<u8>>>,
    /// Partitions whose entries are removed, each with its log record. They are acknowledged when
    /// the record is synced.
    pub(crate) logged: VecDeque<(u64, PartitionId)>,
    /// Partitions that this process has discarded.
    done: Fences,
    /// The page that is being read: its token and partition.
    pub(crate) pending: Option<(u64, PartitionId)>,
    /// The unassigned partition that was last reported, and when the next report is due.
    pub(crate) reported: (Option<PartitionId>, u64),
    /// Bytes and pages that may still be read before the next heartbeat.
    pub(crate) bytes_left: usize,
    pub(crate) pages_left: usize,
}

/// Partitions and the epochs in which they were recorded, oldest first.
#[derive(Clone, Default)]
struct Fences {
    epochs: BTreeMap<PartitionId, (Epoch, u64)>,
    in_order: BTreeMap<u64, PartitionId>,
    noted: u64,
}

impl Fences {
    fn note(&mut self, id: PartitionId, epoch: Epoch) {
        self.forget(id);
        if self.epochs.len() >= DISCARDED_MAX
            && let Some((_, oldest)) = self.in_order.pop_first()
        {
            self.epochs.remove(&oldest);
        }
        self.noted += 1;
        self.epochs.insert(id, (epoch, self.noted));
        self.in_order.insert(self.noted, id);
    }

    fn forget(&mut self, id: PartitionId) {
        if let Some((_, noted)) = self.epochs.remove(&id) {
            self.in_order.remove(&noted);
        }
    }
}

impl Discards {
    /// The epoch in which this process discarded the partition, or in which the partition ended.
    pub(crate) fn done(&self, id: PartitionId) -> Option<Epoch> {
        self.done.epochs.get(&id).map(|(epoch, _)| *epoch)
    }

    /// Records that this node holds nothing of the partition from any epoch up to this one.
    pub(crate) fn note_done(&mut self, id: PartitionId, epoch: Epoch) {
        self.done.note(id, epoch);
    }

    /// This node is a member of the partition again.
    pub(crate) fn forget_done(&mut self, id: PartitionId) {
        self.done.forget(id);
    }

    /// Whether the page read under this token is for a discard.
    pub(crate) fn is_reading(&self, token: u64) -> bool {
        self.pending.is_some_and(|(pending, _)| pending == token)
    }

    /// The epoch in which this process discarded the partition, unless the assignment is of a later
    /// epoch.
    pub(crate) fn fence(&self, assign: &Assign) -> Option<Epoch> {
        self.done(assign.partition).filter(|epoch| assign.epoch <= *epoch)
    }

    pub(crate) fn is_durable(&self, id: PartitionId) -> bool {
        self.logged.iter().all(|(_, logged)| *logged != id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn oldest_discard_is_forgotten_first() {
        let mut discards = Discards::default();
        for id in 0..DISCARDED_MAX as u32 {
            discards.note_done(PartitionId(id), Epoch(1));
        }
        discards.note_done(PartitionId(0), Epoch(2));
        discards.forget_done(PartitionId(2));
        let done =
            |discards: &Discards| [0, 1, 2, 3].map(|id| discards.done(PartitionId(id)).map(|epoch| epoch.0));
        assert_eq!(done(&discards), [Some(2), Some(1), None, Some(1)]);
        for id in 0..2 {
            discards.note_done(PartitionId(DISCARDED_MAX as u32 + id), Epoch(1));
        }
        assert_eq!(
            done(&discards),
            [Some(2), None, None, Some(1)],
            "one place was free, so the next oldest stays"
        );
    }
}
