//! Which cluster a command uses if several run.

use crate::cluster::{Up, nicekv, outcome};
use std::fs;
use std::path::Path;

/// One node, which starts fastest.
const SMALL: [&str; 4] = ["--nodes", "1", "--replicas", "1"];

/// Runs a command in directory `place`; clusters are announced in `scratch`.
fn run(scratch: &Path, place: &Path, arguments: &[&str]) -> (Option<i32>, String, String) {
    let mut command = nicekv(scratch, arguments);
    command.current_dir(place);
    outcome(command)
}

#[test]
fn data_directory_here_decides_which_cluster_is_used() {
    let scratch = tempfile::tempdir().unwrap();
    let scratch = scratch.path();
    let place = |name: &str| {
        let place = scratch.join(name);
        fs::create_dir(&place).unwrap();
        place
    };
    let (one, other, neither) = (place("one"), place("other"), place("neither"));
    let start = |data: &Path| {
        let data = data.join("nicekv-data");
        Up::start(scratch, &[&["--data-dir", data.to_str().unwrap()], &SMALL[..]].concat())
    };
    let mine = start(&one);
    // Only one cluster runs: it is used from any directory.
    assert_eq!(run(scratch, &neither, &["put", "color", "blue"]), (Some(0), String::new(), String::new()));
    let theirs = start(&other);
    assert_eq!(run(scratch, &one, &["put", "color", "green"]), (Some(0), String::new(), String::new()));
    assert_eq!(
        run(scratch, &other, &["get", "color"]).0,
        Some(1),
        "the newest cluster does not have the key"
    );
    assert_eq!(run(scratch, &one, &["get", "color"]), (Some(0), "green".into(), String::new()));

    // From any other directory, a command that writes is refused, and the error lists the clusters;
    // a command that reads says which one it used.
    for change in [
        &["put", "color", "red"][..],
        &["delete", "color"],
        &["keyspace", "create", "more"],
        &["node", "drain", "node-1"],
        &["partition", "split", "0"],
    ] {
        let (code, output, error) = run(scratch, &neither, change);
        assert_eq!((code, output.as_str(), error.lines().count()), (Some(2), "", 1), "{change:?}: {error}");
        for part in
            [&mine.endpoint[..], &theirs.endpoint, "--endpoint", "NICEKV_ENDPOINT", "nothing was done"]
        {
            assert!(error.contains(part), "{change:?}: {part} in {error}");
        }
    }
    let (code, output, error) = run(scratch, &neither, &["node", "list"]);
    assert!(code == Some(0) && output.contains("node-1"), "{output} {error}");
    assert!(error.lines().count() == 1 && error.contains(&theirs.endpoint), "{error}");
    let named = ["put", "color", "red", "--endpoint", &theirs.endpoint];
    assert_eq!(run(scratch, &one, &named).0, Some(0), "an explicit endpoint wins");
    assert_eq!(run(scratch, &other, &["get", "color"]).1, "red");
    assert_eq!(run(scratch, &one, &["get", "color"]).1, "green");

    // The cluster of this directory does not run: no other one is used instead.
    assert_eq!(mine.interrupt(), Some(0));
    let (code, _, error) = run(scratch, &one, &["put", "color", "red"]);
    assert!(
        code == Some(2) && error.contains("is not running") && error.contains(&theirs.endpoint),
        "{error}"
    );
    assert_eq!(run(scratch, &other, &["get", "color"]).1, "red");
}
