//! Starts that are refused with one line on standard error and exit code 2 (docs/FAULTS.md rows 33
//! and 34).

use crate::cluster::{Up, nicekv, outcome};
use std::fs;
use std::path::Path;
use std::process::Command;

/// Runs a command that must fail with exit code 2 and one line that contains `reason`.
#[track_caller]
pub(crate) fn one_line(command: Command, reason: &str) {
    let (code, output, error) = outcome(command);
    assert_eq!((code, output.as_str(), error.lines().count()), (Some(2), "", 1), "{error}");
    assert!(error.contains(reason), "{error}");
}

/// Runs `up` with `arguments`; it must be refused with a line that contains `reason`.
#[track_caller]
pub(crate) fn refused(scratch: &Path, arguments: &[&str], reason: &str) {
    let mut command = nicekv(scratch, &["up"]);
    command.args(["--resp", "127.0.0.1:0"].iter().filter(|_| !arguments.contains(&"--resp"))).args(arguments);
    let (code, output, error) = outcome(command);
    assert_eq!((code, output.as_str(), error.lines().count()), (Some(2), "", 1), "{error}");
    assert!(error.contains(reason), "{error}");
}

#[test]
fn row_34_a_directory_or_a_port_in_use() {
    let scratch = tempfile::tempdir().unwrap();
    let up = Up::start(scratch.path(), &["--data-dir", "data", "--nodes", "1", "--replicas", "1"]);
    refused(scratch.path(), &["--data-dir", "data"], "in use");
    refused(scratch.path(), &["--engine", "memory", "--resp", &up.resp], &up.resp);
    let port = up.endpoint.rsplit_once(':').unwrap().1;
    refused(scratch.path(), &["--engine", "memory", "--port", port], port);
    assert_eq!(up.redis().call(&["PING"]), "+PONG", "the running cluster is not disturbed");
}

#[test]
fn foreign_directories_are_not_touched() {
    let scratch = tempfile::tempdir().unwrap();
    let photos = scratch.path().join("photos");
    fs::create_dir(&photos).unwrap();
    fs::write(photos.join("beach.jpg"), "a photo").unwrap();
    refused(scratch.path(), &["--data-dir", "photos"], "it holds \"beach.jpg\" and no nicekv-format");
    let left: Vec<_> = fs::read_dir(&photos).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["beach.jpg"]);
    refused(scratch.path(), &["--data-dir", "photos/beach.jpg"], "it is a file");
}

#[test]
fn row_33_more_replicas_than_nodes() {
    let scratch = tempfile::tempdir().unwrap();
    refused(scratch.path(), &["--data-dir", "data", "--replicas", "4"], "4 replicas");
    assert!(!scratch.path().join("data").exists(), "nothing is created");
}

#[test]
fn row_34_directories_that_are_not_this_clusters() {
    let scratch = tempfile::tempdir().unwrap();
    let start = |directory| {
        let up = Up::start(scratch.path(), &["--data-dir", directory, "--nodes", "2", "--replicas", "2"]);
        assert_eq!(up.interrupt(), Some(0));
    };
    let again = |reason: &str| {
        refused(scratch.path(), &["--data-dir", "one", "--nodes", "2", "--replicas", "2"], reason);
    };
    start("one");
    start("other");
    refused(scratch.path(), &["--data-dir", "one", "--nodes", "1", "--replicas", "1"], "contradicts");
    assert!(!scratch.path().join("one/node-3").exists(), "a refused start leaves nothing behind");

    // A node of another cluster.
    let (one, other) = (scratch.path().join("one"), scratch.path().join("other"));
    fs::rename(one.join("node-1"), scratch.path().join("kept")).unwrap();
    fs::rename(other.join("node-1"), one.join("node-1")).unwrap();
    again("belongs to cluster");
    fs::remove_dir_all(one.join("node-1")).unwrap();
    // The directory of another node.
    fs::rename(one.join("node-2"), one.join("node-1")).unwrap();
    again("belongs to \"node-2\"");
    fs::rename(one.join("node-1"), one.join("node-2")).unwrap();
    fs::rename(scratch.path().join("kept"), one.join("node-1")).unwrap();

    // A newer format.
    let path = one.join("nicekv-format");
    let format = fs::read_to_string(&path).unwrap();
    fs::write(&path, format.replace("format 3", "format 99")).unwrap();
    again("format 99");
    fs::write(&path, format).unwrap();

    // Without the metadata, it is unknown which node has the newest data.
    fs::remove_dir_all(one.join("metadata")).unwrap();
    again("metadata are missing");

    fs::create_dir(scratch.path().join("photos")).unwrap();
    fs::write(scratch.path().join("photos/cat.jpg"), "meow").unwrap();
    refused(scratch.path(), &["--data-dir", "photos"], "cat.jpg");
    fs::write(scratch.path().join("file"), "").unwrap();
    refused(scratch.path(), &["--data-dir", "file"], "file");
}
