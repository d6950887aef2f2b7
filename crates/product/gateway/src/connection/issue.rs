//! What a connection makes of its commands: each is issued whole, unless it has more requests than there is room for, or is queued for a transaction.

use super::{Connection, Progress, access, error_reply};
use crate::asking::Asking;
use crate::command::{Command, Kind};
use crate::error::CommandError;
use crate::errors;
use crate::executing::Executing;
use crate::gathering::Gathering;
use crate::ledger::Begun;
use crate::limits::KEYS_IN_FLIGHT_MAX;
use crate::parser::Arguments;
use crate::plan::{Call, Context, Many, Plan, Session};
use crate::reply::ReplyWriter;
use crate::requests::{Origin, Requests};
use crate::rope::Rope;
use crate::security::SUBJECTS;
use crate::unanswered::{Output, State};
use crate::uses::Keys;
use nicekv_client::Request;

/// What Redis says to who listens by RESP2.
const ONLY_LISTENS: &str =
    "only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context";

/// A command of which not all requests are sent yet. It is the last of the unanswered ones.
#[derive(Debug)]
pub(super) struct Issuing {
    pub(super) called: &'static Command,
    pub(super) command: u64,
    pub(super) rest: Rest,
}

impl Issuing {
    fn new((command, called): (u64, &'static Command), rest: Rest) -> Self {
        Self { called, command, rest }
    }
}

/// What is to be sent.
#[derive(Debug)]
pub(super) enum Rest {
    /// One request for each of several keys.
    Many {
        many: Many,
        /// How many are sent.
        sent: usize,
    },
    /// Whatever the answers call for.
    Asking,
}

impl Connection {
    /// Issues the parser's command, of one on several keys nothing yet; or says what it waits for, having done nothing.
    pub(super) fn issue(&mut self, slot: usize, requests: &mut Requests<'_>) -> Result<(), Progress> {
        let Some(command) = self.next_command(requests)? else { return Ok(()) };
        let Self { parser, session, unanswered, output, .. } = self;
        let arguments = parser.command().expect("complete");
        if session.multi.is_queueing() && !command.is_called_at_once() {
            self.queue(command, requests);
            self.show(command, requests);
            return Ok(());
        }
        let keys = Keys::of(command, arguments, requests.turn(), |key| requests.hash(session.keyspace, key));
        if (command.alone && !unanswered.is_empty()) || unanswered.blocks(&keys) {
            return Err(Progress::Waiting);
        }
        // What it ends is gone when it was called.
        if command.kind == Kind::Transaction && requests.room() == 0 {
            return Err(Progress::WindowFull);
        }
        let errors = errors::count();
        let mut written = Rope::default();
        let planned = planned(command, arguments, session, requests, &mut written);
        if requests.room() == 0 && planned.as_ref().is_ok_and(Plan::is_one_request) {
            return Err(Progress::WindowFull);
        }
        let is_answered = matches!(planned, Ok(Plan::Replied | Plan::Close) | Err(_));
        let settings = &requests.member.server.settings;
        let said = settings.may_log(is_answered).then(|| unanswered.said.add(command, arguments));
        let begun = Begun { called: command.number(), since_ns: requests.now.boot_ns, errors, said };
        unanswered.begin(begun, session.quiet.is_on());
        let number = unanswered.next_number();
        let origin = origin(slot, session.id, (number, command), requests);
        let mut one = |request: Request<'_>, keys: Keys, state| {
            let kept = arguments.kept(request.value());
            match requests.submit(session.keyspace, request, origin, keys.first(), kept) {
                Ok(()) => unanswered.push(keys, state),
                Err(error) => unanswered.push_ready(error_reply(&error.into(), session.protocol), output),
            }
        };
        match planned {
            Ok(Plan::One(request, finish)) => one(request, keys, State::One(finish)),
            Ok(Plan::Made(made, finish)) => one(made.request(), keys, State::One(finish)),
            Ok(Plan::Put(put, finish)) => one(put.request(), keys, State::One(finish)),
            Ok(Plan::AllOrNone(transaction)) => {
                one(transaction.request().expect("it has steps"), keys, State::AllOrNone);
            }
            Ok(plan @ (Plan::Replied | Plan::Close)) => {
                self.closing |= matches!(plan, Plan::Close);
                unanswered.push_ready(written, output);
            }
            Ok(Plan::Change(change)) => self.change(slot, change, keys, requests),
            Ok(Plan::Many(many)) => self.ask_each(many, keys, (number, command)),
            Ok(Plan::Asking(asking)) => self.ask(asking, keys, (number, command)),
            // It may publish something.
            Ok(Plan::Script(transaction, steps)) => {
                let script = Executing::of_script(session.caller(requests.now.unix_ms), transaction, steps);
                self.ask(Box::new(script), keys, (number, command));
            }
            Err(error) => self.refuse(&error),
        }
        self.leave_reset(slot, requests);
        self.show(command, requests);
        Ok(())
    }

