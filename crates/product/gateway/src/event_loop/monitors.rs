//! CLIENT KILL, and MONITOR connections of this thread.

use super::{Gateway, enqueue};
use crate::connection::Connection;

impl Gateway {
    /// Closes this thread's connections that CLIENT KILL has selected.
    pub(super) fn close_killed(&mut self) {
        for id in self.member.own().take_to_close() {
            let found = self.connections.iter().find(|(_, connection)| connection.session.id == id);
            if let Some(slot) = found.map(|(slot, _)| slot) {
                self.close(slot);
            }
        }
    }

    /// Sends commands to the MONITOR connections of this thread. One that does not read them is
    /// closed.
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
            if waiting.is_overrun || !connection.show_commands(&waiting.lines) {
                slow.push(slot);
            } else {
                enqueue(&mut self.queue, slot, connection);
            }
        }
        for slot in slow {
            self.member.own().subscribers_dropped.add(1);
            self.close(slot);
        }
    }

    /// Removes a closed connection from CLIENT LIST and MONITOR.
    pub(super) fn forget_client(&mut self, connection: &Connection) {
        self.member.server.clients.remove(connection.session.id);
        if connection.session.is_monitor {
            self.member.own().monitors.leave();
        }
    }
}
