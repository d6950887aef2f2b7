//! Evaluates an update on a key: its condition and its atomic operation.
//!
//! Only the primary evaluates, in its own order, and the outcome travels in the decision.
//! Evaluation is a function of the update and the key's state alone, so a recovered op that was
//! already answered gets the same outcome again (R2, R3).

use crate::ValuePart;
use alloc::vec::Vec;
use nicekv_numbers::Arithmetic;
use nicekv_proto::large::Reference;
use nicekv_proto::limits::{LONG_VALUE_BYTES_MAX, VALUE_BYTES_MAX};
use nicekv_proto::number::{LongDouble, parse_integer};
use nicekv_proto::recovery::Entry;
use nicekv_proto::replication::Effect;
use nicekv_proto::{Condition, ExpireCondition, Expiry, Form, OpId, Operation, Status, Update};

/// The state of a key that exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeyValue {
    pub(crate) version: OpId,
    pub(crate) expiry_ms: u64,
    /// The value; for a large value, its reference.
    pub(crate) value: Vec<u8>,
    pub(crate) form: Form,
}

impl KeyValue {
    /// Length of the value.
    fn length(&self) -> u64 {
        match self.form {
            Form::Large => Reference::checked(&self.value).length.into(),
            Form::Plain | Form::Long | Form::Hash => self.value.len() as u64,
        }
    }

    /// This value as a part from which a longer one is built.
    fn part(&self) -> ValuePart {
        match self.form {
            Form::Large => ValuePart::Large(Reference::checked(&self.value)),
            Form::Plain | Form::Long | Form::Hash => ValuePart::Bytes(self.value.clone()),
        }
    }

    pub(crate) fn from_entry(entry: &Entry<'_>) -> Option<Self> {
        let value = entry.value?.to_vec();
        Some(Self { version: entry.version, expiry_ms: entry.expiry_ms, value, form: entry.form })
    }
}

/// The outcome of an update.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Verdict {
    pub(crate) effect: Effect,
    pub(crate) status: Status,
    pub(crate) version: OpId,
    pub(crate) expiry_ms: u64,
    pub(crate) integer: i64,
    /// The value to store or to return; for a large value, its reference.
    pub(crate) value: Vec<u8>,
    pub(crate) form: Form,
    pub(crate) value_is_result: bool,
    /// Evaluating the op again may give another outcome, so no client is answered before all
    /// members have synced the decision.
    pub(crate) may_differ: bool,
}

impl Verdict {
    /// An outcome that changes nothing.
    pub(crate) fn unchanged(status: Status, state: Option<&KeyValue>) -> Self {
        Self {
            effect: Effect::None,
            status,
            version: state.map_or(OpId::NONE, |state| state.version),
            expiry_ms: state.map_or(0, |state| state.expiry_ms),
            integer: 0,
            value: Vec::new(),
            form: Form::Plain,
            value_is_result: false,
            may_differ: false,
        }
    }

    /// Whether the client's result names a large value.
    pub(crate) fn tells_large(&self) -> bool {
        self.value_is_result && self.form == Form::Large
    }

    /// Stores the large value that was built for the op.
    pub(crate) fn made(op: OpId, reference: Reference, state: Option<&KeyValue>) -> Self {
        let (integer, form) = (reference.length.into(), Form::Large);
        let expiry_ms = state.map_or(0, |state| state.expiry_ms);
        Self { integer, form, ..Self::store(op, reference.bytes(), expiry_ms) }
    }

    fn store(op: OpId, value: Vec<u8>, expiry_ms: u64) -> Self {
        let (effect, status) = (Effect::Store, Status::Ok);
        let (form, value_is_result) = (Form::Plain, false);
        let may_differ = false;
        Self { effect, status, version: op, expiry_ms, integer: 0, value, form, value_is_result, may_differ }
    }

    /// Stores a computed value in the form that its length needs.
    fn store_long(update: &Update<'_>, value: Vec<u8>, state: Option<&KeyValue>) -> Self {
        let form = Form::of_length(update.key.len(), value.len());
        Self { form, ..Self::store(update.op, value, state.map_or(0, |state| state.expiry_ms)) }
    }

