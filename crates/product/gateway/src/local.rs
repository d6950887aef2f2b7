//! Commands on keys that somebody lends, without a connection: those that scripts call. What they mean, and what they reply, the handlers say, as of any command.

use crate::answered::Answered;
use crate::command::{Command, Kind};
use crate::error::CommandError;
use crate::gathering::Gathering;
use crate::parser::{Arguments, Parser};
use crate::permits::Permits;
use crate::plan::{Call, Context, Plan, Session};
use crate::reply::{Protocol, ReplyWriter};
use crate::rope::Rope;
use crate::scripting;
use crate::shared::ServerState;
use nicekv_client::transaction::{Transaction, result};
use nicekv_client::{OperationError, Request};
use nicekv_proto::large::Reference;
use nicekv_proto::limits::{LONG_VALUE_BYTES_MAX, TRANSACTION_BYTES_MAX};
use nicekv_proto::replication::Effect;
use nicekv_proto::transaction::{Act, Step, Taken};
use nicekv_proto::{Condition, Form, OpId, Status};
use nicekv_replica::{ScriptKeys, ScriptTold};
use std::sync::Arc;

/// Runs commands one after the other.
#[derive(Debug)]
pub struct LocalCommands {
    unix_ms: u64,
    is_read_only: bool,
    server: ServerState,
    session: Session,
    parser: Parser,
    words: Vec<u8>,
    /// Messages, as they stand behind a reply.
    published: Vec<u8>,
}

/// Why a command is not run at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// There is none of this name.
    Unknown,
    /// It has another number of arguments.
    Arity,
    /// It is not for scripts.
    NotAllowed,
    /// It writes, and nothing may.
    Writes,
    /// It names a key that is not lent.
    ForeignKey,
}

impl Refused {
    /// In the words of Redis.
    pub fn text(self) -> &'static str {
        match self {
            Self::Unknown => "ERR Unknown Redis command called from script",
            Self::Arity => "ERR Wrong number of args calling Redis command from script",
            Self::NotAllowed => "ERR This Redis command is not allowed from script",
            Self::Writes => "ERR Write commands are not allowed from read-only scripts.",
            Self::ForeignKey => "ERR Script attempted to access a non local key in a cluster node",
        }
    }
}

/// The replies of scripts have as much room.
const TOO_MUCH_PUBLISHED: &[u8] = b"ERR script publishes too much";
/// Longest arguments of one command, together: more than scripts have memory for.
const ARGUMENTS_BYTES_MAX: usize = 16 << 20;
/// Commands beside those on keys that may be run.
const WITHOUT_KEYS: [&str; 3] = ["echo", "ping", "time"];
/// Those that draw something.
const RANDOM: [&str; 1] = ["hrandfield"];

impl LocalCommands {
    /// At this time, in milliseconds of the Unix epoch, which they know as the present.
    pub fn new(unix_ms: u64, is_read_only: bool) -> Self {
        let permits = Arc::new(Permits::new(2 * ARGUMENTS_BYTES_MAX, Vec::new()));
        Self {
            unix_ms,
            is_read_only,
            server: ServerState { permits, ..ServerState::default() },
            session: Session::default(),
            parser: Parser::new(LONG_VALUE_BYTES_MAX),
            words: Vec::new(),
            published: Vec::new(),
        }
    }

    /// What is to be published when all else is done, as it stands behind a reply.
    pub fn published(&self) -> &[u8] {
        &self.published
    }

    /// Runs one, and appends its reply by RESP2.
    pub fn run(
        &mut self,
        arguments: &[&[u8]],
        keys: &mut dyn ScriptKeys,
        out: &mut Vec<u8>,
    ) -> Result<(), Refused> {
        let Self { unix_ms, is_read_only, server, session, parser, words, published } = self;
        let Some(arguments) = parse(parser, words, arguments, &server.permits) else {
            return Err(Refused::Arity);
        };
        let command = command(arguments, *is_read_only, keys);
        let ran = command.map(|command| {
            let mut written = Rope::default();
            let mut reply = ReplyWriter { out: &mut written, protocol: Protocol::Resp2 };
            let call = Call { arguments, name: command.name };
            let context = &mut Context { unix_ms: *unix_ms, session, server, reply: &mut reply };
            match (command.handler)(context, &call) {
                Ok(Plan::One(Request::Publish { channel, message }, _)) => {
                    if published.len() + channel.len() + message.len() > TRANSACTION_BYTES_MAX {
                        reply.error(TOO_MUCH_PUBLISHED);
                    } else {
                        scripting::append_message(channel, message, published);
                        reply.integer(0);
                    }
                }
                Ok(plan) => carry_out(plan, &call, *unix_ms, keys, &mut reply),
                Err(error) => reply.error(error.as_bytes()),
            }
            // A vector takes everything.
            let _ = written.write_to(&mut *out);
        });
        self.parser.release();
        ran
    }
}

