//! The commands that scripts call. They are those of `nicekv-redis`, run on the keys that a node
//! lends.

use nicekv_client::transaction::{Transaction, result};
use nicekv_client::{OperationError, Request};
use nicekv_proto::large::Reference;
use nicekv_proto::limits::{LONG_VALUE_BYTES_MAX, TRANSACTION_BYTES_MAX};
use nicekv_proto::replication::Effect;
use nicekv_proto::transaction::{Act, Step, Taken};
use nicekv_proto::{Condition, Form, KeyspaceId, OpId, Status};
use nicekv_redis::acl::Users;
use nicekv_redis::answered::Answered;
use nicekv_redis::call::Call;
use nicekv_redis::command::{Command, Flags, Kind};
use nicekv_redis::context::Context;
use nicekv_redis::continuation::{Continuation, Next};
use nicekv_redis::dispatch::handler;
use nicekv_redis::error::CommandError;
use nicekv_redis::finish::Finish;
use nicekv_redis::host::Host;
use nicekv_redis::plan::{Plan, PlannedRequest};
use nicekv_redis::resp::{ArgumentList, Arguments, Protocol, ReplyBuffer, ReplyWriter};
use nicekv_redis::script_reply::append_message;
use nicekv_redis::session::Session;
use nicekv_redis::table::find;
use nicekv_replica::{ScriptKeys, ScriptTold};
use std::sync::Arc;

/// Runs the commands of one script, one after the other.
#[derive(Debug)]
pub(crate) struct ScriptCommands {
    /// The time for commands, in Unix milliseconds.
    unix_ms: u64,
    is_read_only: bool,
    session: Session,
    arguments: ArgumentList,
    /// Messages to publish, in the format in which they follow a reply.
    published: Vec<u8>,
}

/// Why a command is refused before it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    Unknown,
    Arity,
    NotAllowed,
    Writes,
    UndeclaredKey,
}

impl Refused {
    /// The error text; those of Redis.
    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::Unknown => "ERR Unknown Redis command called from script",
            Self::Arity => "ERR Wrong number of args calling Redis command from script",
            Self::NotAllowed => "ERR This Redis command is not allowed from script",
            Self::Writes => "ERR Write commands are not allowed from read-only scripts.",
            Self::UndeclaredKey => "ERR Script attempted to access a non local key in a cluster node",
        }
    }
}

/// The limit of published messages is the limit of a script's reply.
const TOO_MUCH_PUBLISHED: &[u8] = b"ERR script publishes too much";

impl ScriptCommands {
    pub(crate) fn new(unix_ms: u64, is_read_only: bool) -> Self {
        Self {
            unix_ms,
            is_read_only,
            session: Session::default(),
            arguments: ArgumentList::new(LONG_VALUE_BYTES_MAX),
            published: Vec::new(),
        }
    }

    /// The messages to publish when the script is done, in the format in which they follow a reply.
    pub(crate) fn published(&self) -> &[u8] {
        &self.published
    }

    /// Runs a command, and appends its RESP2 reply.
    pub(crate) fn run(
        &mut self,
        words: &[&[u8]],
        keys: &mut dyn ScriptKeys,
        out: &mut Vec<u8>,
    ) -> Result<(), Refused> {
        let Self { unix_ms, is_read_only, session, arguments, published } = self;
        if words.is_empty() {
            return Err(Refused::Arity);
        }
        arguments.copy_from(words);
        let arguments = arguments.arguments();
        let command = allowed(arguments, *is_read_only, keys)?;
        let mut written = ReplyBuffer::default();
        let mut reply = ReplyWriter { out: &mut written, protocol: Protocol::Resp2 };
        let call = Call { arguments, name: command.name };
        let context = &mut Context { unix_ms: *unix_ms, session, host: &ScriptHost, reply: &mut reply };
        match handler(command)(context, &call) {
            Ok(Plan::Request(PlannedRequest::Arguments(Request::Publish { channel, message }), _)) => {
                if published.len() + channel.len() + message.len() > TRANSACTION_BYTES_MAX {
                    reply.error(TOO_MUCH_PUBLISHED);
                } else {
                    append_message(channel, message, published);
                    reply.integer(0);
                }
            }
            // RENAME and similar commands are transactions themselves.
            Ok(Plan::Continue(_)) if command.flags.has(Flags::NOT_IN_MULTI) => {
                reply.error(Refused::NotAllowed.text().as_bytes());
            }
            Ok(Plan::Subscribe(_)) => reply.error(Refused::NotAllowed.text().as_bytes()),
            Ok(Plan::Replied | Plan::Close) => {}
            Ok(Plan::Request(request, finish)) => run_request(&request, &finish, *unix_ms, keys, &mut reply),
            Ok(Plan::Continue(continuation)) => run_continuation(continuation, &call, keys, &mut reply),
            Err(error) => reply.error(error.as_bytes()),
        }
        written.drain(|bytes| {
            out.extend_from_slice(bytes);
            Some(bytes.len())
        });
        Ok(())
    }
}

