//! The way of a connection's requests into the client, and of their answers back.
//!
//! ```text
//!   GET k  ─┐                                   ┌─▶ reply
//!   TTL k  ─┼─▶ one request ─▶ … ─▶ one answer ─┼─▶ reply       of the same turn, whichever connections they are from
//!   GET k  ─┘                                   └─▶ reply
//! ```
//!
//! Gets of one key that are issued in one turn are one request: its datagram leaves at the end of the turn, after all of
//! them were called, so what it reads is a right answer to each. Those of a later turn are not: the replica may have read already.
//!
//! A turn is one of the event loop, or, with many callers, several: while nodes are at work on gets, those that come wait, for
//! about a round trip at most, and leave together. A datagram and a node's turn cost the same for one get as for many.

use crate::hub::{self, Hub};
use crate::permits::Kept;
use crate::shared::Member;
use nicekv_client::{ClientCore, Request, SharedBytes, SubmitError, Ticket, Waiters};
use nicekv_proto::{Duration, KeyspaceId, Now};
use std::collections::HashMap;
use std::hash::{BuildHasher, BuildHasherDefault, Hasher, RandomState};
use std::ops::Range;
use std::sync::Arc;

/// Of fewer that are under way or wait, none waits: with few callers it is the round trip that counts.
const COMPANY_MIN: usize = 4;
/// So many do not wait for more: what they cost will not become much less.
const BATCH_ENOUGH: usize = 48;
/// No get waits for longer, about a round trip.
const WAIT_MAX: Duration = Duration::from_micros(60);

/// Where a request comes from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Origin {
    /// Place of the connection in the event loop's table.
    pub(crate) slot: usize,
    /// Its id: the place may have been given to another one since.
    pub(crate) connection: u64,
    /// Number of the command on the connection.
    pub(crate) command: u64,
    /// Number of the request in the command.
    pub(crate) part: usize,
    /// Which command it is: its number in the table.
    pub(crate) called: usize,
    /// When it was issued.
    pub(crate) since_ns: u64,
}

/// The origins of each request in flight. Each is a part of an unanswered command, of which every connection has a bounded number.
pub(crate) type Origins = Waiters<Origin>;

/// Passes on what is a keyed hash already.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Hashed(u64);

impl Hasher for Hashed {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("only hashes are hashed, as numbers");
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

/// A map by keyed hashes.
pub(crate) type HashedMap<V> = HashMap<u64, V, BuildHasherDefault<Hashed>>;

/// The gets that were issued in this turn, and have not left.
#[derive(Debug, Default)]
pub(crate) struct TurnGets {
    /// Counts turns.
    turn: u64,
    /// When the first of them was issued.
    since_ns: Option<u64>,
    /// Requests that were issued in this turn, and whether there are others than gets.
    issued: usize,
    has_updates: bool,
    by_hash: HashedMap<(KeyspaceId, Range<usize>, Ticket)>,
    keys: Vec<u8>,
}

impl TurnGets {
    /// When what was issued leaves at the latest, if it may wait for others to leave with it: while the nodes are at work on those before.
    pub(crate) fn leaves_at_ns(&self, in_flight: usize) -> Option<u64> {
        let under_way = in_flight.saturating_sub(self.issued);
        let has_company = under_way > 0 && under_way + self.issued >= COMPANY_MIN;
        let waits = has_company && !self.has_updates && self.issued < BATCH_ENOUGH;
        self.since_ns.filter(|_| waits).map(|since_ns| since_ns + WAIT_MAX.as_nanos() as u64)
    }

    /// What was issued leaves now.
    pub(crate) fn end_turn(&mut self) {
        (self.since_ns, self.issued, self.has_updates) = (None, 0, false);
        self.turn += 1;
        self.by_hash.clear();
        self.keys.clear();
    }

    fn find(&self, hash: u64, keyspace: KeyspaceId, key: &[u8]) -> Option<Ticket> {
        let (of, range, ticket) = self.by_hash.get(&hash)?;
        (*of == keyspace && self.keys[range.clone()] == *key).then_some(*ticket)
    }

