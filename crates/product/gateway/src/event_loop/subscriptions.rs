//! Messages to subscribed connections, and the confirmation of subscriptions.

use super::{Gateway, enqueue};
use crate::connection::Connection;
use crate::hub::Place;
use nicekv_proto::Now;
use nicekv_runtime::now;

impl Gateway {
    /// Hands messages to subscribed connections. A connection that does not read them is closed.
    pub(super) fn deliver_messages(&mut self) {
        while let Some(message) = self.core.poll_message() {
            let mut slow = Vec::new();
            for (place, pattern) in self.hub.subscribers(&message) {
                let Some(connection) = self.connections.get_mut(place.slot) else { continue };
                if connection.session.id != place.connection {
                    continue;
                }
                if !connection.deliver(&message, pattern) && !slow.contains(&place.slot) {
                    slow.push(place.slot);
                }
                enqueue(&mut self.queue, place.slot, connection);
            }
            for slot in slow {
                self.member.own().subscribers_dropped.add(1);
                self.close(slot);
            }
        }
    }

    /// Confirms subscriptions that the store has acknowledged, and announces changes to the store.
    pub(super) fn follow_subscriptions(&mut self, now: Now) {
        while let Some((over, result)) = self.hub.poll() {
            for (place, command) in over {
                let Some(connection) = self.connections.get_mut(place.slot) else { continue };
                if connection.session.id != place.connection {
                    continue;
                }
                let change = connection.confirm(command, result, now.unix_ms);
                enqueue(&mut self.queue, place.slot, connection);
                let Some(change) = change.filter(|change| change.subscribes) else { continue };
                for name in &change.names {
                    match change.failed {
                        false => self.hub.activate(place, name),
                        true => self.hub.leave(now, place, name, None, &self.member),
                    }
                }
            }
        }
        self.hub.submit(now, &mut self.core, self.timeout);
    }

    /// Ends the subscriptions of a closed connection.
    pub(super) fn forget_subscriptions(&mut self, slot: usize, connection: &Connection) {
        let place = Place { slot, connection: connection.session.id };
        for name in connection.subscriptions() {
            self.hub.leave(now(), place, name, None, &self.member);
        }
    }
}
