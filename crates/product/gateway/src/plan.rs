//! From a command to requests, and from their answers to a reply.
//!
//! A handler turns a command into a [`Plan`]: a reply at once, or requests and a [`Finish`] that makes one reply of their answers.

use crate::answered::Answered;
use crate::asking::Asking;
use crate::bits::BitQuery;
use crate::caller::Caller;
use crate::clients::{Listed, Told};
use crate::error::CommandError;
use crate::gathering::FinishMany;
use crate::hashes::HashReply;
use crate::objects::ObjectReply;
use crate::quiet::Quiet;
use crate::reply::{Protocol, ReplyWriter};
use crate::security::Standing;
use crate::subscribing::{Change, Subscribed};
use crate::transaction::Multi;
use nicekv_client::transaction::Transaction;
use nicekv_client::{OperationError, Outcome, Request};
use nicekv_proto::number::parse_integer;
use nicekv_proto::{Condition, Expiry, Form, KeyspaceId, Operation};
use std::sync::Arc;

/// What is to be done for a command.
#[derive(Debug)]
pub(crate) enum Plan<'a> {
    /// The handler has written the reply.
    Replied,
    /// The handler has written the reply, and the connection ends after it.
    Close,
    /// One request.
    One(Request<'a>, Finish),
    /// One request, whose bytes were made for it.
    Made(Made<'a>, Finish),
    /// One request that puts a value that was made for it.
    Put(Put<'a>, Finish),
    /// One request after the other, as the answers call for them.
    Asking(Box<dyn Asking>),
    /// Another set of channels and patterns that the connection listens to.
    Change(Change),
    /// A transaction of which all was done or nothing.
    AllOrNone(Transaction),
    /// A script, which has so many steps: one request, and what it publishes.
    Script(Transaction, usize),
    /// One request for each of several keys, as many at once as there is room for. No order among them is promised.
    Many(Many),
}

impl Plan<'_> {
    /// Whether it needs room for one request.
    pub(crate) fn is_one_request(&self) -> bool {
        matches!(self, Self::One(..) | Self::Made(..) | Self::Put(..) | Self::AllOrNone(_))
    }
}

/// An update that carries other bytes than one of the arguments.
#[derive(Debug)]
pub(crate) struct Made<'a> {
    pub(crate) key: &'a [u8],
    pub(crate) bytes: Vec<u8>,
    pub(crate) operation: fn(&[u8]) -> Operation<'_>,
}

impl Made<'_> {
    pub(crate) fn request(&self) -> Request<'_> {
        Request::update(self.key, (self.operation)(&self.bytes))
    }
}

/// A whole value, of any form.
#[derive(Debug)]
pub(crate) struct Put<'a> {
    pub(crate) key: &'a [u8],
    pub(crate) bytes: Vec<u8>,
    pub(crate) form: Form,
    pub(crate) expiry: Expiry,
    pub(crate) condition: Condition,
}

impl Put<'_> {
    pub(crate) fn request(&self) -> Request<'_> {
        let (value, expiry) = (self.bytes.as_slice(), self.expiry);
        let operation = match self.form {
            Form::Hash => Operation::SetHash { fields: value, expiry },
            _ => Operation::Set { value, expiry },
        };
        Request::Update { key: self.key, condition: self.condition, return_old: false, operation }
    }
}

/// The requests of a command on several keys. They are made one by one: there may be a million.
#[derive(Debug)]
pub(crate) struct Many {
    /// Numbers of the arguments that are keys, all of them checked, values as well.
    pub(crate) keys: Vec<u32>,
    pub(crate) request: RequestFor,
    pub(crate) finish: FinishMany,
}

/// The request for the key that is argument number `key`.
pub(crate) type RequestFor = for<'a> fn(call: &Call<'a>, key: usize) -> Request<'a>;

/// Makes the reply of a command with one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Finish {
    /// The value, or null.
    Value,
    /// OK, or null if the condition did not hold.
    Stored,
    /// 1 if it was applied, else 0.
    Applied,
    /// The answer's integer.
    Integer,
    /// The sum of a floating-point increment.
    Float,
    /// Length of the value.
    Length,
    /// Part of the value, by Redis' indexes.
    Range(i64, i64),
    /// What is asked of the value's bits.
    Bits(BitQuery),
    /// What is asked of a hash, or was done to one.
    Hash(HashReply),
    /// What is asked of the value itself.
    Object(ObjectReply),
    /// "string", "hash" or "none".
    Type,
    /// Time until the key expires.
    TimeToLive(TimeUnit),
    /// Time at which the key expires.
    ExpireTime(TimeUnit),
    /// Null if the key has no value, else this error.
    NullOr(CommandError),
}

