//! Why a backup is no good.

use crate::failure::Failure;
use nicekv_proto::chunk::ChunkId;
use std::io;
use thiserror::Error;

/// Why a file cannot be written.
pub(super) fn unwritten(error: io::Error) -> Failure {
    Failure::Environment(format!("cannot write the backup: {error}"))
}

/// Why a file cannot be restored; one line, without its name.
#[derive(Debug, Error)]
pub(super) enum BackupError {
    /// It cannot be read.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// It is something else.
    #[error("no backup of nicekv")]
    NotOurs,
    /// Of another release.
    #[error("a backup of format {0}, this program reads format 4: take its release")]
    Format(String),
    /// It is not what was written.
    #[error("damaged at byte {at}: {why}; nothing was restored from here on")]
    Damaged {
        /// Behind the last good record, or where what is damaged begins.
        at: u64,
        /// What is wrong.
        why: Damage,
    },
}

/// What is wrong with a file.
#[derive(Debug, PartialEq, Eq, Error)]
pub(super) enum Damage {
    /// It has no end.
    #[error("it ends too early: not the whole backup")]
    CutShort,
    /// A bit has changed, or something is missing, doubled or elsewhere.
    #[error("a checksum does not match")]
    Checksum,
    /// Longer than any that is written.
    #[error("a record that is too long")]
    TooLong,
    /// Of no kind that is written.
    #[error("a record of an unknown kind")]
    UnknownKind,
    /// Its first record says something else.
    #[error("it does not say what it is")]
    NoHeader,
    /// A record of a known kind has something else in it.
    #[error("{0}")]
    Content(String),
    /// Not as they are written.
    #[error("records in an order that no backup has")]
    Order,
    /// Of none that the header names.
    #[error("a partition of a keyspace that it has not")]
    ForeignKeyspace,
    /// What is called so is something else.
    #[error("chunk {0} is not what its id says")]
    WrongChunk(ChunkId),
    /// Each is there once.
    #[error("chunk {0} comes twice")]
    ChunkTwice(ChunkId),
    /// Chunks come before the names that need them.
    #[error("object \"{name}\" needs chunk {id}, which is not there as it says")]
    ChunkMissing {
        /// Of the object.
        name: String,
        /// What it needs.
        id: ChunkId,
    },
}
