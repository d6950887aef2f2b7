//! Output of commands: exact values, escaped names, and files that are complete or unchanged.

use crate::cluster::{Up, nicekv, outcome};
use crate::large::text;
use rustix::process::{Pid, Signal, kill_process};
use std::io::Write;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

const SMALL: [&str; 8] =
    ["--engine", "memory", "--nodes", "1", "--replicas", "1", "--keyspace", "objects=chunks=unicast"];
const TIMEOUT: Duration = Duration::from_secs(30);

fn succeeds(scratch: &Path, words: &[&str]) -> Vec<u8> {
    let output = nicekv(scratch, words).output().unwrap();
    assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

fn put(scratch: &Path, words: &[&str], input: &[u8]) {
    let mut process = nicekv(scratch, words).stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    process.stdin.take().unwrap().write_all(input).unwrap();
    assert!(process.wait().unwrap().success(), "{words:?}");
}

#[test]
fn values_are_printed_byte_for_byte() {
    let scratch = tempfile::tempdir().unwrap();
    let here = scratch.path();
    let _up = Up::start(here, &SMALL);
    let all_bytes: Vec<u8> = (0..=255).collect();
    for value in [b"".as_slice(), b"text", b"line\n", b"\r\n\n", &all_bytes, &all_bytes.repeat(40)] {
        put(here, &["put", "k"], value);
        assert!(succeeds(here, &["get", "k"]) == value, "{} bytes are others", value.len());
        assert!(succeeds(here, &["get", "k", "--raw"]) == value);
    }
    // At a terminal, a newline follows the value, unless `--raw` is given.
    put(here, &["put", "k"], b"text");
    for (words, expected) in [("get k", "text\r\n"), ("get k --raw", "text")] {
        let program = env!("CARGO_BIN_EXE_nicekv");
        let mut script = std::process::Command::new("script");
        script.args(["-qec", &format!("{program} {words}"), "/dev/null"]).stdin(Stdio::null());
        script.env("XDG_RUNTIME_DIR", here).env("NICEKV_LAB", "of-no-test").env_remove("NICEKV_ENDPOINT");
        if !nicekv_testkit::needs(&["script"], &format!("{words} at a terminal")) {
            continue;
        }
        let output = script.output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), expected, "{words}");
    }
}

#[test]
fn names_neither_break_lines_nor_control_the_terminal() {
    let scratch = tempfile::tempdir().unwrap();
    let here = scratch.path();
    let up = Up::start(here, &SMALL);
    let names = ["two\nlines", "\u{1b}[2Jred\u{7}", "Z\u{fc}rich", "back\\slash"];
    for name in names {
        put(here, &["object", "put", name], b"content");
        assert_eq!(up.redis().call(&["SET", name, name]), "+OK");
    }
    let shown = ["two\\nlines", "\\u{1b}[2Jred\\u{7}", "Z\u{fc}rich", "back\\\\slash"];
    let sorted = |text: Vec<u8>| {
        let mut lines: Vec<String> = String::from_utf8(text).unwrap().lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    let mut expected = shown.map(str::to_owned);
    expected.sort();
    assert_eq!(sorted(succeeds(here, &["object", "list"])), expected);
    assert_eq!(sorted(succeeds(here, &["scan"])), expected);
    let with_values = expected.clone().map(|name| format!("{name}\t{name}"));
    assert_eq!(sorted(succeeds(here, &["scan", "--values"])), with_values);
    for words in
        [["get", "none\u{1b}[2J"].as_slice(), &["object", "get", "none\u{1b}[2J"], &["explain", names[1]]]
    {
        let output = nicekv(here, words).output().unwrap();
        let said = [output.stdout, output.stderr].concat();
        assert!(!said.contains(&0x1b), "{words:?}: {}", said.escape_ascii());
    }
}

/// Names in a directory, without the files of the cluster.
fn files(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.retain(|name| name != "nicekv" && name != "in");
    names.sort();
    names
}

/// Starts a command, waits until it has created its file, and stops it (SIGSTOP) before the file is
/// complete.
fn half_written(scratch: &Path, words: &[&str], beside: &str) -> Child {
    loop {
        let mut process = nicekv(scratch, words).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let begun = Instant::now();
        while begun.elapsed() < TIMEOUT {
            if scratch.join(beside).exists() {
                kill_process(Pid::from_child(&process), Signal::STOP).unwrap();
                break;
            }
            if process.try_wait().unwrap().is_some() {
                break;
            }
            std::thread::yield_now();
        }
        if scratch.join(beside).exists() {
            return process;
        }
        // The command finished too soon; try again.
        let _ = process.kill();
        let _ = process.wait();
        let _ = std::fs::remove_file(scratch.join("backup"));
    }
}

/// Sends a signal to a stopped process and continues it. Returns false if it had already finished
/// its work.
fn is_ended_by(signal: Signal, mut process: Child) -> bool {
    kill_process(Pid::from_child(&process), signal).unwrap();
    kill_process(Pid::from_child(&process), Signal::CONT).unwrap();
    !process.wait().unwrap().success()
}

/// A command that is interrupted while it writes a file leaves the old file, or none.
#[test]
fn interrupted_commands_leave_old_files_intact() {
    let scratch = tempfile::tempdir().unwrap();
    let here = scratch.path();
    let _up = Up::start(here, &SMALL);
    let content = text(40_000_000, 1);
    std::fs::write(here.join("in"), &content).unwrap();
    succeeds(here, &["object", "put", "name", "in"]);
    std::fs::write(here.join("out"), "the old content").unwrap();
    let get = ["object", "get", "name", "out"];
    let backup = ["backup", "backup"];
    for signal in [Signal::INT, Signal::TERM, Signal::HUP, Signal::KILL] {
        for (words, beside) in [(&get[..], ".out.nicekv-new"), (&backup, ".backup.nicekv-new")] {
            let mut tries = 0;
            while !is_ended_by(signal, half_written(here, words, beside)) {
                tries += 1;
                assert!(tries < 50, "{signal:?} does not end the command: nohup ignores SIGHUP, for example");
                // The command had finished before it was stopped: undo its effects.
                std::fs::write(here.join("out"), "the old content").unwrap();
                let _ = std::fs::remove_file(here.join("backup"));
            }
            if signal == Signal::KILL {
                std::fs::metadata(here.join(beside)).expect("kill -9 leaves a temporary file");
            } else {
                assert_eq!(files(here), ["out"], "{signal:?}: {words:?}");
            }
            assert_eq!(std::fs::read(here.join("out")).unwrap(), b"the old content", "{signal:?}");
        }
    }
    // A file that kill -9 left behind is replaced.
    succeeds(here, &get);
    assert!(std::fs::read_to_string(here.join("out")).unwrap() == content);
    succeeds(here, &backup);
    assert_eq!(files(here), ["backup", "out"]);
    let (code, _, error) = outcome(nicekv(here, &backup));
    assert!(code == Some(2) && error.contains("already exists and is not overwritten"), "{error}");
    succeeds(here, &["restore", "--dry-run", "backup"]);
    // A command that fails leaves no file behind.
    let (code, _, _) = outcome(nicekv(here, &["object", "get", "no such name", "other"]));
    assert!(code != Some(0));
    assert_eq!(files(here), ["backup", "out"]);
}
