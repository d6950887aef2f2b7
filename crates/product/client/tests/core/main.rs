//! Tests of the client core with replicas that answer, stay silent, repeat themselves or are busy.

mod window;
mod world;

use nicekv_client::{
    Completion, Coordination, Keyspace, OPERATION_TIMEOUT, OperationError, Outcome, Request, SubmitError,
};
use nicekv_proto::directory::DirectoryRecord;
use nicekv_proto::placement::{Directory, Vrings};
use nicekv_proto::quorum::Quorum;
use nicekv_proto::{
    ClientId, Condition, Datagram, Duration, Epoch, Expiry, KeyspaceId, MatchRange, OpId, Opcode, Operation,
    PartitionId, Replication, Reply, Status, Update,
};
use nicekv_testkit::Random;
use world::{REPLICA, World};

const MS: u64 = 1_000_000;

fn update(bytes: &[u8]) -> Update<'_> {
    match Datagram::decode(bytes).unwrap().1 {
        Datagram::Update(update) => update,
        other => panic!("{other:?}"),
    }
}

#[test]
fn get_goes_to_the_unicast_ring_and_is_completed_by_its_reply() {
    let mut world = World::new();
    let ticket = world.get("color");
    let mut out = Vec::new();
    let to = world.client.poll_transmit(&mut out).unwrap();
    let (_, Datagram::Get(get)) = Datagram::decode(&out).unwrap() else { panic!() };
    assert_eq!(to, Vrings::on_loopback(7400).unicast_ring());
    assert_eq!((get.key, get.op.sequence), (b"color".as_slice(), 1));
    let version = OpId { client: ClientId(9), sequence: 4 };
    world.reply(Reply { version, expiry_ms: 77, value: Some(b"blue"), ..Reply::bare(get.op, Status::Ok) });
    let completion = world.client.poll_event().unwrap();
    let answer = completion.result.unwrap();
    assert_eq!(completion.ticket.index(), ticket);
    assert_eq!((answer.version, answer.expiry_ms, answer.value), (version, 77, Some(b"blue".as_slice())));
    assert_eq!(world.client.next_deadline(), None);
    assert_eq!(world.client.in_flight(), 0);
}

#[test]
fn directed_get_is_not_padded() {
    let mut world = World::with(|config| {
        (config.coordination, config.nodes) = (Coordination::Client, vec![REPLICA]);
        config.keyspaces[0].replication = Replication::Chain;
    });
    let record = DirectoryRecord {
        keyspace: KeyspaceId::DEFAULT,
        partition: PartitionId(3),
        epoch: Epoch(5),
        head: REPLICA,
        tail: REPLICA,
        range: MatchRange::new(0, u128::MAX).unwrap(),
    };
    world.client.handle_deadline(world.now);
    let queries = world.sent();
    let (_, Datagram::DirectoryQuery(query)) = Datagram::decode(&queries[0]).unwrap() else { panic!() };
    let mut page = Vec::new();
    Directory::new(7, vec![record]).answer(&query, &mut page);
    world.client.handle_datagram(world.now, REPLICA, &page);
    for _ in 0..2 {
        world.get("color");
        let sent = world.sent();
        let (_, Datagram::Directed(directed)) = Datagram::decode(&sent[0]).unwrap() else { panic!() };
        let (header, Datagram::Get(get)) = Datagram::decode(directed.request).unwrap() else { panic!() };
        assert_eq!(get.key, b"color");
        // The length of a kernel's reply to a get that is padded to that length.
        world.reply(Reply { integer: 600, ..Reply::bare(header.op, Status::NotFound) });
        assert!(world.outcome().is_some());
    }
}

#[test]
fn update_goes_to_the_multicast_ring_and_is_retried_unchanged() {
    let mut world = World::new();
    world.put("color", "blue");
    let mut first = Vec::new();
    let to = world.client.poll_transmit(&mut first).unwrap();
    assert_eq!(to, Vrings::on_loopback(7400).multicast_ring());
    assert_eq!(update(&first).operation, Operation::Set { value: b"blue", expiry: Expiry::Never });
    let mut waits = Vec::new();
    for _ in 0..6 {
        waits.push(world.advance());
        assert_eq!(world.sent(), [first.clone()], "same op id, same bytes");
    }
    // 20 ms, doubling up to 100 ms; each is spread by up to a quarter, and late by at most a tick.
    for (wait, expected) in waits.iter().zip([20, 40, 80, 100, 100, 100]) {
        assert!((expected * MS..=expected * 5 / 4 * MS + MS).contains(wait), "{waits:?}");
    }
    assert_eq!(world.client.counters().retries, 6);
}

