//! Large values on the disk, and that entries and ops speak of them.

use super::{Queued, StorageQueue};
use crate::node::storage::{Page, stored_entries};
use nicekv_proto::large::Reference;
use nicekv_proto::recovery::Entry;
use nicekv_proto::{OpId, PartitionId};

/// Of a large value, what is written by one request at most.
const WRITE_BYTES_MAX: usize = 64 << 10;

impl StorageQueue {
    /// The entry of a key speaks of this from now on. Before the first one it is noted on the disk that there are such.
    pub(super) fn note_value(&mut self, partition: PartitionId, key: &[u8], reference: Option<Reference>) {
        if reference.is_some() {
            self.mark_values();
        }
        self.values.note(partition, key, reference);
    }

    /// The scrub has read a page. An entry of it that could not be read when the pass after a restart came by speaks of what nobody else knows of.
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

    /// Adds to the last request, if that writes what is just before: chunks come as trains, and a write costs more than what is in one.
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

    /// All of a large value was written.
    pub(crate) fn end_value(&mut self, reference: Reference) {
        self.queue.push_back(Queued::EndValue { reference });
    }

    /// Reads a part of a large value; returns the token of its completion.
    pub(crate) fn read_value(&mut self, name: OpId, offset: u32, bytes: usize) -> u64 {
        let token = self.token();
        self.queue.push_back(Queued::ReadValue { token, name, offset, bytes });
        token
    }

    /// A large value is damaged: it is not here any more, but stays on the disk until it has been fetched.
    pub(crate) fn condemn_value(&mut self, name: OpId) {
        self.values.lose(name);
        self.queue.push_back(Queued::CondemnValue { name });
    }

    /// Removes a large value.
    pub(crate) fn remove_value(&mut self, name: OpId) {
        self.queue.push_back(Queued::RemoveValue { name });
    }

    /// Whether a large value is here, whole.
    pub(crate) fn holds_value(&self, name: OpId) -> bool {
        self.values.holds(name)
    }

    /// An op is open that stores a large value, until [`Self::let_go_value`].
    pub(crate) fn keep_value(&mut self, reference: Reference, partition: PartitionId) {
        self.mark_values();
        self.values.take_up(reference, partition);
    }

    /// An op that stores a large value is open no more.
    pub(crate) fn let_go_value(&mut self, name: OpId, partition: PartitionId) {
        self.values.let_go(name, partition);
    }

    /// The remembered result of an op names a large value, until [`Self::unpin_value`]: somebody may be reading it, though its key has another one.
    pub(crate) fn pin_value(&mut self, name: OpId) {
        self.values.pin(name);
    }

    /// A result that names it is forgotten.
    pub(crate) fn unpin_value(&mut self, name: OpId) {
        self.values.unpin(name);
    }

    /// A member of this partition has a large value that an op will store.
    pub(crate) fn want_value(&mut self, reference: Reference, partition: PartitionId) {
        self.values.want(reference, partition);
    }

    /// Whether entries or ops of a partition speak of large values that are not here, or may.
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

    /// What is asked for: which value, from where, how much.
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
