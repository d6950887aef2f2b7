//! Linearizability of several keys together: a call has steps on any of them, which take effect at
//! one moment. A history of transactions, and of calls on one key each, is linearizable if one
//! order explains all, which is *strict serializability*.
//!
//! ```text
//!   frontier of an order: which calls have happened ─┐
//!   what the keys hold then ─────────────────────────┴─▶ configuration ─▶ one more call, or one value that expires ─▶ …
//! ```
//!
//! The search is depth first, and visits no configuration twice. It is for short histories of few
//! keys: calls of unknown outcome, which may happen at any later time, make it slow. Three things
//! speed it up: a call that changes nothing, and whose answer fits, happens at once; a
//! configuration is skipped if another one with fewer calls of unknown outcome has come to the same
//! state; and the call that is due first is tried first.

use crate::Call;
use crate::model::{Action, Answer, Register, When};
use crate::program::Program;
use crate::search::Verdict;
use alloc::vec;
use alloc::vec::Vec;
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use nicekv_proto::{OpId, Status};

/// Maximum configurations that are visited.
pub const CONFIGURATIONS_MAX: usize = 2_000_000;

/// A step of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Ends the call without effect if the condition does not hold.
    Require {
        /// Index of the key.
        key: usize,
        condition: When,
    },
    /// Reads or changes the key.
    Take {
        /// Index of the key.
        key: usize,
        action: Action,
    },
    /// Runs a script.
    Run {
        /// The op id.
        op: OpId,
        program: Program,
        /// Indexes of its two keys.
        keys: (usize, usize),
        /// Time of the call, in milliseconds of the Unix epoch.
        unix_ms: u64,
    },
}

/// The answer to a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told {
    /// A required condition did not hold: nothing happened.
    Ended,
    /// The call happened. One answer for each step, requirements excluded; a script's reply is the
    /// value of its answer. Only calls of one step get versions.
    Taken(Vec<Answer>),
}

/// A call on any of the keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Together {
    /// The steps. Each sees the effects of those before it.
    pub steps: Vec<Step>,
    /// Time of the call, on any clock that orders all calls and answers of the history.
    pub called: u64,
    /// Time and content of the answer; `None` if the outcome is unknown.
    pub answered: Option<(u64, Told)>,
}

impl Together {
    /// A call on one key.
    pub fn of_one(key: usize, call: &Call) -> Self {
        let told = |(at, answer): &(u64, Answer)| (*at, Told::Taken(vec![answer.clone()]));
        let steps = vec![Step::Take { key, action: call.action.clone() }];
        Self { steps, called: call.called, answered: call.answered.as_ref().map(told) }
    }

    /// Time by which the call has taken effect.
    fn due(&self) -> Option<u64> {
        self.answered.as_ref().map(|(at, _)| *at)
    }

    /// Whether the call's answer says that it changed nothing.
    fn is_observer(&self) -> bool {
        let answers = match &self.answered {
            None => return false,
            Some((_, Told::Ended)) => return true,
            Some((_, Told::Taken(answers))) => answers,
        };
        let steps = self.steps.iter().filter(|step| !matches!(step, Step::Require { .. }));
        let changes = |(step, answer): (&Step, &Answer)| match step {
            Step::Require { .. } => false,
            Step::Take { action, .. } => *action != Action::Get && answer.status == Status::Ok,
            Step::Run { program, .. } => program.changes(),
        };
        !steps.zip(answers).any(changes)
    }

    /// The keys after the call, if its answer is right in this state.
    fn after(&self, keys: &[Register]) -> Option<Vec<Register>> {
        let mut next = keys.to_vec();
        let mut given = match &self.answered {
            Some((_, Told::Taken(answers))) => Some(answers.iter()),
            _ => None,
        };
        let is_ended = matches!(self.answered, Some((_, Told::Ended)));
        for step in &self.steps {
            match step {
                Step::Require { key, condition } if !next[*key].meets(*condition) => {
                    return is_ended.then(|| keys.to_vec());
                }
                Step::Require { .. } => {}
                Step::Take { key, action } => {
                    let (after, answer) = next[*key].execute(action);
                    if let Some(given) = &mut given
                        && !given.next().is_some_and(|given: &Answer| given.agrees_with(&answer))
                    {
                        return None;
                    }
                    next[*key] = after;
                }
                Step::Run { op, program, keys, unix_ms } => {
                    let reply = program.execute((*op, *unix_ms), &mut next, *keys);
                    if let Some(given) = &mut given
                        && !given
                            .next()
                            .is_some_and(|given: &Answer| given.agrees_with(&Answer::of_script(reply)))
                    {
                        return None;
                    }
                }
            }
        }
        (!is_ended && given.is_none_or(|mut given| given.next().is_none())).then_some(next)
    }
}

/// Checks the calls on this number of keys, which are absent at first.
pub fn check_together(calls: &[Together], keys: usize) -> Verdict {
    check_within(calls, keys, CONFIGURATIONS_MAX)
}

fn check_within(calls: &[Together], keys: usize, configurations_max: usize) -> Verdict {
    let mut sorted: Vec<&Together> = calls.iter().collect();
    sorted.sort_by_key(|call| call.called);
    let start = Configuration { done: Bits::of(calls.len()), keys: vec![Register::default(); keys] };
    let search = Search { calls: sorted, seen: HashMap::default() };
    search.run(start, configurations_max)
}

