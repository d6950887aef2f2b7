use super::*;
use crate::modes::ordered::transaction::{entries, take_steps};
use crate::{ScriptEnd, ScriptEngine, ScriptKeys, ScriptRun, ScriptStates, ScriptTold};
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec;
use nicekv_proto::limits::LONG_VALUE_BYTES_MAX;
use nicekv_proto::transaction::{Act, Step, Taken};
use nicekv_proto::{ClientId, Condition, Expiry, Form, KeyDigest, KeyspaceId, OpId, Operation};

const OP: OpId = OpId { client: ClientId(7), sequence: 3 };
const NOW_MS: u64 = 1_000;

/// A script engine that runs a Rust function in place of a script.
struct Does(fn(&ScriptCall<'_>, &mut dyn ScriptKeys) -> ScriptEnd);

impl ScriptEngine for Does {
    fn run(&self, _: &ScriptRun, call: &ScriptCall<'_>, keys: &mut dyn ScriptStates) -> Option<ScriptEnd> {
        Some((self.0)(call, keys))
    }
}

fn done(reply: &[u8]) -> ScriptEnd {
    ScriptEnd { reply: reply.to_vec(), ..ScriptEnd::default() }
}

fn set(keys: &mut dyn ScriptKeys, key: &[u8], value: &[u8], expiry: Expiry) -> ScriptTold {
    keys.update(key, &Operation::Set { value, expiry }, Condition::Always, true)
}

fn declare(key: &[u8]) -> Step<'_> {
    Step { key, act: Act::Declare }
}

const RUN: Step<'static> = Step {
    key: b"a",
    act: Act::Run { unix_ms: NOW_MS, is_read_only: false, source: b"source", arguments: b"" },
};

/// Written keys with their new values; `None`: removed.
type Written = Vec<(String, Option<String>)>;

