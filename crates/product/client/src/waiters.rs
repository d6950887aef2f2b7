//! Who waits for the answer to each request, when several may share one.
//!
//! ```text
//!   begin ─▶ one waiter ── join ─▶ several ── answered ──────▶ take: all of them, with the answer
//!                                     │ the value is long
//!                                     └────────▶ separate: the first keeps the request, the others get the key anew
//! ```
//!
//! Invariant: a waiter that has come in goes out by [`Waiters::take`] or [`Waiters::separate`]. Both hand it back, and the second one with
//! the key that it asks for, so that nobody is left without a request, whatever the protocol of the keyspace.

use crate::Ticket;
use alloc::vec::Vec;
use nicekv_proto::KeyspaceId;

/// The waiters of each request under way, by the index of its ticket. A driver bounds them by what it takes in.
#[derive(Clone, Debug)]
pub struct Waiters<W> {
    places: Vec<Place<W>>,
}

#[derive(Clone, Debug)]
struct Place<W> {
    first: Option<(Ticket, W)>,
    sharing: Vec<W>,
    /// What those ask for that share it.
    keyspace: KeyspaceId,
    key: Vec<u8>,
}

/// Those that shared a request and do not any more: each gets the key with a request of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Separated<W> {
    /// The keyspace of the key.
    pub keyspace: KeyspaceId,
    /// The key.
    pub key: Vec<u8>,
    /// Who asks for it.
    pub waiters: Vec<W>,
}

impl<W> Default for Waiters<W> {
    fn default() -> Self {
        Self { places: Vec::new() }
    }
}

impl<W> Waiters<W> {
    /// A request begins, for this waiter.
    pub fn begin(&mut self, ticket: Ticket, waiter: W) {
        while self.places.len() <= ticket.index() {
            let (keyspace, key, sharing) = (KeyspaceId::DEFAULT, Vec::new(), Vec::new());
            self.places.push(Place { first: None, sharing, keyspace, key });
        }
        let place = &mut self.places[ticket.index()];
        debug_assert!(place.first.is_none() && place.sharing.is_empty(), "the answer before was taken");
        place.first = Some((ticket, waiter));
    }

    /// Whether the request is not answered, nor given up.
    pub fn is_open(&self, ticket: Ticket) -> bool {
        self.first(ticket).is_some()
    }

    /// The waiter that a request was made for, if it is open.
    pub fn first(&self, ticket: Ticket) -> Option<&W> {
        let (of, waiter) = self.places.get(ticket.index())?.first.as_ref()?;
        (*of == ticket).then_some(waiter)
    }

    /// Another one waits for the answer to an open get, of this key.
    pub fn join(&mut self, ticket: Ticket, (keyspace, key): (KeyspaceId, &[u8]), waiter: W) {
        assert!(self.is_open(ticket), "there is an answer to come");
        let place = &mut self.places[ticket.index()];
        if place.sharing.is_empty() {
            place.keyspace = keyspace;
            place.key.clear();
            place.key.extend_from_slice(key);
        }
        debug_assert!((place.keyspace, &place.key[..]) == (keyspace, key), "one key is asked for");
        place.sharing.push(waiter);
    }

    /// Takes away those that share a request and are alive. If it was made for one that is not alive, one that is takes its place.
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

    /// All waiters of a request that is answered.
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
    fn those_who_share_an_answer_get_it_together() {
        let (ticket, mut waiters) = (ticket(), Waiters::default());
        assert!(!waiters.is_open(ticket));
        waiters.begin(ticket, 1);
        waiters.join(ticket, KEY, 2);
        waiters.join(ticket, KEY, 3);
        assert_eq!(waiters.take(ticket).collect::<Vec<_>>(), [1, 2, 3]);
        assert!(!waiters.is_open(ticket), "it is answered");
    }

    #[test]
    fn those_who_are_separated_know_what_to_ask_for_and_the_first_who_lives_keeps_the_request() {
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
