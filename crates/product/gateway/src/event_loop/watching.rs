//! Connections that others close, and those that are shown what others do.

use super::{Gateway, enqueue};
use crate::connection::Connection;
use crate::errors;

impl Gateway {
    /// Closes the connections that CLIENT KILL names.
    pub(super) fn close_named(&mut self) {
        for id in self.member.own().take_to_close() {
            let found = self.connections.iter().find(|(_, connection)| connection.session.id == id);
            if let Some(slot) = found.map(|(slot, _)| slot) {
                self.close(slot);
            }
        }
    }

    /// Shows commands to the monitors of this thread. One that does not read them is closed.
    pub(super) fn show_commands(&mut self) {
        if !self.member.own().monitors.any() {
            return;
        }
        let waiting = self.member.own().monitors.take();
        let mut slow = Vec::new();
        for (slot, connection) in &mut self.connections {
            if !connection.session.is_monitor || (waiting.lines.is_empty() && !waiting.is_overrun) {
                continue;
            }
            if waiting.is_overrun || !connection.watch(&waiting.lines) {
                slow.push(slot);
            } else {
                enqueue(&mut self.queue, slot, connection);
            }
        }
        for slot in slow {
            self.member.own().listeners_dropped.add(1);
            self.close(slot);
        }
    }

    /// Tells the others of the errors that were written since.
    pub(super) fn count_errors(&mut self) {
        let errors = errors::take();
        if !errors.is_empty() {
            self.member.own().ledger.add_errors(errors);
        }
    }

    /// A connection is no more.
    pub(super) fn forget_watched(&mut self, connection: &Connection) {
        self.member.server.clients.remove(connection.session.id);
        if connection.session.is_monitor {
            self.member.own().monitors.leave();
        }
    }
}
