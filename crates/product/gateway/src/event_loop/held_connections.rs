//! Connections that take no commands for a while, and checks of connections after a change of
//! users.

use super::{Gateway, enqueue};
use nicekv_proto::Now;

impl Gateway {
    /// If users have changed, queues all connections, because even idle ones may have to be closed.
    pub(super) fn follow_users(&mut self) {
        let version = self.member.server.users.version();
        if std::mem::replace(&mut self.users_version, version) == version {
            return;
        }
        for (slot, connection) in &mut self.connections {
            enqueue(&mut self.queue, slot, connection);
        }
    }

    /// After a connection was served: adds it to the list if it is now held.
    pub(super) fn note_held(&mut self, slot: usize) {
        let Some(connection) = self.connections.get_mut(slot) else { return };
        let Some(until_ns) = connection.held_until_ns() else { return };
        if !std::mem::replace(&mut connection.is_listed, true) {
            self.held.push(slot);
        }
        self.held_until_ns = Some(self.held_until_ns.map_or(until_ns, |first_ns| first_ns.min(until_ns)));
    }

    /// Once the first held connection may continue, queues all of them. Those that have to wait
    /// longer are listed again.
    pub(super) fn release_held(&mut self, now: Now) {
        if self.held_until_ns.is_none_or(|first_ns| now.boot_ns < first_ns) {
            return;
        }
        self.held_until_ns = None;
        for slot in std::mem::take(&mut self.held) {
            if let Some(connection) = self.connections.get_mut(slot) {
                connection.is_listed = false;
                enqueue(&mut self.queue, slot, connection);
            }
        }
    }
}
