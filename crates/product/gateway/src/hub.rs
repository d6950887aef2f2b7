//! Who of this thread's connections listens to what ([`nicekv_client::Subscribers`]), and how many of all threads do. Each thread listens for itself, at its own address.

use crate::error::CommandError;
use crate::shared::Member;
pub(crate) use nicekv_client::Topic as Name;
use nicekv_client::{ClientCore, Completion, Confirmed, Message, SUBSCRIPTIONS_MAX};
use nicekv_proto::{Duration, KeyspaceId, Now};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What is published knows no databases, as in Redis: all of it is of the first one.
pub(crate) const KEYSPACE: KeyspaceId = KeyspaceId::DEFAULT;

/// What a connection is told that listens to so many, or to as many as all may.
fn too_many(listens_to: usize, names_max: usize) -> CommandError {
    CommandError::text(format!(
        "ERR this connection listens to {listens_to} channels and patterns, its limit for now: of the {names_max} that a thread of the gateway has room for, as many are left to others"
    ))
}

/// A connection, by its place and its id: the place may have been given to another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) slot: usize,
    pub(crate) connection: u64,
}

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
#[derive(Debug)]
pub(crate) struct Hub(nicekv_client::Subscribers<Place>);

impl Default for Hub {
    fn default() -> Self {
        Self(nicekv_client::Subscribers::new(KEYSPACE))
    }
}

impl Hub {
    /// A connection listens, which listened to `before` others; its command `command` waits for that to be known. It has no more than are left to all others: so however many it
    /// wants, these can listen, too.
    pub(crate) fn join(
        &mut self,
        now: Now,
        (place, before): (Place, usize),
        name: &Name,
        command: u64,
        member: &Member,
    ) -> Result<(), CommandError> {
        // Nodes know no more for all threads together.
        let names_max = SUBSCRIPTIONS_MAX / member.server.threads.len().max(1);
        let has_share = self.0.has_subscribers(name) || before < names_max.saturating_sub(self.0.len());
        if !has_share || !self.0.subscribe(now, place, name, command) {
            return Err(too_many(before, names_max));
        }
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
        if self.0.unsubscribe(now, place, name, command) {
            member.server.listened.take(name);
        }
    }

    /// A connection's SUBSCRIBE is confirmed.
    pub(crate) fn activate(&mut self, place: Place, name: &Name) {
        self.0.activate(place, name);
    }

    /// Who is told of a message: connections, each with the pattern by which it is, if it is by one.
    pub(crate) fn listeners<'a>(
        &'a self,
        message: &'a Message,
    ) -> impl Iterator<Item = (Place, Option<&'a [u8]>)> + use<'a> {
        self.0.recipients(message)
    }

    /// Sends what is due to be said, as far as there is room.
    pub(crate) fn submit(&mut self, now: Now, core: &mut ClientCore, timeout: Duration) {
        self.0.submit_announcements(now, core, timeout);
    }

    /// Takes the answer to a request of its own; false if it is another one's.
    pub(crate) fn take(&mut self, now: Now, completion: &Completion<'_>) -> bool {
        self.0.handle_completion(now, completion)
    }

    /// Commands whose wait is over for one of their names, with what came of it.
    pub(crate) fn poll(&mut self) -> Option<Confirmed<Place>> {
        self.0.poll_confirmed()
    }

    pub(crate) fn next_deadline(&self) -> Option<u64> {
        self.0.next_deadline()
    }
}
