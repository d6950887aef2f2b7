//! `nicekv up --replication quorum` (R14), through the real binary.

use crate::cluster::{Up, nicekv, outcome};
use crate::refusals::refused;

const QUORUM: [&str; 6] = ["--data-dir", "data", "--replication", "quorum", "--write-set", "2"];

#[test]
fn quorum_supports_only_commands_without_a_primary() {
    let scratch = tempfile::tempdir().unwrap();
    let up =
        Up::start(scratch.path(), &["--engine", "memory", "--replication", "quorum", "--write-set", "2"]);
    let mut redis = up.redis();
    assert_eq!(redis.call(&["GET", "color"]), "$-1");
    assert_eq!(redis.call(&["SET", "color", "blue"]), "+OK");
    assert_eq!(redis.call(&["SET", "color", "green"]), "+OK");
    assert_eq!(redis.call(&["GET", "color"]), "$green");
    assert_eq!(redis.call(&["EXISTS", "color", "shape"]), ":1");
    assert_eq!(redis.call(&["STRLEN", "color"]), ":5");
    assert_eq!(redis.call(&["DEL", "color", "shape"]), ":1");
    assert_eq!(redis.call(&["GET", "color"]), "$-1");
    for (command, reason) in [
        (&["INCR", "visits"][..], "an increment"),
        (&["APPEND", "color", "ish"], "an append"),
        (&["SET", "color", "red", "NX"], "a condition"),
        (&["SET", "color", "red", "EX", "10"], "an expiry time"),
        (&["GETSET", "color", "red"], "returning the old value"),
        (&["EXPIRE", "color", "10"], "an expiry time"),
    ] {
        let reply = redis.call(command);
        let expected = format!("-ERR {reason} needs a primary, and this keyspace is replicated by quorum");
        assert!(reply.starts_with(&expected), "{command:?}: {reply}");
    }
    assert_eq!(redis.call(&["GET", "color"]), "$-1", "a refused command has no effect");

    let run = |arguments: &[&str]| outcome(nicekv(scratch.path(), arguments));
    assert_eq!(run(&["put", "color", "blue"]), (Some(0), String::new(), String::new()));
    assert_eq!(run(&["get", "color"]).1, "blue");
    assert_eq!(redis.call(&["GET", "color"]), "$blue");
    assert_eq!(run(&["delete", "color"]).0, Some(0));
    assert_eq!(run(&["get", "color"]).0, Some(1));
}

#[test]
fn acknowledged_quorum_puts_survive_restarts_and_a_lost_disk() {
    const KEYS: u32 = 2_000;
    let scratch = tempfile::tempdir().unwrap();
    let up = Up::start(scratch.path(), &QUORUM);
    let mut redis = up.redis();
    for key in 0..KEYS {
        assert_eq!(redis.call(&["SET", &key.to_string(), &format!("value {key}")]), "+OK");
    }
    assert_eq!(redis.call(&["DEL", "0"]), ":1");
    up.kill();
    // One node after the other loses its disk. Each time, its data are merged from R - k + 1 = 2
    // old members before the cluster is ready.
    for node in ["node-1", "node-2", "node-3"] {
        std::fs::remove_dir_all(scratch.path().join("data").join(node)).unwrap();
        let up = Up::start(scratch.path(), &QUORUM);
        assert_eq!(up.interrupt(), Some(0));
    }
    let up = Up::start(scratch.path(), &QUORUM);
    let mut redis = up.redis();
    assert_eq!(redis.call(&["GET", "0"]), "$-1");
    for key in 1..KEYS {
        assert_eq!(redis.call(&["GET", &key.to_string()]), format!("$value {key}"));
    }
}

#[test]
fn impossible_quorums_are_refused() {
    let scratch = tempfile::tempdir().unwrap();
    let quorum =
        |write_set: &'static str| ["--engine", "memory", "--replication", "quorum", "--write-set", write_set];
    refused(scratch.path(), &quorum("0"), "a write set of 0");
    refused(scratch.path(), &quorum("4"), "more replicas than the 3 there are");
    refused(scratch.path(), &["--engine", "memory", "--replication", "quorum"], "needs a write-set");
    refused(
        scratch.path(),
        &["--engine", "memory", "--write-set", "2"],
        "with multicast or a chain every replica holds every put",
    );

    // R and k of a keyspace cannot be changed.
    let up = Up::start(scratch.path(), &QUORUM);
    assert_eq!(up.interrupt(), Some(0));
    refused(
        scratch.path(),
        &["--data-dir", "data", "--replication", "quorum", "--write-set", "3"],
        "--write-set 3 contradicts the cluster in data, which has write set 2",
    );
}
