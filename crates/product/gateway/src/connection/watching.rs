//! What others see of a connection and its commands: its line in CLIENT LIST, what they cost, and what MONITOR shows.

use super::Connection;
use crate::command::{Command, Kind};
use crate::ledger::Done;
use crate::limits::LISTENER_OUTPUT_BYTES_MAX;
use crate::monitors;
use crate::requests::Requests;
use crate::security::{Categories, SUBJECTS};
use crate::shared::Member;
use crate::slow_log::Slow;
use crate::words::shown;
use nicekv_proto::{Duration, Now};
use std::sync::Arc;

impl Connection {
    /// A command was carried out, or has been asked for: others may see it.
    pub(super) fn show(&mut self, command: &'static Command, requests: &Requests<'_>) {
        let Some(arguments) = self.parser.command() else { return };
        let has_keys = matches!(command.kind, Kind::Read | Kind::Write);
        let subject = if has_keys { command.number() } else { command.asks(arguments).0 };
        let unix_ms = requests.now.unix_ms;
        self.session.listed.touch(subject, unix_ms);
        if !has_keys || self.session.multi.is_queueing() {
            self.session.publish();
        }
        let server = &requests.member.server;
        if server.threads.iter().any(|thread| thread.monitors.any())
            && !SUBJECTS[command.asks(arguments).0].categories.overlaps(Categories::ADMIN)
            && command.name != "monitor"
        {
            let words = (0..arguments.count()).map(|index| shown(command, arguments, index).0);
            let line = monitors::line(unix_ms, self.session.keyspace.0, &self.session.listed.peer(), words);
            let monitored = server.threads.iter().filter(|thread| thread.monitors.any());
            monitored.for_each(|thread| thread.show(&line));
        }
    }

    /// Counts the commands that were answered, and logs those that were slow.
    pub(crate) fn account(&mut self, now: Now, member: &Member) {
        let Member { server, .. } = member;
        let session = &self.session;
        self.unanswered.account(|Done { begun, has_failed }, said| {
            let took = Duration::from_nanos(now.boot_ns.saturating_sub(begun.since_ns));
            member.own().ledger.done(begun.called, took, has_failed);
            if let Some(at) = begun.said
                && server.settings.is_slow(took)
            {
                let slow = Slow {
                    number: 0,
                    unix_s: now.unix_ms / 1_000,
                    took_us: took.as_micros() as u64,
                    words: said.words(at),
                    address: session.listed.peer(),
                    name: session.name.clone(),
                };
                server.slow_log.add(slow, server.settings.slow_kept());
            }
        });
    }

    /// Shows lines to it, if it is a monitor; false if it does not read them.
    pub(crate) fn watch(&mut self, lines: &[Arc<[u8]>]) -> bool {
        if !self.failed && !self.closing {
            lines.iter().for_each(|line| self.output.extend_from_slice(line));
        }
        self.output.len() <= LISTENER_OUTPUT_BYTES_MAX
    }

    /// Is on this thread from now on, for all to see.
    pub(crate) fn list(&mut self, member: &Member) {
        self.session.listed = Arc::new(self.session.listed.on_thread(member.index));
        self.session.publish();
        member.server.clients.add(self.session.listed.clone());
    }
}
