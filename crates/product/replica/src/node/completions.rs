//! What the disk has done goes to whom it was for.

use crate::node::Replica;
use crate::node::storage::Page;
use crate::node::storage::StorageCompletion;
use nicekv_proto::Now;

impl Replica {
    /// A storage request has been completed.
    pub fn handle_storage(&mut self, now: Now, completion: StorageCompletion<'_>) {
        match completion {
            StorageCompletion::Forced { through } => self.on_forced(now, through),
            StorageCompletion::Read { token, entry } => {
                let id = self.host.waits.finish_read(token);
                self.partitions.by_id(id).on_read(&mut self.host, now, token, entry);
            }
            StorageCompletion::ReadCorrupt { token } => {
                let id = self.host.waits.finish_read(token);
                self.partitions.by_id(id).on_read_corrupt(&mut self.host, now, token);
            }
            StorageCompletion::Scan { token, entries, corrupt, more } => {
                let page = Page { entries, corrupt, more };
                if self.scrub.is_reading(token) {
                    self.on_scrubbed(now, page);
                } else if self.usage.is_reading(token) {
                    self.on_counted(now, page);
                } else if self.discards.is_reading(token) {
                    self.on_discard_page(page);
                } else if self.formations.is_reading(token) {
                    self.on_parent_page(now, page);
                } else if self.host.values.is_reading(token) {
                    self.on_values_page(page);
                } else {
                    let id = self.host.waits.finish_scan(token);
                    self.partitions.by_id(id).on_scanned(&mut self.host, now, token, page);
                }
            }
            StorageCompletion::ValueEnded { name, end } => self.on_value_ended(now, name, end),
            StorageCompletion::ValueRead { token, bytes, is_damaged } => {
                self.on_value_read(now, token, bytes, is_damaged);
            }
        }
        self.retry_births(now);
        self.tell_drained();
        // What the completion led to is a batch of its own.
        self.host.storage.end_batch();
    }
}
