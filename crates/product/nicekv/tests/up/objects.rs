//! Objects, by `nicekv object`: put, get, ranges, versions, and after kill -9.

use crate::cluster::{Up, nicekv, outcome};
use crate::large::text;
use std::path::Path;

fn run(scratch: &Path, words: &[&str]) -> (Option<i32>, String, String) {
    outcome(nicekv(scratch, words))
}

fn succeeds(scratch: &Path, words: &[&str]) -> String {
    let (code, out, error) = run(scratch, words);
    assert_eq!(code, Some(0), "{words:?}: {error}");
    out
}

fn refused(scratch: &Path, words: &[&str], because: &str) {
    let (code, out, error) = run(scratch, words);
    assert!(code != Some(0) && out.is_empty() && error.contains(because), "{words:?}: {error}");
}

/// Puts an object from a file, and reads it back into another.
fn put(scratch: &Path, name: &str, content: &str, further: &[&str]) -> String {
    std::fs::write(scratch.join("in"), content).unwrap();
    succeeds(scratch, &[&["object", "put", name, "in"], further].concat()).trim().to_owned()
}

fn comes_back(scratch: &Path, name: &str, content: &str) {
    succeeds(scratch, &["object", "get", name, "out"]);
    assert!(std::fs::read_to_string(scratch.join("out")).unwrap() == content, "{name} is something else");
}

#[test]
fn objects_are_read_whole_in_parts_and_after_kill_minus_9() {
    let scratch = tempfile::tempdir().unwrap();
    let here = scratch.path();
    let up = Up::start(here, &["--data-dir", "data"]);
    refused(here, &["object", "list"], "nicekv keyspace create objects --chunks multicast");
    succeeds(here, &["keyspace", "create", "objects", "--chunks", "multicast"]);
    let lengths = [0, 1, 1 << 20, (1 << 20) + 1, 9_000_000];
    let content = |length: usize| text(length, length as u64);
    for length in lengths {
        put(here, &format!("of-{length}"), &content(length), &[]);
        comes_back(here, &format!("of-{length}"), &content(length));
    }
    let whole = content(9_000_000);
    let part = succeeds(here, &["object", "get", "of-9000000", "--range", "1048570..2097160"]);
    assert!(part == whole[1_048_570..2_097_160]);
    refused(here, &["object", "get", "of-1", "--range", "0..2"], "outside the object, which has 1 bytes");
    refused(here, &["object", "get", "nothing"], "there is no object \"nothing\"");
    let stat = succeeds(here, &["object", "stat", "of-1048577"]);
    assert!(stat.contains(r#""bytes":1048577,"chunks":2"#), "{stat}");
    up.kill();
    let up = Up::start(here, &["--data-dir", "data"]);
    lengths.iter().for_each(|length| comes_back(here, &format!("of-{length}"), &content(*length)));
    let mut names: Vec<String> =
        succeeds(here, &["object", "list", "of-1"]).lines().map(str::to_owned).collect();
    names.sort();
    assert_eq!(names, ["of-1", "of-1048576", "of-1048577"]);
    assert_eq!(up.interrupt(), Some(0));
}

#[test]
fn object_put_with_another_version_changes_nothing() {
    let scratch = tempfile::tempdir().unwrap();
    let here = scratch.path();
    let _up = Up::start(here, &["--engine", "memory", "--keyspace", "things=chunks=unicast"]);
    assert_eq!(succeeds(here, &["object", "list"]), "", "the probe of `up` leaves nothing behind");
    let first = put(here, "name", "first", &["--if-version", "none"]);
    refused(here, &["object", "put", "name", "in", "--if-version", "none"], "another version");
    let second = put(here, "name", "second", &["--if-version", &first, "--keyspace", "things"]);
    std::fs::write(here.join("in"), "third").unwrap();
    refused(here, &["object", "put", "name", "in", "--if-version", &first], "another version");
    refused(here, &["object", "put", "name", "in", "--if-version", "x"], "object stat");
    comes_back(here, "name", "second");
    assert!(succeeds(here, &["object", "stat", "name"]).contains(&second));
    succeeds(here, &["object", "delete", "name"]);
    refused(here, &["object", "delete", "name"], "there is no object");
    // A value that is no object cannot be put into this keyspace.
    refused(here, &["put", "--keyspace", "things", "name", "a value"], "the keyspace holds objects");
    refused(here, &["delete", "--keyspace", "things", "name"], "nicekv object delete");
}

/// Number of chunks on all targets, including copies.
fn chunks(scratch: &Path, words: &[&str]) -> u64 {
    let told = succeeds(scratch, words);
    let (_, rest) = told.split_once("; ").unwrap();
    rest.split(' ').next().unwrap().parse().unwrap_or_else(|_| panic!("{told}"))
}

#[test]
fn garbage_collection_spares_objects_being_put() {
    if !nicekv_testkit::runs_slow("garbage_collection_spares_objects_being_put") {
        return;
    }
    let scratch = tempfile::tempdir().unwrap();
    let here = scratch.path();
    let _up = Up::start(here, &["--data-dir", "data"]);
    refused(here, &["object", "gc", "--now"], "nicekv keyspace create objects --chunks multicast");
    succeeds(here, &["keyspace", "create", "objects", "--chunks", "multicast"]);
    let content = |seed| text(3_500_000, seed);
    for (name, seed) in [("kept", 1), ("deleted", 2), ("overwritten", 3), ("overwritten", 4), ("shared", 2)] {
        put(here, name, &content(seed), &[]);
    }
    succeeds(here, &["object", "delete", "deleted"]);
    // Three copies of four chunks each.
    assert_eq!(chunks(here, &["object", "gc", "--now"]), 3 * 3 * 4);
    succeeds(here, &["object", "delete", "shared"]);
    std::thread::scope(|scope| {
        let rounds = scope.spawn(|| {
            for _ in 0..3 {
                succeeds(here, &["object", "gc", "--now"]);
            }
        });
        for seed in 5..15 {
            put(here, "busy", &content(seed), &[]);
            comes_back(here, "busy", &content(seed));
        }
        rounds.join().unwrap();
    });
    assert_eq!(chunks(here, &["object", "gc", "--now"]), 3 * 3 * 4);
    for (name, seed) in [("kept", 1), ("overwritten", 4), ("busy", 14)] {
        comes_back(here, name, &content(seed));
    }
    assert_eq!(chunks(here, &["object", "gc"]), 3 * 3 * 4);
}

#[test]
fn object_keyspaces_need_multicast() {
    let scratch = tempfile::tempdir().unwrap();
    let here = scratch.path();
    let _up = Up::start(here, &["--engine", "memory"]);
    let words = ["keyspace", "create", "others", "--chunks", "unicast", "--replication", "chain"];
    refused(here, &words, "names of objects need multicast replication");
}