    /// Stores the same value with another expiry.
    fn store_again(op: OpId, state: &KeyValue, expiry_ms: u64) -> Self {
        Self { form: state.form, ..Self::store(op, state.value.clone(), expiry_ms) }
    }

    /// Adds the previous value to the result. A decision has room for one value: if it carries a
    /// new value to store, the result goes without the previous one (an increment or append returns
    /// the sum or the length).
    pub(crate) fn with_old(mut self, state: Option<&KeyValue>) -> Self {
        if let Some(state) = state
            && (self.effect != Effect::Store || (&self.value, self.form) == (&state.value, state.form))
        {
            self.value.clone_from(&state.value);
            self.form = state.form;
            self.value_is_result = true;
        }
        self
    }
}

/// Whether an op is a *hold* (L8): while it is open, it keeps a large value at all members. It has
/// no effect, because its condition is that the key has this value already.
pub(crate) fn is_hold(update: &Update<'_>) -> bool {
    matches!(update.operation, Operation::SetLarge { .. })
        && update.condition == Condition::IfVersion(update.op)
}

/// The parts of the value that the update stores, if the value does not fit into the decision and
/// has to be built first.
pub(crate) fn parts(update: &Update<'_>, state: Option<&KeyValue>) -> Option<[ValuePart; 2]> {
    let (added, is_large) = match update.operation {
        Operation::Append(suffix) => (suffix.len() as u64, false),
        // Without a previous value the appended one is the result, so there is nothing to build.
        Operation::AppendLarge(suffix) if state.is_some() => (Reference::checked(suffix).length.into(), true),
        _ => return None,
    };
    if is_wrong_type(update, state) {
        return None;
    }
    let length = state.map_or(0, KeyValue::length) + added;
    let has_large = is_large || state.is_some_and(|state| state.form == Form::Large);
    if !has_large && length <= LONG_VALUE_BYTES_MAX as u64 || !condition_holds(update.condition, state) {
        return None;
    }
    let before = state.map_or(ValuePart::Bytes(Vec::new()), KeyValue::part);
    let carried = update.operation.value();
    let added = if is_large {
        ValuePart::Large(Reference::checked(carried))
    } else {
        ValuePart::Bytes(carried.to_vec())
    };
    Some([before, added])
}

/// Whether the outcome depends on the key's state.
pub(crate) fn needs_state(update: &Update<'_>) -> bool {
    let blind = match update.operation {
        Operation::Set { expiry, .. }
        | Operation::SetLarge { expiry, .. }
        | Operation::SetLong { expiry, .. }
        | Operation::SetHash { expiry, .. } => expiry != Expiry::Keep,
        _ => false,
    };
    !blind || update.return_old || update.condition != Condition::Always
}

/// Evaluates `update` on a key that is in `state` (`None`: absent).
pub(crate) fn evaluate(update: &Update<'_>, state: Option<&KeyValue>) -> Verdict {
    if is_wrong_type(update, state) {
        return Verdict::unchanged(Status::WrongType, state);
    }
    let verdict = match condition_holds(update.condition, state) {
        true => apply(update, state),
        false => Verdict::unchanged(Status::ConditionFailed, state),
    };
    if update.return_old { verdict.with_old(state) } else { verdict }
}

/// Whether the key has a type that the operation does not work on. Operations that return the
/// previous value do not work on hashes either.
fn is_wrong_type(update: &Update<'_>, state: Option<&KeyValue>) -> bool {
    let Some(state) = state else { return false };
    let is_hash = state.form == Form::Hash;
    match update.operation {
        Operation::Set { .. }
        | Operation::SetLarge { .. }
        | Operation::SetLong { .. }
        | Operation::SetHash { .. }
        | Operation::Delete
        | Operation::Expire { .. }
        | Operation::Persist => is_hash && update.return_old,
        operation => is_hash != operation.is_of_hash(),
    }
}

pub(crate) fn condition_holds(condition: Condition, state: Option<&KeyValue>) -> bool {
    match condition {
        Condition::Always => true,
        Condition::IfAbsent => state.is_none(),
        Condition::IfPresent => state.is_some(),
        // The stamp itself was checked before (P8).
        Condition::Stamped(_) => true,
        Condition::IfVersion(version) | Condition::StampedIfVersion { version, .. } => {
            state.map_or(OpId::NONE, |state| state.version) == version
        }
    }
}

