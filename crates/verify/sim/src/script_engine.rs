//! A script engine with a few built-in programs, chosen by name. Each does what [`Program`] says
//! with the keys that a node lends. Some are not finished when they are first polled.

use crate::checker::program::Program;
use nicekv_proto::number::parse_integer;
use nicekv_proto::{Condition, Expiry, Operation};
use nicekv_replica::{ScriptCall, ScriptEnd, ScriptEngine, ScriptRun, ScriptStates};

/// Number of polls after which every program has ended.
const QUESTIONS_MAX: u64 = 4;

pub(crate) struct Programs;

/// The source text by which a program is chosen.
pub(crate) fn source(program: Program) -> &'static [u8] {
    match program {
        Program::Copy => b"copy",
        Program::Count => b"count",
        Program::Fail => b"fail",
    }
}

impl ScriptEngine for Programs {
    fn run(&self, run: &ScriptRun, call: &ScriptCall<'_>, keys: &mut dyn ScriptStates) -> Option<ScriptEnd> {
        let has_ended = u64::from(run.asked) >= run.op.sequence % QUESTIONS_MAX;
        has_ended.then(|| ended(call, keys))
    }
}

fn ended(call: &ScriptCall<'_>, keys: &mut dyn ScriptStates) -> ScriptEnd {
    let &[from, to] = call.keys else { panic!("{call:?}") };
    assert!(keys.has(from) && keys.has(to) && !call.is_read_only);
    let value = keys.get(from).value;
    let mut change = |key: &[u8], operation: Operation<'_>| {
        keys.update(key, &operation, Condition::Always, false);
    };
    let set = |value| Operation::Set { value, expiry: Expiry::Never };
    let has_failed = call.source == b"fail";
    let reply = match (call.source, value) {
        (b"copy", Some(value)) => {
            change(to, set(&value));
            [format!("${}\r\n", value.len()).as_bytes(), &value, b"\r\n"].concat()
        }
        (b"copy", None) => {
            change(to, Operation::Delete);
            b"$-1\r\n".to_vec()
        }
        (b"count", value) => {
            let count = value.map_or(Some(0), |value| parse_integer(&value));
            match count.filter(|count| *count < Program::LIMIT) {
                Some(count) => {
                    change(from, Operation::Increment(1));
                    change(to, set(call.unix_ms.to_string().as_bytes()));
                    format!(":{}\r\n", count + 1).into_bytes()
                }
                None => b":-1\r\n".to_vec(),
            }
        }
        _ => {
            change(to, set(b"of a script that failed"));
            b"-ERR it fails\r\n".to_vec()
        }
    };
    ScriptEnd { reply, has_failed, may_differ: false }
}
