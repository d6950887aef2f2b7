//! The queue of a node's requests to its disk.
//!
//! The driver executes requests in order, and completions come back in the same order. A partition
//! that has requested something is notified by the number that it got (the token of a read or scan,
//! or the number of a record). Only the partition knows what the request was for.

mod request;
mod values;

pub(crate) use request::Page;
pub use request::{StorageCompletion, StorageRequest, ValueEnd, stored_entries};

use crate::large::ValueIndex;
use crate::split::mirrors::Mirrors;
use alloc::boxed::Box;
use alloc::collections::{BTreeSet, VecDeque};
use alloc::vec::Vec;
use core::ops::Range;
use foldhash::fast::FixedState;
use hashbrown::HashSet;
use nicekv_proto::control::Child;
use nicekv_proto::large::Reference;
use nicekv_proto::recovery::Entry;
use nicekv_proto::{OpId, PartitionId};

#[derive(Clone)]
enum Queued {
    Append { payload: Range<usize> },
    Sync,
    Read { token: u64, partition: PartitionId, key: Range<usize> },
    Write { partition: PartitionId, key: Range<usize>, entry: Range<usize> },
    Remove { partition: PartitionId, key: Range<usize> },
    Clear { partition: PartitionId },
    Scan { token: u64, partition: PartitionId, after: Option<Range<usize>>, bytes_max: usize },
    Gather { token: u64, partition: PartitionId, keys: Range<usize>, bytes_max: usize },
    Trim { before: u64 },
    MarkValues,
    WriteValue { name: OpId, length: u32, offset: u32, bytes: Range<usize> },
    EndValue { reference: Reference },
    ReadValue { token: u64, name: OpId, offset: u32, bytes: usize },
    CondemnValue { name: OpId },
    RemoveValue { name: OpId },
}

/// Decodes the keys of a [`StorageRequest::Gather`].
pub fn gathered_keys(mut keys: &[u8]) -> impl Iterator<Item = &[u8]> {
    core::iter::from_fn(move || {
        let (length, rest) = keys.split_first_chunk()?;
        let key;
        (key, keys) = rest.split_at(u16::from_be_bytes(*length).into());
        Some(key)
    })
}

/// The keys that were written since a watched page was requested.
#[derive(Clone)]
struct Watched {
    partition: PartitionId,
    keys: BTreeSet<Box<[u8]>>,
    /// Whether all keys were removed.
    is_emptied: bool,
}

/// Requests that wait for the driver. Their bytes are in one arena, which is reused when the queue
/// has become empty.
#[derive(Clone, Default)]
pub(crate) struct StorageQueue {
    bytes: Vec<u8>,
    queue: VecDeque<Queued>,
    appended: u64,
    sync_wanted: bool,
    tokens: u64,
    watched: Option<Watched>,
    /// Partitions that were written to since the count of their keys began.
    changed: HashSet<PartitionId, FixedState>,
    /// Children to which writes of a parent are copied.
    mirrors: Mirrors,
    /// Large values on the disk, and what uses them.
    pub(crate) values: ValueIndex,
}

impl StorageQueue {
    /// Counts a record that is being replayed; returns its number.
    pub(crate) fn count_replayed(&mut self) -> u64 {
        self.appended += 1;
        self.appended
    }

    /// Number of the last record in the log.
    pub(crate) fn appended(&self) -> u64 {
        self.appended
    }

    /// Appends the record that `write` produces; returns its number.
    pub(crate) fn append(&mut self, write: impl FnOnce(&mut Vec<u8>)) -> u64 {
        let payload = self.stage(write);
        self.queue.push_back(Queued::Append { payload });
        self.appended += 1;
        self.appended
    }

    /// Requests a sync of the log at the end of the batch.
    pub(crate) fn want_sync(&mut self) {
        self.sync_wanted = true;
    }

    /// Ends a batch. One sync serves all that have requested one.
    pub(crate) fn end_batch(&mut self) {
        if core::mem::take(&mut self.sync_wanted) {
            self.queue.push_back(Queued::Sync);
        }
    }

