//! Which partition waits for what. All three queues run in the order in which the disk completes.

use alloc::collections::VecDeque;
use nicekv_proto::PartitionId;

/// See the module.
#[derive(Clone, Default)]
pub(crate) struct Waits {
    pub(crate) reads: VecDeque<(u64, PartitionId)>,
    pub(crate) scans: VecDeque<(u64, PartitionId)>,
    /// Numbers of records whose durability somebody waits for, ascending.
    pub(crate) records: VecDeque<(u64, PartitionId)>,
}

impl Waits {
    pub(crate) fn finish_read(&mut self, token: u64) -> PartitionId {
        finish(&mut self.reads, token)
    }

    pub(crate) fn finish_scan(&mut self, token: u64) -> PartitionId {
        finish(&mut self.scans, token)
    }

    /// Whether nothing is pending for this partition.
    pub(crate) fn is_idle(&self, id: PartitionId) -> bool {
        let mut all = self.reads.iter().chain(&self.scans).chain(&self.records);
        all.all(|(_, partition)| *partition != id)
    }

    /// The oldest awaited record, if the log is durable through it.
    pub(crate) fn pop_synced(&mut self, through: u64) -> Option<(u64, PartitionId)> {
        self.records.pop_front_if(|(record, _)| *record <= through)
    }
}

fn finish(queue: &mut VecDeque<(u64, PartitionId)>, token: u64) -> PartitionId {
    let (expected, partition) = queue.pop_front().expect("a request is pending");
    assert_eq!(token, expected, "requests complete in order");
    partition
}
