//! Small histories, good and bad, written by hand.

use nicekv_history::model::{Action, Answer, Change, When};
use nicekv_history::{Call, Verdict, check};
use nicekv_proto::{ClientId, OpId, Status};

fn op(number: u64) -> OpId {
    OpId { client: ClientId(number), sequence: 1 }
}

fn call(action: Action, called: u64, answered: Option<(u64, Answer)>) -> Call {
    Call { action, called, answered }
}

fn update(number: u64, condition: When, change: Change) -> Action {
    Action::Update { op: op(number), condition, return_old: false, change }
}

fn set(number: u64, called: u64, answered: Option<u64>) -> Call {
    let action = update(number, When::Always, Change::Set(vec![number as u8]));
    call(action, called, answered.map(|at| (at, told(Status::Ok, number, 0, None))))
}

fn told(status: Status, version: u64, integer: i64, value: Option<Vec<u8>>) -> Answer {
    let version = if version == 0 { OpId::NONE } else { op(version) };
    Answer { status, version, integer, value, form: nicekv_proto::Form::Plain }
}

fn get(found: u64, called: u64, answered: u64) -> Call {
    let answer = match found {
        0 => told(Status::NotFound, 0, 0, None),
        _ => told(Status::Ok, found, 0, Some(vec![found as u8])),
    };
    call(Action::Get, called, Some((answered, answer)))
}

fn increment(number: u64, called: u64, answered: Option<(u64, i64)>) -> Call {
    let answered = answered.map(|(at, sum)| (at, told(Status::Ok, number, sum, None)));
    call(update(number, When::Always, Change::Increment(1)), called, answered)
}

#[test]
fn linearizable_histories_are_accepted() {
    for calls in [
        vec![],
        vec![set(1, 0, Some(1)), get(1, 2, 3)],
        // Overlapping sets, in either order.
        vec![set(1, 0, Some(10)), set(2, 1, Some(9)), get(1, 11, 12)],
        vec![set(1, 0, Some(10)), set(2, 1, Some(9)), get(2, 11, 12)],
        // A get during a set may see it; after a get has seen it, the next one sees it, too.
        vec![set(1, 0, Some(9)), get(0, 1, 2), get(1, 3, 4), get(1, 5, 6)],
        // A set of unknown outcome happens never, or late.
        vec![set(1, 0, None), get(0, 1, 2)],
        vec![set(1, 0, None), get(0, 1, 2), get(1, 3, 4)],
        vec![set(1, 0, None), set(2, 1, Some(2)), get(2, 3, 4), get(1, 5, 6)],
        vec![increment(1, 0, Some((9, 2))), increment(2, 0, Some((9, 1)))],
        vec![increment(1, 0, None), increment(2, 1, Some((2, 2)))],
    ] {
        assert_eq!(check(&calls), Verdict::Linearizable, "{calls:?}");
    }
}

#[test]
fn violations_are_found() {
    for calls in [
        // A stale read, a lost put, a value that was never put.
        vec![set(1, 0, Some(1)), set(2, 2, Some(3)), get(1, 4, 5)],
        vec![set(1, 0, Some(1)), get(0, 2, 3)],
        vec![get(1, 2, 3)],
        // A value is seen, and then gone.
        vec![set(1, 0, Some(9)), get(1, 1, 2), get(0, 3, 4)],
        vec![set(1, 0, None), get(1, 1, 2), get(0, 3, 4)],
        // One op takes effect twice.
        vec![set(1, 0, None), set(2, 1, Some(2)), get(1, 3, 4), get(2, 5, 6)],
        vec![increment(1, 0, Some((9, 1))), increment(2, 0, Some((9, 1)))],
        vec![increment(1, 0, None), increment(2, 1, Some((2, 3)))],
        // A value is read before it was put.
        vec![get(1, 0, 1), set(1, 2, Some(3))],
    ] {
        assert_eq!(check(&calls), Verdict::Violation, "{calls:?}");
    }
}

#[test]
fn conditions_versions_and_deletions_are_checked() {
    let absent = |number, called, answered, status, version| {
        let action = update(number, When::IfAbsent, Change::Set(vec![number as u8]));
        call(action, called, Some((answered, told(status, version, 0, None))))
    };
    let delete = |number, called, answered, status| {
        let action = update(number, When::Always, Change::Delete);
        call(action, called, Some((answered, told(status, 0, 0, None))))
    };
    let won_and_lost = vec![absent(1, 0, 9, Status::Ok, 1), absent(2, 0, 9, Status::ConditionFailed, 1)];
    assert_eq!(check(&won_and_lost), Verdict::Linearizable);
    let both_won = vec![absent(1, 0, 9, Status::Ok, 1), absent(2, 0, 9, Status::Ok, 2)];
    assert_eq!(check(&both_won), Verdict::Violation);
    let between = [delete(3, 0, 9, Status::Ok)].into_iter().chain(both_won).collect::<Vec<_>>();
    assert_eq!(check(&between), Verdict::Linearizable);
    let swap = |version, status, now| {
        let action = update(2, When::IfVersion(op(version)), Change::Append(b"x".to_vec()));
        call(action, 5, Some((6, told(status, now, if status == Status::Ok { 2 } else { 0 }, None))))
    };
    assert_eq!(check(&[set(1, 0, Some(1)), swap(1, Status::Ok, 2)]), Verdict::Linearizable);
    assert_eq!(check(&[set(1, 0, Some(1)), swap(7, Status::ConditionFailed, 1)]), Verdict::Linearizable);
    assert_eq!(check(&[set(1, 0, Some(1)), swap(7, Status::Ok, 2)]), Verdict::Violation);
}

