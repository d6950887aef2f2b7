//! Keys of up to 1,024 bytes: a datagram has room for one of them and a short value.

use crate::cluster::{Redis, Up, nicekv, outcome};
use crate::large::text;

const KEY_BYTES: usize = 1_024;
/// One byte; the longest value that fits into a datagram with such a key, and one byte more; values
/// that fit with other keys; a large value.
const VALUES: [usize; 6] = [1, 256, 257, 400, 1_024, 1 << 20];
const KEYSPACES: [&str; 3] = [
    "quorums=replication=quorum,write-set=2",
    "chains=replication=chain",
    "ranges=partitioning=range,partitions=2",
];

/// A key of the maximum length. Keys with the same beginning differ in their last bytes only.
fn key(begin: &str, end: &str) -> String {
    format!("{begin}{}{end}", "-".repeat(KEY_BYTES - begin.len() - end.len()))
}

fn value(bytes: usize) -> String {
    text(bytes, bytes as u64)
}

fn select(up: &Up, keyspace: usize) -> Redis {
    let mut redis = up.redis();
    assert_eq!(redis.call(&["SELECT", &keyspace.to_string()]), "+OK");
    redis
}

#[track_caller]
fn gets(redis: &mut Redis, key: &str, value: &str) {
    assert!(redis.call(&["GET", key]) == format!("${value}"), "a value of {} bytes", value.len());
    assert_eq!(redis.call(&["STRLEN", key]), format!(":{}", value.len()));
}

/// Runs all commands on keys that a keyspace with primaries supports.
fn use_keys(redis: &mut Redis) {
    for bytes in VALUES {
        let (key, first) = (key("k", "1"), value(bytes));
        assert_eq!(redis.call(&["SET", &key, &first]), "+OK", "{bytes}");
        gets(redis, &key, &first);
        assert_eq!(redis.call(&["EXPIRE", &key, "1000"]), ":1", "{bytes}");
        assert_eq!(redis.call(&["APPEND", &key, "more"]), format!(":{}", bytes + 4));
        assert_ne!(redis.call(&["TTL", &key]), ":-1", "the expiry is kept");
        assert!(redis.call(&["GETSET", &key, &first]) == format!("${first}more"), "{bytes}");
        assert!(redis.call(&["SET", &key, "short", "GET"]) == format!("${first}"), "{bytes}");
        assert_eq!(redis.call(&["APPEND", &key, &first]), format!(":{}", bytes + 5));
        assert_eq!(redis.call(&["SET", &key, &first, "NX"]), "$-1");
        assert_eq!(redis.call(&["SET", &key, &first, "XX"]), "+OK");
        assert!(redis.call(&["GETDEL", &key]) == format!("${first}"), "{bytes}");
        assert_eq!(redis.call(&["DEL", &key]), ":0");
    }
    let counter = key("counter", "");
    assert_eq!(redis.call(&["INCRBY", &counter, "7"]), ":7");
    assert_eq!(redis.call(&["INCRBYFLOAT", &counter, "0.5"]), "$7.5");
    assert_eq!(redis.call(&["DEL", &counter]), ":1");
}

/// Puts values of these lengths; [`stay`] checks them.
fn fill(redis: &mut Redis, lengths: &[usize]) {
    for bytes in lengths {
        assert_eq!(redis.call(&["SET", &key("of", &bytes.to_string()), &value(*bytes)]), "+OK", "{bytes}");
    }
}

fn stay(redis: &mut Redis, lengths: &[usize]) {
    lengths.iter().for_each(|bytes| gets(redis, &key("of", &bytes.to_string()), &value(*bytes)));
}

#[test]
fn long_keys_work_in_all_kinds_of_keyspaces_and_survive_kill_minus_9() {
    let scratch = tempfile::tempdir().unwrap();
    let keyspaces: Vec<_> = KEYSPACES.iter().flat_map(|spec| ["--keyspace", spec]).collect();
    let arguments = [&["--data-dir", "data", "--nodes", "3", "--replicas", "3"], &keyspaces[..]].concat();
    let up = Up::start(scratch.path(), &arguments);
    use_keys(&mut up.redis());
    use_keys(&mut select(&up, 3));
    let in_chains = &VALUES[..5];
    for keyspace in [0, 1, 3] {
        fill(&mut select(&up, keyspace), &VALUES);
        stay(&mut select(&up, keyspace), &VALUES);
    }
    let mut chains = select(&up, 2);
    fill(&mut chains, in_chains);
    assert_eq!(chains.call(&["APPEND", &key("of", "1"), "23"]), ":3");
    assert_eq!(chains.call(&["SET", &key("of", "1"), &value(1)]), "+OK");
    up.kill();
    let up = Up::start(scratch.path(), &arguments);
    for keyspace in [0, 1, 3] {
        stay(&mut select(&up, keyspace), &VALUES);
        assert_eq!(select(&up, keyspace).call(&["DEL", &key("of", "400")]), ":1");
        assert_eq!(select(&up, keyspace).call(&["GET", &key("of", "400")]), "$-1");
    }
    stay(&mut select(&up, 2), in_chains);
}

