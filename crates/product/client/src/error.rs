//! Why a request was refused, or failed.

use nicekv_proto::limits::LONG_VALUE_BYTES_MAX;
use nicekv_proto::{KeyspaceId, Status};
use thiserror::Error;

/// A request was refused. Nothing was sent.
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
    /// [`Operation::SetLarge`](nicekv_proto::Operation::SetLarge) or
    /// [`Operation::AppendLarge`](nicekv_proto::Operation::AppendLarge): callers set bytes, and the client makes the reference.
    #[error("set the bytes of a large value, not its reference: the client makes that")]
    NameOfLarge,
    /// Quorum keyspaces have no primary: replicas keep the newest version and decide nothing.
    #[error("{what} needs a primary, and this keyspace is replicated by quorum: it can get, set and delete")]
    NeedsPrimary {
        /// The requested operation.
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
    #[error("transactions can contain gets and updates of keys only")]
    NoStep,
    /// A transaction is one message, and so are its results.
    #[error("transaction of {bytes} bytes exceeds the limit of {limit} bytes")]
    TransactionTooLong {
        /// Its length.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// Switches that spread hot keys know one key of an update.
    #[error("transactions are refused in keyspaces with hot keys (balancing = \"hot\")")]
    TransactionOfHot,
    /// The increment is infinite or not a number.
    #[error("increment is NaN or infinity")]
    NotFinite,
    /// Not one of [`Config::keyspaces`](crate::Config::keyspaces).
    #[error("keyspace {keyspace} is unknown to this client")]
    NoSuchKeyspace {
        /// Its id.
        keyspace: KeyspaceId,
    },
    /// Too many requests are in flight: take completions first.
    #[error("{limit} operations are in flight already")]
    WindowFull {
        /// [`Config::in_flight_max`](crate::Config::in_flight_max), or [`SEQUENCE_SPAN_MAX`](crate::SEQUENCE_SPAN_MAX).
        limit: usize,
    },
}

/// A request was submitted and failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum OperationError {
    /// The update was sent, and no answer came before the deadline, or the replicas have forgotten the client: it may have
    /// taken effect, may yet do so, or may not.
    #[error("outcome unknown: the update may or may not have taken effect")]
    OutcomeUnknown,
    /// No replica answered the get before the deadline, or in a quorum keyspace too few did. After a put to a quorum keyspace:
    /// nothing was stored.
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
    /// Not applied: the result would exceed the limit. Or not read: the value exceeds the client's limit.
    #[error("value would exceed the limit of {limit} bytes")]
    ResultTooLong {
        /// [`LONG_VALUE_BYTES_MAX`](nicekv_proto::limits::LONG_VALUE_BYTES_MAX), or [`Config::value_bytes_max`](crate::Config::value_bytes_max).
        limit: usize,
    },
    /// The message was not delivered: it is too long for a channel with this many subscribers.
    #[error(
        "not delivered: the channel has too many subscribers for a message of this length; send a shorter one"
    )]
    TooManyListeners,
    /// Applied: the update took effect, but its previous value, a large one, was gone before it was read, or could not be
    /// read in time.
    #[error("the update took effect, but the previous value is gone or could not be read in time")]
    OldValueGone,
    /// Not applied, or not read: the replicas were overloaded until the deadline, or the request waited in the client until
    /// then.
    #[error("replicas are busy, nothing was stored, try again later")]
    Busy,
    /// Not applied: a replica's disk is full.
    #[error(
        "a replica's disk is full, nothing was stored: free space on the disk or delete keys; `nicekv status` names the node; gets and deletes still work"
    )]
    DiskFull,
    /// Not applied: the key names an object, and the update carries no stamp of the object's chunks, or one that is too old
    /// for garbage collection (P9).
    #[error(
        "nothing was stored: the keyspace holds objects, and the chunks of this one may have been garbage-collected; put them again (`nicekv object put` does)"
    )]
    StaleStamp,
    /// Not applied: the keys of a transaction belong to several partitions.
    #[error(
        "the keys of a transaction must be in one partition: give them the same hash tag, as in {{user:1}}:name and {{user:1}}:age"
    )]
    CrossPartition,
    /// Not applied, or not read: the key holds a hash and the request needs a plain value, or the other way round.
    #[error("wrong type: the key holds a hash and the request needs a plain value, or the other way round")]
    WrongType,
    /// Not applied: evaluating the request has crashed a node twice.
    #[error("aborted, nothing was stored: this request has crashed a node twice; please report it")]
    EndedByStore,
    /// Not applied: the keyspace does not exist.
    #[error("no such keyspace")]
    NoSuchKeyspace,
}

impl OperationError {
    /// The error of a reply's status; `None` for the statuses that are answers.
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;

    /// Users search for these words.
    #[test]
    fn error_texts() {
        let refused = [
            (
                SubmitError::KeyTooLong { bytes: 2_000, limit: 1_024 },
                "key of 2000 bytes exceeds the limit of 1024 bytes",
            ),
            (
                SubmitError::ValueTooLong { bytes: 9, limit: 8 },
                "value of 9 bytes exceeds the limit of 8 bytes",
            ),
            (SubmitError::NoStep, "transactions can contain gets and updates of keys only"),
            (SubmitError::NotFinite, "increment is NaN or infinity"),
            (SubmitError::WindowFull { limit: 64 }, "64 operations are in flight already"),
        ];
        for (error, text) in refused {
            assert_eq!(error.to_string(), text);
        }
        let failed = [
            (OperationError::OutcomeUnknown, "outcome unknown: the update may or may not have taken effect"),
            (OperationError::TimedOut, "timed out: no replica answered before the deadline"),
            (OperationError::Busy, "replicas are busy, nothing was stored, try again later"),
            (
                OperationError::CrossPartition,
                "the keys of a transaction must be in one partition: give them the same hash tag, as in {user:1}:name and {user:1}:age",
            ),
            (
                OperationError::TooManyListeners,
                "not delivered: the channel has too many subscribers for a message of this length; send a shorter one",
            ),
        ];
        for (error, text) in failed {
            assert_eq!(error.to_string(), text);
        }
    }
}