#[test]
fn unanswered_put_is_unknown_and_unanswered_get_times_out() {
    let mut world = World::new();
    let (put, get) = (world.put("a", "1"), world.get("b"));
    let started = world.now.boot_ns;
    let mut outcomes = Vec::new();
    while world.client.next_deadline().is_some() {
        world.advance();
        outcomes.extend(world.outcome());
        outcomes.extend(world.outcome());
    }
    outcomes.sort_by_key(|(ticket, _)| *ticket);
    assert_eq!(outcomes, [(put, Err(OperationError::OutcomeUnknown)), (get, Err(OperationError::TimedOut))]);
    let took = Duration::from_nanos(world.now.boot_ns - started);
    assert!(took >= OPERATION_TIMEOUT && took < OPERATION_TIMEOUT + Duration::from_millis(1), "{took:?}");
}

#[test]
fn late_or_duplicate_reply_is_ignored() {
    let mut world = World::new();
    world.put("a", "1");
    let op = world.sent_ops()[0];
    world.reply(Reply::bare(op, Status::Ok));
    world.reply(Reply::bare(op, Status::NotFound));
    assert_eq!(world.outcome(), Some((0, Ok(Outcome::Done))));
    // The slot is reused: a reply to the old op must not answer the new one.
    world.get("b");
    world.reply(Reply::bare(op, Status::NotFound));
    world.reply(Reply::bare(OpId { client: ClientId(1), sequence: 2 }, Status::Ok));
    world.reply(Reply::bare(OpId { sequence: u64::MAX, ..op }, Status::Ok));
    world.client.handle_datagram(world.now, REPLICA, b"noise");
    assert_eq!(world.outcome(), None);
    let counters = world.client.counters();
    assert_eq!((counters.stray_replies, counters.malformed), (4, 1));
}

#[test]
fn watermark_is_the_oldest_op_that_may_still_be_retried() {
    let mut world = World::new();
    world.put("a", "1");
    world.put("b", "1");
    let ops = world.sent_ops();
    world.reply(Reply::bare(ops[1], Status::Ok));
    world.put("c", "1");
    assert_eq!(update(&world.sent()[0]).watermark, 1, "the first op is unfinished");
    world.reply(Reply::bare(ops[0], Status::Ok));
    world.put("d", "1");
    let sent = world.sent();
    assert_eq!((update(&sent[0]).watermark, update(&sent[0]).op.sequence), (3, 4));
}

#[test]
fn busy_request_is_tried_again_as_a_new_op_until_its_deadline() {
    let mut world = World::new();
    world.put("a", "1");
    let mut ops = world.sent_ops();
    for _ in 0..3 {
        world.reply(Reply::bare(*ops.last().unwrap(), Status::Busy));
        assert_eq!(world.sent_ops(), [], "pauses first");
        world.advance();
        let sent = world.sent();
        assert_eq!(update(&sent[0]).key, b"a");
        assert_eq!(update(&sent[0]).watermark, update(&sent[0]).op.sequence);
        ops.push(update(&sent[0]).op);
    }
    assert_eq!(ops.iter().map(|op| op.sequence).collect::<Vec<_>>(), [1, 2, 3, 4]);
    world.reply(Reply::bare(ops[3], Status::Ok));
    assert_eq!(world.outcome(), Some((0, Ok(Outcome::Done))));

    world.put("b", "1");
    while world.outcome().is_none_or(|(_, result)| {
        assert_eq!(result, Err(OperationError::Busy), "nothing was stored, and the client knows");
        false
    }) {
        if let Some(op) = world.sent_ops().pop() {
            world.reply(Reply::bare(op, Status::Busy));
        }
        world.advance();
    }
}

#[test]
fn statuses_become_answers_or_typed_errors() {
    let cases = [
        (Status::Ok, Ok(Outcome::Done)),
        (Status::NotFound, Ok(Outcome::NotFound)),
        (Status::ConditionFailed, Ok(Outcome::ConditionFailed)),
        (Status::NotAnInteger, Err(OperationError::NotAnInteger)),
        (Status::NotAFloat, Err(OperationError::NotAFloat)),
        (Status::Overflow, Err(OperationError::Overflow)),
        (Status::ValueTooLong, Err(OperationError::ResultTooLong { limit: 57_344 })),
        (Status::Expired, Err(OperationError::OutcomeUnknown)),
        (Status::DiskFull, Err(OperationError::DiskFull)),
        (Status::NoSuchKeyspace, Err(OperationError::NoSuchKeyspace)),
    ];
    let mut world = World::new();
    for (status, expected) in cases {
        world.put("a", "1");
        let op = world.sent_ops()[0];
        world.reply(Reply::bare(op, status));
        assert_eq!(world.outcome(), Some((0, expected)));
    }
}

