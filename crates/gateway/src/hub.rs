//! Who of this thread's connections listens to what, and what the store knows of it ([`Subscriptions`]).
//!
//! ```text
//!   SUBSCRIBE ─▶ join ─▶ said to the members of the channel's partition ─▶ they know ─▶ confirmed, and active
//!                                                     published ─▶ each active listener of the channel, and of each pattern that it has
//! ```
//!
//! A connection is told nothing before its SUBSCRIBE is confirmed, and nothing after its UNSUBSCRIBE was called. The numbers that the store counts receivers by have those that wait, too.
//! Each thread listens for itself, at its own address.

use crate::error::CommandError;
use crate::shared::Member;
use nicekv_client::{ClientCore, Message, OperationError, SubscriptionId, Subscriptions, Ticket, Told};
use nicekv_wire::publish::ListenKind;
use nicekv_wire::{Duration, KeyspaceId, Now, glob};
use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What is published knows no databases, as in Redis: all of it is of the first one.
pub(crate) const KEYSPACE: KeyspaceId = KeyspaceId::DEFAULT;

const TOO_MANY: &str = "ERR too many channels and patterns are listened to through this gateway";

/// A channel or a pattern.
pub(crate) type Name = (ListenKind, Vec<u8>);

/// A connection, by its place and its id: the place may have been given to another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) slot: usize,
    pub(crate) connection: u64,
}

#[derive(Clone, Copy, Debug)]
struct Listener {
    place: Place,
    is_active: bool,
}

/// A command that waits until the store knows.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    place: Place,
    command: u64,
    version: u64,
}

/// A command that waits no more, by its connection and its number.
pub(crate) type Over = (Place, u64);

/// How many connections of all threads listen to each name: for PUBSUB.
#[derive(Debug, Default)]
pub(crate) struct Listened(Mutex<BTreeMap<Name, usize>>);

impl Listened {
    /// It is whole whenever the lock is free.
    pub(crate) fn counts(&self) -> MutexGuard<'_, BTreeMap<Name, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, name: Name) {
        *self.counts().entry(name).or_default() += 1;
    }

    fn take(&self, name: &Name) {
        let mut counts = self.counts();
        if let Some(count) = counts.get_mut(name) {
            *count -= 1;
            if *count == 0 {
                counts.remove(name);
            }
        }
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Hub {
    subscriptions: Subscriptions,
    names: BTreeMap<Name, Vec<Listener>>,
    waiting: HashMap<SubscriptionId, Vec<Waiting>>,
    tickets: HashMap<Ticket, SubscriptionId>,
}

impl Hub {
    /// A connection listens; its command `command` waits for that to be known.
    pub(crate) fn join(
        &mut self,
        now: Now,
        place: Place,
        name: &Name,
        command: u64,
        member: &Member,
    ) -> Result<(), CommandError> {
        let count = self.names.get(name).map_or(0, Vec::len) as u32 + 1;
        let set = self.subscriptions.set(now.boot_ns, name.0, &name.1, count);
        let (id, version) = set.ok_or(CommandError::fixed(TOO_MANY))?;
        self.names.entry(name.clone()).or_default().push(Listener { place, is_active: false });
        self.waiting.entry(id).or_default().push(Waiting { place, command, version });
        member.server.listened.add(name.clone());
        Ok(())
    }

    /// A connection does not listen any more; if a command of it waits for that to be known, it is `command`.
    pub(crate) fn leave(
        &mut self,
        now: Now,
        place: Place,
        name: &Name,
        command: Option<u64>,
        member: &Member,
    ) {
        let Some(listeners) = self.names.get_mut(name) else { return };
        listeners.retain(|listener| listener.place != place);
        let count = listeners.len() as u32;
        if count == 0 {
            self.names.remove(name);
        }
        member.server.listened.take(name);
        // What is listened to has a place.
        let Some((id, version)) = self.subscriptions.set(now.boot_ns, name.0, &name.1, count) else { return };
        if let Some(command) = command {
            self.waiting.entry(id).or_default().push(Waiting { place, command, version });
        }
    }

    /// A connection's SUBSCRIBE is confirmed.
    pub(crate) fn activate(&mut self, place: Place, name: &Name) {
        let listeners = self.names.get_mut(name).into_iter().flatten();
        listeners.filter(|listener| listener.place == place).for_each(|listener| listener.is_active = true);
    }

    /// Who is told of a message: connections, each with the pattern by which it is, if it is by one.
    pub(crate) fn listeners<'a>(
        &'a self,
        message: &'a Message,
    ) -> impl Iterator<Item = (Place, Option<&'a [u8]>)> + use<'a> {
        let channel = (ListenKind::Channel, message.channel.clone());
        let of_channel = self.names.get(&channel).into_iter().flatten().map(|listener| (listener, None));
        let patterns = self.names.range((ListenKind::Pattern, Vec::new())..);
        let of_patterns =
            patterns.filter(|((_, pattern), _)| glob::matches(pattern, &message.channel)).flat_map(
                |((_, pattern), listeners)| listeners.iter().map(|one| (one, Some(pattern.as_slice()))),
            );
        let all = of_channel.chain(of_patterns).filter(|_| message.keyspace == KEYSPACE);
        all.filter(|(listener, _)| listener.is_active).map(|(listener, pattern)| (listener.place, pattern))
    }

    /// Sends what is due to be said, as far as there is room.
    pub(crate) fn submit(&mut self, now: Now, core: &mut ClientCore, timeout: Duration) {
        while core.room() > 0 {
            let Some((id, request)) = self.subscriptions.next(now.boot_ns) else { return };
            match core.submit(now, KEYSPACE, request, now.after(timeout)) {
                Ok(ticket) => drop(self.tickets.insert(ticket, id)),
                Err(_) => self.subscriptions.put_off(now.boot_ns, id),
            }
        }
    }

    /// Takes the answer to a request of its own; false if it is another one's.
    pub(crate) fn take(&mut self, now: Now, completion: &nicekv_client::Completion<'_>) -> bool {
        let Some(id) = self.tickets.remove(&completion.ticket) else { return false };
        self.subscriptions.answered(now.boot_ns, id, completion.result);
        true
    }

    /// Commands whose wait is over for one of their names, with what came of it.
    pub(crate) fn poll(&mut self) -> Option<(Vec<Over>, Result<(), OperationError>)> {
        let Told { id, version, result } = self.subscriptions.poll()?;
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

    pub(crate) fn next_deadline(&self) -> Option<u64> {
        self.subscriptions.next_deadline()
    }
}
