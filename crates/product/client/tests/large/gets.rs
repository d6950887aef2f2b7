//! Gets of large values, and updates that return a large previous value.

use crate::world::{CALM, KEY, MS, TOKEN, Weather, World, value_of};
use nicekv_client::{OperationError, Outcome, Request};
use nicekv_proto::large::{Chunk, Reference};
use nicekv_proto::limits::{CHUNK_BYTES, LARGE_BYTES_MAX};
use nicekv_proto::{
    ClientId, Condition, Datagram, Form, KeyDigest, KeyspaceId, OpId, Opcode, Operation, Reply, Status,
};

const LENGTH: usize = 5_000_000;
const CHUNKS: usize = LENGTH.div_ceil(CHUNK_BYTES);
const ROUGH: Weather = Weather { loss: 100, duplicate: 50, jitter_ns: MS / 5 };

/// A client that gets an existing value of this length.
fn reading(weather: Weather, seed: u64) -> (World, Vec<u8>) {
    let mut world = World::new(weather, seed);
    let value = value_of(LENGTH, seed);
    world.store(1, value.clone());
    (world, value)
}

fn check(world: &mut World, value: &[u8]) {
    let finished = world.end();
    assert_eq!(finished.result, Ok(Outcome::Done));
    assert!(finished.value.as_deref() == Some(value), "another value");
    assert_eq!((world.client.next_deadline(), world.client.in_flight()), (None, 0));
}

#[test]
fn get_returns_the_whole_value() {
    for length in [1_025, CHUNK_BYTES, CHUNK_BYTES + 1, LENGTH] {
        let mut world = World::new(CALM, 1);
        let value = value_of(length, 1);
        world.store(1, value.clone());
        world.get();
        check(&mut world, &value);
        let counters = world.client.counters();
        let (chunks, asks) = (length.div_ceil(CHUNK_BYTES), world.sent_count(Opcode::ReadChunks));
        assert_eq!((counters.chunks_received, counters.stray_chunks), (chunks as u64, 0));
        assert!(asks <= chunks.div_ceil(64) + 16, "{asks} questions for {chunks}");
        assert_eq!((world.sent_count(Opcode::Get), counters.retries), (1, 0));
    }
}

#[test]
fn get_completes_despite_loss_duplication_and_reordering() {
    for seed in 0..8 {
        let (mut world, value) = reading(ROUGH, seed);
        world.get();
        check(&mut world, &value);
        let got = world.client.counters();
        assert_eq!((got.chunks_received, got.wrong_checksums), (CHUNKS as u64, 0), "seed {seed}");
        assert!(got.stray_chunks < CHUNKS as u64 / 2, "seed {seed}: {got:?}");
    }
}

#[test]
fn outdated_token_is_replaced() {
    let (mut world, value) = reading(CALM, 2);
    world.get();
    world.run_until(|world| world.client.counters().chunks_received > 1_000);
    world.token = TOKEN + 1;
    let at_ns = world.now.boot_ns;
    check(&mut world, &value);
    assert!(world.now.boot_ns - at_ns < 5 * MS, "it does not wait for a timeout");
    assert_eq!(world.sent_count(Opcode::Get), 1);
}

#[test]
fn get_of_a_value_that_is_replaced_meanwhile_starts_over_under_another_op_id() {
    for (is_large, is_there) in [(true, true), (false, true), (false, false)] {
        let (mut world, _) = reading(CALM, 3);
        let ticket = world.get();
        world.run_until(|world| world.client.counters().chunks_received > 1_000);
        world.values.clear();
        let other = value_of(if is_large { 300_000 } else { 9 }, 33);
        world.current = None;
        match (is_large, is_there) {
            (true, _) => world.store(2, other.clone()),
            (false, true) => world.small = Some(other.clone()),
            (false, false) => {}
        }
        world.run(1);
        let (finished, answer) = world.finished.remove(0);
        let outcome = if is_there { Outcome::Done } else { Outcome::NotFound };
        assert_eq!((finished, answer.result), (ticket, Ok(outcome)));
        assert!(answer.value.as_deref() == is_there.then_some(&other[..]));
        assert_eq!((answer.op.sequence, world.sent_count(Opcode::Get)), (2, 2));
    }
}