fn apply(update: &Update<'_>, state: Option<&KeyValue>) -> Verdict {
    let expiry_ms = state.map_or(0, |state| state.expiry_ms);
    match update.operation {
        Operation::Set { expiry, .. }
        | Operation::SetLarge { expiry, .. }
        | Operation::SetLong { expiry, .. }
        | Operation::SetHash { expiry, .. } => {
            let expiry_ms = match expiry {
                Expiry::Never => 0,
                Expiry::Keep => expiry_ms,
                Expiry::At(at_ms) => at_ms,
            };
            Verdict { effect: Effect::StorePrepared, ..Verdict::store(update.op, Vec::new(), expiry_ms) }
        }
        Operation::Delete => match state {
            Some(_) => Verdict { effect: Effect::Remove, ..Verdict::unchanged(Status::Ok, None) },
            None => Verdict::unchanged(Status::NotFound, None),
        },
        Operation::Increment(delta) => increment(update.op, state, delta),
        Operation::IncrementFloat(delta) => increment_float(update, state, delta),
        Operation::Append(suffix) => append(update, state, suffix),
        Operation::AppendLarge(_) if state.is_some() => Verdict::unchanged(Status::ValueTooLong, state),
        Operation::AppendLarge(suffix) => {
            let integer = Reference::checked(suffix).length.into();
            Verdict { effect: Effect::StorePrepared, integer, ..Verdict::store(update.op, Vec::new(), 0) }
        }
        Operation::Expire { at_ms, condition } => match state {
            None => Verdict::unchanged(Status::NotFound, None),
            Some(state) if expire_applies(condition, state.expiry_ms, at_ms) => {
                // 0 would mean that it never expires; 1 ms is in the past, too.
                Verdict::store_again(update.op, state, at_ms.max(1))
            }
            Some(_) => Verdict::unchanged(Status::ConditionFailed, state),
        },
        Operation::SetFields { fields, only_new } => hash::set(update, state, (fields, only_new)),
        Operation::RemoveFields(names) => hash::remove(update, state, names),
        Operation::IncrementField { name, delta } => hash::increment(update, state, (name, delta)),
        Operation::IncrementFieldFloat(added) => hash::increment_float(update, state, added),
        Operation::SetBit { offset, bit } => set_bit(update, state, (offset, bit)),
        Operation::SetRange { offset, bytes } => set_range(update, state, (offset, bytes)),
        // `transaction` evaluates the steps of a transaction one by one.
        Operation::Transaction(_) => unreachable!("a transaction is no update of one key"),
        Operation::Persist => match state {
            None => Verdict::unchanged(Status::NotFound, None),
            Some(KeyValue { expiry_ms: 0, .. }) => Verdict::unchanged(Status::ConditionFailed, state),
            Some(state) => Verdict::store_again(update.op, state, 0),
        },
    }
}

fn increment(op: OpId, state: Option<&KeyValue>, delta: i64) -> Verdict {
    let parse = |state: &KeyValue| if state.form == Form::Large { None } else { parse_integer(&state.value) };
    let Some(before) = state.map_or(Some(0), parse) else {
        return Verdict::unchanged(Status::NotAnInteger, state);
    };
    let Some(after) = before.checked_add(delta) else {
        return Verdict::unchanged(Status::Overflow, state);
    };
    let value = alloc::format!("{after}").into_bytes();
    Verdict { integer: after, ..Verdict::store(op, value, state.map_or(0, |state| state.expiry_ms)) }
}

fn increment_float(update: &Update<'_>, state: Option<&KeyValue>, delta: LongDouble) -> Verdict {
    if let Some(large) = state.filter(|state| state.form == Form::Large) {
        // A large value is no number: it is too long, except beside a long key.
        let may_be_one = large.length() <= VALUE_BYTES_MAX as u64;
        let status = if may_be_one { Status::ValueTooLong } else { Status::NotAFloat };
        return Verdict::unchanged(status, state);
    }
    let of = |state: &KeyValue| LongDouble::parse(&state.value);
    let Some(before) = state.map_or_else(|| LongDouble::parse(b"0"), of) else {
        return Verdict::unchanged(Status::NotAFloat, state);
    };
    let Some(after) = before.checked_add(delta) else {
        return Verdict::unchanged(Status::Overflow, state);
    };
    let value = after.to_text().into_bytes();
    Verdict { value_is_result: true, ..Verdict::store_long(update, value, state) }
}

