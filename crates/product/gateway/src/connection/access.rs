//! Permission checks: commands, keys and channels that a connection's user may access.

use super::{Connection, large_values};
use crate::host::GatewayHost;
use crate::memory::Grant;
use crate::requests::Requests;
use nicekv_proto::publish::ListenKind;
use nicekv_proto::{Duration, Now};
use nicekv_redis::acl::{self, Denial, DenialReason, Refusal};
use nicekv_redis::command::{Command, Flags};
use nicekv_redis::error::{CommandError, unknown_subcommand};
use nicekv_redis::host::Host;
use nicekv_redis::resp::{Arguments, Parser};
use nicekv_redis::session::Session;
use nicekv_redis::table::{SUBJECTS, resolve};

/// Delay after a failed login. It allows 200 guesses a second, too few to find a password, and
/// delays no other connection.
const FAILED_LOGIN_DELAY: Duration = Duration::from_millis(5);

/// Decides whether a command may run.
pub(super) struct Admission<'a, 'r> {
    pub(super) session: &'a Session,
    pub(super) host: GatewayHost<'a>,
    pub(super) requests: &'a Requests<'r>,
}

impl Admission<'_, '_> {
    /// The command that the parser has completed, if it may run.
    pub(super) fn command(
        &self,
        parser: &Parser<Grant>,
        last: Option<&'static Command>,
    ) -> Result<&'static Command, CommandError> {
        let arguments = parser.command().expect("complete");
        let command = resolve(arguments, last)?;
        self.check(command, arguments)?;
        // Only the native client writes names of objects: the value needs the stamps of the
        // object's chunks, and no Redis command has these.
        if command.changes_keys() && self.requests.core.holds_objects(self.session.keyspace) {
            return Err(CommandError::NAMES_OF_OBJECTS);
        }
        large_values::check(parser, self.requests)?;
        Ok(command)
    }

    /// Refuses a command that the user may not run, or may not run on these keys.
    fn check(&self, command: &'static Command, arguments: Arguments<'_>) -> Result<(), CommandError> {
        let Some(user) = self.session.login.user() else {
            let needs_no_login = SUBJECTS[command.number].needs_no_login;
            return if needs_no_login { Ok(()) } else { Err(CommandError::NO_AUTH) };
        };
        if user.may_do_everything() {
            return Ok(());
        }
        let checked = acl::check(user, command, arguments.count(), &|index| arguments.prefix(index));
        // As in Redis, an unknown subcommand is reported as unknown, even to users without
        // permission.
        let subject = command.subject(arguments).0;
        let is_unknown = subject == command.number && arguments.count() > 1 && command.has_subcommands();
        checked.map_err(|refusal| match refusal {
            Refusal::Command(_) if is_unknown => {
                unknown_subcommand(&command.name.to_ascii_uppercase(), arguments.prefix(1))
            }
            refusal => self.refuse(refusal, command),
        })
    }

    /// If the command is EXEC, refuses it unless the user may run all queued commands now.
    pub(super) fn check_queued(&self, command: &'static Command) -> Result<(), CommandError> {
        if !command.flags.has(Flags::MAY_WRITE) {
            return Ok(());
        }
        let user = self.session.login.user().filter(|user| !user.may_do_everything());
        let checked = user.map_or(Ok(()), |user| self.session.multi.check(user));
        checked.map_err(|refusal| self.refuse(refusal, command))
    }

    /// Logs the refusal (ACL LOG), and returns the error reply.
    fn refuse(&self, refusal: Refusal<'_>, command: &Command) -> CommandError {
        let Some(user) = self.session.login.user() else { return CommandError::NO_AUTH };
        let (reason, object, error) = match refusal {
            Refusal::Command(subject) => {
                let text = [b"NOPERM ", refusal.describe(user).as_slice()].concat();
                (DenialReason::Command, subject.name.as_bytes(), CommandError::bytes(text))
            }
            Refusal::Key(key) => (DenialReason::Key, key, CommandError::NO_KEY),
            Refusal::Channel(channel) => (DenialReason::Channel, channel, CommandError::NO_CHANNEL),
        };
        let unix_ms = self.requests.now.unix_ms;
        let client = self.host.client(self.session, unix_ms).line(unix_ms, command.name);
        self.host.note_denial(Denial { reason, object, user: &user.name, client: &client }, unix_ms);
        error
    }
}

impl Connection {
    /// Applies a change of the users. If the connection's user was removed or lost its password,
    /// the connection is closed, and the commands that it has already sent are not run.
    pub(crate) fn follow_users(&mut self, requests: &Requests<'_>) {
        let users = &requests.member.server.users;
        if self.session.login.is_current(users.version()) {
            return;
        }
        let (users, version) = users.users();
        let may_stay = self.session.login.follow(&users, version);
        let may_subscribe = self.session.login.user().is_none_or(|user| {
            let mut names = self.session.subscriptions.iter();
            names.all(|(kind, name)| user.may_use_channel(name, *kind == ListenKind::Pattern))
        });
        if !may_stay || !may_subscribe {
            // A command may be partly issued; its answers will be ignored.
            (self.closing, self.failed) = (true, true);
        }
    }

    /// If the last command was a failed login, holds the connection for [`FAILED_LOGIN_DELAY`].
    pub(super) fn hold_after_failed_login(&mut self, now: Now) {
        if std::mem::take(&mut self.session.login.has_failed) {
            self.held_until_ns = Some(now.after(FAILED_LOGIN_DELAY));
        }
    }

    /// Whether the connection is still held.
    pub(super) fn is_held(&mut self, now: Now) -> bool {
        self.held_until_ns = self.held_until_ns.filter(|until_ns| now.boot_ns < *until_ns);
        self.held_until_ns.is_some()
    }

    /// Whether CLIENT PAUSE applies to this command; if so, the connection is held.
    pub(super) fn is_paused(&mut self, command: &Command, requests: &Requests<'_>) -> bool {
        if command.flags.has(Flags::NOT_PAUSED) {
            return false;
        }
        let held = requests.member.server.pause.holds(requests.now, command.writes());
        self.held_until_ns = self.held_until_ns.or(held);
        held.is_some()
    }

    /// Until when no commands are taken (boot-time clock); `None` if the connection is not held.
    pub(crate) fn held_until_ns(&self) -> Option<u64> {
        self.held_until_ns
    }
}
