//! The listeners of this client, each with its own channels and patterns.
//!
//! ```text
//!   subscribe ─▶ announced to the members of the channel's partition ─▶ confirmed ─▶ the driver activates the listener
//!   message   ─▶ every active listener of its channel, and of each pattern that matches it
//! ```
//!
//! A listener gets no message before it is active, and none after it has unsubscribed (M2). The
//! number of receivers that the store counts includes listeners that are not active yet.

use super::inbox::Message;
use super::subscriptions::{Confirmation, SubscriptionId, Subscriptions};
use crate::{ClientCore, Completion, OperationError, Ticket};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use nicekv_proto::publish::ListenKind;
use nicekv_proto::{Duration, KeyspaceId, Now, glob};

/// A channel or a pattern.
pub type Topic = (ListenKind, Vec<u8>);

#[derive(Clone, Copy, Debug)]
struct Listener<P> {
    place: P,
    is_active: bool,
}

/// A command that waits until the store has confirmed a change.
#[derive(Clone, Copy, Debug)]
struct Waiting<P> {
    place: P,
    command: u64,
    version: u64,
}

/// Commands whose change is confirmed, each with its listener and number; and the result.
pub type Confirmed<P> = (Vec<(P, u64)>, Result<(), OperationError>);

/// The listeners of a client, their channels and their patterns. A `P` identifies a listener.
#[derive(Clone, Debug)]
pub struct Subscribers<P> {
    keyspace: KeyspaceId,
    subscriptions: Subscriptions,
    names: BTreeMap<Topic, Vec<Listener<P>>>,
    waiting: BTreeMap<SubscriptionId, Vec<Waiting<P>>>,
    tickets: BTreeMap<Ticket, SubscriptionId>,
}

impl<P: Copy + PartialEq> Subscribers<P> {
    /// No listeners yet; all channels are in `keyspace`.
    pub fn new(keyspace: KeyspaceId) -> Self {
        let (names, waiting, tickets) = Default::default();
        Self { keyspace, subscriptions: Subscriptions::default(), names, waiting, tickets }
    }

    /// Whether a channel or pattern has a listener, so that one more takes no place.
    pub fn has_subscribers(&self, name: &Topic) -> bool {
        self.names.contains_key(name)
    }

    /// Channels and patterns with a listener, and those whose end is being announced; at most
    /// [`SUBSCRIPTIONS_MAX`](crate::SUBSCRIPTIONS_MAX).
    pub fn len(&self) -> usize {
        self.subscriptions.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.subscriptions.is_empty()
    }

    /// Adds a listener, whose command `command` waits for the confirmation. False: there are too many channels and patterns.
    pub fn subscribe(&mut self, now: Now, place: P, name: &Topic, command: u64) -> bool {
        let count = self.names.get(name).map_or(0, Vec::len) as u32 + 1;
        let Some((id, version)) = self.subscriptions.set(now.boot_ns, name.0, &name.1, count) else {
            return false;
        };
        self.names.entry(name.clone()).or_default().push(Listener { place, is_active: false });
        self.waiting.entry(id).or_default().push(Waiting { place, command, version });
        true
    }

    /// Removes a listener; `command`, if any, waits for the confirmation. False: the channel or pattern had no listeners.
    pub fn unsubscribe(&mut self, now: Now, place: P, name: &Topic, command: Option<u64>) -> bool {
        let Some(listeners) = self.names.get_mut(name) else { return false };
        listeners.retain(|listener| listener.place != place);
        let count = listeners.len() as u32;
        if count == 0 {
            self.names.remove(name);
        }
        // A channel with listeners has a place.
        if let Some((id, version)) = self.subscriptions.set(now.boot_ns, name.0, &name.1, count)
            && let Some(command) = command
        {
            self.waiting.entry(id).or_default().push(Waiting { place, command, version });
        }
        true
    }

    /// Delivers messages to the listener from now on: its subscription is confirmed.
    pub fn activate(&mut self, place: P, name: &Topic) {
        let listeners = self.names.get_mut(name).into_iter().flatten();
        listeners.filter(|listener| listener.place == place).for_each(|listener| listener.is_active = true);
    }

    /// The listeners that get a message, each with the pattern that matches it, if the listener
    /// subscribed to a pattern.
    pub fn recipients<'a>(
        &'a self,
        message: &'a Message,
    ) -> impl Iterator<Item = (P, Option<&'a [u8]>)> + use<'a, P> {
        let channel = (ListenKind::Channel, message.channel.clone());
        let of_channel = self.names.get(&channel).into_iter().flatten().map(|listener| (listener, None));
        let patterns = self.names.range((ListenKind::Pattern, Vec::new())..);
        let of_patterns =
            patterns.filter(|((_, pattern), _)| glob::matches(pattern, &message.channel)).flat_map(
                |((_, pattern), listeners)| listeners.iter().map(|one| (one, Some(pattern.as_slice()))),
            );
        let all = of_channel.chain(of_patterns).filter(|_| message.keyspace == self.keyspace);
        all.filter(|(listener, _)| listener.is_active).map(|(listener, pattern)| (listener.place, pattern))
    }

    /// Submits the announcements that are due, as long as the client has room. `timeout` is that of each request.
    pub fn submit_announcements(&mut self, now: Now, core: &mut ClientCore, timeout: Duration) {
        while core.room() > 0 {
            let Some((id, request)) = self.subscriptions.next(now.boot_ns) else { return };
            match core.submit(now, self.keyspace, request, now.after(timeout)) {
                Ok(ticket) => drop(self.tickets.insert(ticket, id)),
                Err(_) => self.subscriptions.put_off(now.boot_ns, id),
            }
        }
    }

    /// Takes the completion of an announcement; false if it belongs to another request.
    pub fn handle_completion(&mut self, now: Now, completion: &Completion<'_>) -> bool {
        let Some(id) = self.tickets.remove(&completion.ticket) else { return false };
        self.subscriptions.answered(now.boot_ns, id, completion.result);
        true
    }

    /// Takes the commands that wait for one channel or pattern, when it is confirmed or has failed.
    pub fn poll_confirmed(&mut self) -> Option<Confirmed<P>> {
        let Confirmation { id, version, result } = self.subscriptions.poll()?;
        let mut confirmed = Vec::new();
        if let Some(waiting) = self.waiting.get_mut(&id) {
            waiting.retain(|one| {
                let is_confirmed = one.version <= version;
                if is_confirmed {
                    confirmed.push((one.place, one.command));
                }
                !is_confirmed
            });
            if waiting.is_empty() {
                self.waiting.remove(&id);
            }
        }
        Some((confirmed, result))
    }

    /// When to call [`Self::submit_announcements`], in nanoseconds of the boot-time clock.
    pub fn next_deadline(&self) -> Option<u64> {
        self.subscriptions.next_deadline()
    }
}
