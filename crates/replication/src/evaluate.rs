//! What an update does to a key: conditions and atomic operations.
//!
//! Only the primary evaluates, in its own order, and the outcome travels in the decision. Evaluation is a function of the update and the
//! key's state alone, so that a recovered op that was already answered gets the same outcome again (R2, R3).

use alloc::vec::Vec;
use nicekv_node::ValuePart;
use nicekv_wire::large::Reference;
use nicekv_wire::limits::{VALUE_BYTES_MAX, small_value_bytes_max};
use nicekv_wire::number::{LongDouble, parse_integer};
use nicekv_wire::recovery::Entry;
use nicekv_wire::replication::Effect;
use nicekv_wire::{Condition, ExpireCondition, Expiry, OpId, Operation, Status, Update};

/// The state of a key that is present.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeyValue {
    pub(crate) version: OpId,
    pub(crate) expiry_ms: u64,
    /// Of a large one, its reference.
    pub(crate) value: Vec<u8>,
    pub(crate) is_large: bool,
}

impl KeyValue {
    /// Of its value.
    fn length(&self) -> u64 {
        match self.is_large {
            true => Reference::checked(&self.value).length.into(),
            false => self.value.len() as u64,
        }
    }

    /// Its value, as a part of another one.
    fn part(&self) -> ValuePart {
        match self.is_large {
            true => ValuePart::Large(Reference::checked(&self.value)),
            false => ValuePart::Bytes(self.value.clone()),
        }
    }

    pub(crate) fn from_entry(entry: &Entry<'_>) -> Option<Self> {
        let value = entry.value?.to_vec();
        Some(Self { version: entry.version, expiry_ms: entry.expiry_ms, value, is_large: entry.is_large })
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
    /// Of a large one, its reference.
    pub(crate) value: Vec<u8>,
    pub(crate) is_large: bool,
    pub(crate) value_is_result: bool,
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
            is_large: false,
            value_is_result: false,
        }
    }

    /// Stores a value that was made for the op.
    pub(crate) fn made(op: OpId, reference: Reference, state: Option<&KeyValue>) -> Self {
        let (integer, is_large) = (reference.length.into(), true);
        let expiry_ms = state.map_or(0, |state| state.expiry_ms);
        Self { integer, is_large, ..Self::store(op, reference.bytes(), expiry_ms) }
    }

    fn store(op: OpId, value: Vec<u8>, expiry_ms: u64) -> Self {
        let (effect, status) = (Effect::Store, Status::Ok);
        let (is_large, value_is_result) = (false, false);
        Self { effect, status, version: op, expiry_ms, integer: 0, value, is_large, value_is_result }
    }

    /// The value stays, whatever it is.
    fn store_again(op: OpId, state: &KeyValue, expiry_ms: u64) -> Self {
        Self { is_large: state.is_large, ..Self::store(op, state.value.clone(), expiry_ms) }
    }

    /// Adds the value from before to the result. A decision has room for one value: where it carries a new one to be stored, the
    /// result goes without (whoever increments or appends is told the sum or the length).
    fn with_old(mut self, state: Option<&KeyValue>) -> Self {
        if let Some(state) = state
            && (self.effect != Effect::Store
                || (&self.value, self.is_large) == (&state.value, state.is_large))
        {
            self.value.clone_from(&state.value);
            self.is_large = state.is_large;
            self.value_is_result = true;
        }
        self
    }
}

/// Whether an op does nothing but hold a large value at all members while it is open: it stores it if the key's value is that one already.
pub(crate) fn is_hold(update: &Update<'_>) -> bool {
    matches!(update.operation, Operation::SetLarge { .. })
        && update.condition == Condition::IfVersion(update.op)
}

