//! Closing connections, and freeing unused memory of idle ones.

use super::{Gateway, IDLE_AFTER};
use crate::shared::Handshake;
use nicekv_proto::Now;
use nicekv_runtime::{now, release_free_memory};

impl Gateway {
    /// While the memory limit is exceeded and this thread holds the most, closes its largest
    /// connection.
    pub(super) fn enforce_memory_limit(&mut self) {
        while let Some(slot) = self.memory.largest(&self.connections) {
            let refusal = self.memory.refusal(&self.connections[slot]);
            self.connections[slot].dismiss(&refusal);
            self.member.own().connections_evicted.add(1);
            self.close(slot);
        }
    }

    pub(super) fn close(&mut self, slot: usize) {
        self.close_as(slot, Handshake::Failed);
    }

    /// Closes a connection. `handshake`: how its TLS handshake ended, if it was unfinished.
    pub(super) fn close_as(&mut self, slot: usize, handshake: Handshake) {
        // Dropping the socket removes it from the epoll set.
        let mut connection = self.connections.remove(slot);
        if connection.stream.is_handshaking() {
            self.end_handshake(handshake);
        }
        connection.stream.end();
        connection.account(now(), &self.member);
        self.forget_large_values(&connection);
        self.forget_subscriptions(slot, &connection);
        self.forget_client(&connection);
        self.memory.forget(&connection);
        self.member.own().closed();
    }

    /// Frees unused memory of idle connections.
    pub(super) fn sweep(&mut self, now: Now) {
        let mut any_active = false;
        for (_, connection) in &mut self.connections {
            if std::mem::take(&mut connection.active) {
                any_active = true;
            } else {
                connection.shrink();
                self.memory.count(connection);
            }
        }
        if self.memory.take_freed() {
            release_free_memory();
        }
        self.sweep_ns = any_active.then(|| now.after(IDLE_AFTER));
    }
}