#[test]
fn an_unknown_version_may_be_any_but_other_fields_are_checked() {
    let blind = |mut call: Call| {
        if let Some((_, answer)) = &mut call.answered {
            answer.version = Answer::VERSION_NOT_TOLD;
        }
        call
    };
    assert_eq!(check(&[blind(set(1, 0, Some(1))), blind(get(1, 2, 3))]), Verdict::Linearizable);
    assert_eq!(check(&[blind(set(1, 0, Some(1))), blind(get(2, 2, 3))]), Verdict::Violation);
    assert_eq!(check(&[blind(set(1, 0, Some(1))), blind(get(0, 2, 3))]), Verdict::Violation);
    assert_eq!(check(&[blind(increment(1, 0, Some((1, 2))))]), Verdict::Violation);
}

#[test]
fn an_expired_value_may_be_gone_and_does_not_return() {
    let action = update(1, When::Always, Change::SetExpiring { value: vec![1], at_ms: 5 });
    let expiring = call(action, 0, Some((1, told(Status::Ok, 1, 0, None))));
    let gone = vec![expiring.clone(), get(1, 2, 3), get(0, 4, 5)];
    assert_eq!(check(&gone), Verdict::Linearizable);
    let back = vec![expiring, get(0, 2, 3), get(1, 4, 5)];
    assert_eq!(check(&back), Verdict::Violation);
}

/// Only an op of unknown outcome can have seen the key absent, and its own effect is seen.
#[test]
fn one_op_with_unknown_outcome_may_enable_another() {
    let removals = [Change::SetExpiring { value: vec![2; 4], at_ms: 5 }, Change::Delete];
    for removal in removals {
        for condition in [When::IfAbsent, When::Always] {
            let told_old = |old: &[u8]| {
                let (op, condition, change) = (op(4), When::Always, Change::Set(vec![4]));
                let action = Action::Update { op, condition, return_old: true, change };
                call(action, 8, Some((9, told(Status::Ok, 4, 0, Some(old.to_vec())))))
            };
            let removed = call(update(2, When::Always, removal.clone()), 4, None);
            let counted = call(update(3, condition, Change::Increment(1)), 6, None);
            let history = |old| vec![set(1, 0, Some(1)), removed.clone(), counted.clone(), told_old(old)];
            assert_eq!(check(&history(b"1")), Verdict::Linearizable, "{removal:?}");
            assert_eq!(check(&history(b"2")), Verdict::Violation, "{removal:?}");
            let alone = vec![set(1, 0, Some(1)), counted.clone(), told_old(b"1")];
            assert_eq!(check(&alone), Verdict::Violation, "nothing was removed");
        }
    }
}

#[test]
fn a_hundred_calls_with_a_few_unknown_outcomes_are_checked() {
    let mut calls: Vec<Call> = (1..=100).map(|n| set(n, n * 10, Some(n * 10 + 25))).collect();
    for number in [20, 40, 60] {
        calls[number].answered = None;
    }
    calls.push(get(100, 5000, 5001));
    assert_eq!(check(&calls), Verdict::Linearizable);
    calls.push(get(3, 5002, 5003));
    assert_eq!(check(&calls), Verdict::Violation);
}

/// The order of appends does not matter where only the length of their result is known.
#[test]
fn unseen_appends_with_unknown_outcome_differ_only_by_length() {
    let append = |number: u64, called, length: Option<i64>, bytes: usize| {
        let suffix: Vec<u8> = format!("+{number}").bytes().cycle().take(bytes).collect();
        let answered = length.map(|length| (called + 50, told(Status::Ok, number, length, None)));
        call(update(number, When::Always, Change::Append(suffix)), called, answered)
    };
    let mut calls: Vec<Call> = (1..=16).map(|number| append(number, number, None, 1_000)).collect();
    calls.extend([set(20, 100, Some(110)), append(21, 120, Some(7_000 + 1 + 500), 500)]);
    calls.extend([set(22, 200, Some(210)), get(22, 220, 230)]);
    assert_eq!(check(&calls), Verdict::Linearizable, "seven appends came between");
    calls[17] = append(21, 120, Some(7_000 + 2 + 500), 500);
    assert_eq!(check(&calls), Verdict::Violation, "no number of appends has this length");
}
