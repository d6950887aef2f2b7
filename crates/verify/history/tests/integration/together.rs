//! The checker of several keys against every order of many small random histories.

#[allow(dead_code, reason = "other tests use the rest")]
use crate::reference;

use nicekv_history::model::{Change, When};
use nicekv_history::program::Program;
use nicekv_history::together::{Step, Together, Told, check_together};
use nicekv_history::{Action, Answer, Verdict};
use nicekv_proto::{ClientId, OpId, Status};
use nicekv_testkit::Random;
use reference::{State, agrees, draw};

/// Number of histories that are compared.
const HISTORIES: u64 = 30_000;
const KEYS: usize = 2;
const CALLS_MAX: u64 = 5;

type Keys = [State; KEYS];

/// Executes all steps of a call, or none. Returns the keys after it, and the answer.
fn execute(keys: &Keys, call: &Together) -> (Keys, Told) {
    let (mut after, mut answers) = (keys.clone(), Vec::new());
    for step in &call.steps {
        match step {
            Step::Require { key, condition } => {
                let is_there = after[*key].may_be_read();
                let holds = match condition {
                    When::Always => true,
                    When::IfAbsent => !is_there,
                    When::IfPresent => is_there,
                    When::IfVersion(version) => after[*key].version() == *version,
                };
                if !holds {
                    return (keys.clone(), Told::Ended);
                }
            }
            Step::Take { key, action } => {
                let (next, answer) = after[*key].execute(action);
                after[*key] = next;
                answers.push(answer);
            }
            Step::Run { op, program, keys, unix_ms } => {
                let reply = run(*program, (*op, *unix_ms), &mut after, *keys);
                answers.push(Answer::of_script(reply.into_bytes()));
            }
        }
    }
    (after, Told::Taken(answers))
}

/// Executes a script, and returns its reply.
fn run(program: Program, (op, unix_ms): (OpId, u64), keys: &mut Keys, (from, to): (usize, usize)) -> String {
    let value = keys[from].execute(&Action::Get).1.value.map(|value| String::from_utf8(value).unwrap());
    let mut change = |key: usize, change| {
        let update = Action::Update { op, condition: When::Always, return_old: false, change };
        keys[key] = keys[key].execute(&update).0;
    };
    match (program, value) {
        (Program::Fail, _) => "-ERR it fails\r\n".into(),
        (Program::Copy, None) => {
            change(to, Change::Delete);
            "$-1\r\n".into()
        }
        (Program::Copy, Some(value)) => {
            change(to, Change::Set(value.clone().into_bytes()));
            format!("${}\r\n{value}\r\n", value.len())
        }
        (Program::Count, value) => {
            let value = value.unwrap_or("0".into());
            let number = value.parse::<i64>().ok().filter(|number| number.to_string() == value);
            match number {
                Some(number) if number < Program::LIMIT => {
                    change(from, Change::Increment(1));
                    change(to, Change::Set(unix_ms.to_string().into_bytes()));
                    format!(":{}\r\n", number + 1)
                }
                _ => ":-1\r\n".into(),
            }
        }
    }
}

fn is_told(call: &Together, told: &Told) -> bool {
    match (&call.answered, told) {
        (None, _) => true,
        (Some((_, Told::Ended)), told) => *told == Told::Ended,
        (Some((_, Told::Taken(given))), Told::Taken(told)) => {
            given.len() == told.len() && given.iter().zip(told).all(|(given, told)| agrees(given, told))
        }
        _ => false,
    }
}

/// Whether some order of the calls explains all answers. A key that may have expired may be absent
/// before any of them.
fn orders(keys: &Keys, left: &[&Together]) -> bool {
    let due = |call: &&Together| call.answered.as_ref().map(|(at, _)| *at);
    let Some(first_end) = left.iter().filter_map(due).min() else { return true };
    let next = (0..left.len()).filter(|next| left[*next].called <= first_end);
    next.into_iter().any(|next| {
        let mut rest = left.to_vec();
        let call = rest.remove(next);
        (0..1 << KEYS).any(|gone| {
            let mut before = keys.clone();
            for (index, key) in before.iter_mut().enumerate().filter(|(index, _)| gone & (1 << index) != 0) {
                if !keys[index].may_expire() {
                    return false;
                }
                *key = State::default();
            }
            let (after, told) = execute(&before, call);
            is_told(call, &told) && orders(&after, &rest)
        })
    })
}

