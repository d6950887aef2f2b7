//! Passes requests of connections to the client, and matches answers with the commands that wait
//! for them.
//!
//! ```text
//!   GET k  ─┐                                   ┌─▶ reply
//!   TTL k  ─┼─▶ one request ─▶ … ─▶ one answer ─┼─▶ reply       of the same turn, from any connection
//!   GET k  ─┘                                   └─▶ reply
//! ```
//!
//! Gets of one key that are issued in the same turn share a request. Its datagram leaves at the end
//! of the turn, after all of these commands have arrived, so its answer is linearizable for each of
//! them. Gets of a later turn need another request, because the replica may have read the key
//! already.
//!
//! A turn of `TurnGets` is one turn of the event loop, or several if many gets are in flight: while
//! nodes work on them, new gets wait for about a round trip at most, and leave together. A datagram
//! with many gets costs about as much as one with a single get.

use crate::hub::{self, Hub};
use crate::shared::Member;
use nicekv_client::{ClientCore, Request, SharedBytes, SubmitError, Ticket, Waiters};
use nicekv_proto::{Duration, KeyspaceId, Now};
use std::collections::HashMap;
use std::hash::{BuildHasher, BuildHasherDefault, Hasher, RandomState};
use std::ops::Range;

/// If fewer gets than this are in flight or waiting, none waits: with few callers, latency matters
/// more.
const BATCHING_MIN: usize = 4;
/// A batch of this size leaves at once, because waiting longer would save little.
const BATCH_ENOUGH: usize = 48;
/// Maximum time that a get waits, about a round trip.
const WAIT_MAX: Duration = Duration::from_micros(60);

/// The command, and the part of it, that made a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Origin {
    /// Slot of the connection in the event loop's table.
    pub(crate) slot: usize,
    /// Id of the connection: another connection may have the slot by now.
    pub(crate) connection: u64,
    /// Sequence number of the command in its connection.
    pub(crate) command: u64,
    /// Sequence number of the request in its command.
    pub(crate) part: usize,
    /// Number of the command in the command table.
    pub(crate) called: usize,
    /// When the request was issued, by the boot-time clock.
    pub(crate) since_ns: u64,
}

/// The origins of each request in flight. Each origin belongs to an unanswered command, and the
/// number of these is bounded per connection.
pub(crate) type Origins = Waiters<Origin>;

/// A hasher for keys that are hashes already: it returns them unchanged.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Hashed(u64);

impl Hasher for Hashed {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("keys are hashes");
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

/// A map whose keys are keyed hashes.
pub(crate) type HashedMap<V> = HashMap<u64, V, BuildHasherDefault<Hashed>>;

/// The gets of this turn, whose datagrams have not left yet.
#[derive(Debug, Default)]
pub(crate) struct TurnGets {
    /// Number of the current turn.
    turn: u64,
    /// When the first request of this turn was issued.
    since_ns: Option<u64>,
    /// Number of requests of this turn, and whether some of them are not gets.
    issued: usize,
    has_updates: bool,
    by_hash: HashedMap<(KeyspaceId, Range<usize>, Ticket)>,
    keys: Vec<u8>,
}

impl TurnGets {
    /// The latest time at which the requests of this turn are sent; `None`: send them at once. They
    /// may wait for more requests only while nodes process earlier ones.
    pub(crate) fn leaves_at_ns(&self, in_flight: usize) -> Option<u64> {
        let earlier = in_flight.saturating_sub(self.issued);
        let may_batch = earlier > 0 && earlier + self.issued >= BATCHING_MIN;
        let waits = may_batch && !self.has_updates && self.issued < BATCH_ENOUGH;
        self.since_ns.filter(|_| waits).map(|since_ns| since_ns + WAIT_MAX.as_nanos() as u64)
    }

    /// Begins a new turn: the requests of this one leave.
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

/// A connection's resources for issuing commands.
pub(crate) struct Requests<'a> {
    pub(crate) now: Now,
    pub(crate) core: &'a mut ClientCore,
    pub(crate) origins: &'a mut Origins,
    pub(crate) gets: &'a mut TurnGets,
    pub(crate) member: &'a Member,
    pub(crate) hasher: &'a RandomState,
    pub(crate) timeout: Duration,
    pub(crate) hub: &'a mut Hub,
    /// Slots of connections with queued memory requests, by the numbers of these.
    pub(crate) memory_queue: &'a mut HashMap<u64, usize>,
}

impl Requests<'_> {
    pub(crate) fn room(&self) -> usize {
        self.core.room()
    }

    /// The current turn; gets of one key that are issued in the same turn share a request.
    pub(crate) fn turn(&self) -> u64 {
        self.gets.turn
    }

