//! Tests of hashes, and of operations on parts of plain values.

use super::*;
use nicekv_proto::hash::{Field, Name};
use nicekv_proto::limits::HASH_BYTES_MAX;

fn fields(of: &[(&str, &str)]) -> Vec<u8> {
    let mut out = Vec::new();
    of.iter().for_each(|(name, value)| {
        Field { name: name.as_bytes(), value: value.as_bytes() }.append(&mut out);
    });
    out
}

fn names(of: &[&str]) -> Vec<u8> {
    let mut out = Vec::new();
    of.iter().for_each(|name| Name { name: name.as_bytes() }.append(&mut out));
    out
}

fn hash(of: &[(&str, &str)]) -> Option<KeyValue> {
    Some(KeyValue { version: OLD, expiry_ms: 5, value: fields(of), form: Form::Hash })
}

fn set(fields: &[u8]) -> Update<'_> {
    update(Operation::SetFields { fields, only_new: false })
}

fn check_hash(verdict: &Verdict, of: &[(&str, &str)], integer: i64) {
    assert_eq!((verdict.form, verdict.integer), (Form::Hash, integer));
    assert_eq!(verdict.value, fields(of));
}

#[test]
fn fields_keep_their_first_places() {
    let added = fields(&[("b", "2"), ("a", "3"), ("b", "4")]);
    check_hash(&check(set(&added), None, Effect::Store, Status::Ok), &[("b", "4"), ("a", "3")], 2);
    let before = hash(&[("a", "1"), ("c", "")]);
    let verdict = check(set(&added), before.clone(), Effect::Store, Status::Ok);
    check_hash(&verdict, &[("a", "3"), ("c", ""), ("b", "4")], 1);
    assert_eq!((verdict.expiry_ms, verdict.version), (5, OP));
    let only_new = |fields| update(Operation::SetFields { fields, only_new: true });
    let added = fields(&[("a", "2")]);
    assert_eq!(check(only_new(&added), before.clone(), Effect::None, Status::Ok).integer, 0);
    let added = fields(&[("d", "2")]);
    let verdict = check(only_new(&added), before, Effect::Store, Status::Ok);
    check_hash(&verdict, &[("a", "1"), ("c", ""), ("d", "2")], 1);
}

#[test]
fn hash_without_fields_is_removed() {
    let remove = |names| update(Operation::RemoveFields(names));
    let (some, all) = (names(&["a", "a", "x"]), names(&["a", "b"]));
    let before = hash(&[("a", "1"), ("b", "2")]);
    check_hash(&check(remove(&some), before.clone(), Effect::Store, Status::Ok), &[("b", "2")], 1);
    let gone = check(remove(&all), before, Effect::Remove, Status::Ok);
    assert_eq!((gone.integer, gone.version), (2, OpId::NONE));
    assert_eq!(check(remove(&some), hash(&[("b", "2")]), Effect::None, Status::Ok).integer, 0);
    check(remove(&some), None, Effect::None, Status::NotFound);
}

#[test]
fn numbers_in_fields_are_strict_and_bounded() {
    let by = |delta| update(Operation::IncrementField { name: b"n", delta });
    check_hash(&check(by(-2), None, Effect::Store, Status::Ok), &[("n", "-2")], -2);
    let verdict = check(by(3), hash(&[("m", "x"), ("n", "4")]), Effect::Store, Status::Ok);
    check_hash(&verdict, &[("m", "x"), ("n", "7")], 7);
    check(by(1), hash(&[("n", "1.0")]), Effect::None, Status::NotAnInteger);
    check(by(1), hash(&[("n", "9223372036854775807")]), Effect::None, Status::Overflow);
    let delta = |text: &str| Field::with_delta(b"n", LongDouble::parse(text.as_bytes()).unwrap());
    let half = delta("0.5");
    let by_float = update(Operation::IncrementFieldFloat(&half));
    let verdict = check(by_float, hash(&[("n", "10.25"), ("m", "")]), Effect::Store, Status::Ok);
    check_hash(&verdict, &[("n", "10.75"), ("m", "")], 0);
    assert!(verdict.value_is_result, "the result is the hash that contains the sum");
    check(by_float, hash(&[("n", "ten")]), Effect::None, Status::NotAFloat);
    let infinite = delta("inf");
    check(update(Operation::IncrementFieldFloat(&infinite)), None, Effect::None, Status::Overflow);
}

#[test]
fn hash_has_a_length_limit() {
    let limit = HASH_BYTES_MAX;
    let beside = fields(&[("a", "")]).len() + fields(&[("b", "")]).len();
    let of = |bytes| "x".repeat(bytes);
    let before = hash(&[("a", &of(limit / 2))]);
    let (fits, longer) = (of(limit - beside - limit / 2), of(limit - beside - limit / 2 + 1));
    let (fits, longer) = (fields(&[("b", &fits)]), fields(&[("b", &longer)]));
    let verdict = check(set(&fits), before.clone(), Effect::Store, Status::Ok);
    assert_eq!((verdict.value.len(), verdict.integer), (limit, 1));
    let refused = check(set(&longer), before, Effect::None, Status::ValueTooLong);
    assert_eq!((refused.integer, refused.version), (0, OLD));
}

