//! Errors of backup files.

use crate::failure::Failure;
use nicekv_proto::chunk::ChunkId;
use std::io;
use thiserror::Error;

/// The failure to write a backup.
pub(super) fn unwritten(error: io::Error) -> Failure {
    Failure::Environment(format!("cannot write the backup: {error}"))
}

/// Why a file cannot be restored, in one line without the file's name.
#[derive(Debug, Error)]
pub(super) enum BackupError {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("not a nicekv backup")]
    NotOurs,
    #[error(
        "backup format {0} is not supported (this release reads format 4): use the release that wrote it"
    )]
    Format(String),
    #[error("damaged at byte {at}: {why}; nothing after it was restored")]
    Damaged {
        /// Position after the last good record, or where the damage begins.
        at: u64,
        why: Damage,
    },
}

/// The damage of a file.
#[derive(Debug, PartialEq, Eq, Error)]
pub(super) enum Damage {
    #[error("the file is truncated")]
    CutShort,
    #[error("checksum mismatch")]
    Checksum,
    #[error("a record is too long")]
    TooLong,
    #[error("a record of unknown kind")]
    UnknownKind,
    #[error("the header is missing")]
    NoHeader,
    #[error("{0}")]
    Content(String),
    #[error("records are out of order")]
    Order,
    #[error("a partition belongs to a keyspace that the header does not name")]
    ForeignKeyspace,
    #[error("the content of chunk {0} does not match its id")]
    WrongChunk(ChunkId),
    #[error("chunk {0} appears twice")]
    ChunkTwice(ChunkId),
    #[error("object \"{name}\" needs chunk {id}, which is missing or has another length")]
    ChunkMissing { name: String, id: ChunkId },
}
