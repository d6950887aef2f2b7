//! What a node asks of its disk, and what that answers.

use alloc::vec::Vec;
use nicekv_proto::bytes::Reader;
use nicekv_proto::large::Reference;
use nicekv_proto::recovery::read_keyed_entry;
use nicekv_proto::{OpId, PartitionId};

/// A request to the log or the engine. The driver executes requests strictly in order; what a request makes visible to later ones is
/// visible at once, only [`StorageRequest::Sync`] makes the log durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StorageRequest<'a> {
    /// Append this record to the log. Records are counted from 1 over the life of the core, replayed ones included.
    Append {
        /// The record.
        payload: &'a [u8],
    },
    /// Make durable what has been appended so far; answered by [`StorageCompletion::Synced`]. May be merged with later ones.
    Sync,
    /// Read an entry; answered by [`StorageCompletion::Read`], in the order of the reads.
    Read {
        /// To be returned.
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
    /// Remove every entry of a partition.
    Clear {
        /// The partition.
        partition: PartitionId,
    },
    /// Read entries in key order; answered by [`StorageCompletion::Scan`].
    Scan {
        /// To be returned.
        token: u64,
        /// The partition.
        partition: PartitionId,
        /// Only keys after this one.
        after: Option<&'a [u8]>,
        /// Stop when the entries together reach this size.
        bytes_max: usize,
    },
    /// Read the entries of these keys, in their order; answered by [`StorageCompletion::Scan`] of those that there are.
    Gather {
        /// To be returned.
        token: u64,
        /// The partition.
        partition: PartitionId,
        /// For [`gathered_keys`].
        keys: &'a [u8],
        /// Stop after the entry with which they reach this size, or after any; there is more if that was not the last key.
        bytes_max: usize,
    },
    /// Make durable what was written to the engine so far, then forget the log's records before this one.
    Trim {
        /// The first record that is still needed.
        before: u64,
    },
    /// Large values are kept from now on: later processes are to be told so before they begin ([`crate::Replica::begin_values`]).
    MarkValues,
    /// Write a part of a large value; the first one reserves room for all of it. If there is none the rest is for nothing, and the end says so. Parts may overlap: their bytes
    /// are the same then.
    WriteValue {
        /// Its name.
        name: OpId,
        /// How long it will be.
        length: u32,
        /// Where the part begins.
        offset: u32,
        /// The part.
        bytes: &'a [u8],
    },
    /// All of a large value has been written; answered by [`StorageCompletion::ValueEnded`]. A force makes it durable, before any record that was appended later.
    EndValue {
        /// Which, and what it must be.
        reference: Reference,
    },
    /// Read a part of a large value; answered by [`StorageCompletion::ValueRead`].
    ReadValue {
        /// To be returned.
        token: u64,
        /// Its name.
        name: OpId,
        /// Where the part begins.
        offset: u32,
        /// How long it is.
        bytes: usize,
    },
    /// A large value is damaged, and is written anew from here on. It stays on the disk until another one that is whole is durable in its place: a process to come is to know that it
    /// was there.
    CondemnValue {
        /// Its name.
        name: OpId,
    },
    /// Remove a large value, whether all of it was written or not.
    RemoveValue {
        /// Its name.
        name: OpId,
    },
}

/// The end of a request. A failed disk is not reported here: the driver stops the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StorageCompletion<'a> {
    /// The log is durable up to and including this record.
    Synced {
        /// Number of the record.
        through: u64,
    },
    /// The entry, if there is one.
    Read {
        /// Of the request.
        token: u64,
        /// As stored.
        entry: Option<&'a [u8]>,
    },
    /// The entry is there and damaged: what it says must not be believed. Takes the place of [`StorageCompletion::Read`].
    ReadCorrupt {
        /// Of the request.
        token: u64,
    },
    /// The entries of a scan, or those of chosen keys.
    Scan {
        /// Of the request.
        token: u64,
        /// A sequence of [`put_keyed_entry`](nicekv_proto::recovery::put_keyed_entry).
        entries: &'a [u8],
        /// Keys, in order, whose entries are damaged and not among `entries`.
        corrupt: &'a [Vec<u8>],
        /// Whether later keys exist, or were chosen.
        more: bool,
    },
    /// A large value is here, or was not what it must be and is gone.
    ValueEnded {
        /// Its name.
        name: OpId,
        /// What became of it.
        end: ValueEnd,
    },
    /// A part of a large value.
    ValueRead {
        /// Of the request.
        token: u64,
        /// `None`: it is not here, has no such part, or is damaged.
        bytes: Option<&'a [u8]>,
        /// It is here, and does not match its checksums.
        is_damaged: bool,
    },
}

/// What became of a large value that was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueEnd {
    /// It is here.
    Whole,
    /// It is another one than it must be.
    Wrong,
    /// There was no room.
    NoRoom,
}

/// A page of the engine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Page<'a> {
    /// A sequence of [`put_keyed_entry`](nicekv_proto::recovery::put_keyed_entry).
    pub entries: &'a [u8],
    /// Keys, in order, whose entries are damaged and not among `entries`.
    pub corrupt: &'a [Vec<u8>],
    /// Whether later keys exist.
    pub more: bool,
}

/// The keys and encoded entries of a page, in order.
///
/// # Panics
/// If the bytes are not what an engine was given to store.
pub fn stored_entries(entries: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    let mut reader = Reader::new(entries);
    core::iter::from_fn(move || {
        let more = !reader.is_empty();
        more.then(|| read_keyed_entry(&mut reader).expect("the engine returns what was stored"))
    })
}
