//! The subscriptions of this thread's connections ([`nicekv_client::Subscribers`]). Each thread
//! subscribes at the store independently, with its own address.

use crate::shared::Member;
use nicekv_client::{ClientCore, Completion, Confirmed, Message, SUBSCRIPTIONS_MAX, Topic};
use nicekv_proto::{Duration, KeyspaceId, Now};
use nicekv_redis::error::CommandError;

/// As in Redis, channels are the same for all databases: all belong to the first keyspace.
pub(crate) const KEYSPACE: KeyspaceId = KeyspaceId::DEFAULT;

/// The error for a connection that has reached its limit of subscriptions.
fn too_many(subscribed: usize, names_max: usize) -> CommandError {
    CommandError::text(format!(
        "ERR this connection listens to {subscribed} channels and patterns, its limit for now: at least as many of the {names_max} of a gateway thread must stay free for others"
    ))
}

/// A connection: its slot and its id. The id tells whether another connection has the slot by now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) slot: usize,
    pub(crate) connection: u64,
}

#[derive(Debug)]
pub(crate) struct Hub(nicekv_client::Subscribers<Place>);

impl Default for Hub {
    fn default() -> Self {
        Self(nicekv_client::Subscribers::new(KEYSPACE))
    }
}

impl Hub {
    /// Subscribes a connection that had `before` subscriptions; `command` waits for the
    /// confirmation. A connection may have at most as many subscriptions as it leaves free for
    /// others.
    pub(crate) fn join(
        &mut self,
        now: Now,
        (place, before): (Place, usize),
        name: &Topic,
        command: u64,
        member: &Member,
    ) -> Result<(), CommandError> {
        // Nodes limit the subscriptions of a gateway; its threads share this limit equally.
        let names_max = SUBSCRIPTIONS_MAX / member.server.threads.len().max(1);
        let has_share = self.0.has_subscribers(name) || before < names_max.saturating_sub(self.0.len());
        if !has_share || !self.0.subscribe(now, place, name, command) {
            return Err(too_many(before, names_max));
        }
        member.server.subscribers.add(name.clone());
        Ok(())
    }

    /// Unsubscribes a connection. `command`: the command that waits for the confirmation, if any.
    pub(crate) fn leave(
        &mut self,
        now: Now,
        place: Place,
        name: &Topic,
        command: Option<u64>,
        member: &Member,
    ) {
        if self.0.unsubscribe(now, place, name, command) {
            member.server.subscribers.remove(name);
        }
    }

    /// A SUBSCRIBE was confirmed: messages are delivered from now on.
    pub(crate) fn activate(&mut self, place: Place, name: &Topic) {
        self.0.activate(place, name);
    }

    /// The subscribers of a message, each with the pattern that matches it, if it subscribed to a
    /// pattern.
    pub(crate) fn subscribers<'a>(
        &'a self,
        message: &'a Message,
    ) -> impl Iterator<Item = (Place, Option<&'a [u8]>)> + use<'a> {
        self.0.recipients(message)
    }

    /// Sends due announcements to the store, as far as the client's window has room.
    pub(crate) fn submit(&mut self, now: Now, core: &mut ClientCore, timeout: Duration) {
        self.0.submit_announcements(now, core, timeout);
    }

    /// Processes a completion if it belongs to the hub; false if it does not.
    pub(crate) fn take(&mut self, now: Now, completion: &Completion<'_>) -> bool {
        self.0.handle_completion(now, completion)
    }

    /// The next confirmed name: the commands that waited for it, and the result.
    pub(crate) fn poll(&mut self) -> Option<Confirmed<Place>> {
        self.0.poll_confirmed()
    }

    pub(crate) fn next_deadline(&self) -> Option<u64> {
        self.0.next_deadline()
    }
}
