//! `nicekv-sim` as a program: its exit codes, and that a failure says how to replay it.

use std::process::{Command, Output};

fn sim(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_nicekv-sim")).args(arguments).output().expect("it runs")
}

fn text(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("it prints text")
}

#[test]
fn clean_seeds_exit_with_0_and_print_a_summary() {
    let output = sim(&["--seeds", "1..3"]);
    assert_eq!(output.status.code(), Some(0));
    let text = text(&output);
    for part in ["3 runs", "events/s", "calls", "faults: "] {
        assert!(text.contains(part), "{part:?} is missing in {text}");
    }
}

#[test]
fn usage_errors_exit_with_2() {
    for arguments in [
        &["--seeds", "3..1"][..],
        &["--fault", "loss=2"],
        &["--fault", "no-such-fault=1"],
        &["--plant", "no-such-plant"],
        &["--scenario", "no-such-scenario"],
        &["--enumerate", "--only", "no-such-script"],
        &["--trace"],
    ] {
        assert_eq!(sim(arguments).status.code(), Some(2), "{arguments:?}");
    }
}

#[test]
fn lists_print_all_names() {
    assert!(text(&sim(&["--plant", "list"])).lines().all(|name| !name.contains(' ')));
    assert!(text(&sim(&["--scenario", "list"])).contains("primary-in-a-minority"));
    assert!(text(&sim(&["--fault", "list"])).contains("power-loss"));
}