/// Unit of an expiry time in arguments and replies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TimeUnit {
    Seconds,
    Milliseconds,
}

impl TimeUnit {
    /// Rounded to the nearest, as in Redis.
    fn rounded(self, ms: i64) -> i64 {
        match self {
            Self::Seconds => ms.saturating_add(500) / 1_000,
            Self::Milliseconds => ms,
        }
    }
}

impl Finish {
    pub(crate) fn write(&self, answered: Answered<'_>, unix_ms: u64, reply: &mut ReplyWriter<'_>) {
        let answer = match answered.result {
            Ok(answer) => answer,
            Err(OperationError::Overflow) if *self == Self::Float => {
                return reply.error(CommandError::NOT_FINITE.as_bytes());
            }
            Err(error) => {
                let of_hash = if let Self::Hash(hash) = self { Some(hash.error(error)) } else { None };
                return reply.error(of_hash.unwrap_or_else(|| error.into()).as_bytes());
            }
        };
        if answer.form == Form::Hash && self.is_of_plain() {
            return reply.error(CommandError::WRONG_TYPE.as_bytes());
        }
        let applied = answer.outcome == Outcome::Done;
        let value = answer.value.unwrap_or_default();
        match self {
            Self::Value => reply.bulk_or_null(answer.value, answered.kept),
            Self::Stored if applied => reply.simple("OK"),
            Self::Stored => reply.null(),
            Self::Applied => reply.integer(applied.into()),
            Self::Integer => reply.integer(answer.integer),
            Self::Float => reply.bulk(value),
            Self::Length => reply.integer(answer.value.map_or(answer.integer, |value| value.len() as i64)),
            Self::Range(start, end) => reply.bulk_of(slice(value, *start, *end), answered.kept),
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

    /// Whether it needs the value, and not only how long it is or when it expires.
    pub(crate) fn wants_value(&self) -> bool {
        match self {
            Self::Hash(hash) => hash.reads(),
            Self::Object(object) => object.reads(),
            _ => matches!(self, Self::Value | Self::Range(..) | Self::Bits(_)),
        }
    }

    /// Whether a hash is not what it is for.
    fn is_of_plain(&self) -> bool {
        self.wants_value() && !matches!(self, Self::Hash(_) | Self::Object(_))
            || matches!(self, Self::Length | Self::NullOr(_))
    }

    /// Bytes that it holds.
    pub(crate) fn memory(&self) -> usize {
        if let Self::Hash(hash) = self { hash.memory() } else { 0 }
    }
}

/// The bytes from `start` to `end` inclusive; negative ones count from the end.
fn slice(value: &[u8], start: i64, end: i64) -> &[u8] {
    if start < 0 && end < 0 && start > end {
        return &[];
    }
    places(value.len(), start, end).map_or(&[], |(start, end)| &value[start..=end])
}

/// The first and the last of `length` places that are from `start` to `end` inclusive, by Redis' indexes; `None`: there are none.
pub(crate) fn places(length: usize, start: i64, end: i64) -> Option<(usize, usize)> {
    let length = length as i64;
    let from_front = |index: i64| if index < 0 { (length + index).max(0) } else { index };
    let (start, end) = (from_front(start), from_front(end).min(length - 1));
    (start <= end).then_some((start as usize, end as usize))
}

/// What handlers know and change of their connection.
#[derive(Debug, Default)]
pub(crate) struct Session {
    /// CLIENT ID.
    pub(crate) id: u64,
    /// What others see of it.
    pub(crate) listed: Arc<Listed>,
    /// SELECT: the keyspace of all its keys.
    pub(crate) keyspace: KeyspaceId,
    /// CLIENT SETNAME.
    pub(crate) name: Vec<u8>,
    /// MULTI, WATCH.
    pub(crate) multi: Multi,
    pub(crate) protocol: Protocol,
    /// SUBSCRIBE, PSUBSCRIBE.
    pub(crate) subscribed: Subscribed,
    /// Its user.
    pub(crate) standing: Standing,
    /// CLIENT REPLY.
    pub(crate) quiet: Quiet,
    /// MONITOR.
    pub(crate) is_monitor: bool,
}

impl Session {
    /// For whom something is executed.
    pub(crate) fn caller(&self, unix_ms: u64) -> Caller {
        let user = self.standing.user().cloned();
        Caller { keyspace: self.keyspace, protocol: self.protocol, unix_ms, user }
    }

    /// What CLIENT INFO says, in the words and the order of Redis; `command` is the one that it runs.
    pub(crate) fn describe(&self, unix_ms: u64, command: &str) -> String {
        self.publish();
        self.listed.touch(self.listed.last_subject(), unix_ms);
        self.listed.line(unix_ms, command)
    }

    /// Lets others see what has changed of it.
    pub(crate) fn publish(&self) {
        let (channels, patterns) = self.subscribed.counts();
        let told = Told {
            name: self.name.clone(),
            user: self.standing.name().to_vec(),
            keyspace: self.keyspace,
            is_resp3: self.protocol == Protocol::Resp3,
            channels,
            patterns,
            queued: self.multi.queued(),
            is_monitor: self.is_monitor,
        };
        *self.listed.told() = told;
    }
}

/// Everything a handler works with.
pub(crate) struct Context<'a, 'b> {
    pub(crate) unix_ms: u64,
    pub(crate) session: &'a mut Session,
    pub(crate) server: &'a crate::shared::ServerState,
    pub(crate) reply: &'a mut ReplyWriter<'b>,
}

/// A command's arguments, checked as they are taken. Number 0 is the name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call<'a> {
    pub(crate) arguments: crate::parser::Arguments<'a>,
    /// The command's name in lower case.
    pub(crate) name: &'static str,
}

impl<'a> Call<'a> {
    pub(crate) fn count(&self) -> usize {
        self.arguments.count()
    }

