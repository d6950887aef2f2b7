//! Makes replies from answers.

use crate::answered::Answered;
use crate::bits::BitQuery;
use crate::error::CommandError;
use crate::hash_reply::HashReply;
use crate::lcs::LcsQuery;
use crate::object_reply::ObjectReply;
use crate::range::slice;
use crate::resp::ReplyWriter;
use nicekv_client::{OperationError, Outcome};
use nicekv_proto::Form;

/// How to make the reply of a command with one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finish {
    /// The value, or null.
    Value,
    /// OK, or null if the condition did not hold.
    Stored,
    /// 1 if it was applied, otherwise 0.
    Applied,
    /// 1 if all steps of a transaction were executed, 0 if a required condition did not hold.
    AllOrNone,
    /// The answer's integer.
    Integer,
    /// The result of a floating-point increment.
    Float,
    /// Length of the value.
    Length,
    /// Part of the value, by indexes as in GETRANGE.
    Range(i64, i64),
    Bits(BitQuery),
    Hash(HashReply),
    Object(ObjectReply),
    /// "string", "hash" or "none".
    Type,
    /// Time until the key expires.
    TimeToLive(TimeUnit),
    /// Time at which the key expires.
    ExpireTime(TimeUnit),
    /// Null if the key has no value, otherwise this error.
    NullOr(CommandError),
}

/// How to make the reply of a command with one request per key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FinishEachKey {
    /// Number of keys for which the request was applied or found a value.
    Count,
    /// All values, in the order of the keys.
    Values,
    /// The common subsequence of the two values (LCS).
    Common(LcsQuery),
    /// OK.
    AllStored,
    /// OK; the connection also remembers the versions of all keys.
    Watched,
}

impl FinishEachKey {
    /// Whether the reply needs values, not only their lengths or versions.
    pub fn wants_values(self) -> bool {
        matches!(self, Self::Values | Self::Common(_))
    }
}

/// Unit of an expiry time, in arguments and replies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeUnit {
    Seconds,
    Milliseconds,
}

impl TimeUnit {
    /// A time in this unit, rounded to the nearest as in Redis.
    fn rounded(self, ms: i64) -> i64 {
        match self {
            Self::Seconds => ms.saturating_add(500) / 1_000,
            Self::Milliseconds => ms,
        }
    }
}

impl Finish {
    pub fn write(&self, answered: Answered<'_>, unix_ms: u64, reply: &mut ReplyWriter<'_>) {
        let answer = match answered.result {
            Ok(answer) => answer,
            Err(error) => return reply.error(self.error(error, answered.cause).as_bytes()),
        };
        if answer.form == Form::Hash && self.needs_string() {
            return reply.error(CommandError::WRONG_TYPE.as_bytes());
        }
        let applied = answer.outcome == Outcome::Done;
        let value = answer.value.unwrap_or_default();
        match self {
            Self::Value => reply.bulk_or_null(answer.value, answered.shared),
            Self::Stored if applied => reply.simple("OK"),
            Self::Stored => reply.null(),
            Self::Applied => reply.integer(applied.into()),
            Self::AllOrNone => reply.integer((answer.outcome != Outcome::ConditionFailed).into()),
            Self::Integer => reply.integer(answer.integer),
            Self::Float => reply.bulk(value),
            Self::Length => reply.integer(answer.value.map_or(answer.integer, |value| value.len() as i64)),
            Self::Range(start, end) => reply.bulk_of(slice(value, *start, *end), answered.shared),
            Self::Bits(query) => reply.integer(query.of(answer.value)),
            Self::Hash(hash) => hash.write(&answer, reply),
            Self::Object(object) => object.write(&answer, reply),
            Self::Type if answer.form == Form::Hash => reply.simple("hash"),
            Self::Type => reply.simple(if applied { "string" } else { "none" }),
            Self::TimeToLive(_) | Self::ExpireTime(_) if !applied => reply.integer(-2),
            Self::TimeToLive(_) | Self::ExpireTime(_) if answer.expiry_ms == 0 => reply.integer(-1),
            Self::TimeToLive(unit) => {
                reply.integer(unit.rounded(answer.expiry_ms.saturating_sub(unix_ms) as i64));
            }
            Self::ExpireTime(unit) => reply.integer(unit.rounded(answer.expiry_ms as i64)),
            Self::NullOr(error) if applied => reply.error(error.as_bytes()),
            Self::NullOr(_) => reply.null(),
        }
    }

    fn error(&self, error: OperationError, cause: &str) -> CommandError {
        match (self, error) {
            (Self::Float, OperationError::Overflow) => CommandError::NOT_FINITE,
            (Self::AllOrNone, error) => CommandError::of_transaction(error, cause),
            (Self::Hash(hash), error) => hash.error(error, cause),
            (_, error) => CommandError::of_operation(error, cause),
        }
    }

    /// Whether it needs the value, not only its length or expiry.
    pub fn wants_value(&self) -> bool {
        match self {
            Self::Hash(hash) => hash.reads(),
            Self::Object(object) => object.reads(),
            _ => matches!(self, Self::Value | Self::Range(..) | Self::Bits(_)),
        }
    }

    /// Whether a hash is a value of the wrong type for it.
    fn needs_string(&self) -> bool {
        self.wants_value() && !matches!(self, Self::Hash(_) | Self::Object(_))
            || matches!(self, Self::Length | Self::NullOr(_))
    }

    /// Heap bytes in use.
    pub fn memory(&self) -> usize {
        if let Self::Hash(hash) = self { hash.memory() } else { 0 }
    }
}