#[test]
fn wrong_checksum_is_no_answer() {
    let (mut world, value) = reading(CALM, 4);
    world.wrong = 1;
    world.get();
    check(&mut world, &value);
    assert_eq!((world.client.counters().wrong_checksums, world.sent_count(Opcode::Get)), (1, 2));

    world.wrong = u32::MAX;
    world.submit(Request::Get { key: KEY }, 500);
    assert_eq!(world.end().result, Err(OperationError::TimedOut), "the get ends at its deadline");
    assert!((4..20).contains(&world.client.counters().wrong_checksums), "{:?}", world.client.counters());
}

#[test]
fn unrequested_chunks_are_ignored() {
    let (mut world, value) = reading(CALM, 5);
    world.get();
    world.run_until(|world| world.client.counters().chunks_received > 1_000);
    let (op, lie) = (world.sent[0].1, [0; CHUNK_BYTES]);
    let chunk = |op, number, bytes| {
        let (keyspace, digest) = (KeyspaceId::DEFAULT, KeyDigest::default());
        Datagram::Chunk(Chunk { keyspace, op, digest, number, mask: 0, bytes })
    };
    let last = CHUNKS as u32 - 1;
    let lies = [
        chunk(op, 0, &lie[..]),
        chunk(op, last, &lie),
        chunk(op, last + 1, &lie),
        chunk(op, u32::MAX, &lie),
        chunk(op, last, &lie[..LENGTH % CHUNK_BYTES]),
        chunk(op, 1_100, &lie[1..]),
        chunk(OpId { sequence: 2, ..op }, 1_100, &lie),
        chunk(OpId { client: ClientId(1), ..op }, 1_100, &lie),
    ];
    lies.iter().for_each(|lie| world.tell(lie));
    check(&mut world, &value);
    let counters = world.client.counters();
    assert_eq!((counters.stray_chunks, counters.wrong_checksums), (lies.len() as u64, 0));
}

#[test]
fn get_without_chunks_ends_at_its_deadline() {
    let mut world = World::with(CALM, 6, |config| config.value_bytes_max = LARGE_BYTES_MAX as usize);
    world.primary.0 = 4;
    world.get();
    world.transmit();
    let op = world.sent[0].1;
    let name = OpId { client: ClientId(9), sequence: 1 };
    let claim = Reference { name, length: LARGE_BYTES_MAX, checksum: 0 }.bytes();
    let (value, form) = (Some(&claim[..]), Form::Large);
    world.tell(&Datagram::Reply(Reply { value, form, ..Reply::bare(op, Status::Ok) }));
    assert_eq!(world.end().result, Err(OperationError::TimedOut));
    let asks = world.sent_count(Opcode::ReadChunks);
    assert!((20..500).contains(&asks), "{asks} questions in five seconds");
}

#[test]
fn value_beyond_the_limit_is_not_read() {
    let mut world = World::with(CALM, 7, |config| config.value_bytes_max = 100_000);
    world.store(1, value_of(100_001, 7));
    world.get();
    assert_eq!(world.end().result, Err(OperationError::ResultTooLong { limit: 100_000 }));
    world.store(2, value_of(100_000, 7));
    world.get();
    check(&mut world, &value_of(100_000, 7));
}

