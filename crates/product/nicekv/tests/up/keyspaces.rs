//! Several keyspaces in one cluster.

use crate::cluster::{Up, has_row, nicekv, outcome};
use crate::refusals::refused;

const KEYSPACES: [&str; 6] = [
    "--data-dir",
    "data",
    "--keyspace",
    "sessions=replication=quorum,write-set=2",
    "--keyspace",
    "carts=replicas=2",
];

#[test]
fn keyspaces_have_separate_keys_and_replication() {
    let scratch = tempfile::tempdir().unwrap();
    let run = |arguments: &[&str]| outcome(nicekv(scratch.path(), arguments));
    let get = |keyspace: &str| run(&["get", "color", "--keyspace", keyspace]).1;
    let up = Up::start(scratch.path(), &KEYSPACES);
    assert_eq!(run(&["put", "color", "blue"]).0, Some(0));
    assert_eq!(run(&["get", "color", "--keyspace", "sessions"]).0, Some(1));
    assert_eq!(run(&["put", "color", "red", "--keyspace", "sessions"]).0, Some(0));
    assert_eq!(run(&["put", "color", "green", "--keyspace", "2"]).0, Some(0));
    let read = ["default", "sessions", "carts"].map(get);
    assert_eq!(read, ["blue", "red", "green"]);
    assert_eq!(run(&["delete", "color", "--keyspace", "carts"]).1, "deleted\n");
    // SELECT chooses keyspaces by number.
    let mut redis = up.redis();
    assert_eq!(redis.call(&["GET", "color"]), "$blue");
    assert_eq!((redis.call(&["SELECT", "1"]), redis.call(&["GET", "color"])), ("+OK".into(), "$red".into()));
    let refused = redis.call(&["SELECT", "3"]);
    assert!(
        refused.starts_with("-ERR DB index is out of range: ") && refused.contains("0, 1, 2;"),
        "{refused}"
    );

    let status = run(&["status"]).1;
    for row in
        ["0 default multicast 3 32 of 32", "1 sessions quorum k=2 3 32 of 32", "2 carts multicast 2 32 of 32"]
    {
        assert!(has_row(&status, row), "{row} in {status}");
    }
    // docs/FAULTS.md row 33: the error lists the existing keyspaces.
    let (code, output, error) = run(&["put", "color", "x", "--keyspace", "nosuch"]);
    assert_eq!((code, output.as_str(), error.lines().count()), (Some(2), "", 1));
    assert!(error.contains("\"nosuch\"") && error.contains("default, sessions, carts"), "{error}");
    assert_eq!(up.interrupt(), Some(0));

    // A restart keeps the keyspaces, and an option adds another one.
    let up = Up::start(scratch.path(), &[&KEYSPACES[..], &["--keyspace", "new"]].concat());
    let read = ["default", "sessions", "carts", "new"].map(get);
    assert_eq!(read, ["blue", "red", "", ""]);
    assert_eq!(run(&["put", "color", "grey", "--keyspace", "new"]).0, Some(0));
    assert_eq!(up.interrupt(), Some(0));
}

#[test]
fn impossible_keyspaces_are_refused_with_the_reason() {
    let scratch = tempfile::tempdir().unwrap();
    for (spec, reason) in [
        ("a b", "a name consists of"),
        ("default", "another keyspace of this name"),
        ("x=id=0", "id 0 belongs to another keyspace"),
        ("x=write-set=2", "write-set belongs to quorum"),
        ("x=replication=quorum", "needs a write-set"),
        ("x=replicas=4", "4 replicas need at least as many nodes, there are 3"),
        ("x=partitioning=x", "must be hash or range"),
        ("x=unicast=127.10.0.0/16", "used twice"),
        ("x=colour=red", "there is no setting \"colour\""),
    ] {
        refused(scratch.path(), &["--data-dir", "data", "--keyspace", spec], reason);
    }
    assert!(!scratch.path().join("data").exists(), "nothing is created");
}

#[test]
fn keyspace_is_created_and_dropped_at_runtime() {
    let scratch = tempfile::tempdir().unwrap();
    let run = |arguments: &[&str]| outcome(nicekv(scratch.path(), arguments));
    let up = Up::start(scratch.path(), &["--data-dir", "data"]);
    let (code, told, _) = run(&["keyspace", "create", "carts", "--replicas", "2", "--partitions", "4"]);
    assert!(code == Some(0) && told.contains("ready: SELECT 16"), "{told}");
    assert_eq!(run(&["put", "color", "green", "--keyspace", "carts"]).0, Some(0));
    assert_eq!(run(&["keyspace", "create", "carts"]).0, Some(2));
    assert_eq!(up.interrupt(), Some(0));

    let up = Up::start(scratch.path(), &["--data-dir", "data"]);
    assert_eq!(run(&["get", "color", "--keyspace", "carts"]).1, "green");
    assert_eq!(run(&["keyspace", "drop", "carts", "--yes-drop", "cart"]).0, Some(2));
    let (code, told, _) = run(&["keyspace", "drop", "carts", "--yes-drop", "carts"]);
    assert!(code == Some(0) && told.ends_with("dropped, data discarded everywhere\n"), "{told}");
    assert_eq!(run(&["get", "color", "--keyspace", "carts"]).0, Some(2));
    assert_eq!(up.interrupt(), Some(0));
}