    /// A command begins that asks for one thing after the other.
    fn ask(&mut self, asking: Box<dyn Asking>, keys: Keys, command: (u64, &'static Command)) {
        self.unanswered.push(keys, State::Asking(asking));
        self.issuing = Some(Issuing::new(command, Rest::Asking));
    }

    /// A command begins that asks for each of several keys.
    fn ask_each(&mut self, many: Many, keys: Keys, command: (u64, &'static Command)) {
        let gathering = Gathering::new(many.finish, many.keys.len());
        self.unanswered.push(keys, State::Many(Box::new(gathering)));
        self.issuing = Some(Issuing::new(command, Rest::Many { many, sent: 0 }));
    }

    /// What the parser's command is, if it may run now; `None`: that is said, or the connection ends.
    fn next_command(&mut self, requests: &Requests<'_>) -> Result<Option<&'static Command>, Progress> {
        self.unanswered.begin_none(self.session.quiet.is_on());
        let arguments = self.parser.command().expect("complete");
        if is_http(arguments.prefix(0)) {
            self.closing = true;
            return Ok(None);
        }
        match access::called(&self.parser, &self.session, self.last_command, requests) {
            Ok(command) if self.only_listens() && !command.is_for_listeners() => {
                let name = SUBJECTS[command.asks(arguments).0].name;
                let text = format!("ERR Can't execute '{name}': {ONLY_LISTENS}");
                self.refuse(&CommandError::text(text));
            }
            Ok(command) => {
                if self.is_paused(command, requests) {
                    return Err(Progress::Waiting);
                }
                self.last_command = Some(command);
                return Ok(Some(command));
            }
            Err(error) => {
                if let Some(command) = Command::find(arguments.prefix(0)) {
                    requests.member.own().ledger.rejected(command.number());
                }
                let is_exec = arguments.prefix(0).eq_ignore_ascii_case(b"exec");
                let error = self.session.multi.fail(is_exec, error);
                self.refuse(&error);
            }
        }
        Ok(None)
    }

    /// Queues a command of a transaction.
    fn queue(&mut self, command: &'static Command, requests: &Requests<'_>) {
        let Self { parser, session, .. } = self;
        let arguments = parser.command().expect("complete");
        let call = Call { arguments, name: command.name };
        let protocol = session.protocol;
        let queued = command.check_queued().and_then(|()| {
            let mut written = Rope::default();
            let mut reply = ReplyWriter { out: &mut written, protocol };
            let (unix_ms, server) = (requests.now.unix_ms, &*requests.member.server);
            let mut context = Context { unix_ms, session, server, reply: &mut reply };
            // It comes when nothing is watched any more.
            let planned = if command.name == "unwatch" {
                context.reply.simple("OK");
                Ok(Plan::Replied)
            } else {
                (command.handler)(&mut context, &call)
            };
            // As in Redis there has to be such a subcommand.
            let planned = match planned {
                Err(error) if error.is_of_subcommand() => return Err(error),
                other => other,
            };
            let asks = command.asks(arguments);
            session.multi.queue(asks, &call, planned, written, |error| error_reply(error, protocol))
        });
        match queued {
            Ok(()) => {
                let mut reply = Rope::default();
                ReplyWriter { out: &mut reply, protocol }.simple("QUEUED");
                self.unanswered.push_ready(reply, &mut self.output);
            }
            Err(error) => {
                let error = self.session.multi.fail(false, error);
                self.refuse(&error);
            }
        }
    }

    /// Sends further requests of a command that has several.
    pub(super) fn issue_rest(&mut self, slot: usize, requests: &mut Requests<'_>) -> Result<(), Progress> {
        match &self.issuing {
            None => Ok(()),
            Some(Issuing { rest: Rest::Many { .. }, .. }) => self.issue_many(slot, requests),
            Some(Issuing { rest: Rest::Asking, called, command }) => {
                let origin = origin(slot, self.session.id, (*command, called), requests);
                self.issue_asking(origin, requests)
            }
        }
    }

    /// Asks for what is asked next, until the command is answered.
    fn issue_asking(&mut self, origin: Origin, requests: &mut Requests<'_>) -> Result<(), Progress> {
        loop {
            let Some(asking) = self.unanswered.asking(origin.command) else {
                self.issuing = None;
                return Ok(());
            };
            if requests.room() == 0 {
                return Err(Progress::WindowFull);
            }
            let Some((keyspace, part, request)) = asking.next() else { return Err(Progress::Waiting) };
            let origin = Origin { part: part as usize, ..origin };
            if let Err(error) = requests.submit(keyspace, request, origin, None, None) {
                let (protocol, unix_ms) = (self.session.protocol, requests.now.unix_ms);
                let output = Output { bytes: &mut self.output, protocol, unix_ms };
                self.unanswered.fail_asking(origin.command, part, error.into(), output);
            }
        }
    }

    /// Sends requests of the command on several keys, until all are sent or enough are under way. It takes half of the window's room at
    /// most: the other connections have commands, too.
    fn issue_many(&mut self, slot: usize, requests: &mut Requests<'_>) -> Result<(), Progress> {
        let Some(Issuing { called, command, rest: Rest::Many { many, sent } }) = &mut self.issuing else {
            return Ok(());
        };
        let call = Call { arguments: self.parser.command().expect("complete"), name: called.name };
        let in_flight = *sent - self.unanswered.answered_of_last();
        let (share, own) = (requests.room().div_ceil(2), KEYS_IN_FLIGHT_MAX - in_flight);
        for key in many.keys.iter().skip(*sent).take(share.min(own)) {
            let origin = origin(slot, self.session.id, (*command, called), requests);
            let origin = Origin { part: *sent, ..origin };
            let request = (many.request)(&call, *key as usize);
            let kept = call.arguments.kept(request.value());
            if let Err(error) = requests.submit(self.session.keyspace, request, origin, None, kept) {
                let (protocol, unix_ms) = (self.session.protocol, requests.now.unix_ms);
                self.unanswered.fail(error.into(), Output { bytes: &mut self.output, protocol, unix_ms });
            }
            *sent += 1;
        }
        if *sent < many.keys.len() {
            return Err(if share < own { Progress::WindowFull } else { Progress::Waiting });
        }
        self.issuing = None;
        // If the last could not be sent.
        self.take_watched();
        Ok(())
    }
}

/// What is to be done for a command, by its handler, which may have `written` the reply.
fn planned<'a>(
    command: &'static Command,
    arguments: Arguments<'a>,
    session: &mut Session,
    requests: &Requests<'_>,
    written: &mut Rope,
) -> Result<Plan<'a>, CommandError> {
    access::admit_queued(session, command, requests)?;
    let mut reply = ReplyWriter { out: written, protocol: session.protocol };
    let (unix_ms, server) = (requests.now.unix_ms, &*requests.member.server);
    let context = &mut Context { unix_ms, session, server, reply: &mut reply };
    (command.handler)(context, &Call { arguments, name: command.name })
}

/// The first request of a command of a connection, by its number.
fn origin(
    slot: usize,
    connection: u64,
    (command, called): (u64, &'static Command),
    requests: &Requests<'_>,
) -> Origin {
    Origin { slot, connection, command, part: 0, called: called.number(), since_ns: requests.now.boot_ns }
}

/// Whether a command is a line of HTTP. A browser can be made to send one here, with commands in its body: as in Redis, the connection
/// ends before they run, and without a reply.
fn is_http(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(b"post") || name.eq_ignore_ascii_case(b"host:")
}