    /// Requests an entry; returns the token of the completion.
    pub(crate) fn read(&mut self, partition: PartitionId, key: &[u8]) -> u64 {
        let (token, key) = (self.token(), self.stage_bytes(key));
        self.queue.push_back(Queued::Read { token, partition, key });
        token
    }

    /// Stores an entry.
    pub(crate) fn write(&mut self, partition: PartitionId, key: &[u8], entry: impl FnOnce(&mut Vec<u8>)) {
        self.note_written(partition, key);
        let mirrored = self.mirrors.note(partition, key);
        let staged = self.stage_bytes(key);
        let entry = self.stage_more(entry);
        let reference = Entry::reference_of(&self.bytes[entry.clone()]);
        self.note_value(partition, key, reference);
        if let Some(partition) = mirrored {
            self.changed.insert(partition);
            self.note_value(partition, key, reference);
            self.queue.push_back(Queued::Write { partition, key: staged.clone(), entry: entry.clone() });
        }
        self.queue.push_back(Queued::Write { partition, key: staged, entry });
    }

    /// Removes an entry.
    pub(crate) fn remove(&mut self, partition: PartitionId, key: &[u8]) {
        self.changed.insert(partition);
        self.note_value(partition, key, None);
        let mirrored = self.mirrors.note(partition, key);
        if let Some(partition) = mirrored {
            self.note_value(partition, key, None);
        }
        let key = self.stage_bytes(key);
        if let Some(partition) = mirrored {
            self.queue.push_back(Queued::Remove { partition, key: key.clone() });
        }
        self.queue.push_back(Queued::Remove { partition, key });
    }

    /// Removes all entries of a partition.
    pub(crate) fn clear(&mut self, partition: PartitionId) {
        self.changed.insert(partition);
        self.values.note_cleared(partition);
        if let Some(watched) = self.watched(partition) {
            watched.is_emptied = true;
        }
        self.queue.push_back(Queued::Clear { partition });
    }

    pub(crate) fn scan(&mut self, partition: PartitionId, after: Option<&[u8]>, bytes_max: usize) -> u64 {
        let (token, after) = (self.token(), after.map(|after| self.stage_bytes(after)));
        self.queue.push_back(Queued::Scan { token, partition, after, bytes_max });
        token
    }

