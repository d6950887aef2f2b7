//! Who listens through this client, each by channels and by patterns of its own, and what the store knows of it ([`Subscriptions`]).
//!
//! ```text
//!   join ─▶ said to the members of the channel's partition ─▶ they know ─▶ confirmed, and active
//!                                                  published ─▶ each active listener of the channel, and of each pattern that it has
//! ```
//!
//! A listener is told nothing before it is active, and nothing after it has left (M2). The numbers that the store counts receivers by have those that wait, too.

use crate::subscriptions::Confirmation;
use crate::{ClientCore, Completion, Message, OperationError, SubscriptionId, Subscriptions, Ticket};
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

/// A command that waits until the store knows.
#[derive(Clone, Copy, Debug)]
struct Waiting<P> {
    place: P,
    command: u64,
    version: u64,
}

/// Commands that wait no more, by their listeners and their numbers, and what came of it.
pub type Confirmed<P> = (Vec<(P, u64)>, Result<(), OperationError>);

/// See the module. A listener is named by a `P`.
#[derive(Clone, Debug)]
pub struct Subscribers<P> {
    keyspace: KeyspaceId,
    subscriptions: Subscriptions,
    names: BTreeMap<Topic, Vec<Listener<P>>>,
    waiting: BTreeMap<SubscriptionId, Vec<Waiting<P>>>,
    tickets: BTreeMap<Ticket, SubscriptionId>,
}

impl<P: Copy + PartialEq> Subscribers<P> {
    /// Nobody listens to what is published in that keyspace.
    pub fn new(keyspace: KeyspaceId) -> Self {
        let (names, waiting, tickets) = Default::default();
        Self { keyspace, subscriptions: Subscriptions::default(), names, waiting, tickets }
    }

    /// Whether somebody listens to this one, so that one more costs nothing.
    pub fn has_subscribers(&self, name: &Topic) -> bool {
        self.names.contains_key(name)
    }

    /// Channels and patterns that somebody listens to, and those among them that are being given up.
    pub fn len(&self) -> usize {
        self.subscriptions.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.subscriptions.is_empty()
    }

    /// Somebody listens; its command `command` waits for that to be known. False: there are too many channels and patterns.
    pub fn subscribe(&mut self, now: Now, place: P, name: &Topic, command: u64) -> bool {
        let count = self.names.get(name).map_or(0, Vec::len) as u32 + 1;
        let Some((id, version)) = self.subscriptions.set(now.boot_ns, name.0, &name.1, count) else {
            return false;
        };
        self.names.entry(name.clone()).or_default().push(Listener { place, is_active: false });
        self.waiting.entry(id).or_default().push(Waiting { place, command, version });
        true
    }

    /// It does not listen any more; if a command of it waits for that to be known, it is `command`. False: nobody listened.
    pub fn unsubscribe(&mut self, now: Now, place: P, name: &Topic, command: Option<u64>) -> bool {
        let Some(listeners) = self.names.get_mut(name) else { return false };
        listeners.retain(|listener| listener.place != place);
        let count = listeners.len() as u32;
        if count == 0 {
            self.names.remove(name);
        }
        // What is listened to has a place.
        if let Some((id, version)) = self.subscriptions.set(now.boot_ns, name.0, &name.1, count)
            && let Some(command) = command
        {
            self.waiting.entry(id).or_default().push(Waiting { place, command, version });
        }
        true
    }

    /// What it has joined is confirmed.
    pub fn activate(&mut self, place: P, name: &Topic) {
        let listeners = self.names.get_mut(name).into_iter().flatten();
        listeners.filter(|listener| listener.place == place).for_each(|listener| listener.is_active = true);
    }

    /// Who is told of a message, each with the pattern by which it is, if it is by one.
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

    /// Sends what is due to be said, as far as there is room.
    pub fn submit_announcements(&mut self, now: Now, core: &mut ClientCore, timeout: Duration) {
        while core.room() > 0 {
            let Some((id, request)) = self.subscriptions.next(now.boot_ns) else { return };
            match core.submit(now, self.keyspace, request, now.after(timeout)) {
                Ok(ticket) => drop(self.tickets.insert(ticket, id)),
                Err(_) => self.subscriptions.put_off(now.boot_ns, id),
            }
        }
    }

    /// Takes the answer to a request of its own; false if it is another one's.
    pub fn handle_completion(&mut self, now: Now, completion: &Completion<'_>) -> bool {
        let Some(id) = self.tickets.remove(&completion.ticket) else { return false };
        self.subscriptions.answered(now.boot_ns, id, completion.result);
        true
    }

    /// Commands whose wait is over for one of their names, with what came of it.
    pub fn poll_confirmed(&mut self) -> Option<Confirmed<P>> {
        let Confirmation { id, version, result } = self.subscriptions.poll()?;
        let mut over = Vec::new();
        if let Some(waiting) = self.waiting.get_mut(&id) {
            waiting.retain(|one| {
                let is_over = one.version <= version;
                if is_over {
                    over.push((one.place, one.command));
                }
                !is_over
            });
            if waiting.is_empty() {
                self.waiting.remove(&id);
            }
        }
        Some((over, result))
    }

    /// When [`Self::submit_announcements`] has something to say, in nanoseconds of the boot-time clock.
    pub fn next_deadline(&self) -> Option<u64> {
        self.subscriptions.next_deadline()
    }
}
