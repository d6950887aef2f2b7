//! A register, and a checker that tries every order. Both are as simple as possible, and share no
//! code with what they are compared to.

use nicekv_history::model::{Change, When};
use nicekv_history::{Action, Answer, Call};
use nicekv_proto::hash::{Field, Name};
use nicekv_proto::{ClientId, Form, OpId, Status};
use nicekv_testkit::Random;

const CALLS_MAX: u64 = 7;

#[derive(Clone, Default, PartialEq)]
pub(crate) struct State {
    version: OpId,
    value: Option<Vec<u8>>,
    form: Form,
    expires: bool,
}

fn op(number: u64) -> OpId {
    OpId { client: ClientId(number), sequence: 1 }
}

/// A random action with this op id.
pub(crate) fn draw(number: u64, random: &mut Random) -> Action {
    let value = random.below(3).to_string().into_bytes();
    let change = match random.below(14) {
        0 | 1 => return Action::Get,
        2 | 3 => Change::Set(value),
        4 => Change::SetExpiring { value, at_ms: 1 },
        5 => Change::Delete,
        6 => Change::Erase,
        // The result may no longer be a number.
        7 => Change::Append(if random.below(2) == 0 { b"x".to_vec() } else { value }),
        8 | 9 => Change::Increment([-1, 1, 2][random.below(3) as usize]),
        10 | 11 => {
            let mut fields = Vec::new();
            for _ in 0..=random.below(2) {
                Field { name: random.pick(&[b"a", b"b"]), value: &value }.append(&mut fields);
            }
            Change::SetFields { fields, only_new: random.below(2) == 0 }
        }
        12 => Change::IncrementField { name: b"a".to_vec(), delta: 1 },
        _ => {
            let mut names = Vec::new();
            Name { name: random.pick(&[b"a", b"b"]) }.append(&mut names);
            Change::RemoveFields(names)
        }
    };
    let condition = match random.below(8) {
        0 => When::IfAbsent,
        1 => When::IfPresent,
        2 => When::IfVersion(op(random.below(6))),
        3 => When::IfVersion(OpId::NONE),
        _ => When::Always,
    };
    // A change of fields cannot return the previous value.
    let return_old = random.below(3) == 0 && !change.is_of_fields();
    Action::Update { op: op(number), condition, return_old, change }
}

impl State {
    pub(crate) fn version(&self) -> OpId {
        self.version
    }

    pub(crate) fn may_be_read(&self) -> bool {
        self.value.is_some()
    }

    pub(crate) fn may_expire(&self) -> bool {
        self.expires
    }

    pub(crate) fn execute(&self, action: &Action) -> (Self, Answer) {
        let here =
            |status| Answer { status, version: self.version, integer: 0, value: None, form: Form::Plain };
        let is_hash = self.form == Form::Hash;
        let Action::Update { op, condition, return_old, change } = action else {
            let status = if self.value.is_some() { Status::Ok } else { Status::NotFound };
            return (self.clone(), Answer { value: self.value.clone(), form: self.form, ..here(status) });
        };
        let applies = match condition {
            When::Always => true,
            When::IfAbsent => self.value.is_none(),
            When::IfPresent => self.value.is_some(),
            When::IfVersion(version) => self.version == *version,
        };
        let old = if *return_old { self.value.clone() } else { None };
        let form = if *return_old { self.form } else { Form::Plain };
        let old_or = |status| Answer { value: old.clone(), form, ..here(status) };
        let is_of_other = match change {
            Change::Append(_) | Change::Increment(_) => is_hash,
            Change::SetFields { .. } | Change::RemoveFields(_) | Change::IncrementField { .. } => {
                self.value.is_some() && !is_hash
            }
            _ => is_hash && *return_old,
        };
        if is_of_other {
            return (self.clone(), old_or(Status::WrongType));
        }
        if !applies {
            return (self.clone(), old_or(Status::ConditionFailed));
        }
        let put =
            |value: Vec<u8>, expires| Self { version: *op, value: Some(value), form: Form::Plain, expires };
        let done = |integer, told: Answer| Answer { status: Status::Ok, version: *op, integer, ..told };
        match change {
            Change::Set(value) => (put(value.clone(), false), done(0, old_or(Status::Ok))),
            Change::SetExpiring { value, .. } => (put(value.clone(), true), done(0, old_or(Status::Ok))),
            Change::Delete | Change::Erase => {
                let was_there = self.value.is_some() || matches!(change, Change::Erase);
                let status = if was_there { Status::Ok } else { Status::NotFound };
                (Self::default(), Answer { version: OpId::NONE, ..old_or(status) })
            }
            Change::Append(suffix) => {
                let value = [self.value.clone().unwrap_or_default(), suffix.clone()].concat();
                let length = value.len() as i64;
                (put(value, self.expires), done(length, here(Status::Ok)))
            }
            Change::Increment(by) => {
                let text =
                    self.value.clone().map_or_else(|| "0".into(), |value| String::from_utf8(value).unwrap());
                match text.parse::<i64>().ok().filter(|number| number.to_string() == text) {
                    Some(number) => (
                        put((number + by).to_string().into_bytes(), self.expires),
                        done(number + by, here(Status::Ok)),
                    ),
                    None => (self.clone(), old_or(Status::NotAnInteger)),
                }
            }
            _ => self.change_fields(*op, change, &old_or),
        }
    }