fn append(update: &Update<'_>, state: Option<&KeyValue>, suffix: &[u8]) -> Verdict {
    let before = state.map_or(&[][..], |state| &state.value);
    let is_large = state.is_some_and(|state| state.form == Form::Large);
    if is_large || before.len() + suffix.len() > LONG_VALUE_BYTES_MAX {
        return Verdict::unchanged(Status::ValueTooLong, state);
    }
    let value = [before, suffix].concat();
    Verdict { integer: value.len() as i64, ..Verdict::store_long(update, value, state) }
}

/// Overwrites bytes of a value that is not large. The result is never shorter than the value was.
fn overwrite(update: &Update<'_>, state: Option<&KeyValue>, (start, bytes): (usize, &[u8])) -> Verdict {
    let is_large = state.is_some_and(|state| state.form == Form::Large);
    let end = start.saturating_add(bytes.len());
    if is_large || end > LONG_VALUE_BYTES_MAX {
        return Verdict::unchanged(Status::ValueTooLong, state);
    }
    let mut value = state.map_or(Vec::new(), |state| state.value.clone());
    value.resize(end.max(value.len()), 0);
    value[start..end].copy_from_slice(bytes);
    Verdict::store_long(update, value, state)
}

fn set_bit(update: &Update<'_>, state: Option<&KeyValue>, (offset, bit): (u32, bool)) -> Verdict {
    let (place, mask) = ((offset / 8) as usize, 0x80 >> (offset % 8));
    let before = state.and_then(|state| state.value.get(place)).copied().unwrap_or(0);
    let after = if bit { before | mask } else { before & !mask };
    let verdict = overwrite(update, state, (place, &[after]));
    let is_done = verdict.effect == Effect::Store;
    Verdict { integer: i64::from(is_done && before & mask != 0), ..verdict }
}

fn set_range(update: &Update<'_>, state: Option<&KeyValue>, (offset, bytes): (u32, &[u8])) -> Verdict {
    if bytes.is_empty() {
        let integer = state.map_or(0, KeyValue::length) as i64;
        return Verdict { integer, ..Verdict::unchanged(Status::Ok, state) };
    }
    let verdict = overwrite(update, state, (offset as usize, bytes));
    Verdict { integer: verdict.value.len() as i64, ..verdict }
}

fn expire_applies(condition: ExpireCondition, present_ms: u64, new_ms: u64) -> bool {
    let has_expiry = present_ms != 0;
    let later = has_expiry && new_ms > present_ms;
    let earlier = !has_expiry || new_ms < present_ms;
    match condition {
        ExpireCondition::Always => true,
        ExpireCondition::IfNone => !has_expiry,
        ExpireCondition::IfSome => has_expiry,
        ExpireCondition::IfLater | ExpireCondition::IfSomeAndLater => later,
        ExpireCondition::IfEarlier => earlier,
        ExpireCondition::IfSomeAndEarlier => has_expiry && earlier,
    }
}

mod hash;
pub(crate) fn read(state: Option<&KeyValue>) -> Verdict {
    match state {
        Some(_) => Verdict::unchanged(Status::Ok, state).with_old(state),
        None => Verdict::unchanged(Status::NotFound, None),
    }
}

/// The new state of the key, if the verdict changes it.
pub(crate) fn after(verdict: &Verdict, operation: &Operation<'_>) -> Option<Option<KeyValue>> {
    let (value, form) = match verdict.effect {
        Effect::None | Effect::Transaction => return None,
        Effect::Remove => return Some(None),
        Effect::Store => (verdict.value.clone(), verdict.form),
        Effect::StorePrepared => (operation.value().into(), operation.form()),
    };
    let Verdict { version, expiry_ms, .. } = *verdict;
    Some(Some(KeyValue { version, expiry_ms, value, form }))
}

#[cfg(test)]
mod tests;