#[test]
fn requests_beyond_limits_are_refused_and_not_sent() {
    let mut world = World::with(|config| (config.in_flight_max, config.value_bytes_max) = (2, 1024));
    let mut refused =
        |request| world.client.submit(world.now, KeyspaceId::DEFAULT, request, u64::MAX).unwrap_err();
    let set = |value| Operation::Set { value, expiry: Expiry::Never };
    assert_eq!(
        refused(Request::Get { key: &[b'k'; 1_025] }).to_string(),
        "key of 1025 bytes exceeds the limit of 1024 bytes"
    );
    assert_eq!(
        refused(Request::update(b"k", set(&[0; 1025]))).to_string(),
        "value of 1025 bytes exceeds the limit of 1024 bytes"
    );
    assert_eq!(
        refused(Request::update(b"k", Operation::Append(&[0; 1025]))),
        SubmitError::ValueTooLong { bytes: 1025, limit: 1024 }
    );
    assert_eq!(world.sent_ops(), []);
    let largest = Request::Update {
        key: &[b'k'; 256],
        condition: Condition::IfAbsent,
        return_old: true,
        operation: set(&[1; 1024]),
    };
    world.client.submit(world.now, KeyspaceId::DEFAULT, largest, u64::MAX).unwrap();
    world.get("b");
    let full = world.client.submit(world.now, KeyspaceId::DEFAULT, Request::Get { key: b"c" }, u64::MAX);
    assert_eq!(full, Err(SubmitError::WindowFull { limit: 2 }));
    assert_eq!(world.sent_ops().len(), 2);
}

/// If replicas become slower, the client does not send everything twice for ever.
#[test]
fn timeout_follows_slow_replicas() {
    let mut world = World::new();
    let mut answer_after = |delay: u64| {
        let before = world.client.counters().retries;
        world.get("a");
        let answered_at = world.now.boot_ns + delay;
        while world.client.next_deadline().unwrap() < answered_at {
            world.advance();
        }
        world.now.boot_ns = answered_at;
        let op = *world.sent_ops().last().unwrap();
        world.reply(Reply::bare(op, Status::Ok));
        assert_eq!(world.outcome(), Some((0, Ok(Outcome::Done))));
        world.client.counters().retries - before
    };
    (0..50).for_each(|_| assert_eq!(answer_after(MS / 10), 0));
    let retries: Vec<_> = (0..50).map(|_| answer_after(10 * MS)).collect();
    assert!(retries[0] > 0, "the timeout was near 2 ms");
    assert_eq!(retries[5..].iter().sum::<u64>(), 0, "{retries:?}");
}

/// Thousands of ops over a network that loses and duplicates: each completes exactly once, with its own answer.
#[test]
fn every_op_completes_once_over_a_lossy_network() {
    let mut world = World::with(|config| config.in_flight_max = 64);
    let mut random = Random::new(1);
    let (mut submitted, mut completed) = (0u32, 0u32);
    let mut expected = [None; 64];
    while completed < 5_000 {
        while submitted < 5_000 && world.client.room() > 0 {
            let slot = world.get(&format!("key-{submitted}"));
            assert_eq!(expected[slot].replace(submitted), None, "a ticket's index was given out twice");
            submitted += 1;
        }
        for bytes in world.sent() {
            let Datagram::Get(get) = Datagram::decode(&bytes).unwrap().1 else { panic!() };
            let reply = Reply { value: Some(get.key), ..Reply::bare(get.op, Status::Ok) };
            world.now.boot_ns += 10_000;
            if random.below(4) > 0 {
                world.reply(reply);
            }
            if random.below(4) == 0 {
                world.reply(reply);
            }
        }
        while let Some(Completion { ticket, result, .. }) = world.client.poll_event() {
            let number = expected[ticket.index()].take().expect("completed twice");
            assert_eq!(result.unwrap().value, Some(format!("key-{number}").as_bytes()));
            completed += 1;
        }
        if completed < 5_000 && world.client.next_deadline().is_some() {
            world.advance();
        }
    }
    assert!(world.client.counters().retries > 100);
    assert_eq!(world.client.in_flight(), 0);
}

