//! Tests of scripts; their keys are in a map.

mod attacks;
mod fuzz;

use super::*;
use nicekv_proto::transaction::Argument;
use nicekv_proto::{Condition, Expiry, Form, Operation, Status};
use nicekv_replica::ScriptTold;
use std::collections::BTreeMap;

/// Keys with plain values, which support just the operations that the tests need.
#[derive(Default)]
struct Keys {
    lent: Vec<Vec<u8>>,
    values: BTreeMap<Vec<u8>, (Vec<u8>, u64)>,
}

impl ScriptKeys for Keys {
    fn has(&self, key: &[u8]) -> bool {
        self.lent.iter().any(|lent| lent == key)
    }

    fn get(&self, key: &[u8]) -> ScriptTold {
        let found = self.values.get(key);
        ScriptTold {
            status: if found.is_some() { Status::Ok } else { Status::NotFound },
            value: found.map(|(value, _)| value.clone()),
            form: Form::Plain,
            expiry_ms: found.map_or(0, |(_, expiry_ms)| *expiry_ms),
            integer: 0,
        }
    }

    fn work_bytes(&self, key: &[u8]) -> usize {
        self.values.get(key).map_or(0, |(value, _)| value.len())
    }

    fn update(
        &mut self,
        key: &[u8],
        operation: &Operation<'_>,
        condition: Condition,
        return_old: bool,
    ) -> ScriptTold {
        let before = self.get(key);
        let mut told = ScriptTold { value: before.value.clone().filter(|_| return_old), ..before.clone() };
        if condition == Condition::IfAbsent && before.status == Status::Ok {
            return ScriptTold { status: Status::ConditionFailed, ..told };
        }
        let (value, expiry_ms) = (before.value.unwrap_or_default(), before.expiry_ms);
        let after = match operation {
            Operation::Set { value, expiry: Expiry::At(at_ms) } => Some((value.to_vec(), *at_ms)),
            Operation::Set { value, .. } => Some((value.to_vec(), 0)),
            Operation::Increment(delta) => {
                told.integer = String::from_utf8(value).unwrap().parse::<i64>().unwrap_or(0) + delta;
                Some((told.integer.to_string().into_bytes(), expiry_ms))
            }
            Operation::Expire { at_ms, .. } => Some((value, *at_ms)),
            Operation::Delete => None,
            // This test store does not implement the other operations; random programs may request
            // them.
            _ => return ScriptTold { status: Status::WrongType, value: None, ..told },
        };
        match after {
            Some(after) => drop(self.values.insert(key.to_vec(), after)),
            None => drop(self.values.remove(key)),
        }
        ScriptTold {
            status: if before.status == Status::Ok || told.integer > 0 {
                Status::Ok
            } else if *operation == Operation::Delete {
                Status::NotFound
            } else {
                Status::Ok
            },
            ..told
        }
    }
}

fn run_on(keys: &mut Keys, source: &str, arguments: &[&str]) -> ScriptEnd {
    let lent = keys.lent.clone();
    let declared: Vec<&[u8]> = lent.iter().map(Vec::as_slice).collect();
    let mut encoded = Vec::new();
    arguments.iter().for_each(|text| Argument { bytes: text.as_bytes() }.append(&mut encoded));
    let call = ScriptCall {
        unix_ms: 1_234_567_890_123,
        is_read_only: false,
        source: source.as_bytes(),
        keys: &declared,
        arguments: &encoded,
    };
    LuaScripts.run(&call, keys)
}

fn lent(names: &[&str]) -> Keys {
    Keys { lent: names.iter().map(|name| name.as_bytes().to_vec()).collect(), ..Keys::default() }
}

/// The reply to a script without keys.
fn reply(source: &str) -> String {
    String::from_utf8_lossy(&run_on(&mut lent(&[]), source, &["one", "two"]).reply).replace("\r\n", " ")
}

#[test]
fn returned_values_are_converted_as_in_redis() {
    for (source, expected) in [
        ("return 7", ":7 "),
        ("return 3.99", ":3 "),
        ("return -3.99", ":-3 "),
        ("return 'text'", "$4 text "),
        ("return true", ":1 "),
        ("return false", "$-1 "),
        ("return nil", "$-1 "),
        ("", "$-1 "),
        ("return {1, 'two', {3}, nil, 5}", "*3 :1 $3 two *1 :3 "),
        ("return {}", "*0 "),
        ("return {ok = 'fine'}", "+fine "),
        ("return {err = 'MY own'}", "-MY own "),
        ("return print", "x"),
        ("return {1, tostring, 2}", "*3 :1 $-1 :2 "),
        ("return ARGV", "*2 $3 one $3 two "),
        ("return #KEYS", ":0 "),
        ("return redis.status_reply('GOOD')", "+GOOD "),
        ("return redis.sha1hex('')", "$40 da39a3ee5e6b4b0d3255bfef95601890afd80709 "),
        ("return redis.call('time')", "*2 $10 1234567890 $6 123000 "),
        ("return {redis.call('ping'), redis.call('echo', 1.5)}", "*2 +PONG $3 1.5 "),
    ] {
        let found = reply(source);
        match expected {
            "x" => assert!(found.contains("nonexistent global variable 'print'"), "{found}"),
            _ => assert_eq!(found, expected, "{source}"),
        }
    }
}

#[test]
fn a_script_sees_its_own_writes_and_failures_are_reported() {
    let mut keys = lent(&["a", "b"]);
    let end = run_on(
        &mut keys,
        "redis.call('set', KEYS[1], ARGV[1]) return {redis.call('get', KEYS[1]), redis.call('incr', KEYS[2])}",
        &["hello"],
    );
    assert_eq!((end.reply.as_slice(), end.has_failed), (&b"*2\r\n$5\r\nhello\r\n:1\r\n"[..], false));
    let end = run_on(&mut keys, "redis.call('set', KEYS[1], 'x') error('no')", &[]);
    assert!(end.has_failed && end.reply.starts_with(b"-ERR user_script:1: no script: "), "{end:?}");
    let end = run_on(&mut keys, "return redis.call('get', 'foreign')", &[]);
    assert!(end.has_failed && end.reply.starts_with(b"-ERR Script attempted to access a non local key"));
    let end = run_on(&mut keys, "return redis.pcall('get', 'foreign')", &[]);
    assert!(!end.has_failed, "the script caught the error");
}

#[test]
fn commands_see_the_time_of_the_call() {
    let mut keys = lent(&["k"]);
    let source = "redis.call('set', KEYS[1], 'v', 'ex', 10) return redis.call('pttl', KEYS[1])";
    assert_eq!(run_on(&mut keys, source, &[]).reply, b":10000\r\n");
    assert_eq!(keys.values[&b"k"[..]].1, 1_234_567_890_123 + 10_000);
}
