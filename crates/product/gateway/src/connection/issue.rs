//! Issuing commands. A command is issued as a whole, unless it has more requests than the client's
//! window has room for, or MULTI queues it.

use super::access::Admission;
use super::{Connection, Issuing, Progress, error_reply};
use crate::host::GatewayHost;
use crate::key_conflicts::UsedKeys;
use crate::requests::{Origin, Requests};
use crate::unanswered::{Begun, Output, State};
use nicekv_redis::call::Call;
use nicekv_redis::command::{Command, Flags, Kind};
use nicekv_redis::context::{Context, Planned};
use nicekv_redis::continuation::Next;
use nicekv_redis::dispatch::handler;
use nicekv_redis::error::CommandError;
use nicekv_redis::plan::Plan;
use nicekv_redis::resp::{ReplyBuffer, ReplyWriter};
use nicekv_redis::table::{SUBJECTS, find};

/// Redis' error text for a RESP2 connection that has subscriptions.
const SUBSCRIBERS_ONLY: &str =
    "only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context";

impl Connection {
    /// Issues the parser's command. If it has to wait, returns the reason and changes nothing. Of a
    /// command with several requests, none is sent yet: `issue_rest` sends them.
    pub(super) fn issue(&mut self, slot: usize, requests: &mut Requests<'_>) -> Result<(), Progress> {
        let Some(command) = self.next_command(requests)? else { return Ok(()) };
        if self.session.multi.is_queueing() && !command.flags.has(Flags::NEVER_QUEUED) {
            self.queue(command, requests);
            self.show(command, requests);
            return Ok(());
        }
        let Self { parser, session, client, unanswered, output, .. } = self;
        let arguments = parser.command().expect("complete");
        let keys =
            UsedKeys::of(command, arguments, requests.turn(), |key| requests.hash(session.keyspace, key));
        let is_alone = command.flags.has(Flags::ALONE);
        if (is_alone && !unanswered.is_empty()) || unanswered.blocks(&keys) {
            return Err(Progress::Waiting);
        }
        // The handler of EXEC takes the queue, so it may be called only once.
        if command.kind == Kind::Transaction && requests.room() == 0 {
            return Err(Progress::WindowFull);
        }
        let mut written = ReplyBuffer::default();
        let host = GatewayHost { server: &requests.member.server, client };
        let admission = Admission { session, host, requests };
        let planned = match admission.check_queued(command) {
            Ok(()) => {
                let unix_ms = requests.now.unix_ms;
                let host = &GatewayHost { server: &requests.member.server, client };
                let reply = &mut ReplyWriter { out: &mut written, protocol: session.protocol };
                let context = &mut Context { unix_ms, session, host, reply };
                handler(command)(context, &Call { arguments, name: command.name })
            }
            Err(error) => {
                session.multi.end();
                Err(error)
            }
        };
        if requests.room() == 0 && matches!(planned, Ok(Plan::Request(..))) {
            return Err(Progress::WindowFull);
        }
        let is_answered = matches!(planned, Ok(Plan::Replied | Plan::Close) | Err(_));
        let settings = &requests.member.server.settings;
        let logged = settings.may_log(is_answered).then(|| unanswered.logged.add(command, arguments));
        let begun = Begun { called: command.number, since_ns: requests.now.boot_ns, logged };
        unanswered.begin(begun, session.reply_mode.is_silent());
        let issuing = Issuing { called: command, number: unanswered.next_number() };
        match planned {
            Ok(Plan::Request(request, finish)) => {
                let request = request.request();
                let shared = arguments.shared(request.value());
                let origin = origin(slot, session.id, issuing, requests);
                match requests.submit(session.keyspace, request, origin, keys.first(), shared) {
                    Ok(()) => unanswered.push(keys, State::Request(finish)),
                    Err(error) => {
                        unanswered.push_ready(error_reply(&error.into(), session.protocol), output);
                    }
                }
            }
            Ok(plan @ (Plan::Replied | Plan::Close)) => {
                self.closing |= matches!(plan, Plan::Close);
                unanswered.push_ready(written, output);
            }
            Ok(Plan::Continue(continuation)) => {
                unanswered.push(keys, State::Continue(continuation));
                self.issuing = Some(issuing);
            }
            Ok(Plan::Subscribe(request)) => self.subscribe(slot, request, keys, requests),
            Err(error) => self.refuse(&error),
        }
        self.unsubscribe_after_reset(slot, requests);
        self.show(command, requests);
        Ok(())
    }

