//! Everything that can go wrong in storage, each as one clear line.

use crate::log::LogPosition;
use nicekv_proto::OpId;
use std::{io, path::PathBuf};

/// A storage operation failed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The operating system refused an operation that may succeed later (full disk) or at the next start.
    #[error("cannot {operation} {path}: {source}", path = path.display())]
    Io {
        /// What was tried, as a verb.
        operation: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The operating system's reason.
        source: io::Error,
    },
    /// An earlier write or force of the log failed. What is on disk is unknown since then (the kernel marks
    /// pages clean after a failed force), so every later call fails too and the node must stop.
    #[error("the log failed and stays failed until restart: {reason}")]
    LogFailed {
        /// The first failure.
        reason: String,
    },
    /// A place in the log that is known to have been durable does not hold a valid record.
    #[error(
        "{path} is damaged at byte {offset}: record {position} was durable and is unreadable; \
         remove the data directory of this node and start it again: it copies everything from the other replicas",
        path = path.display()
    )]
    LogDamaged {
        /// The segment.
        path: PathBuf,
        /// First byte that is not part of a valid record.
        offset: u64,
        /// The record that should be there.
        position: LogPosition,
    },
    /// A segment that the log's manifest names, or that later ones follow, is not there.
    #[error(
        "{path} is missing: it held records of the log that were durable; remove the data directory of this node and start it \
         again: it copies everything from the other replicas",
        path = path.display()
    )]
    LogSegmentMissing {
        /// The segment.
        path: PathBuf,
    },
    /// There are segments of a log, or other data that a log came before, and nothing says which segments there must be.
    #[error(
        "{path} is {what}: it says which files the log of this node has; remove the data directory of this node and start it \
         again: it copies everything from the other replicas",
        path = path.display()
    )]
    LogManifest {
        /// The manifest.
        path: PathBuf,
        /// Missing or damaged.
        what: &'static str,
    },
    /// A log segment was written for another cluster, node or storage.
    #[error(
        "{path} belongs to another cluster, node or storage, or its head is damaged: if it is this node's own, remove its data directory \
         and start it again, so that it copies everything from the other replicas",
        path = path.display()
    )]
    LogForeign {
        /// The segment.
        path: PathBuf,
    },
    /// A payload above [`crate::log::PAYLOAD_BYTES_MAX`].
    #[error("a log record of {bytes} bytes is above the limit of {bytes_max}")]
    RecordTooLarge {
        /// Size of the payload.
        bytes: usize,
        /// The limit.
        bytes_max: usize,
    },
    /// Too much was appended without [`crate::Log::write`] (or writing fails for lack of space).
    #[error("the log's buffer is full ({bytes_max} bytes): write first")]
    LogBufferFull {
        /// The limit, [`crate::LogOptions::buffer_bytes_max`].
        bytes_max: usize,
    },
    /// An earlier write or force of large values failed; as with [`Self::LogFailed`] the node must stop.
    #[error("the large values failed and stay failed until restart: {reason}")]
    ValuesFailed {
        /// The first failure.
        reason: String,
    },
    /// A segment of large values was written for another cluster, node or storage.
    #[error(
        "{path} belongs to another cluster, node or storage, or its head is damaged: if it is this node's own, remove its data directory \
         and start it again, so that it copies everything from the other replicas",
        path = path.display()
    )]
    ValuesForeign {
        /// The segment.
        path: PathBuf,
    },
    /// There is no large value of this name.
    #[error("there is no value of op {name}")]
    ValueNotFound {
        /// The op that would have written it.
        name: OpId,
    },
    /// A large value of this name is there, or is being written.
    #[error("the value of op {name} is there already or is being written")]
    ValueExists {
        /// The op that wrote it.
        name: OpId,
    },
    /// A value above [`crate::values::VALUE_BYTES_MAX`].
    #[error("a value of {bytes} bytes is above the limit of {bytes_max}")]
    ValueTooLarge {
        /// Its length.
        bytes: u64,
        /// The limit.
        bytes_max: u64,
    },
    /// The key of a value's owner is above [`crate::values::OWNER_KEY_BYTES_MAX`].
    #[error("the key of a value's owner of {bytes} bytes is above the limit of {bytes_max}")]
    ValueOwnerTooLarge {
        /// Its length.
        bytes: usize,
        /// The limit.
        bytes_max: usize,
    },
    /// Too much is being written at once: finish or abandon something first.
    #[error("large values of {bytes_max} bytes together are being written, which is the limit")]
    ValuesBusy {
        /// The limit, [`crate::ValueOptions::writing_bytes_max`].
        bytes_max: u64,
    },
    /// Something beyond the end of a large value was to be read or written.
    #[error(
        "byte {offset} and those behind it that were named are not all in the value of op {name}, which has {length}"
    )]
    ValueRange {
        /// Its name.
        name: OpId,
        /// The first byte.
        offset: u64,
        /// Its length.
        length: u64,
    },
    /// Written by a newer version of this program.
    #[error("{path} has format {found}, this program knows up to {known}: use a newer program", path = path.display())]
    NewerFormat {
        /// The file.
        path: PathBuf,
        /// Version found in it.
        found: u32,
        /// Newest version that is understood.
        known: u32,
    },
    /// Written by an older version of this program.
    #[error(
        "{path} has format {found}, this program reads {known}: use the release that wrote it, or begin with an empty directory",
        path = path.display()
    )]
    OlderFormat {
        /// The file.
        path: PathBuf,
        /// Version found in it.
        found: u32,
        /// The version that is understood.
        known: u32,
    },
    /// A stored value does not match its checksum.
    #[error("the stored value of key {key:02x?} in partition {partition} is corrupt")]
    Corrupt {
        /// The partition.
        partition: u32,
        /// The key.
        key: Vec<u8>,
    },
    /// The LSM engine failed; the text is its own.
    #[error("the storage engine cannot {operation}: {reason}")]
    Engine {
        /// What was tried, as a verb.
        operation: &'static str,
        /// The library's reason.
        reason: String,
        /// Whether the disk or quota is full.
        is_out_of_space: bool,
    },
    /// A table of the engine is damaged, and which keys are in the damaged place is not known.
    #[error(
        "the storage engine cannot {operation}, its files are damaged: {reason}; remove the data directory of this node \
         and start it again: it copies everything from the other replicas"
    )]
    EngineDamaged {
        /// What was tried, as a verb.
        operation: &'static str,
        /// The library's reason.
        reason: String,
    },
    /// The engine cannot be opened, since a file of it is damaged, too short or missing.
    #[error(
        "{path} is damaged: the storage engine cannot read it ({reason}); remove the data directory of this node \
         and start it again: it copies everything from the other replicas",
        path = path.display()
    )]
    EngineFileDamaged {
        /// The file, or the directory of the engine if it may be any of its tables.
        path: PathBuf,
        /// The library's reason.
        reason: String,
    },
    /// The data directory is of another cluster.
    #[error("{path} belongs to cluster {found:032x}, not to {expected:032x}", path = path.display())]
    OtherCluster {
        /// The directory.
        path: PathBuf,
        /// Cluster id found.
        found: u128,
        /// Cluster id expected.
        expected: u128,
    },
    /// The data directory is of another node or role.
    #[error("{path} belongs to {found:?}, not to {expected:?}", path = path.display())]
    OtherOwner {
        /// The directory.
        path: PathBuf,
        /// Owner found.
        found: String,
        /// Owner expected.
        expected: String,
    },
    /// Another process holds the data directory's lock.
    #[error(
        "{path} is in use by another process: stop that one, or name another directory",
        path = path.display()
    )]
    InUse {
        /// The directory.
        path: PathBuf,
    },
    /// The data directory cannot be created or written.
    #[error(
        "{path} is not writable: {source}; name a directory that this user may create or write",
        path = path.display()
    )]
    NotWritable {
        /// The directory.
        path: PathBuf,
        /// The operating system's reason.
        source: io::Error,
    },
    /// Other users may read the data, and that cannot be ended.
    #[error(
        "{path} cannot be closed to other users: {source}; give it to the user that runs nicekv (chown -R)",
        path = path.display()
    )]
    NotPrivate {
        /// The directory.
        path: PathBuf,
        /// The operating system's reason.
        source: io::Error,
    },
    /// Data on disk, and an engine that keeps nothing.
    #[error(
        "{path} holds durable data, which the memory engine would neither show nor change: leave out --engine memory to use \
         them, or name another directory with --data-dir",
        path = path.display()
    )]
    HoldsData {
        /// The directory.
        path: PathBuf,
    },
    /// A directory without a format file that already holds something.
    #[error(
        "{path} is not a data directory: it holds {entry:?} and no nicekv-format; name an empty or a new directory",
        path = path.display()
    )]
    NotADataDirectory {
        /// The directory.
        path: PathBuf,
        /// One of the entries found.
        entry: String,
    },
    /// The format file is not readable as such.
    #[error(
        "{path} is damaged: {reason}; put it back from a copy, or, of a node, remove the data directory and start it again: \
         it copies everything from the other replicas",
        path = path.display()
    )]
    FormatDamaged {
        /// The format file.
        path: PathBuf,
        /// The first thing wrong with it.
        reason: &'static str,
    },
}

impl StoreError {
    /// Wraps an operating system error: `map_err(StoreError::io("read", path))`.
    pub fn io(operation: &'static str, path: &std::path::Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_path_buf();
        move |source| Self::Io { operation, path, source }
    }

    /// True if the disk or quota is full: the operation may be repeated once there is space.
    pub fn is_out_of_space(&self) -> bool {
        match self {
            Self::Io { source, .. } => is_out_of_space(source),
            Self::Engine { is_out_of_space, .. } => *is_out_of_space,
            _ => false,
        }
    }
}

/// Whether the operating system says that the disk or quota is full.
pub fn is_out_of_space(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}
