//! Tests of what updates do to keys.

use super::*;
use nicekv_proto::limits::{KEY_BYTES_MAX, LONG_VALUE_BYTES_MAX};
use nicekv_proto::{ClientId, Form, KeyDigest, KeyspaceId};

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
    Some(KeyValue { version: OLD, expiry_ms, value: value.into(), form: Form::Plain })
}

fn check(update: Update<'_>, state: Option<KeyValue>, effect: Effect, status: Status) -> Verdict {
    let verdict = evaluate(&update, state.as_ref());
    assert_eq!((verdict.effect, verdict.status), (effect, status), "{update:?} on {state:?}");
    verdict
}

#[test]
fn stored_value_is_never_replaced_by_the_old_one() {
    for operation in [Operation::Increment(1), Operation::Append(b"1"), by_float("0.5")] {
        let plain = evaluate(&update(operation), state("4", 9).as_ref());
        let with_old = evaluate(&Update { return_old: true, ..update(operation) }, state("4", 9).as_ref());
        assert_eq!(with_old, plain, "{operation:?}");
    }
    let persist =
        evaluate(&Update { return_old: true, ..update(Operation::Persist) }, state("4", 9).as_ref());
    assert_eq!((persist.value.as_slice(), persist.value_is_result), (b"4".as_slice(), true));
}

#[test]
fn conditions_test_presence_and_version() {
    let set = update(Operation::Set { value: b"new", expiry: Expiry::Never });
    let with = |condition| Update { condition, ..set };
    check(with(Condition::IfAbsent), None, Effect::StorePrepared, Status::Ok);
    check(with(Condition::IfAbsent), state("v", 0), Effect::None, Status::ConditionFailed);
    check(with(Condition::IfPresent), None, Effect::None, Status::ConditionFailed);
    check(with(Condition::IfPresent), state("v", 0), Effect::StorePrepared, Status::Ok);
    check(with(Condition::IfVersion(OLD)), state("v", 0), Effect::StorePrepared, Status::Ok);
    let failed = check(with(Condition::IfVersion(OP)), state("v", 0), Effect::None, Status::ConditionFailed);
    assert_eq!(failed.version, OLD);
    check(with(Condition::IfVersion(OpId::NONE)), None, Effect::StorePrepared, Status::Ok);
}

#[test]
fn old_value_is_returned_when_the_condition_fails() {
    let set = Update {
        return_old: true,
        condition: Condition::IfAbsent,
        ..update(Operation::Set { value: b"new", expiry: Expiry::Never })
    };
    let verdict = check(set, state("old", 0), Effect::None, Status::ConditionFailed);
    assert!(verdict.value_is_result && verdict.value == b"old");
    let verdict =
        check(Update { return_old: true, ..update(Operation::Delete) }, None, Effect::None, Status::NotFound);
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
    // A value that is not a number is reported before an overflow of the sum.
    check(update(by_float("inf")), state("inf", 0), Effect::None, Status::Overflow);
    check(update(by_float("inf")), state(" 1", 0), Effect::None, Status::NotAFloat);
    let longest = check(update(by_float("1e1023")), None, Effect::Store, Status::Ok);
    assert_eq!(longest.value.len(), 1_023);
    assert_eq!(longest.form, Form::Plain);
    let long = check(update(by_float("1e1025")), None, Effect::Store, Status::Ok);
    assert_eq!((long.value.len(), long.form), (1_025, Form::Long));
}

#[test]
fn append_stops_at_the_limit() {
    let verdict = check(update(Operation::Append(b"def")), state("abc", 5), Effect::Store, Status::Ok);
    assert_eq!((verdict.integer, verdict.expiry_ms, &verdict.value[..]), (6, 5, &b"abcdef"[..]));
    let short = "x".repeat(VALUE_BYTES_MAX);
    let verdict = check(update(Operation::Append(b"d")), state(&short, 0), Effect::Store, Status::Ok);
    assert_eq!((verdict.integer, verdict.form), (1_025, Form::Long));
    let long = |bytes: usize| {
        let value = vec![b'x'; bytes];
        Some(KeyValue { version: OLD, expiry_ms: 5, value, form: Form::Long })
    };
    let append = update(Operation::Append(b"d"));
    let verdict = check(append, long(LONG_VALUE_BYTES_MAX - 1), Effect::Store, Status::Ok);
    assert_eq!((verdict.value.len(), verdict.expiry_ms), (LONG_VALUE_BYTES_MAX, 5));
    check(append, long(LONG_VALUE_BYTES_MAX), Effect::None, Status::ValueTooLong);
}

