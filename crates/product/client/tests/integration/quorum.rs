//! Tests of the client of a quorum keyspace (R14) with replicas that answer, stay silent, disagree,
//! or are in another epoch.

use nicekv_client::{
    ClientCore, Config, Keyspace, OPERATION_TIMEOUT, OperationError, Outcome, Request, SubmitError,
};
use nicekv_numbers::Arithmetic;
use nicekv_proto::limits::{KEY_BYTES_MAX, small_value_bytes_max};
use nicekv_proto::number::LongDouble;
use nicekv_proto::placement::Vrings;
use nicekv_proto::quorum::{Content, Quorum, QuorumHeld, Timestamp};
use nicekv_proto::{
    ClientId, Condition, Datagram, Epoch, ExpireCondition, Expiry, KeyspaceId, NodeId, Now, OpId, Operation,
    Replication, Reply, Status,
};
use std::net::{Ipv4Addr, SocketAddrV4};

/// Source address of answers.
const REPLICA: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 7401);
/// A put of another client.
const OTHER: OpId = OpId { client: ClientId(77), sequence: 3 };

struct World {
    client: ClientCore,
    now: Now,
    /// Epoch of the last store.
    epoch: u32,
}

/// How a request ended: outcome, version, value.
type Ended = Result<(Outcome, OpId, Option<Vec<u8>>), OperationError>;

/// A sent datagram in owned form, for comparisons.
#[derive(Debug, PartialEq)]
enum Sent {
    Query(OpId),
    Store(OpId, Timestamp, Option<Vec<u8>>),
}

impl World {
    fn new(replicas: u8, write_set: u8) -> Self {
        let replication = Replication::Quorum(Quorum::new(replicas, write_set).unwrap());
        let keyspace = Keyspace { replication, ..Vrings::on_loopback(7400).into() };
        let config = Config::new(ClientId::new(1_700_000_000_000, 5), keyspace);
        let now = Now { boot_ns: 17_000_000_000, unix_ms: 1_700_000_000_000 };
        Self { client: ClientCore::new(config), now, epoch: 0 }
    }

    fn submit(&mut self, request: Request<'_>) -> Result<(), SubmitError> {
        self.client
            .submit(self.now, KeyspaceId::DEFAULT, request, self.now.after(OPERATION_TIMEOUT))
            .map(|_| ())
    }

    fn put(&mut self, value: &str) {
        let operation = Operation::Set { value: value.as_bytes(), expiry: Expiry::Never };
        self.submit(Request::update(b"color", operation)).unwrap();
    }

    /// The datagrams that are sent now; all go to the multicast ring.
    fn sent(&mut self) -> Vec<Sent> {
        let (mut all, mut out) = (Vec::new(), Vec::new());
        while let Some(to) = self.client.poll_transmit(&mut out) {
            assert_eq!(to.ip().octets()[..2], [127, 11]);
            all.push(match Datagram::decode(&out).unwrap().1 {
                Datagram::QuorumQuery(query) => Sent::Query(query.op),
                Datagram::QuorumStore(store) => {
                    self.epoch = store.epoch.0;
                    Sent::Store(store.op, store.timestamp, store.value.map(<[u8]>::to_vec))
                }
                other => panic!("{other:?}"),
            });
        }
        all
    }

    fn held(&mut self, op: OpId, node: u16, epoch: u32, timestamp: Timestamp, content: Content<'_>) {
        self.held_above(0, op, node, epoch, timestamp, content);
    }

    /// The same, from a replica that has forgotten deletions up to `floor`.
    fn held_above(
        &mut self,
        floor: u64,
        op: OpId,
        node: u16,
        epoch: u32,
        timestamp: Timestamp,
        content: Content<'_>,
    ) {
        let (node, epoch) = (NodeId(node), Epoch(epoch));
        let mut out = Vec::new();
        QuorumHeld { op, node, epoch, timestamp, floor, content }.encode(&mut out);
        self.client.handle_datagram(self.now, REPLICA, &out);
    }

    fn op(&self, sequence: u64) -> OpId {
        OpId { client: self.client.config().client, sequence }
    }

