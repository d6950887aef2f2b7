//! Tests of open ops and the keys that they lock.

use super::*;
use nicekv_proto::transaction::{Act, Step};
use nicekv_proto::{ClientId, Condition, Datagram, Expiry, KeyspaceId, Operation, Update};

fn at(boot_ns: u64) -> Now {
    Now { boot_ns, unix_ms: 0 }
}

fn op(sequence: u64) -> OpId {
    OpId { client: ClientId(1), sequence }
}

fn stored(op: OpId, key: &[u8]) -> StoredUpdate {
    stored_of(op, key, Operation::Set { value: b"v", expiry: Expiry::Never })
}

/// A transaction that reads these keys.
fn transaction(op: OpId, keys: &[&[u8]]) -> StoredUpdate {
    let mut steps = Vec::new();
    keys.iter().for_each(|key| Step { key, act: Act::Read }.append(&mut steps));
    stored_of(op, keys[0], Operation::Transaction(&steps))
}

fn stored_of(op: OpId, key: &[u8], operation: Operation<'_>) -> StoredUpdate {
    let update = Update {
        keyspace: KeyspaceId::DEFAULT,
        op,
        digest: nicekv_proto::placement::key_digest(key),
        reply_to: None,
        watermark: 1,
        condition: Condition::Always,
        return_old: false,
        operation,
        key,
    };
    let mut datagram = Vec::new();
    update.encode(&mut datagram);
    let Ok((_, Datagram::Update(update))) = Datagram::decode(&datagram) else { unreachable!("just encoded") };
    StoredUpdate::new(&update, &datagram, None, StoredBytes::default())
}

fn locks() -> Locks {
    Locks::new(PartitionId(0), Map::default(), Map::default())
}

/// Adds an op; its sequence number is also the number of its log record.
fn take_in(locks: &mut Locks, sequence: u64, key: &[u8]) {
    locks.take_in(
        &mut Visibility::default(),
        at(100),
        sequence,
        sequence.is_multiple_of(2),
        stored(op(sequence), key),
    );
}

fn undecided(locks: &Locks, key: &[u8]) -> Vec<u64> {
    locks.key(key).into_iter().flat_map(Key::undecided).map(|op| op.sequence).collect()
}

fn get(sequence: u64) -> WaitingGet {
    WaitingGet { op: op(sequence), reply_to: "10.0.0.9:900".parse().unwrap(), is_judged: false }
}

fn unlock(locks: &mut Locks, key: &[u8]) -> Option<usize> {
    locks.unlock(&mut Visibility::default(), key).map(|waiting| waiting.len())
}

#[test]
fn key_is_locked_from_its_first_op_to_its_last_effect() {
    let mut locks = locks();
    assert!(!locks.is_locked(b"k") && locks.key(b"k").is_none());
    take_in(&mut locks, 1, b"k");
    take_in(&mut locks, 2, b"k");
    assert!(locks.is_locked(b"k") && locks.holds(op(1)) && !locks.holds(op(3)));
    assert_eq!((locks.count(), locks.has_unreleased(), undecided(&locks, b"k")), (2, false, vec![1, 2]));
    assert_eq!((locks.decide(op(1)), locks.decide(op(1)), locks.decide(op(9))), (Some(1), Some(1), None));
    assert_eq!((locks.has_unreleased(), undecided(&locks, b"k")), (true, vec![2]));
    assert_eq!(locks.key(b"k").unwrap().unreleased(), 1);
    assert!(locks.remove(op(1)).is_some() && locks.remove(op(1)).is_none());
    assert_eq!(unlock(&mut locks, b"k"), None, "another op locks the key");
    locks.decide(op(2));
    locks.remove(op(2));
    assert_eq!((unlock(&mut locks, b"k"), locks.is_locked(b"k"), locks.count()), (Some(0), false, 0));
}

