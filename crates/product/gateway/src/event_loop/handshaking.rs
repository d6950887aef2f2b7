//! TLS handshakes of connections.

use super::Gateway;
use crate::connection::Connection;
use crate::handshakes::Handshaking;
use crate::shared::Handshake;
use nicekv_proto::Now;
use slab::Slab;

impl Gateway {
    /// Registers a new connection that begins with a TLS handshake.
    pub(super) fn begin_handshake(&mut self, slot: usize, id: u64, now: Now) {
        self.handshakes.begin(slot, id, now.boot_ns);
        self.report_handshakes();
        if self.handshakes.has_too_many() {
            while let Some(oldest) = self.handshakes.pop_oldest() {
                if is_handshaking(&self.connections, &oldest) {
                    self.close_as(oldest.slot, Handshake::Displaced);
                    break;
                }
            }
        }
        let connections = &self.connections;
        self.handshakes.prune(|handshaking| is_handshaking(connections, handshaking));
    }

    /// Closes connections whose handshake has expired.
    pub(super) fn expire_handshakes(&mut self, now: Now) {
        while let Some(expired) = self.handshakes.pop_expired(now.boot_ns) {
            if is_handshaking(&self.connections, &expired) {
                self.close_as(expired.slot, Handshake::TimedOut);
            }
        }
    }

    /// Whether the connection's handshake has to continue in a later turn, because this one has no
    /// steps left.
    pub(super) fn must_delay_handshake(&mut self, slot: usize) -> bool {
        let Some(connection) = self.connections.get(slot) else { return false };
        let takes_step = connection.stream.is_handshaking() && connection.wants_read();
        takes_step && !self.handshakes.take_step()
    }

    /// Called after a read from a connection whose handshake was unfinished.
    pub(super) fn after_handshake_step(&mut self, slot: usize) {
        let Some(connection) = self.connections.get_mut(slot) else { return };
        if connection.stream.is_handshaking() {
            return;
        }
        let refusal = connection.refusal.take();
        self.end_handshake(Handshake::Done);
        if let Some(refusal) = refusal {
            self.connections[slot].dismiss(&refusal);
            self.close(slot);
        }
    }

    pub(super) fn end_handshake(&mut self, how: Handshake) {
        self.handshakes.end();
        self.member.own().handshakes[how as usize].add(1);
        self.report_handshakes();
    }

    fn report_handshakes(&self) {
        self.member.own().handshakes_open.set(self.handshakes.open() as u64);
    }
}

fn is_handshaking(connections: &Slab<Connection>, handshaking: &Handshaking) -> bool {
    let connection = connections.get(handshaking.slot);
    connection.is_some_and(|connection| {
        connection.session.id == handshaking.id && connection.stream.is_handshaking()
    })
}
