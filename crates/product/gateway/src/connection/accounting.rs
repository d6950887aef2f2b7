//! Reporting of a connection and its commands: CLIENT LIST, statistics, the slow log, and MONITOR.

use super::Connection;
use crate::host::client_details;
use crate::limits::SUBSCRIBER_OUTPUT_BYTES_MAX;
use crate::monitors;
use crate::requests::Requests;
use crate::shared::Member;
use crate::unanswered::Finished;
use nicekv_proto::{Duration, Now};
use nicekv_redis::command::{Command, Flags, Kind};
use nicekv_redis::host::SlowEntry;
use nicekv_redis::redaction::shown;
use std::sync::Arc;

impl Connection {
    /// Updates CLIENT LIST and feeds MONITOR after a command was executed or begun.
    pub(super) fn show(&mut self, command: &'static Command, requests: &Requests<'_>) {
        let Some(arguments) = self.parser.command() else { return };
        let has_keys = matches!(command.kind, Kind::Read | Kind::Write);
        let subject = if has_keys { command.number } else { command.subject(arguments).0 };
        let unix_ms = requests.now.unix_ms;
        self.client.touch(subject, unix_ms);
        if !has_keys || self.session.multi.is_queueing() {
            self.client.set_details(client_details(&self.session));
        }
        let server = &requests.member.server;
        if server.threads.iter().any(|thread| thread.monitors.any())
            && !command.is_administrative(arguments)
            && !command.flags.has(Flags::NOT_MONITORED)
        {
            let words = (0..arguments.count()).map(|index| shown(command, arguments, index).0);
            let line = monitors::line(unix_ms, self.session.keyspace.0, &self.client.peer(), words);
            let monitored = server.threads.iter().filter(|thread| thread.monitors.any());
            monitored.for_each(|thread| thread.show(&line));
        }
    }

    /// Counts the commands that were answered, and logs the slow ones.
    pub(crate) fn account(&mut self, now: Now, member: &Member) {
        let Member { server, .. } = member;
        let Self { session, client, unanswered, .. } = self;
        unanswered.account(|Finished { begun, has_failed }, arguments| {
            let took = Duration::from_nanos(now.boot_ns.saturating_sub(begun.since_ns));
            member.own().statistics.finished(begun.called, took, has_failed);
            if let Some(at) = begun.logged
                && server.settings.is_slow(took)
            {
                let entry = SlowEntry {
                    number: 0,
                    unix_s: now.unix_ms / 1_000,
                    took_us: took.as_micros() as u64,
                    arguments: arguments.at(at),
                    address: client.peer(),
                    name: session.name.clone(),
                };
                server.slow_log.add(entry, server.settings.slow_kept());
            }
        });
        if let Some(errors) = unanswered.take_errors() {
            member.own().statistics.add_errors(&errors);
        }
    }

    /// Sends lines of MONITOR to this connection; false if the peer does not read them.
    pub(crate) fn show_commands(&mut self, lines: &[Arc<[u8]>]) -> bool {
        if !self.failed && !self.closing {
            lines.iter().for_each(|line| self.output.extend_from_slice(line));
        }
        self.output.len() <= SUBSCRIBER_OUTPUT_BYTES_MAX
    }

    /// Registers the connection in its thread's list of clients.
    pub(crate) fn register(&mut self, member: &Member) {
        self.client = Arc::new(self.client.on_thread(member.index));
        self.client.set_details(client_details(&self.session));
        member.server.clients.add(self.client.clone());
    }
}
