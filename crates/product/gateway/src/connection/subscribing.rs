//! Subscriptions of a connection, and the messages it receives.

use super::Connection;
use crate::hub::Place;
use crate::key_conflicts::UsedKeys;
use crate::limits::SUBSCRIBER_OUTPUT_BYTES_MAX;
use crate::requests::Requests;
use crate::unanswered::{Output, State};
use nicekv_client::{Message, OperationError, Topic};
use nicekv_redis::continuation::Continuation;
use nicekv_redis::pending_subscription::PendingSubscription;
use nicekv_redis::resp::{ReplyBuffer, ReplyWriter};
use nicekv_redis::subscription::{SubscriptionChange, SubscriptionRequest};

impl Connection {
    /// The connection's identity for the hub.
    fn place(&self, slot: usize) -> Place {
        Place { slot, connection: self.session.id }
    }

    /// Carries out a SUBSCRIBE or UNSUBSCRIBE, and adds it to the unanswered commands.
    pub(super) fn subscribe(
        &mut self,
        slot: usize,
        request: SubscriptionRequest,
        keys: UsedKeys,
        requests: &mut Requests<'_>,
    ) {
        let (place, number) = (self.place(slot), self.unanswered.next_number());
        let (subscribes, kind) = (request.subscribes, request.kind);
        let mut names = request.names.clone();
        if names.is_empty() {
            names = self.session.subscriptions.of_kind(kind).map(|name| name.1.clone()).collect();
        }
        let mut pending = PendingSubscription::new(request);
        if names.is_empty() {
            pending.add(None, self.total(), false);
        }
        for name in names {
            let name = (kind, name);
            let is_changed = match subscribes {
                true => self.session.subscriptions.insert(name.clone()),
                false => self.session.subscriptions.remove(&name),
            };
            if is_changed && subscribes {
                let before = self.total() - 1;
                let joined = requests.hub.join(requests.now, (place, before), &name, number, requests.member);
                if let Err(error) = joined {
                    self.session.subscriptions.remove(&name);
                    pending.refuse(error);
                    break;
                }
            } else if is_changed {
                requests.hub.leave(requests.now, place, &name, Some(number), requests.member);
            }
            pending.add(Some(name), self.total(), is_changed);
        }
        let pending = Box::new(pending);
        if pending.is_over() {
            let mut written = ReplyBuffer::default();
            pending.write(&mut ReplyWriter { out: &mut written, protocol: self.session.protocol });
            return self.unanswered.push_ready(written, &mut self.output);
        }
        self.unanswered.push(keys, State::Continue(pending));
    }

    fn total(&self) -> usize {
        let (channels, patterns) = self.session.subscriptions.counts();
        channels + patterns
    }

    /// Removes from the hub the subscriptions that RESET has ended.
    pub(super) fn unsubscribe_after_reset(&mut self, slot: usize, requests: &mut Requests<'_>) {
        let place = self.place(slot);
        for name in std::mem::take(&mut self.session.subscriptions.left) {
            requests.hub.leave(requests.now, place, &name, None, requests.member);
        }
    }

    /// All subscriptions of the connection, to be ended when it is closed.
    pub(crate) fn subscriptions(&self) -> impl Iterator<Item = &Topic> {
        self.session.subscriptions.iter().chain(&self.session.subscriptions.left)
    }

    /// The store has confirmed one name of a SUBSCRIBE or UNSUBSCRIBE, or the request failed.
    /// Returns the change of subscriptions if that was the command's last name.
    pub(crate) fn confirm(
        &mut self,
        command: u64,
        result: Result<(), OperationError>,
        unix_ms: u64,
    ) -> Option<SubscriptionChange> {
        let output = Output { bytes: &mut self.output, protocol: self.session.protocol, unix_ms };
        let effect = self.unanswered.confirm(command, result, output)?;
        let change = self.apply(effect)?;
        if change.subscribes && change.failed {
            for name in &change.names {
                self.session.subscriptions.remove(name);
            }
        }
        Some(change)
    }

    /// Sends a message to this connection; false if the peer does not read its messages. `pattern`:
    /// the pattern of the subscription that it matches, if any.
    pub(crate) fn deliver(&mut self, message: &Message, pattern: Option<&[u8]>) -> bool {
        if self.failed || self.closing {
            return true;
        }
        let protocol = self.session.protocol;
        let mut reply = ReplyWriter { out: &mut self.output, protocol };
        match pattern {
            None => {
                reply.push(3);
                reply.bulk(b"message");
            }
            Some(pattern) => {
                reply.push(4);
                reply.bulk(b"pmessage");
                reply.bulk(pattern);
            }
        }
        reply.bulk(&message.channel);
        reply.bulk(&message.message);
        self.output.len() <= SUBSCRIBER_OUTPUT_BYTES_MAX
    }
}