    fn retry(&mut self) {
        self.now.boot_ns = self.client.next_deadline().expect("something is in flight");
        self.client.handle_deadline(self.now);
    }

    fn result(&mut self) -> Option<Ended> {
        let completion = self.client.poll_event()?;
        let owned = |answer: nicekv_client::Answer<'_>| {
            (answer.outcome, answer.version, answer.value.map(<[u8]>::to_vec))
        };
        Some(completion.result.map(owned))
    }
}

fn version(counter: u64) -> Timestamp {
    Timestamp { counter, op: OTHER }
}

#[test]
fn put_queries_r_minus_k_plus_1_and_stores_at_k_under_one_timestamp() {
    let mut world = World::new(5, 3);
    world.put("blue");
    let op = world.op(1);
    assert_eq!(world.sent(), [Sent::Query(op)]);
    world.held(op, 1, 4, version(7), Content::Present);
    world.held(op, 1, 4, version(7), Content::Present);
    world.held(op, 2, 4, Timestamp::NEVER, Content::Absent);
    assert_eq!(world.sent(), [], "two replicas have answered, one of them twice");
    world.held(op, 3, 4, version(6), Content::Present);
    let timestamp = Timestamp { counter: 8, op };
    let store = || [Sent::Store(op, timestamp, Some(b"blue".to_vec()))];
    assert_eq!(world.sent(), store());
    // A late answer to the query no longer changes anything, nor does a retry.
    world.held(op, 4, 4, version(20), Content::Present);
    world.retry();
    assert_eq!(world.sent(), store());
    world.held(op, 1, 4, timestamp, Content::Present);
    assert_eq!(world.result(), None, "replica 4 holds a newer version, replica 1 this one");
    world.held(op, 2, 4, timestamp, Content::Present);
    assert_eq!(world.result(), Some(Ok((Outcome::Done, op, None))));
}

#[test]
fn only_answers_of_one_epoch_are_counted() {
    let mut world = World::new(3, 2);
    world.put("blue");
    let op = world.op(1);
    world.held(op, 1, 4, Timestamp::NEVER, Content::Absent);
    world.held(op, 2, 5, Timestamp::NEVER, Content::Absent);
    world.held(op, 3, 4, Timestamp::NEVER, Content::Absent);
    assert_eq!(world.sent(), [Sent::Query(op)], "one answer of epoch 5, and older ones");
    world.held(op, 1, 5, Timestamp::NEVER, Content::Absent);
    let timestamp = Timestamp { counter: 1, op };
    assert_eq!(world.sent().len(), 1);
    assert_eq!(world.epoch, 5, "the store names the epoch of the answers");
    world.held(op, 1, 5, timestamp, Content::Present);
    world.held(op, 2, 6, timestamp, Content::Present);
    assert_eq!(world.result(), None);
    world.held(op, 3, 6, timestamp, Content::Present);
    assert_eq!(world.result(), Some(Ok((Outcome::Done, op, None))));
}

/// A put that is storing its value for the first time, with counter 8 in epoch 4; the datagrams
/// that it has sent are taken.
fn storing() -> (World, OpId, Timestamp) {
    let mut world = World::new(3, 2);
    world.put("blue");
    let op = world.op(1);
    world.held(op, 1, 4, version(7), Content::Present);
    world.held(op, 2, 4, version(7), Content::Present);
    assert!(matches!(world.sent()[..], [Sent::Store(..)]));
    (world, op, Timestamp { counter: 8, op })
}