    /// The parser's command, if it may run now; `None` if it was refused, or if the connection is
    /// closing.
    fn next_command(&mut self, requests: &Requests<'_>) -> Result<Option<&'static Command>, Progress> {
        self.unanswered.begin_refused(self.session.reply_mode.is_silent());
        let arguments = self.parser.command().expect("complete");
        if is_http(arguments.prefix(0)) {
            self.closing = true;
            return Ok(None);
        }
        let host = GatewayHost { server: &requests.member.server, client: &self.client };
        let admission = Admission { session: &self.session, host, requests };
        match admission.command(&self.parser, self.last_command) {
            Ok(command)
                if self.session.is_subscriber_only() && !command.flags.has(Flags::WHILE_SUBSCRIBED) =>
            {
                let name = SUBJECTS[command.subject(arguments).0].name;
                let text = format!("ERR Can't execute '{name}': {SUBSCRIBERS_ONLY}");
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
                if let Some(command) = find(arguments.prefix(0)) {
                    requests.member.own().statistics.rejected(command.number);
                }
                let is_exec = arguments.prefix(0).eq_ignore_ascii_case(b"exec");
                let error = self.session.multi.fail(is_exec, error);
                self.refuse(&error);
            }
        }
        Ok(None)
    }

    /// Queues a command after MULTI.
    fn queue(&mut self, command: &'static Command, requests: &Requests<'_>) {
        match self.plan_queued(command, requests) {
            Ok(()) => {
                let mut reply = ReplyBuffer::default();
                ReplyWriter { out: &mut reply, protocol: self.session.protocol }.simple("QUEUED");
                self.unanswered.push_ready(reply, &mut self.output);
            }
            Err(error) => {
                let error = self.session.multi.fail(false, error);
                self.refuse(&error);
            }
        }
    }

    fn plan_queued(
        &mut self,
        command: &'static Command,
        requests: &Requests<'_>,
    ) -> Result<(), CommandError> {
        if !command.is_allowed_in_multi() {
            let name = command.name.to_ascii_uppercase();
            return Err(CommandError::text(format!("ERR {name} is not allowed in transactions")));
        }
        let Self { parser, session, client, .. } = self;
        let arguments = parser.command().expect("complete");
        let call = Call { arguments, name: command.name };
        let protocol = session.protocol;
        let mut written = ReplyBuffer::default();
        let reply = &mut ReplyWriter { out: &mut written, protocol };
        let host = &GatewayHost { server: &requests.member.server, client };
        let planned: Planned<'_> = if command.name == "unwatch" {
            // EXEC ends all watches, so UNWATCH within the transaction has no effect.
            reply.simple("OK");
            Ok(Plan::Replied)
        } else {
            let context = &mut Context { unix_ms: requests.now.unix_ms, session, host, reply };
            handler(command)(context, &call)
        };
        // As in Redis, an unknown subcommand is refused when it is queued, not by EXEC.
        let planned = match planned {
            Err(error) if error.is_about_subcommand() => return Err(error),
            other => other,
        };
        let subject = command.subject(arguments);
        session.multi.queue(subject, &call, planned, written, |error| error_reply(error, protocol))
    }

    /// Sends further requests of a command that has several, until it needs no more, has to wait
    /// for answers, or has used half of the window's free room: the rest is for other connections.
    pub(super) fn issue_rest(&mut self, slot: usize, requests: &mut Requests<'_>) -> Result<(), Progress> {
        let Some(issuing) = self.issuing else { return Ok(()) };
        let first = origin(slot, self.session.id, issuing, requests);
        let share = requests.room().div_ceil(2);
        let mut sent = 0;
        loop {
            let arguments = self.parser.command().expect("complete");
            let call = Call { arguments, name: issuing.called.name };
            let Some(continuation) = self.unanswered.continuation(issuing.number) else { break };
            if sent == share {
                return Err(Progress::WindowFull);
            }
            let (keyspace, part, request) = match continuation.next(&call) {
                Next::Request(keyspace, part, request) => (keyspace, part, request),
                Next::Wait => return Err(Progress::Waiting),
                Next::Done => break,
            };
            sent += 1;
            let shared = arguments.shared(request.value());
            let origin = Origin { part: part as usize, ..first };
            if let Err(error) = requests.submit(keyspace, request, origin, None, shared) {
                let (protocol, unix_ms) = (self.session.protocol, requests.now.unix_ms);
                let output = Output { bytes: &mut self.output, protocol, unix_ms };
                let effect = self.unanswered.fail(issuing.number, part, error.into(), output);
                effect.map(|effect| self.apply(effect));
            }
        }
        self.issuing = None;
        Ok(())
    }
}

/// The origin of a command's first request.
fn origin(slot: usize, connection: u64, issuing: Issuing, requests: &Requests<'_>) -> Origin {
    let Issuing { called, number: command } = issuing;
    Origin { slot, connection, command, part: 0, called: called.number, since_ns: requests.now.boot_ns }
}

/// Whether a command is a line of an HTTP request. A web page can make a browser send one, with
/// Redis commands in its body. As in Redis, the connection is closed without a reply, before these
/// run.
fn is_http(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(b"post") || name.eq_ignore_ascii_case(b"host:")
}
