//! `nicekv sim` becomes the `nicekv-sim` beside it, or says how to get one.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

/// `nicekv` at a path of its own in `folder`.
fn sim(folder: &Path, arguments: &[&str]) -> Output {
    let (built, here) = (env!("CARGO_BIN_EXE_nicekv"), folder.join("nicekv"));
    if !here.exists() {
        fs::hard_link(built, &here).or_else(|_| fs::copy(built, &here).map(drop)).expect("room for a copy");
    }
    Command::new(&here).arg("sim").args(arguments).output().expect("it runs")
}

#[test]
fn it_is_the_simulator_beside_it_with_the_same_arguments_and_exit_code() {
    let folder = tempfile::tempdir().unwrap();
    let simulator = folder.path().join("nicekv-sim");
    fs::write(&simulator, "#!/bin/sh\nprintf '%s\\n' \"$@\"\nexit 7\n").unwrap();
    fs::set_permissions(&simulator, fs::Permissions::from_mode(0o755)).unwrap();
    for arguments in [&[][..], &["--seeds", "1..3", "--trace"], &["--help"], &["--", "x y", "-V"]] {
        let output = sim(folder.path(), arguments);
        assert_eq!(output.status.code(), Some(7), "{output:?}");
        let given: String =
            arguments.iter().filter(|argument| **argument != "--").map(|a| format!("{a}\n")).collect();
        let text = String::from_utf8(output.stdout).unwrap();
        assert_eq!(text.trim_start(), given, "{arguments:?}");
    }
}

#[test]
fn without_one_it_says_in_one_line_how_to_build_it() {
    let folder = tempfile::tempdir().unwrap();
    let output = sim(folder.path(), &["--seeds", "1..3"]);
    assert_eq!(output.status.code(), Some(2));
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(text.lines().count(), 1, "{text}");
    let profile = if cfg!(debug_assertions) { "" } else { "--release " };
    assert!(text.contains(&format!("cargo build {profile}-p nicekv-sim")), "{text}");
}