    fn note(&mut self, hash: u64, keyspace: KeyspaceId, key: &[u8], ticket: Ticket) {
        let start = self.keys.len();
        self.keys.extend_from_slice(key);
        self.by_hash.insert(hash, (keyspace, start..self.keys.len(), ticket));
    }
}

/// What a connection needs of the event loop to issue commands.
pub(crate) struct Requests<'a> {
    pub(crate) now: Now,
    pub(crate) core: &'a mut ClientCore,
    pub(crate) origins: &'a mut Origins,
    pub(crate) gets: &'a mut TurnGets,
    pub(crate) member: &'a Member,
    pub(crate) hasher: &'a RandomState,
    pub(crate) timeout: Duration,
    pub(crate) hub: &'a mut Hub,
    /// The slots of connections that wait to be granted something, by the numbers of their questions.
    pub(crate) askers: &'a mut HashMap<u64, usize>,
}

impl Requests<'_> {
    pub(crate) fn room(&self) -> usize {
        self.core.room()
    }

    /// Gets of one key that are issued in the same turn share a request.
    pub(crate) fn turn(&self) -> u64 {
        self.gets.turn
    }

    /// Names a key within a connection. Two keys with one hash only wait for each other needlessly.
    pub(crate) fn hash(&self, keyspace: KeyspaceId, key: &[u8]) -> u64 {
        self.hasher.hash_one((keyspace.0, key))
    }

    /// `hash`: of the request's key, if it is known. `kept`: its value, if it is a large argument.
    pub(crate) fn submit(
        &mut self,
        keyspace: KeyspaceId,
        request: Request<'_>,
        origin: Origin,
        hash: Option<u64>,
        kept: Option<&Arc<Kept>>,
    ) -> Result<(), SubmitError> {
        // A get tells how long the value is, too.
        let (key, is_get) = match request {
            Request::Get { key } => (key, true),
            Request::Length { key } => (key, false),
            _ => return self.begin(keyspace, request, origin, kept).map(|_| ()),
        };
        let hash = hash.unwrap_or_else(|| self.hash(keyspace, key));
        // It may have been given up before it left.
        let same = self.gets.find(hash, keyspace, key).filter(|ticket| self.origins.is_open(*ticket));
        if let Some(ticket) = same {
            self.origins.join(ticket, (keyspace, key), origin);
            return Ok(());
        }
        let ticket = self.begin(keyspace, request, origin, None)?;
        if is_get {
            self.gets.note(hash, keyspace, key, ticket);
        }
        Ok(())
    }

    /// A request that no other command shares.
    pub(crate) fn begin_alone(
        &mut self,
        keyspace: KeyspaceId,
        request: Request<'_>,
        origin: Origin,
    ) -> Result<(), SubmitError> {
        self.begin(keyspace, request, origin, None).map(|_| ())
    }

    fn begin(
        &mut self,
        keyspace: KeyspaceId,
        request: Request<'_>,
        origin: Origin,
        kept: Option<&Arc<Kept>>,
    ) -> Result<Ticket, SubmitError> {
        let kept = kept.map(|kept| SharedBytes::new(kept.clone()));
        let deadline_ns = self.now.after(self.timeout);
        let keyspace = if matches!(request, Request::Publish { .. }) { hub::KEYSPACE } else { keyspace };
        let ticket = self.core.submit_shared(self.now, keyspace, request, deadline_ns, kept.as_ref())?;
        self.gets.issued += 1;
        self.gets.since_ns.get_or_insert(self.now.boot_ns);
        self.gets.has_updates |= !matches!(request, Request::Get { .. } | Request::Length { .. });
        self.origins.begin(ticket, origin);
        Ok(ticket)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nicekv_client::Config;
    use nicekv_proto::placement::Vrings;
    use nicekv_proto::{ClientId, Operation};

    const KEYSPACE: KeyspaceId = KeyspaceId::DEFAULT;

    #[test]
    fn gets_of_one_key_and_turn_are_one_request_and_all_else_is_not() {
        let mut core = ClientCore::new(Config::new(ClientId(1 << 32), Vrings::on_loopback(7400)));
        let (mut origins, mut gets, hasher) = (Origins::default(), TurnGets::default(), RandomState::new());
        let member = Member::alone(0);
        let now = Now { boot_ns: 1, unix_ms: 1 };
        let mut submit = |gets: &mut TurnGets, command, request| {
            let timeout = Duration::from_secs(1);
            let (core, origins, member, hasher) = (&mut core, &mut origins, &member, &hasher);
            let askers = &mut HashMap::new();
            let hub = &mut Hub::default();
            let mut requests = Requests { now, core, origins, gets, member, hasher, timeout, hub, askers };
            let origin = Origin { slot: 0, connection: 1, command, part: 0, called: 0, since_ns: 0 };
            requests.submit(KEYSPACE, request, origin, None, None).unwrap();
            requests.core.in_flight()
        };
        let (get, delete) = (Request::Get { key: b"k" }, Request::update(b"k", Operation::Delete));
        for (command, request, in_flight) in [
            (0, get, 1),
            (1, get, 1),
            (2, Request::Get { key: b"l" }, 2),
            (3, delete, 3),
            (4, delete, 4),
            (5, get, 4),
        ] {
            assert_eq!(submit(&mut gets, command, request), in_flight, "{command}");
        }
        gets.end_turn();
        assert_eq!((submit(&mut gets, 6, get), submit(&mut gets, 7, get)), (5, 5));
        core.handle_deadline(Now { boot_ns: 3_000_000_000, unix_ms: 1 });
        let mut answered = Vec::new();
        while let Some(completion) = core.poll_event() {
            answered.push(origins.take(completion.ticket).map(|origin| origin.command).collect::<Vec<_>>());
        }
        answered.sort();
        assert_eq!(answered, [vec![0, 1, 5], vec![2], vec![3], vec![4], vec![6, 7]]);
    }

    #[test]
    fn gets_wait_for_company_behind_many_that_are_under_way_and_not_for_long() {
        let issued =
            |issued, has_updates| TurnGets { since_ns: Some(5), issued, has_updates, ..TurnGets::default() };
        let (few, at_ns) = (COMPANY_MIN, Some(5 + WAIT_MAX.as_nanos() as u64));
        for (gets, under_way, expected) in [
            (issued(1, false), few - 1, at_ns),
            (issued(1, false), few - 2, None),
            (issued(few, false), 1, at_ns),
            (issued(few, false), 0, None),
            (issued(1, true), few, None),
            (issued(BATCH_ENOUGH - 1, false), 1_000, at_ns),
            (issued(BATCH_ENOUGH, false), 1_000, None),
            (TurnGets::default(), 1_000, None),
        ] {
            assert_eq!(gets.leaves_at_ns(under_way + gets.issued), expected, "{gets:?}, {under_way}");
        }
        let mut gets = issued(1, true);
        gets.end_turn();
        assert_eq!(gets.leaves_at_ns(1_000), None);
    }

    #[test]
    fn a_get_that_was_given_up_before_it_left_answers_no_other() {
        let mut core = ClientCore::new(Config::new(ClientId(1 << 32), Vrings::on_loopback(7400)));
        let (mut origins, mut gets, hasher) = (Origins::default(), TurnGets::default(), RandomState::new());
        let member = Member::alone(0);
        for command in 0..3 {
            let now = Now { boot_ns: 1 + command * 10_000_000_000, unix_ms: 1 };
            let (core, origins, gets) = (&mut core, &mut origins, &mut gets);
            let timeout = Duration::from_secs(1);
            let (member, hasher, askers) = (&member, &hasher, &mut HashMap::new());
            let hub = &mut Hub::default();
            let mut requests = Requests { now, core, origins, gets, member, hasher, timeout, hub, askers };
            let origin = Origin { slot: 0, connection: 1, command, part: 0, called: 0, since_ns: 0 };
            requests.submit(KEYSPACE, Request::Get { key: b"k" }, origin, None, None).unwrap();
            assert_eq!(requests.core.in_flight(), 1);
            requests.core.handle_deadline(Now { boot_ns: now.boot_ns + 3_000_000_000, ..now });
            let given_up = requests.core.poll_event().expect("its time is over").ticket;
            let of: Vec<u64> = requests.origins.take(given_up).map(|origin| origin.command).collect();
            assert_eq!(of, [command]);
        }
    }

    #[test]
    fn a_hash_is_not_taken_for_the_key() {
        let mut gets = TurnGets::default();
        let mut core = ClientCore::new(Config::new(ClientId(1 << 32), Vrings::on_loopback(7400)));
        let now = Now { boot_ns: 1, unix_ms: 1 };
        let ticket = core.submit(now, KEYSPACE, Request::Get { key: b"k" }, 2).unwrap();
        gets.note(7, KEYSPACE, b"k", ticket);
        assert_eq!(gets.find(7, KEYSPACE, b"k"), Some(ticket));
        assert_eq!(gets.find(7, KEYSPACE, b"l"), None);
        assert_eq!(gets.find(7, KeyspaceId(1), b"k"), None);
        assert_eq!(gets.find(8, KEYSPACE, b"k"), None);
    }
}
