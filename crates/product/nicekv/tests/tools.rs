//! `nicekv lab`, `nicekv bench` and `nicekv sim` run the program of that name in the directory of
//! `nicekv`. If it is missing, the error says how to build it.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

const TOOLS: [&str; 3] = ["lab", "bench", "sim"];

/// Runs a copy of `nicekv` in `folder`, with an empty `PATH`.
fn nicekv(folder: &Path, arguments: &[&str]) -> Output {
    let (built, here) = (env!("CARGO_BIN_EXE_nicekv"), folder.join("nicekv"));
    if !here.exists() {
        fs::hard_link(built, &here).or_else(|_| fs::copy(built, &here).map(drop)).expect("room for a copy");
    }
    Command::new(&here).args(arguments).env("PATH", "/usr/bin:/bin").output().expect("it runs")
}

#[test]
fn tools_get_arguments_unchanged_and_return_exit_codes() {
    let folder = tempfile::tempdir().unwrap();
    for tool in TOOLS {
        let program = folder.path().join(format!("nicekv-{tool}"));
        fs::write(&program, "#!/bin/sh\nprintf '%s\\n' \"$@\"\nexit 7\n").unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        let lists =
            [&[][..], &["--seeds", "1..3", "--trace"], &["up", "--help"], &["--help"], &["--", "x y", "-V"]];
        for arguments in lists {
            let output = nicekv(folder.path(), &[&[tool], arguments].concat());
            assert_eq!(output.status.code(), Some(7), "{tool}: {output:?}");
            let given: String =
                arguments.iter().filter(|argument| **argument != "--").map(|a| format!("{a}\n")).collect();
            let text = String::from_utf8(output.stdout).unwrap();
            assert_eq!(text.trim_start(), given, "{tool} {arguments:?}");
        }
    }
}

#[test]
fn missing_tools_are_named_with_their_build_command() {
    let folder = tempfile::tempdir().unwrap();
    for tool in TOOLS {
        let output = nicekv(folder.path(), &[tool, "--help"]);
        assert_eq!(output.status.code(), Some(2));
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(text.lines().count(), 1, "{text}");
        let release = if cfg!(debug_assertions) { "" } else { " --release" };
        assert!(text.contains(&format!("cargo build{release} -p nicekv-{tool}")), "{text}");
    }
}
