//! Values of every size, and commands of every family, in every kind of keyspace: each works, or is
//! refused with its reason. Every command gets a reply.

use crate::cluster::{Redis, Up};
use crate::large::text;
use crate::matrix_table::{Is, KINDS, LONG_VALUE_BYTES_MAX, SIZE_MAX, check_sizes, keyspace_arguments};
use std::collections::HashMap;
use std::time::{Duration, Instant};

fn start(scratch: &std::path::Path) -> Up {
    let keyspaces = keyspace_arguments();
    let keyspaces = keyspaces.iter().map(String::as_str);
    Up::start(scratch, &["--engine", "memory"].into_iter().chain(keyspaces).collect::<Vec<_>>())
}

fn in_keyspace(up: &Up, number: usize) -> Redis {
    let mut redis = up.redis();
    assert_eq!(redis.call(&["SELECT", &number.to_string()]), "+OK");
    redis
}

#[test]
fn values_of_all_sizes_in_all_kinds_of_keyspaces() {
    let scratch = tempfile::tempdir().unwrap();
    let up = start(scratch.path());
    let all = text(SIZE_MAX, 7);
    std::thread::scope(|scope| {
        for (number, kind) in KINDS.iter().enumerate() {
            let (mut redis, all) = (in_keyspace(&up, number), &all);
            scope.spawn(move || {
                check_sizes(kind, all, |command| {
                    let reply = redis.call(command);
                    match reply.strip_prefix('-') {
                        Some(error) => Err(error.to_owned()),
                        None => Ok(reply[1..].to_owned()),
                    }
                });
            });
        }
    });
    assert_eq!(up.interrupt(), Some(0));
}

#[test]
fn hot_keys_may_have_long_values() {
    let scratch = tempfile::tempdir().unwrap();
    let up = start(scratch.path());
    let hot = KINDS.iter().position(|kind| kind.is == Is::Hot).expect("KINDS has a hot keyspace");
    let mut redis = in_keyspace(&up, hot);
    let long = text(5_000, 3);
    assert_eq!(redis.call(&["APPEND", "a", &long]), ":5000");
    assert_eq!(redis.call(&["APPEND", "a", &long]), ":10000");
    assert!(redis.call(&["GETSET", "a", &long]) == format!("${long}{long}"));
    assert_eq!(redis.call(&["HSET", "h", "field", &long]), ":1");
    assert!(redis.call(&["HGET", "h", "field"]) == format!("${long}"));
    assert_eq!(redis.call(&["SETRANGE", "a", "1", &long[1..]]), ":5000");
    assert!(redis.call(&["GETDEL", "a"]) == format!("${long}"));
    assert_eq!(up.interrupt(), Some(0));
}

/// The reply to a command, and how it differs in some kinds of keyspaces.
struct Row {
    command: &'static [&'static str],
    /// The reply, with the elements of an array. If it ends with `…`, only its beginning is
    /// compared.
    reply: &'static str,
    in_quorum: Otherwise,
    in_hot: Otherwise,
}