#[test]
fn operation_of_another_type_is_refused() {
    let (some, names) = (fields(&[("a", "1")]), names(&["a"]));
    let half = Field::with_delta(b"a", LongDouble::parse(b"0.5").unwrap());
    let of_hashes = [
        Operation::SetFields { fields: &some, only_new: false },
        Operation::RemoveFields(&names),
        Operation::IncrementField { name: b"a", delta: 1 },
        Operation::IncrementFieldFloat(&half),
    ];
    let suffix = Reference { name: OP, length: 2_000, checksum: 9 }.bytes();
    let of_plain = [
        Operation::Increment(1),
        by_float("0.5"),
        Operation::Append(b"b"),
        Operation::AppendLarge(&suffix),
        Operation::SetBit { offset: 1, bit: true },
        Operation::SetRange { offset: 1, bytes: b"b" },
    ];
    for (operations, others) in [
        (&of_hashes[..], [state("1", 0), large(5_000)]),
        (&of_plain[..], [hash(&[("a", "1")]), hash(&[("1", "")])]),
    ] {
        for (operation, other) in
            operations.iter().flat_map(|one| others.iter().map(move |other| (one, other)))
        {
            let update = Update { return_old: true, ..update(*operation) };
            let verdict = check(update, other.clone(), Effect::None, Status::WrongType);
            assert_eq!((verdict.version, verdict.value_is_result), (OLD, false));
            assert_eq!(parts(&update, other.as_ref()), None);
        }
    }
}

#[test]
fn hash_is_not_returned_as_old_value() {
    let (before, new) = (hash(&[("a", "1")]), fields(&[("b", "2")]));
    let set = Operation::Set { value: b"new", expiry: Expiry::Keep };
    let expire = Operation::Expire { at_ms: 9, condition: ExpireCondition::Always };
    let set_hash = Operation::SetHash { fields: &new, expiry: Expiry::Never };
    for (operation, effect) in [
        (set, Effect::StorePrepared),
        (set_hash, Effect::StorePrepared),
        (Operation::Delete, Effect::Remove),
        (expire, Effect::Store),
        (Operation::Persist, Effect::Store),
    ] {
        let verdict = check(update(operation), before.clone(), effect, Status::Ok);
        if effect == Effect::Store {
            assert_eq!((verdict.form, verdict.value), (Form::Hash, before.clone().unwrap().value));
        }
        let telling = Update { return_old: true, ..update(operation) };
        check(telling, before.clone(), Effect::None, Status::WrongType);
    }
    let absent = Update { condition: Condition::IfAbsent, ..update(set_hash) };
    check(absent, before, Effect::None, Status::ConditionFailed);
    check(absent, None, Effect::StorePrepared, Status::Ok);
}

#[test]
fn set_bit_works_inside_and_behind_the_value() {
    let set = |offset, bit| update(Operation::SetBit { offset, bit });
    let after = |offset, bit, before: Option<KeyValue>| {
        let verdict = check(set(offset, bit), before, Effect::Store, Status::Ok);
        (verdict.value, verdict.integer)
    };
    assert_eq!(after(7, true, None), (b"\x01".to_vec(), 0));
    assert_eq!(after(9, false, None), (b"\0\0".to_vec(), 0));
    assert_eq!(after(1, false, state("a", 7)), (b"!".to_vec(), 1));
    assert_eq!(after(1, true, state("a", 7)), (b"a".to_vec(), 1));
    assert_eq!(check(set(0, true), state("a", 7), Effect::Store, Status::Ok).expiry_ms, 7);
    let bits = LONG_VALUE_BYTES_MAX as u32 * 8;
    assert_eq!(after(bits - 1, true, None).0.len(), LONG_VALUE_BYTES_MAX);
    check(set(bits, true), state("a", 7), Effect::None, Status::ValueTooLong);
    check(set(u32::MAX, true), None, Effect::None, Status::ValueTooLong);
    check(set(0, true), large(5_000), Effect::None, Status::ValueTooLong);
}

#[test]
fn set_range_overwrites() {
    let set = |offset, bytes| update(Operation::SetRange { offset, bytes });
    let after = |offset, bytes, before: Option<KeyValue>| {
        let verdict = check(set(offset, bytes), before, Effect::Store, Status::Ok);
        assert_eq!(verdict.integer, verdict.value.len() as i64);
        verdict.value
    };
    assert_eq!(after(1, b"xy", state("abcd", 0)), b"axyd");
    assert_eq!(after(3, b"xy", state("abcd", 0)), b"abcxy");
    assert_eq!(after(2, b"x", None), b"\0\0x");
    assert_eq!(check(set(9, b""), state("abcd", 0), Effect::None, Status::Ok).integer, 4);
    assert_eq!(check(set(9, b""), large(5_000), Effect::None, Status::Ok).integer, 5_000);
    assert_eq!(check(set(9, b""), None, Effect::None, Status::Ok).integer, 0);
    assert_eq!(after(LONG_VALUE_BYTES_MAX as u32 - 1, b"x", None).len(), LONG_VALUE_BYTES_MAX);
    check(set(LONG_VALUE_BYTES_MAX as u32, b"x"), None, Effect::None, Status::ValueTooLong);
    check(set(u32::MAX, b"x"), None, Effect::None, Status::ValueTooLong);
    check(set(0, b"x"), large(5_000), Effect::None, Status::ValueTooLong);
}