    /// Any argument that is used as it is.
    pub(crate) fn bytes(&self, index: usize) -> Result<&'a [u8], CommandError> {
        let (bytes, length) = (self.arguments.prefix(index), self.arguments.length(index));
        if bytes.len() == length {
            return Ok(bytes);
        }
        let limit = self.arguments.bytes_max();
        Err(CommandError::text(format!("ERR argument of {length} bytes exceeds the limit of {limit} bytes")))
    }

    /// A key, with the error that names its limit.
    pub(crate) fn key(&self, index: usize) -> Result<&'a [u8], CommandError> {
        let key = self.arguments.prefix(index);
        let bytes = self.arguments.length(index);
        let limit = nicekv_proto::limits::KEY_BYTES_MAX;
        if bytes > limit {
            return Err(nicekv_client::SubmitError::KeyTooLong { bytes, limit }.into());
        }
        Request::Get { key }.check()?;
        Ok(key)
    }

    /// A value, with the error that names its limit.
    pub(crate) fn value(&self, index: usize) -> Result<&'a [u8], CommandError> {
        let bytes = self.arguments.length(index);
        let value = self.arguments.prefix(index);
        if value.len() < bytes {
            let limit = self.arguments.bytes_max();
            return Err(nicekv_client::SubmitError::ValueTooLong { bytes, limit }.into());
        }
        Ok(value)
    }

    pub(crate) fn integer(&self, index: usize) -> Result<i64, CommandError> {
        parse_integer(self.arguments.prefix(index)).ok_or(CommandError::NOT_AN_INTEGER)
    }

    /// Whether a subcommand has so many arguments.
    pub(crate) fn check_subcommand(&self, count: usize) -> Result<(), CommandError> {
        if self.count() == count {
            return Ok(());
        }
        let subcommand = String::from_utf8_lossy(self.bytes(1)?).to_ascii_lowercase();
        Err(CommandError::arity(&format!("{}|{subcommand}", self.name)))
    }

    /// Whether an argument is this word, in capitals or not.
    pub(crate) fn is(&self, index: usize, word: &str) -> bool {
        self.arguments.prefix(index).eq_ignore_ascii_case(word.as_bytes())
    }
}

/// A command's implementation.
pub(crate) type Handler = for<'a> fn(&mut Context<'_, '_>, &Call<'a>) -> Result<Plan<'a>, CommandError>;
