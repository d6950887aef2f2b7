//! From a command to requests, and from their answers to a reply.
//!
//! A handler turns a command into a [`Plan`]: a reply at once, or requests and a [`Finish`] that makes one reply of their answers.

use crate::bits::BitQuery;
use crate::error::CommandError;
use crate::hashes::HashReply;
use crate::permits::Kept;
use crate::reply::{Protocol, ReplyWriter};
use crate::scanning::Scanning;
use crate::security::Standing;
use crate::subscribing::{Change, Subscribed};
use crate::transaction::{Multi, Replies};
use nicekv_client::transaction::Transaction;
use nicekv_client::{Answer, OperationError, Outcome, Request};
use nicekv_wire::number::parse_integer;
use nicekv_wire::{Form, KeyspaceId, OpId, Operation};
use std::net::SocketAddr;
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
    /// As many requests as it takes to list keys.
    Scan(Scanning),
    /// Another set of channels and patterns that the connection listens to.
    Change(Change),
    /// All commands of a transaction, as one request.
    Exec(Transaction, Replies),
    /// One request for each of several keys, as many at once as there is room for. No order among them is promised.
    Many(Many),
}

impl Plan<'_> {
    /// Whether it needs room for one request.
    pub(crate) fn is_one_request(&self) -> bool {
        matches!(self, Self::One(..) | Self::Made(..) | Self::Exec(..))
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
    /// "string", "hash" or "none".
    Type,
    /// Time until the key expires.
    TimeToLive(TimeUnit),
    /// Time at which the key expires.
    ExpireTime(TimeUnit),
    /// Null if the key has no value, else this error.
    NullOr(CommandError),
}

/// Makes the reply of a command with several requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FinishMany {
    /// How many were applied or found.
    Count,
    /// All values, in the order of the keys.
    Values,
    /// OK.
    AllStored,
    /// OK, and the versions of all keys are kept.
    Watched,
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

/// How a request ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answered<'a> {
    pub(crate) result: Result<Answer<'a>, OperationError>,
    /// The answer's value, where it is a large one.
    pub(crate) kept: Option<&'a Arc<Kept>>,
}