    /// Hash of a key, to compare the keys of a connection's commands.
    pub(crate) fn hash(&self, keyspace: KeyspaceId, key: &[u8]) -> u64 {
        self.hasher.hash_one((keyspace.0, key))
    }

    /// Submits a request to the client. `hash`: hash of its key, if known. `shared`: the buffer of
    /// its value, if the value is large.
    pub(crate) fn submit(
        &mut self,
        keyspace: KeyspaceId,
        request: Request<'_>,
        origin: Origin,
        hash: Option<u64>,
        shared: Option<&SharedBytes>,
    ) -> Result<(), SubmitError> {
        // The answer to a get also gives the length of the value, so both can share a request.
        let (key, is_get) = match request {
            Request::Get { key } => (key, true),
            Request::Length { key } => (key, false),
            _ => return self.begin(keyspace, request, origin, shared).map(|_| ()),
        };
        let hash = hash.unwrap_or_else(|| self.hash(keyspace, key));
        // An earlier request for the key may have been cancelled before it left.
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

    /// Submits a request that no other command shares.
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
        shared: Option<&SharedBytes>,
    ) -> Result<Ticket, SubmitError> {
        let deadline_ns = self.now.after(self.timeout);
        let keyspace = if matches!(request, Request::Publish { .. }) { hub::KEYSPACE } else { keyspace };
        let ticket = self.core.submit_shared(self.now, keyspace, request, deadline_ns, shared)?;
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
    fn gets_of_one_key_and_turn_share_a_request() {
        let mut core = ClientCore::new(Config::new(ClientId(1 << 32), Vrings::on_loopback(7400)));
        let (mut origins, mut gets, hasher) = (Origins::default(), TurnGets::default(), RandomState::new());
        let member = Member::alone(0);
        let now = Now { boot_ns: 1, unix_ms: 1 };
        let mut submit = |gets: &mut TurnGets, command, request| {
            let timeout = Duration::from_secs(1);
            let (core, origins, member, hasher) = (&mut core, &mut origins, &member, &hasher);
            let memory_queue = &mut HashMap::new();
            let hub = &mut Hub::default();
            let mut requests =
                Requests { now, core, origins, gets, member, hasher, timeout, hub, memory_queue };
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
    fn gets_wait_briefly_while_many_are_in_flight() {
        let issued =
            |issued, has_updates| TurnGets { since_ns: Some(5), issued, has_updates, ..TurnGets::default() };
        let (few, at_ns) = (BATCHING_MIN, Some(5 + WAIT_MAX.as_nanos() as u64));
        for (gets, earlier, expected) in [
            (issued(1, false), few - 1, at_ns),
            (issued(1, false), few - 2, None),
            (issued(few, false), 1, at_ns),
            (issued(few, false), 0, None),
            (issued(1, true), few, None),
            (issued(BATCH_ENOUGH - 1, false), 1_000, at_ns),
            (issued(BATCH_ENOUGH, false), 1_000, None),
            (TurnGets::default(), 1_000, None),
        ] {
            assert_eq!(gets.leaves_at_ns(earlier + gets.issued), expected, "{gets:?}, {earlier}");
        }
        let mut gets = issued(1, true);
        gets.end_turn();
        assert_eq!(gets.leaves_at_ns(1_000), None);
    }

    #[test]
    fn a_get_that_was_given_up_before_it_left_is_not_shared() {
        let mut core = ClientCore::new(Config::new(ClientId(1 << 32), Vrings::on_loopback(7400)));
        let (mut origins, mut gets, hasher) = (Origins::default(), TurnGets::default(), RandomState::new());
        let member = Member::alone(0);
        for command in 0..3 {
            let now = Now { boot_ns: 1 + command * 10_000_000_000, unix_ms: 1 };
            let (core, origins, gets) = (&mut core, &mut origins, &mut gets);
            let timeout = Duration::from_secs(1);
            let (member, hasher, memory_queue) = (&member, &hasher, &mut HashMap::new());
            let hub = &mut Hub::default();
            let mut requests =
                Requests { now, core, origins, gets, member, hasher, timeout, hub, memory_queue };
            let origin = Origin { slot: 0, connection: 1, command, part: 0, called: 0, since_ns: 0 };
            requests.submit(KEYSPACE, Request::Get { key: b"k" }, origin, None, None).unwrap();
            assert_eq!(requests.core.in_flight(), 1);
            requests.core.handle_deadline(Now { boot_ns: now.boot_ns + 3_000_000_000, ..now });
            let given_up = requests.core.poll_event().expect("its deadline has passed").ticket;
            let of: Vec<u64> = requests.origins.take(given_up).map(|origin| origin.command).collect();
            assert_eq!(of, [command]);
        }
    }

    #[test]
    fn a_hash_collision_is_not_a_shared_key() {
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