/// The parts of the value that the update stores, if that has no room in its decision and is not here: it is to be made first.
pub(crate) fn parts(update: &Update<'_>, state: Option<&KeyValue>) -> Option<[ValuePart; 2]> {
    let (added, is_large) = match update.operation {
        Operation::Append(suffix) => (suffix.len() as u64, false),
        // Where nothing was before, the value is there already.
        Operation::AppendLarge(suffix) if state.is_some() => (Reference::checked(suffix).length.into(), true),
        _ => return None,
    };
    let length = state.map_or(0, KeyValue::length) + added;
    if length <= small_value_bytes_max(update.key.len()) as u64 || !condition_holds(update.condition, state) {
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

/// Whether the outcome depends on the key's state at all.
pub(crate) fn needs_state(update: &Update<'_>) -> bool {
    let blind = match update.operation {
        Operation::Set { expiry, .. } | Operation::SetLarge { expiry, .. } => expiry != Expiry::Keep,
        _ => false,
    };
    !blind || update.return_old || update.condition != Condition::Always
}

/// Evaluates `update` on a key that is in `state` (`None`: absent).
pub(crate) fn evaluate(update: &Update<'_>, state: Option<&KeyValue>) -> Verdict {
    let verdict = match condition_holds(update.condition, state) {
        true => apply(update, state),
        false => Verdict::unchanged(Status::ConditionFailed, state),
    };
    if update.return_old { verdict.with_old(state) } else { verdict }
}

fn condition_holds(condition: Condition, state: Option<&KeyValue>) -> bool {
    match condition {
        Condition::Always => true,
        Condition::IfAbsent => state.is_none(),
        Condition::IfPresent => state.is_some(),
        Condition::IfVersion(version) => state.map_or(OpId::NONE, |state| state.version) == version,
    }
}

fn apply(update: &Update<'_>, state: Option<&KeyValue>) -> Verdict {
    let expiry_ms = state.map_or(0, |state| state.expiry_ms);
    match update.operation {
        Operation::Set { expiry, .. } | Operation::SetLarge { expiry, .. } => {
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
                // 0 would mean "never"; a time that early is past anyway.
                Verdict::store_again(update.op, state, at_ms.max(1))
            }
            Some(_) => Verdict::unchanged(Status::ConditionFailed, state),
        },
        Operation::Persist => match state {
            None => Verdict::unchanged(Status::NotFound, None),
            Some(KeyValue { expiry_ms: 0, .. }) => Verdict::unchanged(Status::ConditionFailed, state),
            Some(state) => Verdict::store_again(update.op, state, 0),
        },
    }
}

fn increment(op: OpId, state: Option<&KeyValue>, delta: i64) -> Verdict {
    let parse = |state: &KeyValue| if state.is_large { None } else { parse_integer(&state.value) };
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
    if let Some(large) = state.filter(|state| state.is_large) {
        // No number is so long, but beside a long key.
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
    if value.len() > small_value_bytes_max(update.key.len()) {
        return Verdict::unchanged(Status::ValueTooLong, state);
    }
    let expiry_ms = state.map_or(0, |state| state.expiry_ms);
    Verdict { value_is_result: true, ..Verdict::store(update.op, value, expiry_ms) }
}

fn append(update: &Update<'_>, state: Option<&KeyValue>, suffix: &[u8]) -> Verdict {
    let before = state.map_or(&[][..], |state| &state.value);
    let is_large = state.is_some_and(|state| state.is_large);
    if is_large || before.len() + suffix.len() > small_value_bytes_max(update.key.len()) {
        return Verdict::unchanged(Status::ValueTooLong, state);
    }
    let value = [before, suffix].concat();
    let integer = value.len() as i64;
    Verdict { integer, ..Verdict::store(update.op, value, state.map_or(0, |state| state.expiry_ms)) }
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

#[cfg(test)]
mod tests {
    use super::*;
    use nicekv_wire::{ClientId, KeyDigest, KeyspaceId};

    const OP: OpId = OpId { client: ClientId(9), sequence: 4 };
    const OLD: OpId = OpId { client: ClientId(8), sequence: 1 };

    fn update(operation: Operation<'_>) -> Update<'_> {
        Update {
            keyspace: KeyspaceId::DEFAULT,
            op: OP,
            digest: KeyDigest::default(),
            reply_to: None,
            watermark: 0,
            condition: Condition::Always,
            return_old: false,
            operation,
            key: b"k",
        }
    }

    fn by_float(delta: &str) -> Operation<'static> {
        Operation::IncrementFloat(LongDouble::parse(delta.as_bytes()).unwrap())
    }

    fn state(value: &str, expiry_ms: u64) -> Option<KeyValue> {
        Some(KeyValue { version: OLD, expiry_ms, value: value.into(), is_large: false })
    }

    fn check(update: Update<'_>, state: Option<KeyValue>, effect: Effect, status: Status) -> Verdict {
        let verdict = evaluate(&update, state.as_ref());
        assert_eq!((verdict.effect, verdict.status), (effect, status), "{update:?} on {state:?}");
        verdict
    }

    #[test]
    fn the_value_to_be_stored_is_never_replaced_by_the_one_from_before() {
        for operation in [Operation::Increment(1), Operation::Append(b"1"), by_float("0.5")] {
            let plain = evaluate(&update(operation), state("4", 9).as_ref());
            let with_old =
                evaluate(&Update { return_old: true, ..update(operation) }, state("4", 9).as_ref());
            assert_eq!(with_old, plain, "{operation:?}");
        }
        let persist =
            evaluate(&Update { return_old: true, ..update(Operation::Persist) }, state("4", 9).as_ref());
        assert_eq!((persist.value.as_slice(), persist.value_is_result), (b"4".as_slice(), true));
    }

    #[test]
    fn conditions_decide_by_presence_and_version() {
        let set = update(Operation::Set { value: b"new", expiry: Expiry::Never });
        let with = |condition| Update { condition, ..set };
        check(with(Condition::IfAbsent), None, Effect::StorePrepared, Status::Ok);
        check(with(Condition::IfAbsent), state("v", 0), Effect::None, Status::ConditionFailed);
        check(with(Condition::IfPresent), None, Effect::None, Status::ConditionFailed);
        check(with(Condition::IfPresent), state("v", 0), Effect::StorePrepared, Status::Ok);
        check(with(Condition::IfVersion(OLD)), state("v", 0), Effect::StorePrepared, Status::Ok);
        let failed =
            check(with(Condition::IfVersion(OP)), state("v", 0), Effect::None, Status::ConditionFailed);
        assert_eq!(failed.version, OLD);
        check(with(Condition::IfVersion(OpId::NONE)), None, Effect::StorePrepared, Status::Ok);
    }

    #[test]
    fn the_old_value_is_returned_also_when_the_condition_fails() {
        let set = Update {
            return_old: true,
            condition: Condition::IfAbsent,
            ..update(Operation::Set { value: b"new", expiry: Expiry::Never })
        };
        let verdict = check(set, state("old", 0), Effect::None, Status::ConditionFailed);
        assert!(verdict.value_is_result && verdict.value == b"old");
        let verdict = check(
            Update { return_old: true, ..update(Operation::Delete) },
            None,
            Effect::None,
            Status::NotFound,
        );
        assert!(!verdict.value_is_result);
    }

    #[test]
    fn numbers_are_strict_and_bounded() {
        let by = |delta| update(Operation::Increment(delta));
        assert_eq!(check(by(5), None, Effect::Store, Status::Ok).integer, 5);
        assert_eq!(check(by(-3), state("10", 77), Effect::Store, Status::Ok).expiry_ms, 77);
        check(by(1), state("ten", 0), Effect::None, Status::NotAnInteger);
        check(by(1), state("9223372036854775807", 0), Effect::None, Status::Overflow);
        let float = check(update(by_float("0.5")), state("10.25", 9), Effect::Store, Status::Ok);
        assert!(float.value_is_result && float.value == b"10.75" && float.expiry_ms == 9);
        assert_eq!(check(update(by_float("-0")), None, Effect::Store, Status::Ok).value, b"0");
        check(update(by_float("1e4932")), state("1e4932", 0), Effect::None, Status::Overflow);
        // What is not a number is said before what does not add up.
        check(update(by_float("inf")), state("inf", 0), Effect::None, Status::Overflow);
        check(update(by_float("inf")), state(" 1", 0), Effect::None, Status::NotAFloat);
        let longest = check(update(by_float("1e1023")), None, Effect::Store, Status::Ok);
        assert_eq!(longest.value.len(), 1_023);
        check(update(by_float("1e1025")), None, Effect::None, Status::ValueTooLong);
    }

    #[test]
    fn appending_stops_at_the_limit() {
        let verdict = check(update(Operation::Append(b"def")), state("abc", 5), Effect::Store, Status::Ok);
        assert_eq!((verdict.integer, verdict.expiry_ms, &verdict.value[..]), (6, 5, &b"abcdef"[..]));
        let long = "x".repeat(VALUE_BYTES_MAX);
        check(update(Operation::Append(b"d")), state(&long, 0), Effect::None, Status::ValueTooLong);
    }

    fn large(length: u32) -> Option<KeyValue> {
        let value = Reference { name: OLD, length, checksum: 7 }.bytes();
        Some(KeyValue { version: OLD, expiry_ms: 5, value, is_large: true })
    }

    #[test]
    fn what_is_too_long_for_a_decision_is_made_of_what_was_before_and_what_is_added() {
        let append = update(Operation::Append(b"de"));
        let bytes = |bytes: &[u8]| ValuePart::Bytes(bytes.to_vec());
        let (short, long) = ("x".repeat(VALUE_BYTES_MAX - 2), "x".repeat(VALUE_BYTES_MAX - 1));
        assert_eq!(parts(&append, None), None);
        assert_eq!(parts(&append, state(&short, 0).as_ref()), None, "there is room");
        assert_eq!(parts(&append, state(&long, 0).as_ref()), Some([bytes(long.as_bytes()), bytes(b"de")]));
        let reference = Reference { name: OLD, length: 5_000, checksum: 7 };
        let of_large = Some([ValuePart::Large(reference), bytes(b"de")]);
        assert_eq!(parts(&append, large(5_000).as_ref()), of_large);
        let absent = Update { condition: Condition::IfAbsent, ..append };
        assert_eq!(parts(&absent, large(5_000).as_ref()), None, "nothing is read for a condition");
        let suffix = Reference { name: OP, length: 2_000, checksum: 9 };
        let encoded = suffix.bytes();
        let large_append = update(Operation::AppendLarge(&encoded));
        let of_both = [ValuePart::Large(reference), ValuePart::Large(suffix)];
        assert_eq!(parts(&large_append, large(5_000).as_ref()), Some(of_both));
        assert_eq!(parts(&large_append, state("", 0).as_ref()), Some([bytes(b""), ValuePart::Large(suffix)]));
        assert_eq!(parts(&large_append, None), None, "it is there as it is");
        assert_eq!(check(large_append, None, Effect::StorePrepared, Status::Ok).integer, 2_000);
        check(large_append, large(5_000), Effect::None, Status::ValueTooLong);
        let made = Reference { name: OP, length: 5_002, checksum: 8 };
        let verdict = Verdict::made(OP, made, large(5_000).as_ref());
        assert_eq!((verdict.integer, verdict.expiry_ms, verdict.version), (5_002, 5, OP));
        assert_eq!((verdict.value, verdict.is_large), (made.bytes(), true));
    }

    #[test]
    fn a_hold_never_does_anything() {
        let reference = Reference { name: OP, length: 5_000, checksum: 7 }.bytes();
        let set = update(Operation::SetLarge { reference: &reference, expiry: Expiry::Never });
        assert!(!is_hold(&set) && !is_hold(&Update { condition: Condition::IfVersion(OLD), ..set }));
        let hold = Update { condition: Condition::IfVersion(OP), ..set };
        assert!(is_hold(&hold) && !is_hold(&Update { operation: Operation::Delete, ..hold }));
        for state in [None, state("v", 0), large(2_000)] {
            check(hold, state, Effect::None, Status::ConditionFailed);
        }
    }

    #[test]
    fn expiry_conditions_count_no_expiry_as_infinitely_late() {
        use ExpireCondition::*;
        for (condition, present_ms, new_ms, applies) in [
            (Always, 0, 5, true),
            (IfNone, 0, 5, true),
            (IfNone, 9, 5, false),
            (IfSome, 0, 5, false),
            (IfLater, 0, 5, false),
            (IfLater, 4, 5, true),
            (IfEarlier, 0, 5, true),
            (IfEarlier, 4, 5, false),
            (IfSomeAndEarlier, 0, 5, false),
            (IfSomeAndEarlier, 9, 5, true),
        ] {
            assert_eq!(expire_applies(condition, present_ms, new_ms), applies, "{condition:?} {present_ms}");
        }
        check(update(Operation::Persist), state("v", 0), Effect::None, Status::ConditionFailed);
        assert_eq!(check(update(Operation::Persist), state("v", 9), Effect::Store, Status::Ok).expiry_ms, 0);
        let keep = update(Operation::Set { value: b"n", expiry: Expiry::Keep });
        assert_eq!(check(keep, state("v", 9), Effect::StorePrepared, Status::Ok).expiry_ms, 9);
    }
}
