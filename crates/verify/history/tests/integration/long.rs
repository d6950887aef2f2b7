//! Long histories of one key: the time and memory of each step do not grow with the history, nor
//! does the stack.

#[allow(dead_code, reason = "other tests use the rest")]
use crate::reference;

use nicekv_history::{Action, Answer, Call, Verdict, check};
use nicekv_proto::Status;
use nicekv_testkit::Random;
use reference::{State, draw};

/// Number of calls of a history with a wrong answer.
const SPOILED: usize = 5_000;
/// Stack for the check; a recursive search would need more.
const STACK_BYTES: usize = 128 << 10;

/// Parameters of a history.
struct Shape {
    calls: usize,
    clients: usize,
    /// Rate of calls of unknown outcome, per million.
    unknown: u64,
    /// Whether answers contain versions.
    told: bool,
}

/// Answers of a correct register to clients that each make one call after the other.
fn history(shape: &Shape, random: &mut Random) -> Vec<Call> {
    let mut free_at = vec![0; shape.clients];
    let mut timed: Vec<(u64, Call, u64)> = (1..=shape.calls)
        .map(|number| {
            let client = (0..shape.clients).min_by_key(|client| free_at[*client]).expect("some");
            let called = free_at[client] + random.below(20);
            let effect = called + random.below(60);
            let returned = effect + random.below(60);
            free_at[client] = returned + 1;
            (effect, Call { action: draw(number as u64, random), called, answered: None }, returned)
        })
        .collect();
    timed.sort_by_key(|(effect, ..)| *effect);
    let mut state = State::default();
    for (_, call, returned) in &mut timed {
        if state.may_expire() && random.below(10) == 0 {
            state = State::default();
        }
        let is_unknown = random.chance(shape.unknown);
        if is_unknown && random.below(2) == 0 {
            continue;
        }
        let (next, mut answer) = state.execute(&call.action);
        state = next;
        if !shape.told {
            answer.version = Answer::VERSION_NOT_TOLD;
        }
        call.answered = (!is_unknown).then_some((*returned, answer));
    }
    timed.into_iter().map(|(_, call, _)| call).collect()
}

/// The history is linearizable. Its first calls with a get of a value that no client has put are
/// not.
fn judge(shape: &Shape) {
    let mut calls = history(shape, &mut Random::new(7));
    assert_eq!(check(&calls), Verdict::Linearizable);
    calls.truncate(SPOILED);
    let at = calls.iter().filter_map(|call| Some(call.answered.as_ref()?.0)).max().expect("answers");
    let (status, version, value) = (Status::Ok, Answer::VERSION_NOT_TOLD, Some(b"from nowhere".to_vec()));
    let answer = Answer { status, version, integer: 0, value, form: nicekv_proto::Form::Plain };
    calls.push(Call { action: Action::Get, called: at + 1, answered: Some((at + 2, answer)) });
    assert_eq!(check(&calls), Verdict::Violation);
}

#[test]
fn a_hundred_thousand_calls_on_one_key() {
    judge(&Shape { calls: 100_000, clients: 8, unknown: 300, told: true });
}

#[test]
fn twenty_thousand_calls_without_versions() {
    judge(&Shape { calls: 20_000, clients: 8, unknown: 300, told: false });
}

#[test]
fn five_thousand_calls_need_little_stack() {
    let judge = || judge(&Shape { calls: 5_000, clients: 6, unknown: 300, told: true });
    std::thread::Builder::new()
        .stack_size(STACK_BYTES)
        .spawn(judge)
        .expect("a thread")
        .join()
        .expect("no overflow");
}
