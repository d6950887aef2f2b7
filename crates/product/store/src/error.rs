//! Errors of the storage, one clear line each.

use crate::log::LogPosition;
use nicekv_proto::OpId;
use std::{io, path::PathBuf};

/// A storage operation failed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The operating system refused an operation, which may succeed later (full disk) or after a
    /// restart.
    #[error("cannot {operation} {path}: {source}", path = path.display())]
    Io {
        /// The operation, as a verb.
        operation: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// Reason of the operating system.
        source: io::Error,
    },
    /// A write or sync of the log failed. The content on disk is unknown since then (the kernel
    /// marks pages clean after a failed fsync), so every later call fails, too, and the node must
    /// stop.
    #[error("the log failed and stays failed until restart: {reason}")]
    LogFailed {
        /// The first failure.
        reason: String,
    },
    /// A position of the log that was durable does not hold a valid record.
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
        /// The missing record.
        position: LogPosition,
    },
    /// A log segment is missing, although the manifest names it or later ones follow it.
    #[error(
        "{path} is missing: it held records of the log that were durable; remove the data directory of this node and start it \
         again: it copies everything from the other replicas",
        path = path.display()
    )]
    LogSegmentMissing {
        /// The segment.
        path: PathBuf,
    },
    /// The manifest is unusable, although segments or other data of a log exist.
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
    /// More was appended than the buffer holds: [`crate::Log::write`] was not called, or fails for
    /// lack of space.
    #[error("the log's buffer is full ({bytes_max} bytes): write first")]
    LogBufferFull {
        /// The limit, [`crate::LogOptions::buffer_bytes_max`].
        bytes_max: usize,
    },
    /// A write or sync of large values failed; as after [`Self::LogFailed`], the node must stop.
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
    /// No large value has this name.
    #[error("there is no value of op {name}")]
    ValueNotFound {
        /// The op that would have written it.
        name: OpId,
    },
    /// A large value of this name exists or is being written.
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
    /// Too much is being written at once: finish or abandon a value first.
    #[error("large values of {bytes_max} bytes together are being written, which is the limit")]
    ValuesBusy {
        /// The limit, [`crate::ValueOptions::writing_bytes_max`].
        bytes_max: u64,
    },
    /// A range extends beyond the end of a large value.
    #[error(
        "byte {offset} and those behind it that were named are not all in the value of op {name}, which has {length}"
    )]
    ValueRange {
        /// Its name.
        name: OpId,
        /// Offset of the first byte.
        offset: u64,
        /// Its length.
        length: u64,
    },
    /// Written by a newer version of this program.
    #[error("{path} has format {found}, this program knows up to {known}: use a newer program", path = path.display())]
    NewerFormat {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: u32,
        /// Newest supported version.
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
        /// Its version.
        found: u32,
        /// The supported version.
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
    /// The LSM engine failed; the text is the library's.
    #[error("the storage engine cannot {operation}: {reason}")]
    Engine {
        /// The failed operation, as a verb.
        operation: &'static str,
        /// The library's reason.
        reason: String,
        /// Whether the disk or quota is full.
        is_out_of_space: bool,
    },
    /// A table of the engine is damaged; the affected keys are unknown.
    #[error(
        "the storage engine cannot {operation}, its files are damaged: {reason}; remove the data directory of this node \
         and start it again: it copies everything from the other replicas"
    )]
    EngineDamaged {
        /// The failed operation, as a verb.
        operation: &'static str,
        /// The library's reason.
        reason: String,
    },
    /// The engine cannot be opened, because a file is damaged, truncated or missing.
    #[error(
        "{path} is damaged: the storage engine cannot read it ({reason}); remove the data directory of this node \
         and start it again: it copies everything from the other replicas",
        path = path.display()
    )]
    EngineFileDamaged {
        /// The file, or the engine's directory if any of its tables may be damaged.
        path: PathBuf,
        /// The library's reason.
        reason: String,
    },
    /// The data directory belongs to another cluster.
    #[error("{path} belongs to cluster {found:032x}, not to {expected:032x}", path = path.display())]
    OtherCluster {
        /// The directory.
        path: PathBuf,
        /// Cluster id found.
        found: u128,
        /// Cluster id expected.
        expected: u128,
    },
    /// The data directory belongs to another node or role.
    #[error("{path} belongs to {found:?}, not to {expected:?}", path = path.display())]
    OtherOwner {
        /// The directory.
        path: PathBuf,
        /// Owner found.
        found: String,
        /// Owner expected.
        expected: String,
    },
    /// Another process has locked the data directory.
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
    /// Other users can read the data, and their access cannot be removed.
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
    /// The directory holds durable data, but the engine is volatile.
    #[error(
        "{path} holds durable data, which the memory engine would neither show nor change: leave out --engine memory to use \
         them, or name another directory with --data-dir",
        path = path.display()
    )]
    HoldsData {
        /// The directory.
        path: PathBuf,
    },
    /// A non-empty directory without a format file.
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
    /// The format file is unreadable.
    #[error(
        "{path} is damaged: {reason}; put it back from a copy, or, if it belongs to a node, remove the data directory and start the node again: \
         it copies everything from the other replicas",
        path = path.display()
    )]
    FormatDamaged {
        /// The format file.
        path: PathBuf,
        /// Its defect.
        reason: &'static str,
    },
}

impl StoreError {
    /// Wraps an operating system error: `map_err(StoreError::io("read", path))`.
    pub fn io(operation: &'static str, path: &std::path::Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_path_buf();
        move |source| Self::Io { operation, path, source }
    }

    /// Whether the disk or quota is full: the operation may be repeated when there is space.
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
