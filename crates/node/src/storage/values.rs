//! Large values on the disk, and that entries and ops speak of them.

use super::{Queued, StorageQueue};
use nicekv_wire::large::Reference;
use nicekv_wire::{OpId, PartitionId};

impl StorageQueue {
    /// The entry of a key speaks of this from now on. Before the first one it is noted on the disk that there are such.
    pub(super) fn note_value(&mut self, partition: PartitionId, key: &[u8], reference: Option<Reference>) {
        if reference.is_some() {
            self.mark_values();
        }
        self.values.note(partition, key, reference);
    }

    fn mark_values(&mut self) {
        if self.values.mark() {
            self.queue.push_back(Queued::MarkValues);
        }
    }

    /// Writes a part of a large value.
    pub(crate) fn write_value(&mut self, reference: &Reference, offset: u32, bytes: &[u8]) {
        self.mark_values();
        let bytes = self.stage_bytes(bytes);
        let Reference { name, length, .. } = *reference;
        self.queue.push_back(Queued::WriteValue { name, length, offset, bytes });
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

    /// Removes a large value.
    pub(crate) fn remove_value(&mut self, name: OpId) {
        self.queue.push_back(Queued::RemoveValue { name });
    }

    /// Whether a large value is here, whole.
    pub fn holds_value(&self, name: OpId) -> bool {
        self.values.holds(name)
    }

    /// An op is open that stores a large value, until [`Self::let_go_value`].
    pub fn keep_value(&mut self, reference: Reference, partition: PartitionId) {
        self.mark_values();
        self.values.take_up(reference, partition);
    }

    /// An op that stores a large value is open no more.
    pub fn let_go_value(&mut self, name: OpId) {
        self.values.let_go(name);
    }

    /// A member of this partition has a large value that an op will store.
    pub fn want_value(&mut self, reference: Reference, partition: PartitionId) {
        self.values.want(reference, partition);
    }

    /// Whether entries or ops of a partition speak of large values that are not here, or may.
    pub fn lacks_values(&self, partition: PartitionId) -> bool {
        self.values.lacks(partition)
    }
}
