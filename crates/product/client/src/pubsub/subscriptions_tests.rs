use super::*;
use crate::Outcome;
use ListenKind::{Channel, Pattern};
use alloc::vec;
use nicekv_proto::{Form, OpId};

const S: u64 = 1_000 * NS_PER_MS;

/// The next request: topic, match value and count.
fn next(subscriptions: &mut Subscriptions, now_ns: u64) -> Option<(SubscriptionId, Vec<u8>, u128, u32, u32)> {
    let (id, request) = subscriptions.next(now_ns)?;
    let Request::Listen { name, from, count, hold_ms, .. } = request else { panic!("{request:?}") };
    Some((id, name.to_vec(), from, count, hold_ms))
}

fn answer(subscriptions: &mut Subscriptions, now_ns: u64, id: SubscriptionId, last: u128) {
    let last = last.to_be_bytes();
    let (outcome, version, value) = (Outcome::Done, OpId::NONE, Some(&last[..]));
    subscriptions.answered(
        now_ns,
        id,
        Ok(Answer { outcome, version, expiry_ms: 0, integer: 0, value, form: Form::Plain }),
    );
}

#[test]
fn channel_is_announced_to_its_partition_and_again_a_second_later() {
    let mut subscriptions = Subscriptions::default();
    let (id, version) = subscriptions.set(0, Channel, b"news", 2).unwrap();
    assert_eq!(next(&mut subscriptions, 0), Some((id, b"news".to_vec(), 0, 2, 3_000)));
    assert_eq!(next(&mut subscriptions, 0), None);
    assert_eq!(subscriptions.poll(), None);
    answer(&mut subscriptions, 5, id, 99);
    assert_eq!(subscriptions.poll(), Some(Confirmation { id, version, result: Ok(()) }));
    assert_eq!(subscriptions.next_deadline(), Some(S + 5));
    assert_eq!(next(&mut subscriptions, S), None);
    assert_eq!(next(&mut subscriptions, S + 5), Some((id, b"news".to_vec(), 0, 2, 3_000)));
}

#[test]
fn pattern_is_announced_to_every_partition() {
    let mut subscriptions = Subscriptions::default();
    let (id, version) = subscriptions.set(0, Pattern, b"n*", 1).unwrap();
    for (from, last) in [(0, 41), (42, 76), (77, u128::MAX)] {
        assert_eq!(subscriptions.poll(), None);
        assert_eq!(next(&mut subscriptions, 7), Some((id, b"n*".to_vec(), from, 1, 3_000)));
        answer(&mut subscriptions, 7, id, last);
    }
    assert_eq!(subscriptions.poll(), Some(Confirmation { id, version, result: Ok(()) }));
    assert_eq!((subscriptions.cost, subscriptions.next_deadline()), (3, Some(S + 7)));
}

#[test]
fn change_during_a_round_starts_another_round() {
    let mut subscriptions = Subscriptions::default();
    let (id, first) = subscriptions.set(0, Pattern, b"n*", 1).unwrap();
    next(&mut subscriptions, 0).unwrap();
    answer(&mut subscriptions, 0, id, 41);
    let (same, _) = subscriptions.set(0, Pattern, b"n*", 4).unwrap();
    assert_eq!(same, id);
    assert_eq!(next(&mut subscriptions, 0), Some((id, b"n*".to_vec(), 42, 4, 3_000)), "the round continues");
    let (_, second) = subscriptions.set(0, Pattern, b"n*", 5).unwrap();
    assert_eq!(next(&mut subscriptions, 0), None, "one request per name at a time");
    answer(&mut subscriptions, 0, id, u128::MAX);
    // The first change is confirmed, the second is not yet.
    assert_eq!(subscriptions.poll(), Some(Confirmation { id, version: first, result: Ok(()) }));
    assert_eq!(subscriptions.poll(), None);
    assert_eq!(next(&mut subscriptions, 0), Some((id, b"n*".to_vec(), 0, 5, 3_000)));
    answer(&mut subscriptions, 0, id, u128::MAX);
    assert_eq!(subscriptions.poll(), Some(Confirmation { id, version: second, result: Ok(()) }));
    assert_eq!(subscriptions.next_deadline(), Some(S));
}

