//! Connections that end, and what idle ones give back.

use super::{Gateway, IDLE_AFTER};
use crate::shared::Handshake;
use nicekv_proto::Now;
use nicekv_runtime::release_free_memory;

impl Gateway {
    pub(super) fn keep_within_budget(&mut self) {
        while let Some(slot) = self.budget.greediest(&self.connections) {
            let refusal = self.budget.refusal(&self.connections[slot]);
            self.connections[slot].dismiss(&refusal);
            self.member.own().connections_evicted.add(1);
            self.close(slot);
        }
    }

    pub(super) fn close(&mut self, slot: usize) {
        self.close_as(slot, Handshake::Failed);
    }

    /// `handshake`: how that has ended, if it was not done.
    pub(super) fn close_as(&mut self, slot: usize, handshake: Handshake) {
        // Dropping the socket takes it out of the epoll.
        let mut connection = self.connections.remove(slot);
        if connection.stream.is_handshaking() {
            self.end_handshake(handshake);
        }
        connection.stream.end();
        self.forget_large(&connection);
        self.forget_listener(slot, &connection);
        self.forget_watched(&connection);
        self.budget.forget(&connection);
        self.member.own().closed();
    }

    /// Lets idle connections give back what they do not use.
    pub(super) fn sweep(&mut self, now: Now) {
        let mut any_active = false;
        for (_, connection) in &mut self.connections {
            if std::mem::take(&mut connection.active) {
                any_active = true;
            } else {
                connection.shrink();
                self.budget.count(connection);
            }
        }
        if self.budget.take_freed() {
            release_free_memory();
        }
        self.sweep_ns = any_active.then(|| now.after(IDLE_AFTER));
    }
}
