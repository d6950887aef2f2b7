//! The pass after a restart: finds out which entries name which large values (`index`). Reads one
//! page at every heartbeat, one partition after the other. Partitions in which this node joins come
//! first, because a join waits for the pass.

use crate::modes::Partition;
use crate::node::Replica;
use crate::node::storage::{Page, stored_entries};
use alloc::vec::Vec;
use nicekv_proto::recovery::Entry;
use nicekv_proto::{Now, OpId, PartitionId};

/// About how many bytes of entries are read at one heartbeat.
const PASS_BYTES: usize = 1 << 20;

impl super::Values {
    /// Whether the page read under this token belongs to the pass.
    pub(crate) fn is_reading(&self, token: u64) -> bool {
        self.pass.pending == Some(token)
    }

    /// Whether the pass is just reading a page of this partition.
    pub(crate) fn is_in(&self, id: PartitionId) -> bool {
        self.pass.pending.is_some() && self.pass.partition == id
    }
}

impl Replica {
    /// Takes the names of the whole large values found on disk. If the disk has ever held a large
    /// value ([`StorageRequest::MarkValues`](crate::StorageRequest::MarkValues)), this must be
    /// called before any log record is replayed.
    pub fn begin_values(&mut self, names: impl Iterator<Item = OpId>) {
        self.host.storage.values.begin(names);
    }

    /// Called at every heartbeat: removes unused values, fetches missing ones, and continues the
    /// pass and the scrub.
    pub(crate) fn tend_values(&mut self, now: Now) {
        self.remove_dead(now);
        self.fetch_values(now);
        self.scrub_values(now);
        if self.host.storage.values.is_in_pass() && self.host.values.pass.pending.is_none() {
            self.read_on();
        }
    }

    pub(super) fn remove_dead(&mut self, now: Now) {
        for name in self.host.storage.values.take_dead(now.boot_ns) {
            self.host.values.counters.removed += 1;
            self.host.storage.remove_value(name);
        }
    }

    fn read_on(&mut self) {
        let index = &self.host.storage.values;
        let pass = &mut self.host.values.pass;
        if !index.is_unread(pass.partition) || self.partitions.slot(pass.partition).is_none() {
            let is_unread = |partition: &Partition| index.is_unread(partition.membership().partition);
            let Some(next) = self.partitions.next(None, is_unread) else {
                return self.host.storage.values.end_pass();
            };
            (pass.partition, pass.after) = (next, None);
        }
        let (partition, after) = (pass.partition, pass.after.take());
        self.host.storage.values.begin_page();
        self.host.values.pass.pending = Some(self.host.storage.scan(partition, after.as_deref(), PASS_BYTES));
        self.host.values.pass.after = after;
    }

    /// A page of entries for the pass was read.
    pub(crate) fn on_values_page(&mut self, page: Page<'_>) {
        let pass = &mut self.host.values.pass;
        pass.pending = None;
        let index = &mut self.host.storage.values;
        let mut last = page.corrupt.last().map(Vec::as_slice);
        for (key, entry) in stored_entries(page.entries) {
            if let Some(reference) = Entry::reference_of(entry) {
                index.note_read(pass.partition, key, reference);
            }
            last = last.max(Some(key));
        }
        pass.after = last.map(<[u8]>::to_vec);
        if !page.more {
            index.end_partition(pass.partition);
            // The pass continues with the next partition at the next heartbeat.
        }
    }
}
