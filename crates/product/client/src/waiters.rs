//! The waiters for each answer, where several gets of one key share a request.
//!
//! ```text
//!   begin ─▶ one waiter ── join ─▶ several ── answered ──────▶ take: all of them, with the answer
//!                                     │ the value is long
//!                                     └────────▶ separate: the first keeps the request, the others get requests of their own
//! ```
//!
//! Invariant: every waiter that was added is returned by [`Waiters::take`] or [`Waiters::separate`]. The latter also returns
//! the key, so that no waiter is left without a request.

use crate::Ticket;
use alloc::vec::Vec;
use nicekv_proto::KeyspaceId;

/// The waiters of each request in flight, by the index of its ticket. The driver bounds their number.
#[derive(Clone, Debug)]
pub struct Waiters<W> {
    places: Vec<Place<W>>,
}

#[derive(Clone, Debug)]
struct Place<W> {
    first: Option<(Ticket, W)>,
    sharing: Vec<W>,
    /// The key of a shared request.
    keyspace: KeyspaceId,
    key: Vec<u8>,
}

/// Waiters that no longer share a request. Each gets the key by a request of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Separated<W> {
    /// The keyspace of the key.
    pub keyspace: KeyspaceId,
    /// The key.
    pub key: Vec<u8>,
    /// The waiters.
    pub waiters: Vec<W>,
}

impl<W> Default for Waiters<W> {
    fn default() -> Self {
        Self { places: Vec::new() }
    }
}

impl<W> Waiters<W> {
    /// A request begins for this waiter.
    pub fn begin(&mut self, ticket: Ticket, waiter: W) {
        while self.places.len() <= ticket.index() {
            let (keyspace, key, sharing) = (KeyspaceId::DEFAULT, Vec::new(), Vec::new());
            self.places.push(Place { first: None, sharing, keyspace, key });
        }
        let place = &mut self.places[ticket.index()];
        debug_assert!(place.first.is_none() && place.sharing.is_empty(), "the answer before was taken");
        place.first = Some((ticket, waiter));
    }

    /// Whether the request is neither answered nor cancelled.
    pub fn is_open(&self, ticket: Ticket) -> bool {
        self.first(ticket).is_some()
    }

    /// The waiter for which an open request was made.
    pub fn first(&self, ticket: Ticket) -> Option<&W> {
        let (of, waiter) = self.places.get(ticket.index())?.first.as_ref()?;
        (*of == ticket).then_some(waiter)
    }

    /// Adds a waiter to an open get of this key.
    pub fn join(&mut self, ticket: Ticket, (keyspace, key): (KeyspaceId, &[u8]), waiter: W) {
        assert!(self.is_open(ticket), "the request is open");
        let place = &mut self.places[ticket.index()];
        if place.sharing.is_empty() {
            place.keyspace = keyspace;
            place.key.clear();
            place.key.extend_from_slice(key);
        }
        debug_assert!((place.keyspace, &place.key[..]) == (keyspace, key), "one request reads one key");
        place.sharing.push(waiter);
    }

    /// Removes the live waiters that share a request. If the first waiter is dead, a live one takes its place.
    pub fn separate(&mut self, ticket: Ticket, is_alive: impl Fn(&W) -> bool) -> Separated<W> {
        let Place { first, sharing, keyspace, key } = &mut self.places[ticket.index()];
        let mut waiters = core::mem::take(sharing);
        waiters.retain(&is_alive);
        if let Some((_, waiter)) =
            first.as_mut().filter(|(_, waiter)| !is_alive(waiter) && !waiters.is_empty())
        {
            *waiter = waiters.remove(0);
        }
        Separated { keyspace: *keyspace, key: core::mem::take(key), waiters }
    }

    /// Removes all waiters of a request that is answered.
    pub fn take(&mut self, ticket: Ticket) -> impl Iterator<Item = W> + use<W> {
        let Place { first, sharing, .. } = &mut self.places[ticket.index()];
        let (_, first) = first.take().expect("every ticket has a waiter");
        [first].into_iter().chain(core::mem::take(sharing))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ClientCore, Config, Request};
    use alloc::vec;
    use nicekv_proto::placement::Vrings;
    use nicekv_proto::{ClientId, Now};

    const KEY: (KeyspaceId, &[u8]) = (KeyspaceId(3), b"k");

    fn ticket() -> Ticket {
        let mut core = ClientCore::new(Config::new(ClientId(1 << 32), Vrings::on_loopback(7400)));
        let now = Now { boot_ns: 1, unix_ms: 1 };
        core.submit(now, KeyspaceId::DEFAULT, Request::Get { key: b"k" }, 2).unwrap()
    }

    #[test]
    fn shared_answer_goes_to_all_waiters() {
        let (ticket, mut waiters) = (ticket(), Waiters::default());
        assert!(!waiters.is_open(ticket));
        waiters.begin(ticket, 1);
        waiters.join(ticket, KEY, 2);
        waiters.join(ticket, KEY, 3);
        assert_eq!(waiters.take(ticket).collect::<Vec<_>>(), [1, 2, 3]);
        assert!(!waiters.is_open(ticket), "it is answered");
    }

    #[test]
    fn separated_waiters_get_the_key_and_the_first_live_one_keeps_the_request() {
        let (ticket, mut waiters) = (ticket(), Waiters::default());
        waiters.begin(ticket, 1);
        let nobody = waiters.separate(ticket, |_| true);
        assert!(nobody.waiters.is_empty());
        [2, 3, 4, 5].into_iter().for_each(|waiter| waiters.join(ticket, KEY, waiter));
        let separated = waiters.separate(ticket, |waiter| ![1, 2, 4].contains(waiter));
        assert_eq!(separated, Separated { keyspace: KEY.0, key: KEY.1.to_vec(), waiters: vec![5] });
        assert_eq!(waiters.first(ticket), Some(&3));
        assert_eq!(waiters.take(ticket).collect::<Vec<_>>(), [3]);
    }
}
