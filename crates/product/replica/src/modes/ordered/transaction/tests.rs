use super::*;
use crate::Scripts;
use nicekv_proto::large::Reference;
use nicekv_proto::{ClientId, Condition, Expiry, Form, KeyDigest, KeyspaceId, Operation};

const OP: OpId = OpId { client: ClientId(7), sequence: 3 };
const BEFORE: OpId = OpId { client: ClientId(1), sequence: 1 };

fn apply<'a>(key: &'a [u8], operation: Operation<'a>) -> Step<'a> {
    Step { key, act: Act::Apply { operation, condition: Condition::Always, return_old: false } }
}

fn set<'a>(key: &'a [u8], value: &'a [u8]) -> Step<'a> {
    apply(key, Operation::Set { value, expiry: Expiry::Never })
}

fn get(key: &[u8]) -> Step<'_> {
    Step { key, act: Act::Read }
}

fn encoded(steps: &[Step<'_>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    steps.iter().for_each(|step| step.append(&mut bytes));
    bytes
}

/// Runs steps on keys that have these values; all other keys are absent.
fn taken(steps: &[Step<'_>], values: &[(&str, &str)]) -> Verdict {
    let values: BTreeMap<&[u8], &[u8]> =
        values.iter().map(|(key, value)| (key.as_bytes(), value.as_bytes())).collect();
    taken_of(steps, |key| {
        let value = values.get(key)?.to_vec();
        Some(KeyValue { version: BEFORE, expiry_ms: 5, value, form: Form::Plain })
    })
}

fn taken_of(steps: &[Step<'_>], state: impl Fn(&[u8]) -> Option<KeyValue>) -> Verdict {
    let bytes = encoded(steps);
    let update = Update {
        keyspace: KeyspaceId(0),
        op: OP,
        digest: KeyDigest::default(),
        reply_to: None,
        watermark: 0,
        condition: Condition::Always,
        return_old: false,
        operation: Operation::Transaction(&bytes),
        key: steps[0].key,
    };
    let scripts = &Scripts::default();
    let runner = Runner { scripts, is_recovered: false };
    take_steps(&update, state, &runner).expect("there is no script")
}

/// The written keys with their new values; `None`: removed.
fn written(steps: &[Step<'_>], verdict: &Verdict) -> Vec<(String, Option<String>)> {
    let text = |bytes: &[u8]| String::from_utf8(bytes.into()).unwrap();
    let steps = encoded(steps);
    let entries = entries(&steps, &verdict.value, (9, OP));
    entries.iter().map(|(key, entry)| (text(key), entry.value.map(text))).collect()
}

#[test]
fn steps_see_earlier_effects_and_the_last_one_counts() {
    let steps = [
        apply(b"n", Operation::Increment(5)),
        get(b"n"),
        set(b"m", b"blue"),
        apply(b"n", Operation::Increment(1)),
        apply(b"m", Operation::Delete),
        get(b"m"),
        get(b"other"),
    ];
    let verdict = taken(&steps, &[("n", "10"), ("other", "o")]);
    assert_eq!((verdict.effect, verdict.status, verdict.version), (Effect::Transaction, Status::Ok, OP));
    let results: Vec<_> = Taken::each(&verdict.value)
        .map(|taken| (taken.status, taken.integer, taken.value_is_result.then_some(taken.value)))
        .collect();
    assert_eq!(
        results,
        [
            (Status::Ok, 15, None),
            (Status::Ok, 0, Some(&b"15"[..])),
            (Status::Ok, 0, None),
            (Status::Ok, 16, None),
            (Status::Ok, 0, None),
            (Status::NotFound, 0, None),
            (Status::Ok, 0, Some(b"o")),
        ]
    );
    assert_eq!(written(&steps, &verdict), [("n".into(), Some("16".into())), ("m".into(), None)]);
}

#[test]
fn failed_step_is_alone_and_failed_requirement_ends_all() {
    let steps = [set(b"a", b"1"), apply(b"text", Operation::Increment(1)), set(b"b", b"2")];
    let verdict = taken(&steps, &[("text", "x")]);
    let statuses: Vec<_> = Taken::each(&verdict.value).map(|taken| taken.status).collect();
    assert_eq!(statuses, [Status::Ok, Status::NotAnInteger, Status::Ok]);
    assert_eq!(written(&steps, &verdict).len(), 2);
    let require = |condition| Step { key: b"text", act: Act::Require(condition) };
    for (condition, holds) in [
        (Condition::IfVersion(BEFORE), true),
        (Condition::IfVersion(OpId::NONE), false),
        (Condition::IfPresent, true),
        (Condition::IfAbsent, false),
    ] {
        // Writes before the failed requirement are undone, too.
        let verdict = taken(&[set(b"a", b"1"), require(condition)], &[("text", "x")]);
        let expected =
            if holds { (Effect::Transaction, Status::Ok) } else { (Effect::None, Status::ConditionFailed) };
        assert_eq!((verdict.effect, verdict.status), expected, "{condition:?}");
        assert_eq!(verdict.value.is_empty(), !holds);
    }
}

#[test]
fn read_only_transaction_has_no_effect() {
    let verdict = taken(&[get(b"a"), get(b"b")], &[("a", "1")]);
    assert_eq!((verdict.effect, verdict.status), (Effect::None, Status::Ok));
    assert_eq!(Taken::each(&verdict.value).count(), 2);
}

#[test]
fn transaction_that_does_not_fit_a_decision_has_no_effect() {
    let long = "x".repeat(1_000);
    let steps: Vec<Step<'_>> = (0..61).map(|_| get(b"a")).chain([set(b"b", b"1")]).collect();
    let verdict = taken(&steps, &[("a", &long)]);
    assert_eq!((verdict.effect, verdict.status), (Effect::None, Status::ValueTooLong));
    assert_eq!(taken(&steps[2..], &[("a", &long)]).status, Status::Ok);
}

#[test]
fn transaction_names_a_large_value_that_it_does_not_write() {
    let value = Reference { name: BEFORE, length: 100_000, checksum: 7 }.bytes();
    let state = KeyValue { version: BEFORE, expiry_ms: 5, value: value.clone(), form: Form::Large };
    let of = |steps: &[Step<'_>]| {
        let verdict = taken_of(steps, |key| (key == b"large").then(|| state.clone()));
        let told: Vec<_> = Taken::each(&verdict.value)
            .map(|taken| (taken.status, taken.value_is_result.then_some((taken.form, taken.value.to_vec()))))
            .collect();
        (verdict.status, told)
    };
    let update = |operation, condition, return_old| Step {
        key: b"large",
        act: Act::Apply { operation, condition, return_old },
    };
    let expire = |return_old| {
        let (at_ms, condition) = (9, nicekv_proto::ExpireCondition::Always);
        update(Operation::Expire { at_ms, condition }, Condition::Always, return_old)
    };
    let named = (Status::Ok, Some((Form::Large, value.clone())));
    let done = (Status::Ok, None);
    assert_eq!(of(&[get(b"large"), set(b"other", b"x")]), (Status::Ok, vec![named.clone(), done.clone()]));
    // Changing the expiry keeps the same large value.
    assert_eq!(of(&[get(b"large"), expire(false)]), (Status::Ok, vec![named.clone(), done.clone()]));
    assert_eq!(of(&[expire(true), get(b"large")]), (Status::Ok, vec![named.clone(), named.clone()]));
    let new = Operation::Set { value: b"new", expiry: Expiry::Never };
    let refused = (Status::ConditionFailed, Some((Form::Large, value.clone())));
    assert_eq!(of(&[update(new, Condition::IfAbsent, true)]), (Status::Ok, vec![refused]));
    // The client could not read the value any more, so nothing is done.
    let nothing = (Status::ValueTooLong, Vec::new());
    let delete = || apply(b"large", Operation::Delete);
    assert_eq!(of(&[get(b"large"), delete()]), nothing);
    assert_eq!(of(&[get(b"large"), set(b"large", b"x"), expire(false)]), nothing);
    assert_eq!(of(&[delete(), get(b"large")]), (Status::Ok, vec![done.clone(), (Status::NotFound, None)]));
    // Only this step is refused.
    let pop = update(Operation::Delete, Condition::Always, true);
    let steps = [pop, set(b"other", b"x"), get(b"large")];
    assert_eq!(of(&steps), (Status::Ok, vec![(Status::ValueTooLong, None), done, named]));
}

#[test]
fn large_value_is_read_and_changed_like_any_other() {
    let long = vec![b'x'; 5_000];
    let step = |operation| apply(b"k", operation);
    let set = Operation::SetLong { value: &long, expiry: Expiry::Never };
    let steps = [step(set), step(Operation::Append(b"y")), get(b"k"), step(Operation::Increment(1))];
    let verdict = taken(&steps, &[]);
    let told: Vec<_> = Taken::each(&verdict.value)
        .map(|taken| (taken.status, taken.integer, taken.value_is_result.then_some(taken.value.len())))
        .collect();
    let expected = [
        (Status::Ok, 0, None),
        (Status::Ok, 5_001, None),
        (Status::Ok, 0, Some(5_001)),
        (Status::NotAnInteger, 0, None),
    ];
    assert_eq!(told, expected);
    let steps = encoded(&steps);
    let entries = entries(&steps, &verdict.value, (9, OP));
    let form_and_length = |entry: &Entry<'_>| (entry.form, entry.value.map(<[u8]>::len));
    let written: Vec<_> = entries.iter().map(|(_, entry)| form_and_length(entry)).collect();
    assert_eq!(written, [(Form::Long, Some(5_001))]);
}