fn parse<'a>(
    parser: &'a mut Parser,
    words: &mut Vec<u8>,
    arguments: &[&[u8]],
    permits: &Arc<Permits>,
) -> Option<Arguments<'a>> {
    words.clear();
    words.extend_from_slice(format!("*{}\r\n", arguments.len()).as_bytes());
    for argument in arguments {
        words.extend_from_slice(format!("${}\r\n", argument.len()).as_bytes());
        words.extend_from_slice(argument);
        words.extend_from_slice(b"\r\n");
    }
    let mut rest = words.as_slice();
    while let Ok(used) = parser.parse(rest) {
        rest = &rest[used..];
        let Some(wants) = parser.wants() else { break };
        match permits.ask_now(wants.bytes) {
            Some(claim) => parser.accept(claim),
            None => parser.deny(),
        }
    }
    if parser.command().is_none() {
        *parser = Parser::new(LONG_VALUE_BYTES_MAX);
        return None;
    }
    parser.command()
}

/// The command, if it may be run.
fn command(
    arguments: Arguments<'_>,
    is_read_only: bool,
    keys: &dyn ScriptKeys,
) -> Result<&'static Command, Refused> {
    let command = Command::find(arguments.prefix(0)).ok_or(Refused::Unknown)?;
    if !command.takes(arguments.count()) {
        return Err(Refused::Arity);
    }
    let is_on_keys =
        matches!(command.kind, Kind::Read | Kind::Write | Kind::Publish) && !RANDOM.contains(&command.name);
    if !is_on_keys && !WITHOUT_KEYS.contains(&command.name) {
        return Err(Refused::NotAllowed);
    }
    if is_read_only && command.kind != Kind::Read && is_on_keys {
        return Err(Refused::Writes);
    }
    let argument = |index| arguments.prefix(index);
    let is_lent = |index| keys.has(argument(index));
    match command.key_indexes(arguments.count(), &argument).all(is_lent) {
        true => Ok(command),
        false => Err(Refused::ForeignKey),
    }
}

fn carry_out<'a>(
    plan: Plan<'a>,
    call: &Call<'a>,
    unix_ms: u64,
    keys: &mut dyn ScriptKeys,
    reply: &mut ReplyWriter<'_>,
) {
    match plan {
        Plan::Replied | Plan::Close => {}
        Plan::One(request, finish) => match request.check() {
            Ok(()) => ask(&request, keys, |answered| finish.write(answered, unix_ms, reply)),
            Err(error) => reply.error(CommandError::from(error).as_bytes()),
        },
        Plan::Made(made, finish) => match made.request().check() {
            Ok(()) => ask(&made.request(), keys, |answered| finish.write(answered, unix_ms, reply)),
            Err(error) => reply.error(CommandError::from(error).as_bytes()),
        },
        Plan::Put(put, finish) => match put.request().check() {
            Ok(()) => ask(&put.request(), keys, |answered| finish.write(answered, unix_ms, reply)),
            Err(error) => reply.error(CommandError::from(error).as_bytes()),
        },
        Plan::Many(many) => {
            let mut gathering = Gathering::new(many.finish, many.keys.len());
            for (part, key) in many.keys.iter().enumerate() {
                let request = (many.request)(call, *key as usize);
                let _is_last = match request.check() {
                    Ok(()) => ask(&request, keys, |answered| gathering.take(part, answered)),
                    Err(error) => gathering.fail(error.into()),
                };
            }
            gathering.write(reply);
        }
        Plan::AllOrNone(transaction) => reply.integer(take_all(&transaction, keys).into()),
        Plan::Asking(_) | Plan::Change(_) | Plan::Script(..) => {
            reply.error(Refused::NotAllowed.text().as_bytes());
        }
    }
}

/// Takes all steps unless one requires what is not so; whether it did.
fn take_all(transaction: &Transaction, keys: &mut dyn ScriptKeys) -> bool {
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

/// Asks the keys instead of nodes.
fn ask<T>(request: &Request<'_>, keys: &mut dyn ScriptKeys, take: impl FnOnce(Answered<'_>) -> T) -> T {
    let mut told = match *request {
        Request::Get { key } | Request::Length { key } => keys.get(key),
        Request::Update { key, operation, condition, return_old } => {
            keys.update(key, &operation, condition, return_old)
        }
        Request::Named { .. } | Request::Scan { .. } | Request::Listen { .. } | Request::Publish { .. } => {
            return take(Err(OperationError::NoSuchKeyspace).into());
        }
    };
    if told.form == Form::Large {
        let Some(reference) = told.value.take().filter(|_| matches!(request, Request::Length { .. })) else {
            return take(Err(OperationError::ResultTooLong { limit: LONG_VALUE_BYTES_MAX }).into());
        };
        (told.integer, told.form) = (Reference::checked(&reference).length.into(), Form::Plain);
    }
    let ScriptTold { status, form, expiry_ms, integer, .. } = told;
    let (value_is_result, value) = (told.value.is_some(), told.value.as_deref().unwrap_or_default());
    let taken = Taken { status, effect: Effect::None, value_is_result, form, value, expiry_ms, integer };
    take(result(&taken, OpId::NONE).into())
}
