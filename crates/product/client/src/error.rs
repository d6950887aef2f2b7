//! Why a request was refused or failed.

use nicekv_proto::limits::LONG_VALUE_BYTES_MAX;
use nicekv_proto::{KeyspaceId, Status};
use thiserror::Error;

/// A request that was not taken. Nothing was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum SubmitError {
    /// Above [`KEY_BYTES_MAX`](nicekv_proto::limits::KEY_BYTES_MAX).
    #[error("key of {bytes} bytes exceeds the limit of {limit} bytes")]
    KeyTooLong {
        /// Its length.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// Above [`Config::value_bytes_max`](crate::Config::value_bytes_max); in keyspaces without large values above
    /// [`LONG_VALUE_BYTES_MAX`](nicekv_proto::limits::LONG_VALUE_BYTES_MAX).
    #[error("value of {bytes} bytes exceeds the limit of {limit} bytes")]
    ValueTooLong {
        /// Its length.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// [`Operation::SetLarge`](nicekv_proto::Operation::SetLarge) or [`Operation::AppendLarge`](nicekv_proto::Operation::AppendLarge): it is for clients to name large values, whose callers set bytes.
    #[error("a large value is named by the client that puts it: set its bytes")]
    NameOfLarge,
    /// Quorum keyspaces have none: replicas keep the newest version and decide nothing.
    #[error("{what} needs a primary, and this keyspace is replicated by quorum: it can get, set and delete")]
    NeedsPrimary {
        /// What.
        what: &'static str,
    },
    /// Above [`PUBLISHED_BYTES_MAX`](nicekv_proto::limits::PUBLISHED_BYTES_MAX).
    #[error("channel and message of {bytes} bytes exceed the limit of {limit} bytes")]
    MessageTooLong {
        /// Their length together.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// Steps of a transaction are gets and updates.
    #[error("a transaction has gets and updates of keys, and nothing else")]
    NoStep,
    /// A transaction goes in one datagram, and so do its results.
    #[error("transaction of {bytes} bytes exceeds the limit of {limit} bytes")]
    TransactionTooLong {
        /// Its length.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// Switches spread hot keys, of which they know one in an update.
    #[error("transactions are refused in keyspaces with hot keys (balancing = \"hot\")")]
    TransactionOfHot,
    /// The increment is infinite or not a number.
    #[error("increment is NaN or infinity")]
    NotFinite,
    /// Not one of [`Config::keyspaces`](crate::Config::keyspaces).
    #[error("keyspace {keyspace} is not one of this client's")]
    NoSuchKeyspace {
        /// Its name.
        keyspace: KeyspaceId,
    },
    /// Too many unfinished ops: wait for completions.
    #[error("{limit} operations are in flight already")]
    WindowFull {
        /// [`Config::in_flight_max`](crate::Config::in_flight_max), or [`SEQUENCE_SPAN_MAX`](crate::SEQUENCE_SPAN_MAX).
        limit: usize,
    },
}

/// A request that was taken and failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum OperationError {
    /// The update was sent and no answer came before the deadline, or the replicas no longer remember it: it may have taken effect,
    /// may yet do so, or may not.
    #[error("outcome unknown: the update may or may not have taken effect")]
    OutcomeUnknown,
    /// No replica answered the get before the deadline, or too few of a quorum keyspace; of a put to one, nothing was stored.
    #[error("timed out: no replica answered before the deadline")]
    TimedOut,
    /// Not applied: the value is not a decimal 64-bit integer.
    #[error("value is not an integer or out of range")]
    NotAnInteger,
    /// Not applied: the value is not a decimal number.
    #[error("value is not a valid float")]
    NotAFloat,
    /// Not applied: the sum is outside the range of its type.
    #[error("increment or decrement would overflow")]
    Overflow,
    /// Not applied: the result would be longer than the limit. Not read: it is longer than this client's.
    #[error("value would exceed the limit of {limit} bytes")]
    ResultTooLong {
        /// [`LONG_VALUE_BYTES_MAX`](nicekv_proto::limits::LONG_VALUE_BYTES_MAX), or [`Config::value_bytes_max`](crate::Config::value_bytes_max).
        limit: usize,
    },
    /// Nobody was told: so many listen that what is published there has to be shorter.
    #[error("nobody was told: too many listen for a message of this length, send shorter ones")]
    TooManyListeners,
    /// Applied: the update has taken effect, but its caller wanted the value from before, a large one, and that was gone before it was read as a whole, or could not
    /// be read in time.
    #[error("the update has taken effect, but the value from before is gone, or could not be read")]
    OldValueGone,
    /// Not applied, or not read: the replicas were at a bound of theirs until the deadline, or so many requests were waiting that this one's turn
    /// did not come in time.
    #[error("replicas are busy, nothing was stored, try again later")]
    Busy,
    /// Not applied: a replica's disk is full.
    #[error(
        "a replica's disk is full, nothing was stored: free space on the disk or delete keys, `nicekv status` names the node; gets and deletes go on"
    )]
    DiskFull,
    /// Not applied: the key is to be the name of an object, and the update says no stamp of its chunks, or an older one than garbage collection is at (P9).
    #[error(
        "nothing was stored: the keyspace has names of objects, and the chunks of this one may have been collected; put them again (`nicekv object put` does)"
    )]
    StaleStamp,
    /// Not applied: the keys of a transaction are of several partitions.
    #[error(
        "the keys of a transaction have to be of one partition: give them one hash tag, as in {{user:1}}:name and {{user:1}}:age"
    )]
    CrossPartition,
    /// Not applied, or not read: the key has a hash, and what was asked for is of plain values, or the other way round.
    #[error("the key holds a value of another kind: a hash where it was to be plain, or the other way round")]
    WrongType,
    /// Not applied: evaluating the request has crashed a node twice.
    #[error(
        "ended by the store, nothing was stored: this request has crashed a node twice; please report it"
    )]
    EndedByStore,
    /// Not applied: the keyspace does not exist.
    #[error("no such keyspace")]
    NoSuchKeyspace,
}

impl OperationError {
    /// The error that a reply's status stands for; `None` for the statuses that are answers.
    pub(crate) fn from_status(status: Status) -> Option<Self> {
        Some(match status {
            Status::Ok | Status::NotFound | Status::ConditionFailed => return None,
            Status::NotAnInteger => Self::NotAnInteger,
            Status::NotAFloat => Self::NotAFloat,
            Status::Overflow => Self::Overflow,
            Status::ValueTooLong => Self::ResultTooLong { limit: LONG_VALUE_BYTES_MAX },
            Status::Expired => Self::OutcomeUnknown,
            Status::Busy => Self::Busy,
            Status::DiskFull => Self::DiskFull,
            Status::StaleStamp => Self::StaleStamp,
            Status::CrossPartition => Self::CrossPartition,
            Status::WrongType => Self::WrongType,
            Status::EndedByStore => Self::EndedByStore,
            Status::NoSuchKeyspace => Self::NoSuchKeyspace,
        })
    }
}
