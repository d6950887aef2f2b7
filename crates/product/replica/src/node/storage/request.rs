//! A node's requests to its disk, and their completions.

use alloc::vec::Vec;
use nicekv_proto::bytes::Reader;
use nicekv_proto::large::Reference;
use nicekv_proto::recovery::read_keyed_entry;
use nicekv_proto::{OpId, PartitionId};

/// A request to the log or the engine. The driver executes requests strictly in order, and later
/// requests see the effects of earlier ones at once. Only [`StorageRequest::Sync`] makes the log
/// durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StorageRequest<'a> {
    /// Append this record to the log. Records are numbered from 1 over the life of the core,
    /// including replayed ones.
    Append {
        /// The record.
        payload: &'a [u8],
    },
    /// Make all records appended so far durable; answered by [`StorageCompletion::Synced`]. May be
    /// merged with later syncs.
    Sync,
    /// Read an entry; answered by [`StorageCompletion::Read`], in the order of the reads.
    Read {
        /// Token to return with the completion.
        token: u64,
        /// The partition.
        partition: PartitionId,
        /// The key.
        key: &'a [u8],
    },
    /// Store an entry.
    Write {
        /// The partition.
        partition: PartitionId,
        /// The key.
        key: &'a [u8],
        /// The entry, opaque to the engine.
        entry: &'a [u8],
    },
    /// Remove an entry.
    Remove {
        /// The partition.
        partition: PartitionId,
        /// The key.
        key: &'a [u8],
    },
    /// Remove all entries of a partition.
    Clear {
        /// The partition.
        partition: PartitionId,
    },
    /// Read entries in key order; answered by [`StorageCompletion::Scan`].
    Scan {
        /// Token to return with the completion.
        token: u64,
        /// The partition.
        partition: PartitionId,
        /// Only keys after this one.
        after: Option<&'a [u8]>,
        /// Stop when the entries together reach this size, in bytes.
        bytes_max: usize,
    },
    /// Read the entries of these keys, in this order; answered by [`StorageCompletion::Scan`] with
    /// those that exist.
    Gather {
        /// Token to return with the completion.
        token: u64,
        /// The partition.
        partition: PartitionId,
        /// The keys, encoded; decode them with [`gathered_keys`].
        keys: &'a [u8],
        /// May stop after any entry, and stops after the one with which the entries reach this
        /// size, in bytes. If that was not the last key, the completion says that there is more.
        bytes_max: usize,
    },
    /// Make everything that was written to the engine so far durable, then drop the log's records
    /// before this one.
    Trim {
        /// The first record that is still needed.
        before: u64,
    },
    /// The disk will contain large values from now on. Later processes must learn that before they
    /// begin ([`crate::Replica::begin_values`]).
    MarkValues,
    /// Write a part of a large value. The first part reserves room for the whole value; if there is
    /// no room, further parts are ignored, and the completion of `EndValue` reports it. Parts may
    /// overlap; their bytes are the same then.
    WriteValue {
        /// Name of the value.
        name: OpId,
        /// Length of the whole value in bytes.
        length: u32,
        /// Offset of the part in the value.
        offset: u32,
        /// The part.
        bytes: &'a [u8],
    },
    /// All parts of a large value were written: check it. Answered by
    /// [`StorageCompletion::ValueEnded`]. The next sync makes the value durable, before any record
    /// that is appended later.
    EndValue {
        /// The value's name, and the length and digest that it must have.
        reference: Reference,
    },
    /// Read a part of a large value; answered by [`StorageCompletion::ValueRead`].
    ReadValue {
        /// Token to return with the completion.
        token: u64,
        /// Name of the value.
        name: OpId,
        /// Offset of the part in the value.
        offset: u32,
        /// Length of the part in bytes.
        bytes: usize,
    },
    /// A large value is damaged, and later requests write it anew. Keep the damaged one on the disk
    /// until a whole one is durable in its place: a later process must know that there was one
    /// (L2).
    CondemnValue {
        /// Name of the value.
        name: OpId,
    },
    /// Remove a large value, whether it is complete or not.
    RemoveValue {
        /// Name of the value.
        name: OpId,
    },
}

/// The completion of a request. A failed disk is not reported here: the driver stops the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StorageCompletion<'a> {
    /// The log is durable up to and including this record.
    Synced {
        /// Number of the record.
        through: u64,
    },
    /// The entry, if the key has one.
    Read {
        /// Token of the request.
        token: u64,
        /// The entry as stored.
        entry: Option<&'a [u8]>,
    },
    /// The entry exists but is damaged, so its content must not be used. Takes the place of
    /// [`StorageCompletion::Read`].
    ReadCorrupt {
        /// Token of the request.
        token: u64,
    },
    /// The entries of a [`StorageRequest::Scan`] or [`StorageRequest::Gather`].
    Scan {
        /// Token of the request.
        token: u64,
        /// A sequence of entries, each as
        /// [`put_keyed_entry`](nicekv_proto::recovery::put_keyed_entry) encodes it.
        entries: &'a [u8],
        /// Keys, in order, whose entries are damaged and so not among `entries`.
        corrupt: &'a [Vec<u8>],
        /// Whether later keys exist, or (of a gather) were requested.
        more: bool,
    },
    /// The result for a large value that was written. A value with wrong content is removed.
    ValueEnded {
        /// Name of the value.
        name: OpId,
        /// Whether it is on disk now.
        end: ValueEnd,
    },
    /// A part of a large value.
    ValueRead {
        /// Token of the request.
        token: u64,
        /// `None`: the value is not on disk, has no such part, or is damaged.
        bytes: Option<&'a [u8]>,
        /// Whether the value is on disk and does not match its checksums.
        is_damaged: bool,
    },
}

/// The result of writing a large value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueEnd {
    /// It is on disk, with the right content.
    Whole,
    /// Its content does not match its reference.
    Wrong,
    /// The disk had no room for it.
    NoRoom,
}

/// A page of entries from the engine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Page<'a> {
    /// A sequence of entries, each as [`put_keyed_entry`](nicekv_proto::recovery::put_keyed_entry)
    /// encodes it.
    pub entries: &'a [u8],
    /// Keys, in order, whose entries are damaged and so not among `entries`.
    pub corrupt: &'a [Vec<u8>],
    /// Whether later keys exist.
    pub more: bool,
}

/// The keys and encoded entries of a page, in order.
///
/// # Panics
/// If the bytes are not entries that an engine was given to store.
pub fn stored_entries(entries: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    let mut reader = Reader::new(entries);
    core::iter::from_fn(move || {
        let more = !reader.is_empty();
        more.then(|| read_keyed_entry(&mut reader).expect("the engine returns what was stored"))
    })
}