#[test]
fn failure_is_not_reported_if_a_newer_change_follows() {
    let mut subscriptions = Subscriptions::default();
    subscriptions.set(0, Channel, b"c", 1).unwrap();
    next(&mut subscriptions, 0).unwrap();
    let (id, version) = subscriptions.set(0, Channel, b"c", 0).unwrap();
    subscriptions.answered(0, id, Err(OperationError::TimedOut));
    assert_eq!((subscriptions.poll(), next(&mut subscriptions, 0).unwrap().3), (None, 0));
    answer(&mut subscriptions, 0, id, 0);
    assert_eq!(subscriptions.poll(), Some(Confirmation { id, version, result: Ok(()) }));
    assert_eq!((subscriptions.is_empty(), subscriptions.cost), (true, 0));
}

#[test]
fn end_during_a_round_is_announced_to_all_partitions() {
    let mut subscriptions = Subscriptions::default();
    let (id, first) = subscriptions.set(0, Pattern, b"n*", 1).unwrap();
    next(&mut subscriptions, 0).unwrap();
    let (_, second) = subscriptions.set(0, Pattern, b"n*", 0).unwrap();
    answer(&mut subscriptions, 0, id, u128::MAX);
    assert_eq!(subscriptions.poll(), Some(Confirmation { id, version: first, result: Ok(()) }));
    for last in [41, u128::MAX] {
        assert_eq!(next(&mut subscriptions, 0).unwrap().3, 0);
        answer(&mut subscriptions, 0, id, last);
    }
    assert_eq!(subscriptions.poll(), Some(Confirmation { id, version: second, result: Ok(()) }));
    assert_eq!((subscriptions.is_empty(), subscriptions.cost, subscriptions.under_way), (true, 0, 0));
}

#[test]
fn end_is_announced_once_and_forgotten() {
    let mut subscriptions = Subscriptions::default();
    subscriptions.set(0, Channel, b"c", 1).unwrap();
    let (id, version) = subscriptions.set(0, Channel, b"c", 0).unwrap();
    assert_eq!(next(&mut subscriptions, 0).unwrap().3, 0);
    subscriptions.answered(0, id, Err(OperationError::TimedOut));
    assert_eq!(
        subscriptions.poll(),
        Some(Confirmation { id, version, result: Err(OperationError::TimedOut) })
    );
    assert!(subscriptions.is_empty() && subscriptions.ids.is_empty() && subscriptions.due.is_empty());
    assert_eq!((subscriptions.cost, subscriptions.under_way), (0, 0));
    // A repeated answer changes nothing.
    answer(&mut subscriptions, 0, id, 0);
}

#[test]
fn failed_announcement_is_retried_later_and_unsent_one_soon() {
    let mut subscriptions = Subscriptions::default();
    let (id, version) = subscriptions.set(0, Channel, b"c", 1).unwrap();
    next(&mut subscriptions, 0).unwrap();
    subscriptions.put_off(0, id);
    assert_eq!((next(&mut subscriptions, 0), subscriptions.poll()), (None, None));
    next(&mut subscriptions, NS_PER_MS).unwrap();
    subscriptions.answered(S, id, Err(OperationError::Busy));
    assert_eq!(subscriptions.poll(), Some(Confirmation { id, version, result: Err(OperationError::Busy) }));
    assert!(next(&mut subscriptions, 2 * S).is_some());
}

#[test]
fn many_subscriptions_are_announced_less_often_and_held_for_longer() {
    let mut subscriptions = Subscriptions::default();
    for number in 0..10_000_u32 {
        subscriptions.set(0, Channel, &number.to_be_bytes(), 1).unwrap();
    }
    let mut asked = Vec::new();
    while let Some((id, _, _, _, hold_ms)) = next(&mut subscriptions, 0) {
        assert_eq!(hold_ms, 15_000);
        asked.push(id);
    }
    assert_eq!((asked.len(), subscriptions.next_deadline()), (UNDER_WAY_MAX, None));
    for id in asked {
        answer(&mut subscriptions, 0, id, 0);
    }
    assert_eq!(subscriptions.due.last().unwrap().0, 5 * S);
}

#[test]
fn subscriptions_are_bounded() {
    let mut subscriptions = Subscriptions::default();
    for number in 0..SUBSCRIPTIONS_MAX as u32 {
        subscriptions.set(0, Channel, &number.to_be_bytes(), 1).unwrap();
    }
    assert_eq!(subscriptions.set(0, Channel, b"more", 1), None);
    assert!(subscriptions.set(0, Channel, &7_u32.to_be_bytes(), 2).is_some(), "it is there");
    assert_eq!(subscriptions.len(), SUBSCRIPTIONS_MAX);
    assert_eq!(vec![subscriptions.interval_ms()], [INTERVAL_MS_MAX]);
}
