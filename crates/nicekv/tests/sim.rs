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

/// The simulation of performance is in `nicekv` itself.
#[test]
fn replicast_needs_no_simulator_beside_it() {
    let folder = tempfile::tempdir().unwrap();
    let output = sim(folder.path(), &["replicast", "--help"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && text.contains("--protocol") && text.contains("--beyond"), "{text}");
    let (json, drawn) = (folder.path().join("lines"), folder.path().join("charts"));
    let outputs = ["--json", json.to_str().unwrap(), "--plot", drawn.to_str().unwrap()];
    let cell = ["replicast", "--protocol", "m", "--chunk", "128K", "--disk", "400", "--seeds", "1..2"];
    let output = sim(folder.path(), &[&cell[..], &outputs].concat());
    let text = String::from_utf8(output.stdout).unwrap();
    let rows: Vec<&str> = text.lines().collect();
    assert_eq!(output.status.code(), Some(0), "{text}");
    for (row, paper) in rows[1..4].iter().zip(["80700", "90.6", "1040"]) {
        assert!(row.contains("replicast-m") && row.contains(paper), "{text}");
    }
    let lines = fs::read_to_string(json).unwrap();
    assert_eq!(lines.lines().filter(|line| line.contains(r#""ratio_to":"paper""#)).count(), 3, "{lines}");
    assert!(fs::read_to_string(drawn.join("replicast.svg")).unwrap().starts_with("<svg"));
}

#[test]
fn what_replicast_cannot_simulate_is_a_usage_error() {
    let folder = tempfile::tempdir().unwrap();
    for wrong in [
        &["--chunk", "0K"][..],
        &["--disk", "0"],
        &["--initiators", "0"],
        &["--gets", "10"],
        &["--seeds", "3..1"],
    ] {
        let output = sim(folder.path(), &[&["replicast"], wrong].concat());
        assert_eq!(output.status.code(), Some(2), "{wrong:?}");
    }
}
