//! What is published, to the connections that listen; and what the store knows of these.

use super::{Gateway, enqueue};
use crate::hub::Place;
use nicekv_proto::Now;
use nicekv_runtime::now;

impl Gateway {
    /// Hands messages to the connections that listen. One that does not read them is closed.
    pub(super) fn hear(&mut self) {
        while let Some(message) = self.core.poll_message() {
            let mut slow = Vec::new();
            for (place, pattern) in self.hub.listeners(&message) {
                let Some(connection) = self.connections.get_mut(place.slot) else { continue };
                if connection.session.id != place.connection {
                    continue;
                }
                if !connection.hear(&message, pattern) && !slow.contains(&place.slot) {
                    slow.push(place.slot);
                }
                enqueue(&mut self.queue, place.slot, connection);
            }
            for slot in slow {
                self.member.own().listeners_dropped.add(1);
                self.close(slot);
            }
        }
    }

    /// Confirms what the store knows of now, and says what is to be said to it.
    pub(super) fn follow_subscriptions(&mut self, now: Now) {
        while let Some((over, result)) = self.hub.poll() {
            for (place, command) in over {
                let Some(connection) = self.connections.get_mut(place.slot) else { continue };
                if connection.session.id != place.connection {
                    continue;
                }
                let changed = connection.told(command, result, now.unix_ms);
                enqueue(&mut self.queue, place.slot, connection);
                let Some(changed) = changed.filter(|changed| changed.joined) else { continue };
                for name in &changed.names {
                    match changed.failed {
                        false => self.hub.activate(place, name),
                        true => self.hub.leave(now, place, name, None, &self.member),
                    }
                }
            }
        }
        self.hub.submit(now, &mut self.core, self.timeout);
    }

    /// A connection is no more: it listens to nothing.
    pub(super) fn forget_listener(&mut self, slot: usize, connection: &crate::connection::Connection) {
        let place = Place { slot, connection: connection.session.id };
        for name in connection.listens_to() {
            self.hub.leave(now(), place, name, None, &self.member);
        }
    }
}