#[test]
fn put_interrupted_by_a_new_epoch_is_stored_again_only_if_no_newer_deletion_can_be_forgotten() {
    let unknown = Some(Err(OperationError::OutcomeUnknown));
    // The replica holds the previous version, and has forgotten no deletion as new as this put.
    let (mut world, op, timestamp) = storing();
    let again = || [Sent::Store(op, timestamp, Some(b"blue".to_vec()))];
    world.held_above(7, op, 3, 5, version(7), Content::Present);
    assert_eq!((world.sent(), world.epoch), (again().into(), 5));
    world.held(op, 1, 5, timestamp, Content::Present);
    assert_eq!(world.result(), None);
    world.held(op, 2, 5, version(9), Content::Absent);
    assert_eq!(world.result(), Some(Ok((Outcome::Done, op, None))), "or something newer");
    // The replica holds this version, whatever it has forgotten.
    let (mut world, _, _) = storing();
    world.held_above(20, op, 3, 5, timestamp, Content::Present);
    assert_eq!((world.sent(), world.epoch), (again().into(), 5));
    // A replica that has forgotten a deletion as new does not permit another store, and neither
    // does one that holds something newer.
    let (mut world, _, _) = storing();
    world.held_above(8, op, 1, 5, Timestamp::NEVER, Content::Absent);
    assert_eq!(world.sent(), [Sent::Query(op)]);
    world.held_above(8, op, 2, 5, version(9), Content::Present);
    assert_eq!((world.sent(), world.result()), (vec![], None), "another replica may permit it");
    world.retry();
    assert_eq!(world.result(), unknown);
    // No replica permits to store again.
    let (mut world, _, _) = storing();
    (1..4).for_each(|node| world.held_above(8, op, node, 5, Timestamp::NEVER, Content::Absent));
    assert_eq!(world.result(), unknown);
    // Enough replicas hold something newer.
    let (mut world, _, _) = storing();
    (1..3).for_each(|node| world.held_above(8, op, node, 5, version(9), Content::Present));
    assert_eq!(world.result(), Some(Ok((Outcome::Done, op, None))));
}

#[test]
fn put_is_newer_than_every_floor() {
    let mut world = World::new(3, 2);
    world.put("blue");
    let op = world.op(1);
    world.held_above(12, op, 1, 4, Timestamp::NEVER, Content::Absent);
    world.held(op, 2, 4, version(7), Content::Absent);
    let sent = world.sent();
    assert_eq!(sent, [Sent::Store(op, Timestamp { counter: 13, op }, Some(b"blue".to_vec()))]);
}

#[test]
fn get_interrupted_by_a_new_epoch_forgets_what_it_has_read() {
    let mut world = World::new(3, 2);
    world.submit(Request::Get { key: b"color" }).unwrap();
    let op = world.op(1);
    world.held(op, 1, 4, version(7), Content::Value(b"blue"));
    world.held(op, 2, 4, version(6), Content::Value(b"green"));
    assert_eq!((world.sent().len(), world.epoch), (1, 4));
    world.held(op, 3, 5, version(6), Content::Present);
    assert_eq!(world.sent(), [Sent::Query(op)]);
    world.held_above(9, op, 3, 5, Timestamp::NEVER, Content::Absent);
    world.held_above(9, op, 1, 5, Timestamp::NEVER, Content::Absent);
    assert_eq!(world.result(), Some(Ok((Outcome::NotFound, OpId::NONE, None))));
}

#[test]
fn get_writes_back_a_version_that_fewer_than_k_hold() {
    let mut world = World::new(3, 2);
    let get = Request::Get { key: b"color" };
    // Both replicas hold the version: one round suffices.
    world.submit(get).unwrap();
    let op = world.op(1);
    assert_eq!(world.sent(), [Sent::Query(op)]);
    world.held(op, 1, 4, version(7), Content::Value(b"blue"));
    world.held(op, 2, 4, version(7), Content::Value(b"blue"));
    let blue = Some(Ok((Outcome::Done, OTHER, Some(b"blue".to_vec()))));
    assert_eq!(world.result(), blue);
    // One replica holds the version.
    world.submit(get).unwrap();
    let op = world.op(2);
    world.sent();
    world.held(op, 1, 4, version(7), Content::Value(b"blue"));
    world.held(op, 2, 4, version(6), Content::Value(b"green"));
    assert_eq!(world.sent(), [Sent::Store(op, version(7), Some(b"blue".to_vec()))]);
    world.held(op, 3, 4, version(7), Content::Present);
    assert_eq!(world.result(), blue);
    // A deletion is written back, too.
    world.submit(get).unwrap();
    let op = world.op(3);
    world.sent();
    world.held(op, 1, 4, version(8), Content::Absent);
    world.held(op, 2, 4, version(7), Content::Value(b"blue"));
    assert_eq!(world.sent(), [Sent::Store(op, version(8), None)]);
    world.held(op, 2, 4, version(8), Content::Absent);
    assert_eq!(world.result(), Some(Ok((Outcome::NotFound, OpId::NONE, None))));
}