#[test]
fn length_is_known_without_chunks() {
    let (mut world, _) = reading(CALM, 8);
    let length = Request::Length { key: KEY };
    world.submit(length, 100);
    let answer = world.end();
    assert_eq!((answer.result, answer.integer, answer.value), (Ok(Outcome::Done), LENGTH as i64, None));
    world.current = None;
    world.submit(length, 100);
    assert_eq!(world.end().result, Ok(Outcome::NotFound));
    world.small = Some(b"blue".to_vec());
    world.submit(length, 100);
    let answer = world.end();
    assert_eq!((answer.result, answer.integer, answer.value), (Ok(Outcome::Done), 4, None));
    assert_eq!(world.sent_count(Opcode::ReadChunks), 0);
    world.get();
    assert_eq!(world.end().value.as_deref(), Some(&b"blue"[..]), "the slot is as before");
}

#[test]
fn referenced_value_is_read_if_the_key_still_has_it() {
    let (mut world, value) = reading(CALM, 9);
    let reference = world.reference().expect("it was stored");
    let named = Request::Named { key: KEY, reference };
    world.submit(named, 5_000);
    check(&mut world, &value);
    // The value is overwritten before it is read, and while it is read; it is replaced by a value
    // that is not large, or deleted.
    let other = value_of(LENGTH, 10);
    world.submit(named, 5_000);
    world.run_until(|world| world.client.counters().chunks_received > CHUNKS as u64 + 1_000);
    world.values.clear();
    world.store(2, other);
    assert_eq!(world.end().result, Err(OperationError::OldValueGone));
    world.submit(named, 5_000);
    assert_eq!(world.end().result, Err(OperationError::OldValueGone));
    world.current = None;
    world.submit(named, 5_000);
    assert_eq!(world.end().result, Err(OperationError::OldValueGone));
    world.small = Some(b"blue".to_vec());
    world.submit(named, 5_000);
    assert_eq!(world.end().result, Err(OperationError::OldValueGone));
}

/// Deletes the key, and requests the previous value.
fn delete(world: &mut World) {
    let (condition, return_old) = (Condition::Always, true);
    world.submit(Request::Update { key: KEY, condition, return_old, operation: Operation::Delete }, 5_000);
}

#[test]
fn previous_value_is_read_without_sending_the_update_again() {
    for wrong in [0, 1] {
        let (mut world, value) = reading(Weather { loss: 10, ..CALM }, 9);
        world.weather.loss = 0;
        world.wrong = wrong;
        delete(&mut world);
        let finished = world.end();
        assert_eq!((finished.result, finished.integer), (Ok(Outcome::Done), 0));
        assert!(finished.value == Some(value));
        assert_eq!(world.client.counters().wrong_checksums, wrong.into());
        assert_eq!((world.sent_count(Opcode::Update), world.sent_count(Opcode::Get)), (1, 0));
        assert!(world.sent.iter().all(|(_, op)| op.sequence == 1));
    }
}

#[test]
fn lost_previous_value_does_not_hide_that_the_update_took_effect() {
    let cases = [
        (Condition::Always, OperationError::OldValueGone),
        // The condition did not hold, so nothing was stored.
        (Condition::IfAbsent, OperationError::Busy),
    ];
    for (condition, error) in cases {
        let (mut world, _) = reading(CALM, 10);
        let began_ns = world.now.boot_ns;
        let (return_old, operation) = (true, Operation::Delete);
        world.submit(Request::Update { key: KEY, condition, return_old, operation }, 5_000);
        world.run_until(|world| world.client.counters().chunks_received > 1_000);
        world.values.clear();
        world.current = None;
        assert_eq!(world.end().result, Err(error));
        assert!(world.now.boot_ns - began_ns < 20 * MS, "a replica has reported the loss");
        assert_eq!(world.sent_count(Opcode::Update), 1);
    }
}

#[test]
fn get_past_its_deadline_times_out_and_requests_no_more_chunks() {
    let (mut world, _) = reading(CALM, 11);
    world.submit(Request::Get { key: KEY }, 1);
    world.run_until(|world| world.client.counters().chunks_received > 100);
    world.weather.loss = 1000;
    assert_eq!(world.end().result, Err(OperationError::TimedOut));
    assert!(world.client.next_deadline().is_none() && world.client.poll_transmit(&mut Vec::new()).is_none());
}