fn draw_step(number: u64, random: &mut Random) -> Step {
    let key = random.below(KEYS as u64) as usize;
    let action = draw(number, random);
    if random.below(5) == 0 {
        let op = OpId { client: ClientId(number), sequence: 1 };
        let program = random.pick(&[Program::Copy, Program::Count, Program::Count, Program::Fail]);
        let keys = (key, random.below(KEYS as u64) as usize);
        return Step::Run { op, program, keys, unix_ms: random.below(3) };
    }
    match (random.below(5), &action) {
        (0, Action::Update { condition, .. }) => Step::Require { key, condition: *condition },
        _ => Step::Take { key, action },
    }
}

/// Overlapping calls of correct keys; some outcomes are unknown. Calls of several steps get no
/// versions.
fn history(random: &mut Random) -> Vec<Together> {
    let (span, unknown) = (random.pick(&[4, 10, 30]), random.pick(&[0, 300_000]));
    let mut timed: Vec<(u64, Together, u64)> = (1..=random.between(1, CALLS_MAX))
        .map(|number| {
            let called = random.below(30);
            let effect = called + random.below(span);
            let returned = effect + random.below(span);
            let steps = (0..random.between(1, 3)).map(|_| draw_step(number, random)).collect();
            (effect, Together { steps, called, answered: None }, returned)
        })
        .collect();
    timed.sort_by_key(|(effect, ..)| *effect);
    let mut keys = Keys::default();
    for (_, call, returned) in &mut timed {
        for key in keys.iter_mut().filter(|key| key.may_expire()) {
            if random.below(3) == 0 {
                *key = State::default();
            }
        }
        let (after, mut told) = execute(&keys, call);
        keys = after;
        if let Told::Taken(answers) = &mut told
            && call.steps.len() > 1
        {
            answers.iter_mut().for_each(|answer| answer.version = Answer::VERSION_NOT_TOLD);
        }
        call.answered = (!random.chance(unknown)).then_some((*returned, told));
    }
    timed.into_iter().map(|(_, call, _)| call).collect()
}

/// Changes an answer.
fn spoil(calls: &mut [Together], random: &mut Random) {
    let index = random.below(calls.len() as u64) as usize;
    let Some((_, told)) = &mut calls[index].answered else { return };
    match told {
        Told::Taken(answers) if !answers.is_empty() && random.below(4) > 0 => {
            let index = random.below(answers.len() as u64) as usize;
            let answer = &mut answers[index];
            match random.below(4) {
                0 => answer.value = Some(b"1".to_vec()),
                1 => answer.integer += 1,
                2 => answer.status = random.pick(&[Status::Ok, Status::NotFound, Status::ConditionFailed]),
                _ => answer.version = OpId { client: ClientId(random.below(6)), sequence: 1 },
            }
        }
        _ => *told = Told::Ended,
    }
}

#[test]
fn every_order_of_small_histories_gives_the_same_verdict() {
    let mut random = Random::new(7);
    let (mut linearizable, mut violations) = (0, 0);
    for number in 0..HISTORIES {
        let mut calls = history(&mut random);
        if random.below(2) == 0 {
            spoil(&mut calls, &mut random);
        }
        let expected = match orders(&Keys::default(), &calls.iter().collect::<Vec<_>>()) {
            true => Verdict::Linearizable,
            false => Verdict::Violation,
        };
        assert_eq!(check_together(&calls, KEYS), expected, "history {number}: {calls:?}");
        match expected {
            Verdict::Linearizable => linearizable += 1,
            _ => violations += 1,
        }
    }
    let least = HISTORIES / 10;
    assert!(linearizable > least && violations > least, "{linearizable} linearizable, {violations} not");
}