#[test]
fn get_waits_for_slow_replicas_no_longer_than_a_timeout() {
    let mut world = World::new(3, 3);
    world.submit(Request::Get { key: b"color" }).unwrap();
    let op = world.op(1);
    world.sent();
    world.held(op, 1, 4, version(7), Content::Value(b"blue"));
    assert_eq!(world.sent(), [], "one answer is enough to know, three would show that all hold it");
    world.retry();
    assert_eq!(world.sent(), [Sent::Store(op, version(7), Some(b"blue".to_vec()))]);
}

#[test]
fn put_without_a_store_has_not_happened() {
    let mut world = World::new(3, 2);
    world.put("blue");
    let op = world.op(1);
    world.held(op, 1, 4, Timestamp::NEVER, Content::Absent);
    let until_given_up = |world: &mut World| {
        loop {
            world.retry();
            if let Some(result) = world.result() {
                return result;
            }
        }
    };
    assert_eq!(until_given_up(&mut world), Err(OperationError::TimedOut));
    world.put("green");
    let op = world.op(2);
    world.held(op, 1, 4, Timestamp::NEVER, Content::Absent);
    world.held(op, 2, 4, Timestamp::NEVER, Content::Absent);
    assert_eq!(until_given_up(&mut world), Err(OperationError::OutcomeUnknown));
}

#[test]
fn unknown_keyspace_ends_the_request() {
    let mut world = World::new(3, 2);
    world.put("blue");
    let mut out = Vec::new();
    Reply::bare(world.op(1), Status::NoSuchKeyspace).encode(&mut out);
    world.client.handle_datagram(world.now, REPLICA, &out);
    assert_eq!(world.result(), Some(Err(OperationError::NoSuchKeyspace)));
}

#[test]
fn requests_that_need_a_primary_are_refused() {
    let mut world = World::new(3, 2);
    let set = |expiry| Operation::Set { value: b"blue", expiry };
    let update = |operation| Request::update(b"color", operation);
    let (condition, return_old) = (Condition::IfAbsent, true);
    let key = b"color";
    let operation = set(Expiry::Never);
    for (request, named) in [
        (update(Operation::Increment(1)), "an increment"),
        (update(Operation::IncrementFloat(LongDouble::from_f64(1.0).unwrap())), "an increment"),
        (update(Operation::Append(b"ish")), "an append"),
        (update(set(Expiry::At(7))), "an expiry time"),
        (update(set(Expiry::Keep)), "an expiry time"),
        (update(Operation::Expire { at_ms: 7, condition: ExpireCondition::Always }), "an expiry time"),
        (update(Operation::Persist), "an expiry time"),
        (Request::Update { key, condition, return_old: false, operation }, "a condition"),
        (
            Request::Update { key, condition: Condition::Always, return_old, operation },
            "returning the old value",
        ),
    ] {
        assert_eq!(world.submit(request), Err(SubmitError::NeedsPrimary { what: named }));
    }
    assert_eq!(world.sent(), [], "nothing was sent");
}

/// A value that is too long for a message in which it would be written back.
#[test]
fn answer_with_an_impossible_value_is_ignored() {
    let small_max = small_value_bytes_max(KEY_BYTES_MAX);
    let mut world = World::new(3, 2);
    world.submit(Request::Get { key: &[b'k'; KEY_BYTES_MAX] }).unwrap();
    let op = world.op(1);
    assert_eq!(world.sent(), [Sent::Query(op)]);
    let (longer, fits) = (vec![1; small_max + 1], vec![1; small_max]);
    for node in [1, 2, 3] {
        world.held(op, node, 4, version(9), Content::Value(&longer));
    }
    assert_eq!((world.sent(), world.result()), (vec![], None));
    world.held(op, 1, 4, version(8), Content::Absent);
    world.held(op, 2, 4, version(9), Content::Value(&fits));
    assert_eq!(world.sent(), [Sent::Store(op, version(9), Some(fits))], "one alone holds it");
}