/// A set of calls, by their index in order of time.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Bits(Vec<u64>);

impl Bits {
    fn of(calls: usize) -> Self {
        Self(vec![0; calls.div_ceil(64)])
    }

    fn has(&self, call: usize) -> bool {
        self.0[call / 64] & (1 << (call % 64)) != 0
    }

    fn with(&self, call: usize) -> Self {
        let mut with = self.clone();
        with.0[call / 64] |= 1 << (call % 64);
        with
    }

    fn is_within(&self, other: &Self) -> bool {
        self.0.iter().zip(&other.0).all(|(one, other)| one & !other == 0)
    }
}

/// The state of a partial order: which calls have happened, and what the keys hold.
#[derive(Clone, Debug)]
struct Configuration {
    done: Bits,
    keys: Vec<Register>,
}

struct Search<'a> {
    /// The calls, by time.
    calls: Vec<&'a Together>,
    /// For the answered calls that have happened, and what the keys hold then: minimal sets of
    /// calls of unknown outcome that have happened, too.
    seen: HashMap<(Bits, Vec<Register>), Vec<Bits>, FixedState>,
}

impl Search<'_> {
    fn run(mut self, start: Configuration, configurations_max: usize) -> Verdict {
        let mut ahead = vec![start];
        let mut left = configurations_max;
        while let Some(here) = ahead.pop() {
            if !self.is_new(&here) {
                continue;
            }
            if left == 0 {
                return Verdict::TooLarge;
            }
            left -= 1;
            let next = self.next(&here);
            if !next.iter().any(|call| self.calls[*call].due().is_some()) {
                return Verdict::Linearizable;
            }
            self.go_on(&here, &next, &mut ahead);
        }
        Verdict::Violation
    }

    /// Whether this state was not yet reached with fewer calls of unknown outcome.
    fn is_new(&mut self, here: &Configuration) -> bool {
        let (mut answered, mut spent) = (here.done.clone(), here.done.clone());
        for (index, call) in self.calls.iter().enumerate() {
            let other = if call.due().is_some() { &mut spent } else { &mut answered };
            other.0[index / 64] &= !(1 << (index % 64));
        }
        let before = self.seen.entry((answered, here.keys.clone())).or_default();
        if before.iter().any(|before| before.is_within(&spent)) {
            return false;
        }
        before.retain(|before| !spent.is_within(before));
        before.push(spent);
        true
    }

    /// The calls that may happen next: those that were made before any call that has not happened
    /// was answered.
    fn next(&self, here: &Configuration) -> Vec<usize> {
        let mut due = u64::MAX;
        let mut next = Vec::new();
        for (index, call) in self.calls.iter().enumerate() {
            if call.called > due {
                break;
            }
            if !here.done.has(index) {
                due = due.min(call.due().unwrap_or(u64::MAX));
                next.push(index);
            }
        }
        next
    }

    /// Adds the next configurations. The one to visit first comes last.
    fn go_on(&self, here: &Configuration, next: &[usize], ahead: &mut Vec<Configuration>) {
        let mut due = Vec::new();
        let mut open = Vec::new();
        for &index in next {
            let Some(keys) = self.calls[index].after(&here.keys) else { continue };
            let changes = keys != here.keys;
            let is_observer = self.calls[index].is_observer();
            let then = Configuration { done: here.done.with(index), keys };
            match self.calls[index].due() {
                // An observer changes nothing: it may happen at once, and no other continuation
                // needs a visit.
                Some(_) if is_observer => return ahead.push(then),
                Some(at) => due.push((at, then)),
                None if changes => open.push(then),
                None => {}
            }
        }
        ahead.append(&mut open);
        for (index, key) in here.keys.iter().enumerate() {
            let Some(expired) = key.expired() else { continue };
            let mut then = here.clone();
            then.keys[index] = expired;
            ahead.push(then);
        }
        due.sort_by_key(|(at, _)| core::cmp::Reverse(*at));
        ahead.extend(due.into_iter().map(|(_, then)| then));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Change;
    use nicekv_proto::ClientId;

    fn add(client: u64, key: usize, delta: i64) -> Step {
        let op = OpId { client: ClientId(client), sequence: 1 };
        let (condition, return_old) = (When::Always, false);
        Step::Take {
            key,
            action: Action::Update { op, condition, return_old, change: Change::Increment(delta) },
        }
    }

    /// Increments of unknown outcome lead to as many sums as they have subsets.
    #[test]
    fn search_steps_are_bounded() {
        let open = |client| Together {
            steps: vec![add(client, 0, 1 << client), add(client, 1, 1 << client)],
            called: client,
            answered: None,
        };
        let mut calls: Vec<Together> = (0..10).map(open).collect();
        let get = Step::Take { key: 0, action: Action::Get };
        let answer = Answer {
            status: Status::Ok,
            version: Answer::VERSION_NOT_TOLD,
            integer: 0,
            value: Some(b"none of them".to_vec()),
            form: nicekv_proto::Form::Plain,
        };
        calls.push(Together {
            steps: vec![get],
            called: 20,
            answered: Some((21, Told::Taken(vec![answer]))),
        });
        assert_eq!(check_within(&calls, 2, 100), Verdict::TooLarge);
        assert_eq!(check_within(&calls, 2, CONFIGURATIONS_MAX), Verdict::Violation);
    }
}