#[test]
fn key_with_an_unreleased_decision_stays_locked() {
    let mut locks = locks();
    take_in(&mut locks, 1, b"k");
    take_in(&mut locks, 2, b"k");
    locks.decide(op(1));
    locks.decide(op(2));
    locks.remove(op(1));
    assert_eq!(unlock(&mut locks, b"k"), None);
    locks.remove(op(2));
    assert_eq!(unlock(&mut locks, b"k"), Some(0));
}

#[test]
fn undecided_ops_are_found_by_log_order() {
    let mut locks = locks();
    assert_eq!(locks.oldest_undecided(), u64::MAX);
    [4, 2, 6].into_iter().for_each(|sequence| take_in(&mut locks, sequence, &sequence.to_be_bytes()));
    let after =
        |locks: &Locks, order| locks.undecided_after(order).map(|(op, _)| op.sequence).collect::<Vec<_>>();
    assert_eq!((after(&locks, 0), after(&locks, 2), after(&locks, 6)), (vec![2, 4, 6], vec![4, 6], vec![]));
    locks.decide(op(2));
    assert_eq!((locks.oldest_undecided(), after(&locks, 0)), (4, vec![4, 6]));
    assert_eq!(locks.in_log_order().iter().map(|op| op.order).collect::<Vec<_>>(), [2, 4, 6]);
}

#[test]
fn acks_count_until_the_epoch_ends() {
    let mut locks = locks();
    take_in(&mut locks, 1, b"k");
    take_in(&mut locks, 2, b"l");
    assert_eq!((locks.mark_synced(op(1)).is_some(), locks.mark_synced(op(3))), (true, None));
    assert!(locks.op(op(1)).unwrap().is_synced && !locks.op(op(2)).unwrap().is_synced);
    let votes = |votes: Votes| (votes.acks, votes.any_contended, votes.any_refused);
    assert_eq!(votes(locks.count_acks(op(1), 1, false, false)), (1, false, false));
    assert_eq!(votes(locks.count_acks(op(1), 4, true, false)), (5, true, false));
    assert_eq!(votes(locks.count_acks(op(1), 2, false, true)), (7, true, true));
    assert_eq!(
        votes(locks.count_acks(op(2), 1, false, false)),
        (1, true, false),
        "the op is contended at this member"
    );
    locks.enter_epoch(at(200));
    assert_eq!(votes(locks.op(op(1)).unwrap().votes), (0, false, false));
}

#[test]
fn timeouts_double_until_the_epoch_ends_or_the_holder_answers() {
    let mut locks = locks();
    take_in(&mut locks, 1, b"k");
    let overdue = |locks: &mut Locks, boot_ns| !locks.take_overdue(at(boot_ns), 10, 9).is_empty();
    assert!(!overdue(&mut locks, 109) && overdue(&mut locks, 110));
    assert!(!overdue(&mut locks, 129) && overdue(&mut locks, 130));
    assert!(overdue(&mut locks, 1_000) && overdue(&mut locks, 2_000));
    assert_eq!(locks.op(op(1)).unwrap().tries, 4);
    assert!(
        !overdue(&mut locks, 2_079) && overdue(&mut locks, 2_080),
        "the timeout grows to eight times at most"
    );
    locks.calm(op(1));
    assert_eq!(locks.op(op(1)).unwrap().tries, 1);
    assert!(!overdue(&mut locks, 2_099) && overdue(&mut locks, 2_100));
    locks.enter_epoch(at(3_000));
    assert!(!overdue(&mut locks, 3_009) && overdue(&mut locks, 3_010));
    take_in(&mut locks, 2, b"k");
    assert_eq!(locks.take_overdue(at(9_000), 10, 1), [op(1)], "only the oldest op is examined");
}

