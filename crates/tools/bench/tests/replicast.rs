//! `nicekv bench replicast-sim`: what it prints, and what it refuses.

use std::fs;
use std::process::{Command, Output};

fn replicast(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nicekv-bench"));
    command.arg("replicast-sim").args(arguments).output().expect("it runs")
}

#[test]
fn a_cell_of_table_2_is_printed_beside_what_the_paper_prints() {
    let folder = tempfile::tempdir().unwrap();
    let output = replicast(&["--help"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && text.contains("--protocol") && text.contains("--beyond"), "{text}");
    let (json, drawn) = (folder.path().join("lines"), folder.path().join("charts"));
    let outputs = ["--json", json.to_str().unwrap(), "--plot", drawn.to_str().unwrap()];
    let cell = ["--protocol", "m", "--chunk", "128K", "--disk", "400", "--seeds", "1..2"];
    let output = replicast(&[&cell[..], &outputs].concat());
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
    for wrong in [
        &["--chunk", "0K"][..],
        &["--disk", "0"],
        &["--initiators", "0"],
        &["--gets", "10"],
        &["--seeds", "3..1"],
    ] {
        let output = replicast(wrong);
        assert_eq!(output.status.code(), Some(2), "{wrong:?}");
    }
}