#[test]
fn expired_client_continues_under_another_id_and_ops_in_flight_keep_theirs() {
    let mut world = World::new();
    world.put("a", "1");
    world.put("b", "1");
    let sent = world.sent();
    let (a, b) = (update(&sent[0]).op, update(&sent[1]).op);
    world.reply(Reply::bare(a, Status::Expired));
    assert_eq!(world.outcome(), Some((0, Err(OperationError::OutcomeUnknown))), "it is not sent again");
    assert!(world.client.is_expired());
    world.client.rename(a.client);
    assert!(world.client.is_expired(), "the current id was forgotten");
    let fresh = ClientId::new(1_700_000_000_001, 9);
    world.client.rename(fresh);
    assert!(!world.client.is_expired());
    assert_eq!(world.client.next_op(), OpId { client: fresh, sequence: 3 });
    world.put("c", "1");
    let later = world.sent();
    let c = update(&later[0]);
    assert_eq!((c.op, c.watermark), (OpId { client: fresh, sequence: 3 }, 2), "b is unfinished");
    let mut retried = Vec::new();
    while retried.len() < 2 {
        world.advance();
        retried.extend(world.sent().into_iter().filter(|bytes| update(bytes).key == b"b"));
    }
    assert_eq!(retried, [sent[1].clone(), sent[1].clone()], "b is retried as it was");
    world.reply(Reply::bare(OpId { client: fresh, ..b }, Status::Ok));
    assert_eq!(world.outcome(), None, "there is no such op");
    world.reply(Reply::bare(b, Status::Expired));
    assert!(!world.client.is_expired(), "only its former id is expired");
    world.reply(Reply::bare(c.op, Status::Ok));
    assert_eq!(world.outcome(), Some((1, Err(OperationError::OutcomeUnknown))));
    assert_eq!(world.outcome().map(|(_, result)| result), Some(Ok(Outcome::Done)));
}

#[test]
fn one_client_serves_keyspaces_of_different_protocols_at_once() {
    let rings = |second| Vrings {
        unicast: [127, second, 0, 0].into(),
        multicast: [127, second + 1, 0, 0].into(),
        port: 7400,
    };
    let quorum = Replication::Quorum(Quorum::new(3, 2).unwrap());
    let (default, other) = (KeyspaceId::DEFAULT, KeyspaceId(7));
    let mut world = World::with(|config| {
        config.keyspaces.push(Keyspace { id: other, replication: quorum, ..rings(20).into() });
    });
    let submit = |world: &mut World, keyspace, request| {
        world.client.submit(world.now, keyspace, request, world.now.after(OPERATION_TIMEOUT))
    };
    let get = Request::Get { key: b"color" };
    let increment = Request::update(b"visits", Operation::Increment(1));
    submit(&mut world, default, increment).unwrap();
    submit(&mut world, other, get).unwrap();
    submit(&mut world, default, get).unwrap();
    let refused = submit(&mut world, other, increment);
    assert_eq!(refused, Err(SubmitError::NeedsPrimary { what: "an increment" }));
    let unknown = KeyspaceId(8);
    assert_eq!(submit(&mut world, unknown, get), Err(SubmitError::NoSuchKeyspace { keyspace: unknown }));
    let (mut out, mut sent) = (Vec::new(), Vec::new());
    while let Some(to) = world.client.poll_transmit(&mut out) {
        let header = Datagram::decode(&out).unwrap().0;
        sent.push((header.opcode, header.keyspace, to.ip().octets()[1], header.op.sequence));
    }
    let expected = [
        (Opcode::Update, default, 11, 1),
        (Opcode::QuorumQuery, other, 21, 2),
        (Opcode::Get, default, 10, 3),
    ];
    assert_eq!(sent, expected);
    world.reply(Reply::bare(world.client.next_op(), Status::Ok));
    world.reply(Reply::bare(OpId { sequence: 2, ..world.client.next_op() }, Status::Ok));
    assert_eq!(world.outcome(), None, "a reply does not answer a quorum query");
    world.reply(Reply::bare(OpId { sequence: 3, ..world.client.next_op() }, Status::NotFound));
    assert_eq!(world.outcome(), Some((2, Ok(Outcome::NotFound))));
    assert_eq!(world.client.in_flight(), 2);
}

/// Round-trip times of one keyspace do not affect another.
#[test]
fn round_trips_are_measured_by_keyspace() {
    let other = KeyspaceId(7);
    let mut world = World::with(|config| {
        config.keyspaces.push(Keyspace { id: other, ..Vrings::on_loopback(7400).into() });
    });
    let mut first_wait = |keyspace| {
        let request = Request::Get { key: b"color" };
        let deadline_ns = world.now.after(OPERATION_TIMEOUT);
        world.client.submit(world.now, keyspace, request, deadline_ns).unwrap();
        let wait = world.client.next_deadline().unwrap() - world.now.boot_ns;
        let op = world.sent_ops().pop().unwrap();
        world.now.boot_ns += MS / 10;
        world.reply(Reply::bare(op, Status::NotFound));
        assert_eq!(world.outcome(), Some((0, Ok(Outcome::NotFound))));
        wait
    };
    let waits: Vec<_> = (0..50).map(|_| first_wait(KeyspaceId::DEFAULT)).collect();
    assert!(waits[0] >= 20 * MS && waits[49] < 7 * MS, "{waits:?}");
    assert!(first_wait(other) >= 20 * MS, "no round trip of this keyspace was measured");
}