#[test]
fn waiting_gets_are_bounded_and_end_with_the_epoch() {
    let mut locks = locks();
    assert!(!locks.wait(get(1), b"k"));
    take_in(&mut locks, 1, b"k");
    let taken = (0..WAITING_GETS_MAX as u64 + 1).filter(|sequence| locks.wait(get(*sequence), b"k"));
    assert_eq!(taken.count(), WAITING_GETS_MAX);
    assert_eq!((locks.take_waiting(b"k").len(), locks.take_waiting(b"k").len()), (WAITING_GETS_MAX, 0));
    locks.wait(get(1), b"k");
    locks.enter_epoch(at(200));
    assert_eq!(locks.take_waiting(b"k").len(), 0);
    locks.wait(get(2), b"k");
    locks.decide(op(1));
    locks.remove(op(1));
    assert_eq!(unlock(&mut locks, b"k"), Some(1));
}

#[test]
fn only_the_newest_read_sets_the_latest_state() {
    let mut locks = locks();
    assert!(!locks.end_reading(b"k", 1, Latest::Known(None)));
    take_in(&mut locks, 1, b"k");
    assert!(matches!(locks.key(b"k").unwrap().latest(), Latest::Unknown));
    locks.set_latest(b"k", Latest::Reading { token: 2 });
    assert!(!locks.end_reading(b"k", 1, Latest::Known(None)));
    assert!(matches!(locks.key(b"k").unwrap().latest(), Latest::Reading { .. }));
    assert!(locks.end_reading(b"k", 2, Latest::Known(None)));
    assert!(matches!(locks.key(b"k").unwrap().latest(), Latest::Known(None)));
    locks.enter_epoch(at(200));
    assert!(matches!(locks.key(b"k").unwrap().latest(), Latest::Unknown));
}

#[test]
fn op_moves_to_the_front_and_all_are_given_up() {
    let mut locks = locks();
    [1, 2, 3].into_iter().for_each(|sequence| take_in(&mut locks, sequence, b"k"));
    locks.move_to_front(b"k", op(3));
    assert_eq!(undecided(&locks, b"k"), [3, 1, 2]);
    let ops = locks.give_up(&mut Visibility::default(), Map::default());
    assert_eq!((ops.len(), locks.count(), locks.is_locked(b"k")), (3, 0, false));
    assert_eq!(locks.oldest_undecided(), u64::MAX);
}

#[test]
fn transaction_locks_each_key_once_and_is_next_when_next_of_all() {
    let mut locks = locks();
    let take = |locks: &mut Locks, sequence, keys: &[&[u8]]| {
        let stored = transaction(op(sequence), keys);
        locks.take_in(&mut Visibility::default(), at(100), sequence, false, stored);
    };
    take_in(&mut locks, 1, b"b");
    take(&mut locks, 2, &[b"c", b"a", b"c", b"b"]);
    take(&mut locks, 3, &[b"d", b"c"]);
    assert_eq!(
        [&b"a"[..], b"b", b"c", b"d"].map(|key| undecided(&locks, key)),
        [vec![2], vec![1, 2], vec![2, 3], vec![3]]
    );
    assert_eq!([1, 2, 3, 9].map(|sequence| locks.is_next(op(sequence))), [true, false, false, false]);
    let meets = |locks: &Locks, keys: &[&[u8]]| locks.meets_undecided(&transaction(op(9), keys));
    assert!(meets(&locks, &[b"e", b"a"]) && !meets(&locks, &[b"e", b"f"]));
    // Decided and not released: one op of the first key, and two of the second.
    assert_eq!(locks.decide(op(1)), Some(1));
    assert_eq!([2, 3].map(|sequence| locks.is_next(op(sequence))), [true, false]);
    assert_eq!((locks.decide(op(2)), locks.is_next(op(3))), (Some(2), true));
    assert!(!meets(&locks, &[b"a", b"b"]), "decided ops do not make an op contended");
    locks.remove(op(1));
    assert_eq!(unlock(&mut locks, b"b"), None);
    locks.remove(op(2));
    assert_eq!([&b"a"[..], b"b", b"c"].map(|key| unlock(&mut locks, key)), [Some(0), Some(0), None]);
    assert_eq!(locks.drop_undecided(&mut Visibility::default()), [op(3)]);
    assert!(!locks.is_locked(b"c") && !locks.is_locked(b"d"), "all keys of the transaction are unlocked");
}
