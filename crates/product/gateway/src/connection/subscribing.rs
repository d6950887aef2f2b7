//! A connection that listens: what it joins and leaves, and what it is told.

use super::Connection;
use crate::hub::{Name, Place};
use crate::limits::LISTENER_OUTPUT_BYTES_MAX;
use crate::reply::{Protocol, ReplyWriter};
use crate::requests::Requests;
use crate::rope::Rope;
use crate::subscribing::{Change, Changed, Changing};
use crate::unanswered::{Output, State};
use crate::uses::Keys;
use nicekv_client::{Message, OperationError};

impl Connection {
    /// Where the hub finds it.
    fn place(&self, slot: usize) -> Place {
        Place { slot, connection: self.session.id }
    }

    /// Carries out a SUBSCRIBE or UNSUBSCRIBE, as the command with this number.
    pub(super) fn change(&mut self, slot: usize, change: Change, keys: Keys, requests: &mut Requests<'_>) {
        let (place, number) = (self.place(slot), self.unanswered.next_number());
        let (joins, kind) = (change.joins, change.kind);
        let mut names = change.names.clone();
        if names.is_empty() {
            names = self.session.subscribed.of_kind(kind).map(|name| name.1.clone()).collect();
        }
        let mut changing = Changing::new(change);
        if names.is_empty() {
            changing.add(None, self.total(), false);
        }
        for name in names {
            let name = (kind, name);
            let is_changed = match joins {
                true => self.session.subscribed.insert(name.clone()),
                false => self.session.subscribed.remove(&name),
            };
            if is_changed && joins {
                let before = self.total() - 1;
                let joined = requests.hub.join(requests.now, (place, before), &name, number, requests.member);
                if let Err(error) = joined {
                    self.session.subscribed.remove(&name);
                    changing.fail(error);
                    break;
                }
            } else if is_changed {
                requests.hub.leave(requests.now, place, &name, Some(number), requests.member);
            }
            changing.add(Some(name), self.total(), is_changed);
        }
        if changing.is_over() {
            let mut written = Rope::default();
            changing.write(&mut ReplyWriter { out: &mut written, protocol: self.session.protocol });
            return self.unanswered.push_ready(written, &mut self.output);
        }
        self.unanswered.push(keys, State::Changing(Box::new(changing)));
    }

    fn total(&self) -> usize {
        let (channels, patterns) = self.session.subscribed.counts();
        channels + patterns
    }

    /// Tells the hub what RESET has given up.
    pub(super) fn leave_reset(&mut self, slot: usize, requests: &mut Requests<'_>) {
        let place = self.place(slot);
        for name in std::mem::take(&mut self.session.subscribed.left) {
            requests.hub.leave(requests.now, place, &name, None, requests.member);
        }
    }

    /// All that it listens to, when it is no more.
    pub(crate) fn listens_to(&self) -> impl Iterator<Item = &Name> {
        self.session.subscribed.iter().chain(&self.session.subscribed.left)
    }

    /// The store knows of one name of a command, or could not be told. What has become of the command, if that was the last one.
    pub(crate) fn told(
        &mut self,
        command: u64,
        result: Result<(), OperationError>,
        unix_ms: u64,
    ) -> Option<Changed> {
        let output = Output { bytes: &mut self.output, protocol: self.session.protocol, unix_ms };
        let changed = self.unanswered.take_change(command, result, output)?;
        if changed.joined && changed.failed {
            for name in &changed.names {
                self.session.subscribed.remove(name);
            }
        }
        Some(changed)
    }

    /// Tells it of a message, by a pattern or not; false if it does not read what it is told.
    pub(crate) fn hear(&mut self, message: &Message, pattern: Option<&[u8]>) -> bool {
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
        self.output.len() <= LISTENER_OUTPUT_BYTES_MAX
    }

    /// Whether it may run only what a listener may.
    pub(super) fn only_listens(&self) -> bool {
        self.session.protocol == Protocol::Resp2 && !self.session.subscribed.is_empty()
    }
}
