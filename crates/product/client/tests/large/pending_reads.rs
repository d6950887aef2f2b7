//! Tests of long values that are read only when the driver allows it, and of values that their
//! owner shares with the client.

use crate::world::{CALM, KEY, MS, World, value_of};
use nicekv_client::{OperationError, Outcome, Request, SharedBytes, Ticket};
use nicekv_proto::{Condition, Duration, Expiry, KeyspaceId, Opcode, Operation};
use std::sync::Arc;

const UNASKED: usize = 100_000;
const LENGTH: usize = 300_000;

fn world(seed: u64) -> World {
    let mut world = World::with(CALM, seed, |config| config.auto_read_bytes_max = UNASKED);
    world.store(1, value_of(LENGTH, seed));
    world
}

fn wanted(world: &mut World) -> (Ticket, usize) {
    loop {
        world.transmit();
        match world.client.poll_pending_read() {
            Some(wanted) => return wanted,
            None => world.step(),
        }
    }
}

fn check(world: &mut World, length: usize, seed: u64) {
    let finished = world.end();
    assert_eq!(finished.result, Ok(Outcome::Done));
    assert!(finished.value == Some(value_of(length, seed)), "another value");
    assert_eq!((world.client.next_deadline(), world.client.in_flight()), (None, 0));
}

fn wait_long(world: &mut World) {
    world.now.boot_ns += 30_000 * MS;
    world.client.handle_deadline(world.now);
    assert_eq!(world.client.next_deadline(), None, "the request waits only for the driver");
}

#[test]
fn value_up_to_the_automatic_limit_does_not_wait() {
    let mut world = world(1);
    world.store(2, value_of(UNASKED, 1));
    world.get();
    check(&mut world, UNASKED, 1);
    assert_eq!(world.client.poll_pending_read(), None);
}

#[test]
fn longer_value_waits_without_a_deadline_until_allowed() {
    for is_suspended in [false, true] {
        let mut world = world(2);
        world.get();
        let (ticket, bytes) = wanted(&mut world);
        assert_eq!((bytes, world.sent_count(Opcode::ReadChunks)), (LENGTH, 0));
        if is_suspended {
            world.client.suspend_read(ticket);
        }
        wait_long(&mut world);
        world.client.allow_read(world.now, ticket, bytes);
        world.transmit();
        check(&mut world, LENGTH, 2);
        assert_eq!(world.sent_count(Opcode::Get), if is_suspended { 2 } else { 1 });
        assert_eq!(world.client.poll_pending_read(), None);
    }
}

#[test]
fn suspended_read_delays_no_others_and_waits_again_if_the_value_has_grown() {
    let mut world = world(3);
    world.get();
    let (ticket, bytes) = wanted(&mut world);
    world.client.suspend_read(ticket);
    let next = world.client.next_op();
    world.store(2, value_of(LENGTH + 1, 3));
    world.client.allow_read(world.now, ticket, bytes);
    assert_eq!(wanted(&mut world), (ticket, LENGTH + 1));
    assert_eq!(world.client.next_op().sequence, next.sequence + 1, "the read uses another op");
    world.client.allow_read(world.now, ticket, LENGTH + 1);
    world.transmit();
    check(&mut world, LENGTH + 1, 3);
}

#[test]
fn deadline_resumes_when_a_read_is_allowed() {
    let mut world = world(4);
    world.submit(Request::Get { key: KEY }, 500);
    let (ticket, bytes) = wanted(&mut world);
    wait_long(&mut world);
    world.replicas[usize::from(world.primary.0)].is_down = true;
    world.client.allow_read(world.now, ticket, bytes);
    let allowed_ns = world.now.boot_ns;
    world.transmit();
    assert_eq!(world.end().result, Err(OperationError::TimedOut));
    let took_ms = (world.now.boot_ns - allowed_ns) / MS;
    assert!((490..=510).contains(&took_ms), "{took_ms} ms of 500");
}

#[test]
fn cancelled_read_reports_why() {
    let old_value = Request::Update {
        key: KEY,
        condition: Condition::Always,
        return_old: true,
        operation: Operation::Set { value: b"blue", expiry: Expiry::Never },
    };
    for (request, limit, error) in [
        (Request::Get { key: KEY }, None, OperationError::TimedOut),
        (Request::Get { key: KEY }, Some(7), OperationError::ResultTooLong { limit: 7 }),
        (old_value, Some(7), OperationError::OldValueGone),
    ] {
        let mut world = world(5);
        world.submit(request, 500);
        let (ticket, _) = wanted(&mut world);
        world.client.suspend_read(ticket);
        world.client.cancel(ticket, limit);
        assert_eq!(world.end().result, Err(error));
        world.client.cancel(ticket, limit);
        world.client.allow_read(world.now, ticket, LENGTH);
        assert_eq!((world.client.next_deadline(), world.client.in_flight()), (None, 0), "it has ended");
    }
}

#[test]
fn previous_value_is_read_when_allowed_and_the_update_is_not_sent_again() {
    let mut world = world(6);
    let operation = Operation::Set { value: b"blue", expiry: Expiry::Never };
    let (key, condition) = (KEY, Condition::Always);
    world.submit(Request::Update { key, condition, return_old: true, operation }, 500);
    let (ticket, bytes) = wanted(&mut world);
    world.client.suspend_read(ticket);
    wait_long(&mut world);
    world.client.allow_read(world.now, ticket, bytes);
    world.transmit();
    check(&mut world, LENGTH, 6);
    assert_eq!(world.sent_count(Opcode::Update), 1);
}

#[test]
fn shared_value_is_not_copied_and_released_at_the_end() {
    let value = Arc::new(value_of(LENGTH, 8));
    let other = value_of(LENGTH, 8);
    for (sent, is_shared) in [(&value[..], true), (&other, false), (&value[1..], false)] {
        let mut world = World::new(CALM, 8);
        let deadline_ns = world.now.after(Duration::from_secs(5));
        let request = Request::update(KEY, Operation::Set { value: sent, expiry: Expiry::Never });
        let kept = SharedBytes::new(value.clone());
        world
            .client
            .submit_shared(world.now, KeyspaceId::DEFAULT, request, deadline_ns, Some(&kept))
            .unwrap();
        drop(kept);
        assert_eq!(Arc::strong_count(&value), if is_shared { 2 } else { 1 });
        world.transmit();
        assert_eq!(world.end().result, Ok(Outcome::Done));
        assert_eq!(Arc::strong_count(&value), 1);
        assert!(world.values[&world.current.unwrap()] == sent);
    }
}

#[test]
fn read_value_is_taken_once_without_a_copy() {
    let mut world = world(9);
    world.get();
    let (ticket, bytes) = wanted(&mut world);
    world.client.allow_read(world.now, ticket, bytes);
    let mut taken = None;
    while taken.is_none() {
        world.transmit();
        world.advance();
        if world.client.poll_event().is_some() {
            taken = world.client.take_value();
        }
    }
    assert!(taken == Some(value_of(LENGTH, 9)) && world.client.take_value().is_none());
}
