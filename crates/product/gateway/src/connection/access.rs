//! What a connection's user may do.

use super::{Connection, large};
use crate::command::{Command, Kind};
use crate::error::CommandError;
use crate::handlers::unknown_subcommand;
use crate::parser::{Arguments, Parser};
use crate::plan::Session;
use crate::requests::Requests;
use crate::security::{Denied, Reason, Refusal, SUBJECTS};
use nicekv_proto::publish::ListenKind;
use nicekv_proto::{Duration, Now};

/// How long a connection rests after a login that failed: 200 passwords a second is no way to find one, and nobody else waits.
const REST: Duration = Duration::from_millis(5);

/// The command that is called by the parser's complete one, if it may run.
pub(super) fn called(
    parser: &Parser,
    session: &Session,
    last: Option<&'static Command>,
    requests: &Requests<'_>,
) -> Result<&'static Command, CommandError> {
    let arguments = parser.command().expect("complete");
    let command = Command::resolve(arguments, last)?;
    admit(session, command, arguments, requests)?;
    // Names of objects are changed with the stamps of their chunks, which no command has.
    if command.changes_keys() && requests.core.holds_objects(session.keyspace) {
        return Err(CommandError::OF_OBJECTS);
    }
    large::admit(parser, &requests.member.server.permits)?;
    Ok(command)
}

/// Refuses a command that the connection's user may not run, or not on these keys; nothing of it is done.
fn admit(
    session: &Session,
    command: &'static Command,
    arguments: Arguments<'_>,
    requests: &Requests<'_>,
) -> Result<(), CommandError> {
    let Some(user) = session.standing.user() else {
        let is_for_all = SUBJECTS[command.number()].is_for_strangers;
        return if is_for_all { Ok(()) } else { Err(CommandError::NO_AUTH) };
    };
    if user.may_everything() {
        return Ok(());
    }
    let subject = command.asks(arguments).0;
    let checked = command.check(user, arguments.count(), &|index| arguments.prefix(index));
    // As in Redis a subcommand that there is not is said to be none, whoever calls it.
    let is_unknown = subject == command.number() && arguments.count() > 1 && command.has_subcommands();
    checked.map_err(|refusal| match refusal {
        Refusal::Command(_) if is_unknown => {
            unknown_subcommand(&command.name.to_ascii_uppercase(), arguments.prefix(1))
        }
        refusal => refused(refusal, session, command, requests),
    })
}

/// If it is EXEC, refuses what was queued unless the connection's user may do all of it now; nothing is left of it then.
pub(super) fn admit_queued(
    session: &mut Session,
    command: &'static Command,
    requests: &Requests<'_>,
) -> Result<(), CommandError> {
    if command.kind != Kind::Transaction || command.name != "exec" {
        return Ok(());
    }
    let Some(user) = session.standing.user().filter(|user| !user.may_everything()) else { return Ok(()) };
    let checked = session.multi.check(user);
    let admitted = checked.map_err(|refusal| refused(refusal, session, command, requests));
    if admitted.is_err() {
        session.multi.end();
    }
    admitted
}

/// Notes what was refused to a connection's user, and says so.
fn refused(
    refusal: Refusal<'_>,
    session: &Session,
    command: &Command,
    requests: &Requests<'_>,
) -> CommandError {
    let Some(user) = session.standing.user() else { return CommandError::NO_AUTH };
    let (reason, object, text) = match refusal {
        Refusal::Command(subject) => {
            let text = [b"NOPERM ", refusal.told_of(user).as_slice()].concat();
            (Reason::Command, subject.name.as_bytes(), CommandError::bytes(text))
        }
        Refusal::Key(key) => (Reason::Key, key, CommandError::NO_KEY),
        Refusal::Channel(channel) => (Reason::Channel, channel, CommandError::NO_CHANNEL),
    };
    let client = session.describe(requests.now.unix_ms, command.name);
    let denied = Denied { reason, object, user: &user.name, client: &client };
    requests.member.server.access.note(denied, requests.now.unix_ms);
    text
}

impl Connection {
    /// Goes by the users that there are now. One whose user may not stay is closed, and what it has sent is not done.
    pub(crate) fn follow_users(&mut self, requests: &Requests<'_>) {
        let access = &requests.member.server.access;
        if self.session.standing.is_current(access) {
            return;
        }
        let may_stay = self.session.standing.follow(access);
        let may_listen = self.session.standing.user().is_none_or(|user| {
            let mut names = self.session.subscribed.iter();
            names.all(|(kind, name)| user.may_channel(name, *kind == ListenKind::Pattern))
        });
        if !may_stay || !may_listen {
            // A command may be half issued: nothing waits for it any more.
            (self.closing, self.failed) = (true, true);
        }
    }

    /// Begins to rest if its last command was a login that failed.
    pub(super) fn rest_after_failure(&mut self, now: Now) {
        if std::mem::take(&mut self.session.standing.has_failed) {
            self.rests_until_ns = Some(now.after(REST));
        }
    }

    /// Whether it rests; it ends when it is asked after that.
    pub(super) fn still_rests(&mut self, now: Now) -> bool {
        self.rests_until_ns = self.rests_until_ns.filter(|until_ns| now.boot_ns < *until_ns);
        self.rests_until_ns.is_some()
    }

    /// Whether a command has to wait for the end of a pause; then it rests. Who has paused the others can end that.
    pub(super) fn is_paused(&mut self, command: &Command, requests: &Requests<'_>) -> bool {
        if command.name == "client" {
            return false;
        }
        let held = requests.member.server.pause.holds(requests.now, command.writes());
        self.rests_until_ns = self.rests_until_ns.or(held);
        held.is_some()
    }

    /// Until when it takes no commands.
    pub(crate) fn rests_until_ns(&self) -> Option<u64> {
        self.rests_until_ns
    }
}