    fn change_fields(&self, op: OpId, change: &Change, old_or: &dyn Fn(Status) -> Answer) -> (Self, Answer) {
        let names = [b"a", b"b"];
        let bytes = self.value.as_deref().unwrap_or_default();
        // In the order in which fields were added.
        let mut order: Vec<&[u8; 1]> =
            Field::each(bytes).map(|field| names[usize::from(field.name == b"b")]).collect();
        let mut has = names.map(|name| Field::value_of(bytes, name).map(<[u8]>::to_vec));
        let before = order.len();
        let place = |name: &[u8]| usize::from(name == b"b");
        let told = match change {
            Change::SetFields { fields, only_new } => {
                for field in Field::each(fields) {
                    let is_new = has[place(field.name)].is_none();
                    if is_new {
                        order.push(names[place(field.name)]);
                    }
                    if is_new || !only_new {
                        has[place(field.name)] = Some(field.value.to_vec());
                    }
                }
                if *only_new && order.len() == before {
                    return (self.clone(), old_or(Status::Ok));
                }
                order.len() - before
            }
            Change::RemoveFields(gone) => {
                Name::each(gone).for_each(|name| has[place(name)] = None);
                order.retain(|name| has[place(&name[..])].is_some());
                if order.len() == before {
                    let status = if self.value.is_some() { Status::Ok } else { Status::NotFound };
                    return (self.clone(), old_or(status));
                }
                before - order.len()
            }
            Change::IncrementField { delta, .. } => {
                if has[0].is_none() {
                    order.push(names[0]);
                }
                let text =
                    has[0].clone().map_or_else(|| "0".into(), |value| String::from_utf8(value).unwrap());
                let Some(number) = text.parse::<i64>().ok().filter(|number| number.to_string() == text)
                else {
                    return (self.clone(), old_or(Status::NotAnInteger));
                };
                has[0] = Some((number + delta).to_string().into_bytes());
                (number + delta) as usize
            }
            _ => unreachable!(),
        };
        let answer =
            Answer { version: op, integer: told as i64, value: None, form: Form::Plain, status: Status::Ok };
        if order.is_empty() {
            return (Self::default(), Answer { version: OpId::NONE, ..answer });
        }
        let mut value = Vec::new();
        for name in order {
            Field { name, value: has[place(name)].as_deref().unwrap() }.append(&mut value);
        }
        (Self { version: op, value: Some(value), form: Form::Hash, expires: self.expires }, answer)
    }
}

/// Whether some order of the calls explains all answers.
pub(crate) fn orders(calls: &[Call]) -> bool {
    leads_on(&State::default(), &calls.iter().collect::<Vec<_>>())
}

fn leads_on(state: &State, left: &[&Call]) -> bool {
    let Some(first_end) = left.iter().filter_map(|call| Some(call.answered.as_ref()?.0)).min() else {
        return true;
    };
    let next = (0..left.len()).filter(|next| left[*next].called <= first_end);
    next.into_iter().any(|next| {
        let mut rest = left.to_vec();
        let call = rest.remove(next);
        let gone = state.expires.then(State::default);
        [Some(state.clone()), gone].into_iter().flatten().any(|before| {
            let (after, told) = before.execute(&call.action);
            call.answered.as_ref().is_none_or(|(_, given)| agrees(given, &told)) && leads_on(&after, &rest)
        })
    })
}

pub(crate) fn agrees(given: &Answer, told: &Answer) -> bool {
    let is_refusal = !matches!(given.status, Status::Ok | Status::NotFound | Status::ConditionFailed);
    let same_version = given.version == told.version || given.version == Answer::VERSION_NOT_TOLD;
    given.status == told.status
        && (is_refusal
            || same_version
                && (given.integer, &given.value, given.form) == (told.integer, &told.value, told.form))
}

/// Calls of a correct register, overlapping; some outcomes are unknown.
pub(crate) fn history(random: &mut Random) -> Vec<Call> {
    let calls = random.between(1, CALLS_MAX);
    let (span, unknown) = (random.pick(&[4, 10, 30]), random.pick(&[0, 200_000, 500_000]));
    let told = random.below(3) > 0;
    // Like Redis clients, which have no op ids.
    let is_nameless = !told && random.below(2) == 0;
    let mut timed: Vec<(u64, Call, u64)> = (1..=calls)
        .map(|number| {
            let called = random.below(40);
            let effect = called + random.below(span);
            let returned = effect + random.below(span);
            let mut action = draw(number, random);
            if let Action::Update { op, .. } = &mut action
                && is_nameless
            {
                *op = OpId::NONE;
            }
            (effect, Call { action, called, answered: None }, returned)
        })
        .collect();
    timed.sort_by_key(|(effect, ..)| *effect);
    let mut state = State::default();
    for (_, call, returned) in &mut timed {
        if state.may_expire() && random.below(3) == 0 {
            state = State::default();
        }
        let is_unknown = random.chance(unknown);
        if is_unknown && random.below(2) == 0 {
            continue;
        }
        let (next, mut answer) = state.execute(&call.action);
        state = next;
        if !told {
            answer.version = Answer::VERSION_NOT_TOLD;
        }
        call.answered = (!is_unknown).then_some((*returned, answer));
    }
    timed.into_iter().map(|(_, call, _)| call).collect()
}

/// Replaces an answer by another call's, or changes its version, number or time.
pub(crate) fn spoil(calls: &mut [Call], random: &mut Random) {
    let (one, other) = (random.below(calls.len() as u64) as usize, random.below(calls.len() as u64) as usize);
    let lent = calls[other].answered.clone();
    let Some((at, answer)) = &mut calls[one].answered else { return };
    match (random.below(4), lent) {
        (0, Some((_, lent))) => *answer = lent,
        (1, Some((_, lent))) => answer.version = lent.version,
        (2, _) => answer.integer += 1,
        _ => *at = calls[one].called + random.below(8),
    }
}