/// The command that is called, if scripts may run it.
fn allowed(
    arguments: Arguments<'_>,
    is_read_only: bool,
    keys: &dyn ScriptKeys,
) -> Result<&'static Command, Refused> {
    let command = find(arguments.prefix(0)).ok_or(Refused::Unknown)?;
    if !command.takes(arguments.count()) {
        return Err(Refused::Arity);
    }
    let is_step = command.is_script_step();
    if !is_step && !command.flags.has(Flags::IN_SCRIPT) {
        return Err(Refused::NotAllowed);
    }
    if is_read_only && is_step && command.kind != Kind::Read {
        return Err(Refused::Writes);
    }
    let argument = |index| arguments.prefix(index);
    let is_declared = |index| keys.has(argument(index));
    match command.key_indexes(arguments.count(), &argument).all(is_declared) {
        true => Ok(command),
        false => Err(Refused::UndeclaredKey),
    }
}

fn run_request(
    request: &PlannedRequest<'_>,
    finish: &Finish,
    unix_ms: u64,
    keys: &mut dyn ScriptKeys,
    reply: &mut ReplyWriter<'_>,
) {
    if let PlannedRequest::Transaction(transaction) = request {
        return reply.integer(apply_all(transaction, keys).into());
    }
    let request = request.request();
    match request.check() {
        Ok(()) => ask(&request, keys, |answered| finish.write(answered, unix_ms, reply)),
        Err(error) => reply.error(CommandError::from(error).as_bytes()),
    }
}

fn run_continuation(
    mut continuation: Box<dyn Continuation>,
    call: &Call<'_>,
    keys: &mut dyn ScriptKeys,
    reply: &mut ReplyWriter<'_>,
) {
    // An answer borrows from its request, so it is processed after the request is no longer used.
    while let Next::Request(_, part, request) = continuation.next(call) {
        match request.check() {
            Ok(()) => {
                let answer = answer(&request, keys);
                answer.with(|answered| continuation.take(part, answered));
            }
            Err(error) => continuation.fail(part, error.into()),
        }
    }
    continuation.write(reply);
}

/// Applies all steps, unless a required condition does not hold. Returns whether it did.
fn apply_all(transaction: &Transaction, keys: &mut dyn ScriptKeys) -> bool {
    let holds = |step: Step<'_>| match step.act {
        Act::Require(Condition::IfAbsent) => keys.get(step.key).status == Status::NotFound,
        Act::Require(Condition::IfPresent) => keys.get(step.key).status == Status::Ok,
        _ => true,
    };
    if !transaction.steps().all(holds) {
        return false;
    }
    for step in transaction.steps() {
        if let Act::Apply { operation, condition, return_old } = step.act {
            keys.update(step.key, &operation, condition, return_old);
        }
    }
    true
}

/// The answer of the lent keys to a request.
enum Local {
    Told(ScriptTold),
    Failed(OperationError),
}

/// Answers a request from the lent keys, where the gateway would ask nodes.
fn answer(request: &Request<'_>, keys: &mut dyn ScriptKeys) -> Local {
    let mut told = match *request {
        Request::Get { key } | Request::Length { key } => keys.get(key),
        Request::Update { key, operation, condition, return_old } => {
            keys.update(key, &operation, condition, return_old)
        }
        Request::Named { .. } | Request::Scan { .. } | Request::Listen { .. } | Request::Publish { .. } => {
            return Local::Failed(OperationError::NoSuchKeyspace);
        }
    };
    if told.form == Form::Large {
        let Some(reference) = told.value.take().filter(|_| matches!(request, Request::Length { .. })) else {
            return Local::Failed(OperationError::ResultTooLong { limit: LONG_VALUE_BYTES_MAX });
        };
        (told.integer, told.form) = (Reference::checked(&reference).length.into(), Form::Plain);
    }
    Local::Told(told)
}

impl Local {
    fn with<T>(self, take: impl FnOnce(Answered<'_>) -> T) -> T {
        let told = match self {
            Self::Told(told) => told,
            Self::Failed(error) => return take(Err(error).into()),
        };
        let ScriptTold { status, form, expiry_ms, integer, .. } = told;
        let (value_is_result, value) = (told.value.is_some(), told.value.as_deref().unwrap_or_default());
        let taken = Taken { status, effect: Effect::None, value_is_result, form, value, expiry_ms, integer };
        take(result(&taken, OpId::NONE).into())
    }
}

fn ask<T>(request: &Request<'_>, keys: &mut dyn ScriptKeys, take: impl FnOnce(Answered<'_>) -> T) -> T {
    answer(request, keys).with(take)
}

/// A host without connections: commands of scripts use only its limit of a value.
struct ScriptHost;

impl Host for ScriptHost {
    fn value_limit(&self, _: KeyspaceId) -> usize {
        LONG_VALUE_BYTES_MAX
    }

    fn users(&self) -> (Arc<Users>, u64) {
        Default::default()
    }

    fn sha256(&self, bytes: &[u8]) -> [u8; 32] {
        let digest = ring::digest::digest(&ring::digest::SHA256, bytes);
        digest.as_ref().try_into().expect("SHA-256 has 32 bytes")
    }

    fn fill_random(&self, _: &mut [u8]) -> Result<(), String> {
        Err("scripts have no random source".into())
    }
}