/// Runs steps on `a`, which has the value "1", and `b`, which has a large value. Returns the
/// verdict, the results of the steps, and the written keys.
fn taken(scripts: &Scripts, steps: &[Step<'_>]) -> (Verdict, Vec<String>, Written) {
    let mut bytes = Vec::new();
    steps.iter().for_each(|step| step.append(&mut bytes));
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
    let state = |key: &[u8]| {
        let (value, form) = match key {
            b"a" => (b"1".to_vec(), Form::Plain),
            b"b" => (vec![7; 28], Form::Large),
            _ => return None,
        };
        Some(KeyValue { version: OpId::NONE, expiry_ms: 0, value, form })
    };
    let runner = Runner { scripts, is_recovered: false };
    let verdict = take_steps(&update, state, &runner).expect("ended");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let results = Taken::each(&verdict.value).filter(|taken| taken.value_is_result);
    let results = results.map(|taken| text(taken.value)).collect();
    let entries = entries(&bytes, &verdict.value, (9, OP));
    let written = entries.iter().map(|(key, entry)| (text(key), entry.value.map(text))).collect();
    drop(entries);
    (verdict, results, written)
}

fn by(does: fn(&ScriptCall<'_>, &mut dyn ScriptKeys) -> ScriptEnd) -> Scripts {
    Scripts::new(Arc::new(Does(does)))
}

#[test]
fn script_changes_become_effects_and_later_steps_see_them() {
    let scripts = by(|call, keys| {
        assert_eq!(
            (call.keys, call.unix_ms, call.source),
            (&[&b"a"[..], b"c", b"d"][..], NOW_MS, &b"source"[..])
        );
        assert!(keys.has(b"c") && !keys.has(b"foreign"));
        assert_eq!(keys.get(b"a").value.as_deref(), Some(&b"1"[..]));
        assert_eq!(set(keys, b"c", b"first", Expiry::Never).value, None);
        assert_eq!(set(keys, b"c", b"then", Expiry::Never).value.as_deref(), Some(&b"first"[..]));
        assert_eq!(keys.update(b"a", &Operation::Delete, Condition::Always, false).status, Status::Ok);
        assert_eq!(keys.get(b"a").status, Status::NotFound);
        done(b"+OK\r\n")
    });
    let read = Step { key: b"c", act: Act::Read };
    let (verdict, results, written) =
        taken(&scripts, &[declare(b"a"), declare(b"c"), declare(b"d"), RUN, read]);
    assert_eq!((verdict.status, verdict.effect), (Status::Ok, Effect::Transaction));
    assert_eq!(results, ["+OK\r\n", "then"]);
    assert_eq!(written, [("a".into(), None), ("c".into(), Some("then".into()))]);
    assert_eq!(Taken::each(&verdict.value).count(), 5, "each step has a result");
}

#[test]
fn failed_script_has_no_effect_and_other_steps_count() {
    let scripts = by(|_, keys| {
        set(keys, b"a", b"lost", Expiry::Never);
        ScriptEnd { reply: b"-ERR it fails\r\n".to_vec(), has_failed: true, may_differ: false }
    });
    let add =
        Act::Apply { operation: Operation::Increment(1), condition: Condition::Always, return_old: false };
    let (_, results, written) = taken(&scripts, &[declare(b"a"), RUN, Step { key: b"a", act: add }]);
    assert_eq!(results, ["-ERR it fails\r\n"]);
    assert_eq!(written, [("a".into(), Some("2".into()))]);
    let (verdict, results, written) = taken(&Scripts::default(), &[declare(b"a"), RUN]);
    assert_eq!(
        (verdict.effect, results, written),
        (Effect::None, vec!["-ERR this node runs no scripts\r\n".into()], vec![])
    );
}

#[test]
fn script_gets_its_own_declared_keys_only() {
    let scripts = by(|call, keys| {
        let told = set(keys, b"a", b"2", Expiry::Never);
        assert_eq!(told.status == Status::Ok, call.keys.contains(&&b"a"[..]));
        done(b"$-1\r\n")
    });
    let read = Step { key: b"c", act: Act::Read };
    let (_, results, written) =
        taken(&scripts, &[declare(b"a"), RUN, RUN, declare(b"a"), read, declare(b"c"), RUN]);
    assert_eq!(results.len(), 3);
    assert_eq!(written, [("a".into(), Some("2".into()))]);
}

#[test]
fn script_sees_no_expired_values_and_no_large_ones() {
    let scripts = by(|_, keys| {
        set(keys, b"a", b"brief", Expiry::At(NOW_MS));
        assert_eq!(keys.get(b"a").status, Status::NotFound);
        let told = set(keys, b"b", b"small", Expiry::Never);
        assert_eq!((told.status, told.value), (Status::ValueTooLong, None));
        assert_eq!(keys.get(b"b").form, Form::Large, "a large value stays unchanged");
        done(b"$-1\r\n")
    });
    let (_, _, written) = taken(&scripts, &[declare(b"a"), declare(b"b"), RUN]);
    assert_eq!(written, [("a".into(), None)]);
}

#[test]
fn result_that_does_not_fit_has_no_effect() {
    let scripts = by(|_, keys| {
        set(keys, b"a", b"2", Expiry::Never);
        done(&[b'x'; TRANSACTION_BYTES_MAX + 1])
    });
    let (verdict, _, written) = taken(&scripts, &[declare(b"a"), RUN]);
    assert!(written.is_empty() && verdict.effect == Effect::None, "{:?}", verdict.status);
}

#[test]
fn value_up_to_the_limit_is_written_and_a_longer_one_refused() {
    let scripts = by(|_, keys| {
        assert_eq!(set(keys, b"a", &[b'x'; 5_000], Expiry::Never).status, Status::Ok);
        let longer = vec![b'y'; LONG_VALUE_BYTES_MAX + 1];
        assert_eq!(set(keys, b"a", &longer, Expiry::Never).status, Status::ValueTooLong);
        done(b"")
    });
    let (verdict, _, written) = taken(&scripts, &[declare(b"a"), RUN]);
    assert_eq!(written, [("a".into(), Some("x".repeat(5_000)))]);
    assert_eq!(Taken::each(&verdict.value).next().map(|taken| taken.form), Some(Form::Long));
}
