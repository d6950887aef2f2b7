//! Records which partition waits for which disk request. All three queues are in the order in which
//! the disk completes requests.

use alloc::collections::VecDeque;
use nicekv_proto::PartitionId;

#[derive(Clone, Default)]
pub(crate) struct Waits {
    pub(crate) reads: VecDeque<(u64, PartitionId)>,
    pub(crate) scans: VecDeque<(u64, PartitionId)>,
    /// Numbers of records for whose sync a partition waits, ascending.
    pub(crate) records: VecDeque<(u64, PartitionId)>,
}

impl Waits {
    pub(crate) fn finish_read(&mut self, token: u64) -> PartitionId {
        finish(&mut self.reads, token)
    }

    pub(crate) fn finish_scan(&mut self, token: u64) -> PartitionId {
        finish(&mut self.scans, token)
    }

    /// Whether no disk request of this partition is pending.
    pub(crate) fn is_idle(&self, id: PartitionId) -> bool {
        let mut all = self.reads.iter().chain(&self.scans).chain(&self.records);
        all.all(|(_, partition)| *partition != id)
    }

    /// The oldest record that a partition waits for, if the log is synced up to it.
    pub(crate) fn pop_synced(&mut self, through: u64) -> Option<(u64, PartitionId)> {
        self.records.pop_front_if(|(record, _)| *record <= through)
    }
}

fn finish(queue: &mut VecDeque<(u64, PartitionId)>, token: u64) -> PartitionId {
    let (expected, partition) = queue.pop_front().expect("a request is pending");
    assert_eq!(token, expected, "requests complete in order");
    partition
}
