//! The search of Wing and Gong with the memory of Lowe: depth first over the orders that real time allows; a set of executed calls
//! that was left in the same state before need not be tried again.

use super::model::Register;
use super::{Answer, Call};
use alloc::vec;
use alloc::vec::Vec;
use foldhash::fast::FixedState;
use hashbrown::HashSet;
use nicekv_wire::Status;

/// Most states that a check visits. Beyond it the history has too many calls at once to be judged.
const STATES_MAX: usize = 600_000;

/// The outcome of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// There is an order.
    Linearizable,
    /// There is none.
    Violation,
    /// Not found out within the bound on states.
    TooLarge,
}

/// Which calls have been executed, one bit each.
type Executed = Vec<u64>;

struct Search<'a> {
    /// Ascending by the time of the call.
    calls: Vec<&'a Call>,
    seen: HashSet<(Executed, Register), FixedState>,
    /// Answered calls that have not been executed.
    left: usize,
}

/// Judges the calls of one key, which is absent at first.
pub fn check(calls: &[Call]) -> Verdict {
    let mut calls: Vec<&Call> = calls.iter().collect();
    calls.sort_by_key(|call| call.called);
    let left = calls.iter().filter(|call| call.answered.is_some()).count();
    let mut executed = vec![0; calls.len().div_ceil(64)];
    let mut search = Search { calls, seen: HashSet::default(), left };
    match search.extend(&mut executed, &Register::default()) {
        Some(true) => Verdict::Linearizable,
        Some(false) => Verdict::Violation,
        None => Verdict::TooLarge,
    }
}

impl Search<'_> {
    /// Whether the calls that are left can be executed from `state`; `None` at the bound.
    fn extend(&mut self, executed: &mut Executed, state: &Register) -> Option<bool> {
        if self.left == 0 {
            return Some(true);
        }
        if self.seen.len() >= STATES_MAX {
            return None;
        }
        if !self.seen.insert((executed.clone(), state.clone())) {
            return Some(false);
        }
        for index in self.candidates(executed) {
            let call = self.calls[index];
            executed[index / 64] |= 1 << (index % 64);
            self.left -= usize::from(call.answered.is_some());
            for before in [Some(state.clone()), state.expired()].into_iter().flatten() {
                let (next, answer) = before.execute(&call.action);
                // An open call that changes nothing is as good as one that never happens.
                let fits = match &call.answered {
                    Some((_, given)) => agree(given, &answer),
                    None => next != *state,
                };
                if fits && self.extend(executed, &next)? {
                    return Some(true);
                }
            }
            executed[index / 64] &= !(1 << (index % 64));
            self.left += usize::from(call.answered.is_some());
        }
        Some(false)
    }

    /// Calls that may come next: made before any that is left was answered. Answered ones first, they have to come some time.
    fn candidates(&self, executed: &Executed) -> Vec<usize> {
        let is_left = |index: &usize| executed[index / 64] & (1 << (index % 64)) == 0;
        let end = |index: usize| self.calls[index].answered.as_ref().map_or(u64::MAX, |(at, _)| *at);
        let mut first_end = u64::MAX;
        let mut candidates = Vec::new();
        for index in (0..self.calls.len()).filter(is_left) {
            if self.calls[index].called > first_end {
                break;
            }
            first_end = first_end.min(end(index));
            candidates.push(index);
        }
        candidates.retain(|index| self.calls[*index].called <= first_end);
        candidates.sort_by_key(|index| end(*index));
        candidates
    }
}

/// Whether what the client was told is what it must be told. The client library passes on no details of an error.
fn agree(given: &Answer, expected: &Answer) -> bool {
    match given.status {
        Status::Ok | Status::NotFound | Status::ConditionFailed => {
            let Answer { status, version, integer, value } = given;
            (*version == expected.version || *version == Answer::VERSION_NOT_TOLD)
                && (*status, *integer, value) == (expected.status, expected.integer, &expected.value)
        }
        error => error == expected.status,
    }
}

#[cfg(test)]
mod tests {
    use super::super::model::{Action, Change, When};
    use super::*;
    use nicekv_wire::{ClientId, OpId};

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
        Answer { status, version, integer, value }
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
    fn good_histories() {
        for calls in [
            vec![],
            vec![set(1, 0, Some(1)), get(1, 2, 3)],
            // Overlapping sets, in either order.
            vec![set(1, 0, Some(10)), set(2, 1, Some(9)), get(1, 11, 12)],
            vec![set(1, 0, Some(10)), set(2, 1, Some(9)), get(2, 11, 12)],
            // A get during a set sees it or not; the next one after a sight sees it.
            vec![set(1, 0, Some(9)), get(0, 1, 2), get(1, 3, 4), get(1, 5, 6)],
            // An unknown outcome: never, or late.
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
    fn bad_histories() {
        for calls in [
            // A stale read, a lost put, a value from nowhere.
            vec![set(1, 0, Some(1)), set(2, 2, Some(3)), get(1, 4, 5)],
            vec![set(1, 0, Some(1)), get(0, 2, 3)],
            vec![get(1, 2, 3)],
            // Seen and gone again.
            vec![set(1, 0, Some(9)), get(1, 1, 2), get(0, 3, 4)],
            vec![set(1, 0, None), get(1, 1, 2), get(0, 3, 4)],
            // One op twice.
            vec![set(1, 0, None), set(2, 1, Some(2)), get(1, 3, 4), get(2, 5, 6)],
            vec![increment(1, 0, Some((9, 1))), increment(2, 0, Some((9, 1)))],
            vec![increment(1, 0, None), increment(2, 1, Some((2, 3)))],
            // From the future.
            vec![get(1, 0, 1), set(1, 2, Some(3))],
        ] {
            assert_eq!(check(&calls), Verdict::Violation, "{calls:?}");
        }
    }

    #[test]
    fn conditions_versions_and_deletes() {
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
    fn a_version_that_is_not_told_may_be_any_but_the_rest_counts() {
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
    fn a_value_that_expires_may_be_gone_and_does_not_come_back() {
        let action = update(1, When::Always, Change::SetExpiring { value: vec![1], at_ms: 5 });
        let expiring = call(action, 0, Some((1, told(Status::Ok, 1, 0, None))));
        let gone = vec![expiring.clone(), get(1, 2, 3), get(0, 4, 5)];
        assert_eq!(check(&gone), Verdict::Linearizable);
        let back = vec![expiring, get(0, 2, 3), get(1, 4, 5)];
        assert_eq!(check(&back), Verdict::Violation);
    }

    #[test]
    fn a_hundred_calls_with_a_few_unknown_are_judged() {
        let mut calls: Vec<Call> = (1..=100).map(|n| set(n, n * 10, Some(n * 10 + 25))).collect();
        for number in [20, 40, 60] {
            calls[number].answered = None;
        }
        calls.push(get(100, 5000, 5001));
        assert_eq!(check(&calls), Verdict::Linearizable);
        calls.push(get(3, 5002, 5003));
        assert_eq!(check(&calls), Verdict::Violation);
    }
}
