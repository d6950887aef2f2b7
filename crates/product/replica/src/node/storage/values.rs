//! Requests about large values on the disk, and the uses of values by entries and ops.

use super::{Queued, StorageQueue};
use crate::node::storage::{Page, stored_entries};
use nicekv_proto::large::Reference;
use nicekv_proto::recovery::Entry;
use nicekv_proto::{OpId, PartitionId};

/// Most bytes of a large value that one request writes.
const WRITE_BYTES_MAX: usize = 64 << 10;

impl StorageQueue {
    /// The entry of a key was written: it names this value, or none. Before the first large value,
    /// a mark on the disk says that there will be some.
    pub(super) fn note_value(&mut self, partition: PartitionId, key: &[u8], reference: Option<Reference>) {
        if reference.is_some() {
            self.mark_values();
        }
        self.values.note(partition, key, reference);
    }

    /// The scrub has read a page. Takes in its entries that name large values, because some may
    /// have been unreadable when the pass after a restart came by.
    pub(crate) fn find_values(&mut self, partition: PartitionId, page: Page<'_>) {
        for (key, entry) in stored_entries(page.entries) {
            if let Some(reference) = Entry::reference_of(entry)
                && !self.is_written_since_scan(key)
            {
                self.values.find(partition, key, reference);
            }
        }
    }

    fn mark_values(&mut self) {
        if self.values.mark() {
            self.queue.push_back(Queued::MarkValues);
        }
    }

    /// Writes a part of a large value.
    pub(crate) fn write_value(&mut self, reference: &Reference, offset: u32, bytes: &[u8]) {
        self.mark_values();
        let Reference { name, length, .. } = *reference;
        if self.continue_write(name, offset, bytes) {
            return;
        }
        let bytes = self.stage_bytes(bytes);
        self.queue.push_back(Queued::WriteValue { name, length, offset, bytes });
    }

    /// Extends the last request if this part follows directly. Chunks arrive in GRO batches, and a
    /// write has a high fixed cost compared with the bytes of one chunk.
    fn continue_write(&mut self, of: OpId, from: u32, more: &[u8]) -> bool {
        let Some(Queued::WriteValue { name, offset, bytes, .. }) = self.queue.back_mut() else {
            return false;
        };
        let is_next = *name == of && *offset as usize + bytes.len() == from as usize;
        if !is_next || bytes.end != self.bytes.len() || bytes.len() + more.len() > WRITE_BYTES_MAX {
            return false;
        }
        self.bytes.extend_from_slice(more);
        bytes.end = self.bytes.len();
        true
    }

    /// All parts of a large value were written: the disk checks it.
    pub(crate) fn end_value(&mut self, reference: Reference) {
        self.queue.push_back(Queued::EndValue { reference });
    }

    /// Requests a part of a large value; returns the token of the completion.
    pub(crate) fn read_value(&mut self, name: OpId, offset: u32, bytes: usize) -> u64 {
        let token = self.token();
        self.queue.push_back(Queued::ReadValue { token, name, offset, bytes });
        token
    }

    /// A large value is damaged: it counts as missing, but stays on the disk until it has been
    /// fetched.
    pub(crate) fn condemn_value(&mut self, name: OpId) {
        self.values.lose(name);
        self.queue.push_back(Queued::CondemnValue { name });
    }

    /// Removes a large value.
    pub(crate) fn remove_value(&mut self, name: OpId) {
        self.queue.push_back(Queued::RemoveValue { name });
    }

    /// Whether a large value is on disk and whole.
    pub(crate) fn holds_value(&self, name: OpId) -> bool {
        self.values.holds(name)
    }

    /// An op that stores a large value is open, and so uses it until [`Self::let_go_value`].
    pub(crate) fn keep_value(&mut self, reference: Reference, partition: PartitionId) {
        self.mark_values();
        self.values.take_up(reference, partition);
    }

    /// An op that stores a large value is no longer open.
    pub(crate) fn let_go_value(&mut self, name: OpId, partition: PartitionId) {
        self.values.let_go(name, partition);
    }

    /// The remembered result of an op names a large value, and so keeps it until
    /// [`Self::unpin_value`]. A client may be reading it although its key has another value by now.
    pub(crate) fn pin_value(&mut self, name: OpId) {
        self.values.pin(name);
    }

    /// A result that names the value is forgotten.
    pub(crate) fn unpin_value(&mut self, name: OpId) {
        self.values.unpin(name);
    }

    /// A request that will be handled again needs a large value, which a member of this partition
    /// has: the value counts as missing.
    pub(crate) fn want_value(&mut self, reference: Reference, partition: PartitionId) {
        self.values.want(reference, partition);
    }

    /// Whether large values that entries or ops of a partition name are missing, or may be.
    pub(crate) fn lacks_values(&self, partition: PartitionId) -> bool {
        self.values.lacks(partition)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::StorageRequest;
    use alloc::vec;
    use alloc::vec::Vec;
    use nicekv_proto::ClientId;

    fn value(sequence: u64) -> Reference {
        let name = OpId { client: ClientId(1), sequence };
        Reference { name, length: 1 << 20, checksum: 0 }
    }

    /// The write requests: name, offset and bytes of each.
    fn written(queue: &mut StorageQueue) -> Vec<(u64, u32, Vec<u8>)> {
        let mut all = Vec::new();
        while let Some(request) = queue.poll() {
            if let StorageRequest::WriteValue { name, offset, bytes, .. } = request {
                all.push((name.sequence, offset, bytes.to_vec()));
            }
        }
        all
    }

    #[test]
    fn adjacent_chunks_are_written_at_once() {
        let mut queue = StorageQueue::default();
        queue.write_value(&value(1), 10, &[1, 2]);
        queue.write_value(&value(1), 12, &[3]);
        queue.write_value(&value(1), 14, &[5]);
        queue.write_value(&value(2), 15, &[6]);
        queue.read_value(value(1).name, 0, 1);
        queue.write_value(&value(2), 16, &[7]);
        let apart = [(1, 10, vec![1, 2, 3]), (1, 14, vec![5]), (2, 15, vec![6]), (2, 16, vec![7])];
        assert_eq!(written(&mut queue), apart);
    }

    #[test]
    fn merged_write_keeps_to_its_bound() {
        let mut queue = StorageQueue::default();
        let chunk = vec![7; 1_000];
        (0..100).for_each(|number| queue.write_value(&value(1), number * 1_000, &chunk));
        let lengths: Vec<usize> = written(&mut queue).iter().map(|(.., bytes)| bytes.len()).collect();
        assert_eq!(lengths, [65_000, 35_000]);
    }
}