    pub(crate) fn gather<'a>(
        &mut self,
        partition: PartitionId,
        keys: impl Iterator<Item = &'a [u8]>,
        bytes_max: usize,
    ) -> u64 {
        let token = self.token();
        let keys = self.stage(|out| {
            for key in keys {
                let length = u16::try_from(key.len()).expect("keys are short");
                out.extend_from_slice(&length.to_be_bytes());
                out.extend_from_slice(key);
            }
        });
        self.queue.push_back(Queued::Gather { token, partition, keys, bytes_max });
        token
    }

    /// Requests a page, and records which keys of the partition are written until
    /// [`Self::end_watch`].
    pub(crate) fn scan_watched(
        &mut self,
        partition: PartitionId,
        after: Option<&[u8]>,
        bytes_max: usize,
    ) -> u64 {
        self.watched = Some(Watched { partition, keys: BTreeSet::new(), is_emptied: false });
        self.scan(partition, after, bytes_max)
    }

    fn watched(&mut self, partition: PartitionId) -> Option<&mut Watched> {
        self.watched.as_mut().filter(|watched| watched.partition == partition)
    }

    /// Stops recording written keys for [`Self::scan_watched`].
    pub(crate) fn end_watch(&mut self) {
        self.watched = None;
    }

    /// Whether a key was written since the watched page was requested.
    pub(crate) fn is_written_since_scan(&self, key: &[u8]) -> bool {
        self.watched.as_ref().is_some_and(|watched| watched.is_emptied || watched.keys.contains(key))
    }

    /// From now on writes to `parent` also go to `child`'s space if the key is in the child's range
    /// (R17).
    pub(crate) fn mirror(&mut self, parent: PartitionId, child: &Child) {
        self.mirrors.begin(parent, child);
    }

    /// Ends [`Self::mirror`].
    pub(crate) fn end_mirror(&mut self, parent: PartitionId, child: PartitionId) {
        self.mirrors.end(parent, child);
    }

    /// Empties a partition's space, including writes that are still queued.
    pub(crate) fn empty(&mut self, partition: PartitionId) {
        self.discard_writes(partition);
        self.clear(partition);
        self.note_counted(partition);
    }

    /// Requests a page of a parent of which children are being formed. Written keys are recorded
    /// until [`Self::end_page`].
    pub(crate) fn scan_page(&mut self, parent: PartitionId, after: Option<&[u8]>, bytes_max: usize) -> u64 {
        self.mirrors.watch(parent);
        self.scan(parent, after, bytes_max)
    }

    /// Returns the keys that were written or removed since [`Self::scan_page`].
    pub(crate) fn end_page(&mut self) -> BTreeSet<Box<[u8]>> {
        self.mirrors.end_watch()
    }

    /// Whether the partition was written to since [`Self::note_counted`].
    pub(crate) fn is_changed(&self, partition: PartitionId) -> bool {
        self.changed.contains(&partition)
    }

    /// The count of the partition's keys begins.
    pub(crate) fn note_counted(&mut self, partition: PartitionId) {
        self.changed.remove(&partition);
    }

    fn note_written(&mut self, partition: PartitionId, key: &[u8]) {
        self.changed.insert(partition);
        if let Some(watched) = self.watched(partition) {
            watched.keys.insert(key.into());
        }
    }

    pub(crate) fn trim(&mut self, before: u64) {
        self.queue.push_back(Queued::Trim { before });
    }

    pub(crate) fn poll(&mut self) -> Option<StorageRequest<'_>> {
        let bytes = &self.bytes;
        Some(match self.queue.pop_front()? {
            Queued::Append { payload } => StorageRequest::Append { payload: &bytes[payload] },
            Queued::Sync => StorageRequest::Sync,
            Queued::Read { token, partition, key } => {
                StorageRequest::Read { token, partition, key: &bytes[key] }
            }
            Queued::Write { partition, key, entry } => {
                StorageRequest::Write { partition, key: &bytes[key], entry: &bytes[entry] }
            }
            Queued::Remove { partition, key } => StorageRequest::Remove { partition, key: &bytes[key] },
            Queued::Clear { partition } => StorageRequest::Clear { partition },
            Queued::Scan { token, partition, after, bytes_max } => {
                let after = after.map(|after| &bytes[after]);
                StorageRequest::Scan { token, partition, after, bytes_max }
            }
            Queued::Gather { token, partition, keys, bytes_max } => {
                StorageRequest::Gather { token, partition, keys: &bytes[keys], bytes_max }
            }
            Queued::Trim { before } => StorageRequest::Trim { before },
            Queued::MarkValues => StorageRequest::MarkValues,
            Queued::WriteValue { name, length, offset, bytes } => {
                StorageRequest::WriteValue { name, length, offset, bytes: &self.bytes[bytes] }
            }
            Queued::EndValue { reference } => StorageRequest::EndValue { reference },
            Queued::ReadValue { token, name, offset, bytes } => {
                StorageRequest::ReadValue { token, name, offset, bytes }
            }
            Queued::CondemnValue { name } => StorageRequest::CondemnValue { name },
            Queued::RemoveValue { name } => StorageRequest::RemoveValue { name },
        })
    }

    /// Drops the writes of a partition that are still queued.
    pub(crate) fn discard_writes(&mut self, void: PartitionId) {
        self.queue.retain(|queued| match queued {
            Queued::Write { partition, .. } | Queued::Remove { partition, .. } => *partition != void,
            _ => true,
        });
    }

    fn token(&mut self) -> u64 {
        self.tokens += 1;
        self.tokens
    }

    fn stage_bytes(&mut self, bytes: &[u8]) -> Range<usize> {
        self.stage(|out| out.extend_from_slice(bytes))
    }

    fn stage(&mut self, write: impl FnOnce(&mut Vec<u8>)) -> Range<usize> {
        if self.queue.is_empty() {
            self.bytes.clear();
        }
        self.stage_more(write)
    }

    fn stage_more(&mut self, write: impl FnOnce(&mut Vec<u8>)) -> Range<usize> {
        let start = self.bytes.len();
        write(&mut self.bytes);
        start..self.bytes.len()
    }
}