impl<'a> From<Result<Answer<'a>, OperationError>> for Answered<'a> {
    fn from(result: Result<Answer<'a>, OperationError>) -> Self {
        Self { result, kept: None }
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
            _ => matches!(self, Self::Value | Self::Range(..) | Self::Bits(_)),
        }
    }

    /// Whether a hash is not what it is for.
    fn is_of_plain(&self) -> bool {
        self.wants_value() && !matches!(self, Self::Hash(_)) || matches!(self, Self::Length | Self::NullOr(_))
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

/// The answers of a command with several requests, as they come in.
#[derive(Debug)]
pub(crate) struct Gathering {
    finish: FinishMany,
    requests: usize,
    outstanding: usize,
    count: i64,
    values: Vec<Option<Value>>,
    value_bytes: usize,
    versions: Vec<OpId>,
    error: Option<CommandError>,
}

/// One of the values that are gathered.
#[derive(Clone, Debug)]
enum Value {
    Short(Box<[u8]>),
    Large(Arc<Kept>),
}

/// What an allocation costs beyond its bytes, about.
const ALLOCATION_BYTES: usize = 16;

impl Gathering {
    pub(crate) fn new(finish: FinishMany, requests: usize) -> Self {
        let values = if finish == FinishMany::Values { vec![None; requests] } else { Vec::new() };
        let versions = if finish == FinishMany::Watched { vec![OpId::NONE; requests] } else { Vec::new() };
        let (outstanding, error) = (requests, None);
        Self { finish, requests, outstanding, count: 0, values, value_bytes: 0, versions, error }
    }

    /// Bytes that it occupies.
    pub(crate) fn memory(&self) -> usize {
        self.values.len() * size_of::<Option<Value>>() + self.value_bytes + size_of_val(&*self.versions)
    }

    /// The versions that were to be kept, if this is about that: none if not all are known.
    pub(crate) fn take_versions(&mut self) -> Option<Option<Vec<OpId>>> {
        let versions = std::mem::take(&mut self.versions);
        (self.finish == FinishMany::Watched).then(|| Some(versions).filter(|_| self.error.is_none()))
    }

    pub(crate) fn answered(&self) -> usize {
        self.requests - self.outstanding
    }

    pub(crate) fn outstanding(&self) -> usize {
        self.outstanding
    }

    pub(crate) fn wants_values(&self) -> bool {
        self.finish == FinishMany::Values
    }

    /// Takes the answer to request number `part`; true if it was the last.
    pub(crate) fn take(&mut self, part: usize, answered: Answered<'_>) -> bool {
        match answered.result {
            Ok(answer) => {
                self.count += i64::from(answer.outcome == Outcome::Done);
                if let Some(version) = self.versions.get_mut(part) {
                    *version = answer.version;
                }
                // As in Redis what is not plain is none here.
                let value = answer.value.filter(|_| answer.form != Form::Hash);
                if let (Some(place), Some(value)) = (self.values.get_mut(part), value) {
                    *place = Some(match answered.kept {
                        Some(kept) => Value::Large(kept.clone()),
                        None => {
                            self.value_bytes += value.len() + ALLOCATION_BYTES;
                            Value::Short(value.into())
                        }
                    });
                }
            }
            // An unknown outcome says more than a certain failure of another key.
            Err(error @ OperationError::OutcomeUnknown) => self.error = Some(error.into()),
            Err(error) => {
                self.error.get_or_insert(error.into());
            }
        }
        self.outstanding -= 1;
        self.outstanding == 0
    }

    /// A request was not sent; true if it was the last that was waited for.
    pub(crate) fn fail(&mut self, error: CommandError) -> bool {
        self.error.get_or_insert(error);
        self.outstanding -= 1;
        self.outstanding == 0
    }

    pub(crate) fn write(self, reply: &mut ReplyWriter<'_>) {
        if let Some(error) = &self.error {
            return reply.error(error.as_bytes());
        }
        match self.finish {
            FinishMany::Count => reply.integer(self.count),
            FinishMany::AllStored | FinishMany::Watched => reply.simple("OK"),
            FinishMany::Values => {
                reply.array(self.values.len());
                // Each is freed when it is written: a long reply does not take its memory twice.
                self.values.into_iter().for_each(|value| match value {
                    None => reply.null(),
                    Some(Value::Short(value)) => reply.bulk(&value),
                    Some(Value::Large(kept)) => reply.bulk_of(&kept.bytes, Some(&kept)),
                });
            }
        }
    }
}

/// What handlers know and change of their connection.
#[derive(Debug, Default)]
pub(crate) struct Session {
    /// CLIENT ID.
    pub(crate) id: u64,
    /// The peer's and ours.
    pub(crate) addresses: Option<(SocketAddr, SocketAddr)>,
    /// When it began.
    pub(crate) since_unix_ms: u64,
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
}

impl Session {
    /// What CLIENT INFO says, in the words and the order of Redis; `command` is the one that it runs.
    pub(crate) fn describe(&self, unix_ms: u64, command: &str) -> String {
        let (peer, local) = match self.addresses {
            Some((peer, local)) => (peer.to_string(), local.to_string()),
            None => Default::default(),
        };
        let age_s = unix_ms.saturating_sub(self.since_unix_ms) / 1_000;
        let [name, user] = [&self.name, self.standing.name()].map(String::from_utf8_lossy);
        let protocol = if self.protocol == Protocol::Resp3 { 3 } else { 2 };
        let (channels, patterns) = self.subscribed.counts();
        let flags = if self.subscribed.is_empty() { 'N' } else { 'P' };
        format!(
            "id={} addr={peer} laddr={local} name={name} age={age_s} idle=0 flags={flags} db={} sub={channels} psub={patterns} ssub=0 multi=-1 \
             cmd={command} user={user} redir=-1 resp={protocol}",
            self.id, self.keyspace.0,
        )
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
        let limit = nicekv_wire::limits::KEY_BYTES_MAX;
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

    /// Whether an argument is this word, in capitals or not.
    pub(crate) fn is(&self, index: usize, word: &str) -> bool {
        self.arguments.prefix(index).eq_ignore_ascii_case(word.as_bytes())
    }
}

/// A command's implementation.
pub(crate) type Handler = for<'a> fn(&mut Context<'_, '_>, &Call<'a>) -> Result<Plan<'a>, CommandError>;