#[test]
fn long_key_leaves_less_room_for_a_result() {
    let key = [b'k'; KEY_BYTES_MAX];
    let of = |operation| Update { key: &key, ..update(operation) };
    let fits = "x".repeat(250);
    let form = |suffix| check(of(Operation::Append(suffix)), state(&fits, 0), Effect::Store, Status::Ok).form;
    assert_eq!((form(b"abcdef"), form(b"abcdefg")), (Form::Plain, Form::Long));
    assert_eq!(parts(&of(Operation::Append(b"abcdefg")), state(&fits, 0).as_ref()), None, "not large");
    let form = |delta| check(of(by_float(delta)), None, Effect::Store, Status::Ok).form;
    assert_eq!((form("1e255"), form("1e256")), (Form::Plain, Form::Long));
    check(of(by_float("1")), large(300), Effect::None, Status::ValueTooLong);
    check(of(by_float("1")), large(1_025), Effect::None, Status::NotAFloat);
    check(of(Operation::Increment(1)), large(300), Effect::None, Status::NotAnInteger);
}

fn large(length: u32) -> Option<KeyValue> {
    let value = Reference { name: OLD, length, checksum: 7 }.bytes();
    Some(KeyValue { version: OLD, expiry_ms: 5, value, form: Form::Large })
}

#[test]
fn result_too_long_for_a_decision_is_built_from_its_parts() {
    let append = update(Operation::Append(b"de"));
    let bytes = |bytes: &[u8]| ValuePart::Bytes(bytes.to_vec());
    let (fits, longer) = ("x".repeat(LONG_VALUE_BYTES_MAX - 2), "x".repeat(LONG_VALUE_BYTES_MAX - 1));
    assert_eq!(parts(&append, None), None);
    assert_eq!(parts(&append, state(&fits, 0).as_ref()), None, "the result fits into a decision");
    assert_eq!(parts(&append, state(&longer, 0).as_ref()), Some([bytes(longer.as_bytes()), bytes(b"de")]));
    // A large value stays large.
    assert_eq!(parts(&append, large(2_000).as_ref()).map(|[before, _]| before), {
        Some(ValuePart::Large(Reference { name: OLD, length: 2_000, checksum: 7 }))
    });
    let reference = Reference { name: OLD, length: 5_000, checksum: 7 };
    let of_large = Some([ValuePart::Large(reference), bytes(b"de")]);
    assert_eq!(parts(&append, large(5_000).as_ref()), of_large);
    let absent = Update { condition: Condition::IfAbsent, ..append };
    assert_eq!(parts(&absent, large(5_000).as_ref()), None, "nothing is built if the condition fails");
    let suffix = Reference { name: OP, length: 2_000, checksum: 9 };
    let encoded = suffix.bytes();
    let large_append = update(Operation::AppendLarge(&encoded));
    let of_both = [ValuePart::Large(reference), ValuePart::Large(suffix)];
    assert_eq!(parts(&large_append, large(5_000).as_ref()), Some(of_both));
    assert_eq!(parts(&large_append, state("", 0).as_ref()), Some([bytes(b""), ValuePart::Large(suffix)]));
    assert_eq!(parts(&large_append, None), None, "the appended value is the result");
    assert_eq!(check(large_append, None, Effect::StorePrepared, Status::Ok).integer, 2_000);
    check(large_append, large(5_000), Effect::None, Status::ValueTooLong);
    let made = Reference { name: OP, length: 5_002, checksum: 8 };
    let verdict = Verdict::made(OP, made, large(5_000).as_ref());
    assert_eq!((verdict.integer, verdict.expiry_ms, verdict.version), (5_002, 5, OP));
    assert_eq!((verdict.value, verdict.form), (made.bytes(), Form::Large));
}

#[test]
fn hold_has_no_effect() {
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
fn expiry_conditions_treat_no_expiry_as_infinite() {
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

mod forms;
