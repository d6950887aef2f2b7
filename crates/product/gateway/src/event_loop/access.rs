//! Connections whose users have changed, and connections that rest after a login that failed.

use super::{Gateway, enqueue};
use nicekv_proto::Now;

impl Gateway {
    /// If users have changed, looks at all connections: those that wait for nothing may have to end, too.
    pub(super) fn hear_of_users(&mut self) {
        let version = self.member.server.access.version();
        if std::mem::replace(&mut self.users_version, version) == version {
            return;
        }
        for (slot, connection) in &mut self.connections {
            enqueue(&mut self.queue, slot, connection);
        }
    }

    /// A connection has been served: it may rest now. Each is listed once.
    pub(super) fn note_rest(&mut self, slot: usize) {
        let Some(connection) = self.connections.get_mut(slot) else { return };
        let Some(until_ns) = connection.rests_until_ns() else { return };
        if !std::mem::replace(&mut connection.is_listed, true) {
            self.resting.push(slot);
        }
        self.rested_ns = Some(self.rested_ns.map_or(until_ns, |first_ns| first_ns.min(until_ns)));
    }

    /// Goes on with those that have rested; the others are listed again when they are looked at.
    pub(super) fn end_rests(&mut self, now: Now) {
        if self.rested_ns.is_none_or(|first_ns| now.boot_ns < first_ns) {
            return;
        }
        self.rested_ns = None;
        for slot in std::mem::take(&mut self.resting) {
            if let Some(connection) = self.connections.get_mut(slot) {
                connection.is_listed = false;
                enqueue(&mut self.queue, slot, connection);
            }
        }
    }
}