#[test]
fn values_of_long_keys_in_chains_have_the_usual_limit() {
    let scratch = tempfile::tempdir().unwrap();
    let up = Up::start(scratch.path(), &["--engine", "memory", "--keyspace", KEYSPACES[1]]);
    let mut chains = select(&up, 1);
    let key = key("k", "");
    let limit = "-ERR value of 57345 bytes exceeds the limit of 57344 bytes";
    assert_eq!(chains.call(&["SET", &key, &value(57_345)]), limit);
    assert_eq!(chains.call(&["MSET", "other", "1", &key, &value(57_345)]), limit);
    assert_eq!(chains.call(&["EXISTS", &key, "other"]), ":0", "nothing is stored");
    for length in [256, 257, 57_343] {
        assert_eq!(chains.call(&["SET", &key, &value(length)]), "+OK");
        gets(&mut chains, &key, &value(length));
    }
    assert_eq!(chains.call(&["APPEND", &key, "x"]), ":57344");
    let appended = chains.call(&["APPEND", &key, "x"]);
    assert_eq!(appended, "-ERR value would exceed the limit of 57344 bytes");
    assert_eq!(chains.call(&["STRLEN", &key]), ":57344");
    let longer = format!("{key}x");
    let refused = "-ERR key of 1025 bytes exceeds the limit of 1024 bytes";
    assert_eq!(chains.call(&["SET", &longer, "1"]), refused);
    assert_eq!(up.redis().call(&["GET", &longer]), refused);
}

#[test]
fn commands_and_scans_support_long_keys() {
    let scratch = tempfile::tempdir().unwrap();
    let arguments = ["--engine", "memory", "--keyspace", KEYSPACES[2]];
    let up = Up::start(scratch.path(), &arguments);
    let run = |arguments: &[&str]| outcome(nicekv(scratch.path(), arguments));
    // Keys that differ in the last byte, and keys that begin at the borders of partitions and at
    // the ends of the key space.
    let begins = ["a", "a-b", "fruit:apple:of-the-garden", "\u{7f}", "\u{3c0}", "\u{10ffff}"];
    let mut keys: Vec<_> =
        begins.iter().flat_map(|begin| ["1", "2", "3"].map(|end| key(begin, end))).collect();
    keys.sort();
    for key in &keys {
        let put = run(&["put", key, &value(300), "--keyspace", "ranges"]);
        assert_eq!(put, (Some(0), String::new(), String::new()));
        assert_eq!(run(&["get", key, "--keyspace", "ranges"]).1, value(300));
    }
    let lines = |keys: &[String]| -> String {
        let escaped = |key: &String| {
            ["\u{7f}", "\u{10ffff}"]
                .iter()
                .fold(key.clone(), |key, one| key.replace(one, &one.escape_unicode().to_string()))
        };
        keys.iter().map(|key| escaped(key) + "\n").collect()
    };
    assert_eq!(run(&["scan", "--keyspace", "ranges"]).1, lines(&keys));
    let within = run(&["scan", &keys[2], &keys[9], "--keyspace", "ranges"]);
    assert_eq!(within.1, lines(&keys[2..=9]), "{}", within.2);
    let mut ranges = select(&up, 1);
    assert_eq!(ranges.call(&["DBSIZE"]), format!(":{}", keys.len()));
    assert_eq!(ranges.call(&["KEYS", "fruit*"]), "*3");
    let explained = run(&["explain", &keys[0], "--keyspace", "ranges"]);
    assert!(explained.0 == Some(0) && explained.1.contains("agree"), "{explained:?}");
    let (split, longer) = (&keys[5], format!("{}x", keys[5]));
    let told = run(&["partition", "split", "--key", split, "--keyspace", "ranges"]);
    assert_eq!(told.0, Some(0), "{}{}", told.1, told.2);
    assert_eq!(run(&["scan", "--keyspace", "ranges"]).1, lines(&keys));
    for command in
        [&["put", &longer, "1"][..], &["get", &longer], &["delete", &longer], &["explain", &longer]]
    {
        let (code, _, error) = run(command);
        assert!(code == Some(2) && error.contains("1024") && error.lines().count() == 1, "{error}");
    }
    for key in &keys {
        assert_eq!(run(&["delete", key, "--keyspace", "ranges"]).0, Some(0));
    }
    assert_eq!(run(&["scan", "--count", "--keyspace", "ranges"]).1, "0\n");
}

#[test]
fn long_keys_are_backed_up_and_restored() {
    let scratch = tempfile::tempdir().unwrap();
    let up = Up::start(scratch.path(), &["--engine", "memory"]);
    fill(&mut up.redis(), &VALUES);
    let run = |arguments: &[&str]| outcome(nicekv(scratch.path(), arguments));
    let told = run(&["backup", "file"]);
    assert_eq!(told.0, Some(0), "{}", told.2);
    up.kill();
    let up = Up::start(scratch.path(), &["--engine", "memory"]);
    let told = run(&["restore", "file"]);
    assert_eq!(told.0, Some(0), "{}", told.2);
    stay(&mut up.redis(), &VALUES);
}