#[derive(Clone, Copy)]
enum Otherwise {
    Same,
    Reply(&'static str),
    /// An error that contains this text.
    Refused(&'static str),
}

use Otherwise::{Refused, Reply, Same};

const PRIMARY: Otherwise = Refused("needs a primary");
const OF_HOT: Otherwise = Refused("hot keys");

const fn row(
    command: &'static [&'static str],
    reply: &'static str,
    in_quorum: Otherwise,
    in_hot: Otherwise,
) -> Row {
    Row { command, reply, in_quorum, in_hot }
}

/// Executed in this order: later rows depend on earlier ones.
#[rustfmt::skip]
const ROWS: &[Row] = &[
    row(&["SET", "{m}s", "abc"], "+OK", Same, Same),
    row(&["GET", "{m}s"], "$abc", Same, Same),
    row(&["STRLEN", "{m}s"], ":3", Same, Same),
    row(&["GETRANGE", "{m}s", "1", "2"], "$bc", Same, Same),
    row(&["SETNX", "{m}s", "x"], ":0", PRIMARY, Same),
    row(&["APPEND", "{m}s", "d"], ":4", PRIMARY, Same),
    row(&["SETRANGE", "{m}s", "0", "z"], ":4", PRIMARY, Same),
    row(&["GETSET", "{m}s", "abc"], "$zbcd", PRIMARY, Same),
    row(&["GETEX", "{m}s", "EX", "100"], "$abc", PRIMARY, Same),
    row(&["GETDEL", "{m}s"], "$abc", PRIMARY, Same),
    row(&["MSET", "{m}a", "1", "{m}b", "2"], "+OK", Same, Same),
    row(&["MGET", "{m}a", "{m}b"], "*[$1,$2]", Same, Same),
    row(&["EXISTS", "{m}a", "{m}b", "{m}c"], ":2", Same, Same),
    row(&["TOUCH", "{m}a"], ":1", Same, Same),
    row(&["MSETNX", "{m}a", "9", "{m}d", "9"], ":0", PRIMARY, OF_HOT),
    row(&["DEL", "{m}b"], ":1", Same, Same),
    row(&["UNLINK", "{m}b"], ":0", Same, Same),
    row(&["INCR", "{m}n"], ":1", PRIMARY, Same),
    row(&["DECRBY", "{m}n", "3"], ":-2", PRIMARY, Same),
    row(&["INCRBYFLOAT", "{m}n", "0.5"], "$-1.5", PRIMARY, Same),
    row(&["SETBIT", "{m}bits", "7", "1"], ":0", PRIMARY, Same),
    row(&["GETBIT", "{m}a", "3"], ":1", Same, Same),
    row(&["BITCOUNT", "{m}a"], ":3", Same, Same),
    row(&["BITPOS", "{m}a", "1"], ":2", Same, Same),
    row(&["HSET", "{m}h", "f", "v"], ":1", PRIMARY, Same),
    row(&["HGET", "{m}h", "f"], "$v", Reply("$-1"), Same),
    row(&["HINCRBY", "{m}h", "n", "2"], ":2", PRIMARY, Same),
    row(&["HLEN", "{m}h"], ":2", Reply(":0"), Same),
    row(&["HDEL", "{m}h", "f"], ":1", PRIMARY, Same),
    row(&["HGETALL", "{m}h"], "*[$n,$2]", Reply("*[]"), Same),
    row(&["EXPIRE", "{m}a", "1000"], ":1", PRIMARY, Same),
    row(&["TTL", "{m}a"], ":1000", Reply(":-1"), Same),
    row(&["PERSIST", "{m}a"], ":1", PRIMARY, Same),
    row(&["TYPE", "{m}a"], "+string", Same, Same),
    row(&["RENAME", "{m}a", "{m}z"], "+OK", PRIMARY, OF_HOT),
    row(&["COPY", "{m}z", "{m}a"], ":1", Reply(":0"), Reply(":0")),
    row(&["OBJECT", "ENCODING", "{m}a"], "$int", Same, Same),
    row(&["DUMP", "{m}a"], "$…", Same, Same),
    row(&["SCAN", "0", "MATCH", "{m}none"], "*[…", PRIMARY, Same),
    row(&["KEYS", "{m}none"], "*[]", PRIMARY, Same),
    row(&["RANDOMKEY"], "$…", PRIMARY, Same),
    row(&["DBSIZE"], ":…", PRIMARY, Same),
    row(&["EVAL", "return redis.call('GET', KEYS[1])", "1", "{m}a"], "$1", PRIMARY, OF_HOT),
    row(&["PUBLISH", "channel", "message"], ":0", Same, Same),
    row(&["PUBSUB", "NUMPAT"], ":0", Same, Same),
    row(&["WATCH", "{m}a"], "+OK", Same, Same),
    row(&["UNWATCH"], "+OK", Same, Same),
];

fn check(reply: &str, expected: &str, of: &str) {
    match expected.strip_suffix('…') {
        Some(begin) => assert!(reply.starts_with(begin) && !reply.starts_with("$-1"), "{of}: {reply}"),
        None => assert_eq!(reply, expected, "{of}"),
    }
}

#[test]
fn commands_of_all_families_in_all_kinds_of_keyspaces() {
    let scratch = tempfile::tempdir().unwrap();
    let up = start(scratch.path());
    for (number, kind) in KINDS.iter().enumerate() {
        let mut redis = in_keyspace(&up, number);
        for Row { command, reply, in_quorum, in_hot } in ROWS {
            let of = format!("{command:?} in {}", kind.spec);
            let otherwise = match kind.is {
                Is::Quorum => *in_quorum,
                Is::Hot => *in_hot,
                Is::Plain | Is::Chain => Same,
            };
            let got = redis.call_for_all(command);
            match otherwise {
                Same => check(&got, reply, &of),
                Reply(other) => check(&got, other, &of),
                Refused(reason) => assert!(got.starts_with('-') && got.contains(reason), "{of}: {got}"),
            }
        }
        let replies = [&["MULTI"][..], &["SET", "{m}t", "1"], &["GET", "{m}t"], &["EXEC"]]
            .map(|command| redis.call_for_all(command));
        let of = format!("a transaction in {}: {replies:?}", kind.spec);
        let reason = match kind.is {
            Is::Plain | Is::Chain => None,
            Is::Quorum => Some("needs a primary"),
            Is::Hot => Some("hot keys"),
        };
        match reason {
            None => assert_eq!(replies[3], "*[+OK,$1]", "{of}"),
            Some(reason) => {
                assert!(replies.iter().any(|reply| reply.contains(reason)), "{of}");
                assert!(replies[3].starts_with('-'), "{of}");
            }
        }
        assert_eq!(redis.call(&["PING"]), "+PONG", "{of}");
    }
    assert_eq!(up.interrupt(), Some(0));
}

/// Connections per keyspace that send commands at the same time.
const CONNECTIONS: usize = 12;
const ROUNDS: usize = 4;
/// A value that is read whole; one that is read in chunks; one so large that connections wait for
/// memory.
const SHARED_BYTES: [usize; 3] = [1_000, 5_000, 300_000];

/// Many connections read the same values in one turn, run commands of all families in between, and
/// close their sending side after the last command.
#[test]
fn every_command_is_answered_under_concurrency() {
    let scratch = tempfile::tempdir().unwrap();
    let up = start(scratch.path());
    let mut commands: HashMap<usize, Vec<Vec<String>>> = HashMap::new();
    for (number, kind) in KINDS.iter().enumerate() {
        let mut redis = in_keyspace(&up, number);
        let sizes = SHARED_BYTES.iter().filter(|size| kind.is != Is::Chain || **size < LONG_VALUE_BYTES_MAX);
        let mut reads = Vec::new();
        for size in sizes {
            let key = format!("shared-{size}");
            assert_eq!(redis.call(&["SET", &key, &text(*size, 5)]), "+OK", "{}", kind.spec);
            for command in
                [&["GET", &key][..], &["STRLEN", &key], &["MGET", &key, &key], &["GETRANGE", &key, "0", "9"]]
            {
                reads.push(command.iter().map(|word| (*word).to_owned()).collect());
            }
        }
        let others = ROWS.iter().map(|row| row.command.iter().map(|word| (*word).to_owned()).collect());
        commands.insert(number, reads.into_iter().chain(others).collect());
    }
    std::thread::scope(|scope| {
        for number in 0..KINDS.len() * CONNECTIONS {
            let kind = number % KINDS.len();
            let (mut redis, commands) = (in_keyspace(&up, kind), &commands[&kind]);
            scope.spawn(move || {
                let mut sent = 0;
                for _ in 0..ROUNDS {
                    for command in commands {
                        redis.send(&command.iter().map(String::as_str).collect::<Vec<_>>()).unwrap();
                    }
                    sent += commands.len();
                }
                redis.end_sending();
                let mut replies = 0;
                while let Some(reply) = redis.next_reply().unwrap_or_else(|error| {
                    let command = &commands[replies % commands.len()];
                    panic!("{}: {replies} of {sent} replies, then {error}: {command:?}", KINDS[kind].spec)
                }) {
                    let command = &commands[replies % commands.len()];
                    assert!(!reply.contains("outcome unknown"), "{}: {command:?}: {reply}", KINDS[kind].spec);
                    replies += 1;
                }
                assert_eq!(replies, sent, "replies in {}", KINDS[kind].spec);
            });
        }
    });
    let until = Instant::now() + Duration::from_secs(10);
    let mut redis = up.redis();
    while !redis.call(&["INFO", "clients"]).contains("connected_clients:1\r\n") {
        assert!(Instant::now() < until, "connections stay: {}", redis.call(&["INFO", "clients"]));
        std::thread::yield_now();
    }
    assert_eq!(up.interrupt(), Some(0));
}
