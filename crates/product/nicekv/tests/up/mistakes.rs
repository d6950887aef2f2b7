//! Common mistakes, and the errors that users see: they are the ones that the guide lists.

use crate::cluster::{Up, outcome};
use nicekv_testkit::needs;
use std::path::Path;
use std::process::Command;

/// Address for Redis clients of the guide's cluster.
const RESP: &str = "127.0.0.1:6379";

/// Rows of the guide's table: in each, the first code is typed, the second is the output.
fn mistakes(page: &str) -> Vec<(&str, &str)> {
    let (_, section) = page.split_once("## Common mistakes").expect("the page lists mistakes");
    let rows = section.lines().filter(|line| line.starts_with("| `"));
    let codes = |row| {
        let mut codes = str::split(row, '`').skip(1).step_by(2);
        Some((codes.next()?, codes.next()?))
    };
    rows.filter_map(codes).collect()
}

#[test]
fn common_mistakes_give_the_errors_of_the_guide() {
    if !needs(&["redis-cli"], "common_mistakes_give_the_errors_of_the_guide") {
        return;
    }
    let page = include_str!("../../../../../docs/guide/troubleshooting.md");
    let keyspaces = ["sessions=quorum,write-set=2", "orders=chain", "pictures=chunks=multicast"];
    let mut arguments = vec!["--data-dir", "nicekv-data"];
    arguments.extend(keyspaces.iter().flat_map(|keyspace| ["--keyspace", keyspace]));
    let scratch = tempfile::tempdir().unwrap();
    let up = Up::start(scratch.path(), &arguments);
    let (_, port) = up.resp.rsplit_once(':').unwrap();
    let program = Path::new(env!("CARGO_BIN_EXE_nicekv"));
    let path = format!("{}:{}", program.parent().unwrap().display(), std::env::var("PATH").unwrap());
    std::fs::write(scratch.path().join("notes.txt"), "no backup\n").unwrap();
    let mistakes = mistakes(page);
    for (typed, shown) in &mistakes {
        let typed = typed.replace(RESP, &up.resp).replace("redis-cli", &format!("redis-cli -p {port}"));
        let shown = shown.replace(RESP, &up.resp);
        let mut shell = Command::new("sh");
        // None of these commands starts a cluster; the timeout would stop one that did.
        shell.args(["-c", &format!("timeout 60 {typed}")]).current_dir(scratch.path());
        shell.env("PATH", &path).env("XDG_RUNTIME_DIR", scratch.path());
        shell.env("NICEKV_LAB", "of-no-test").env_remove("NICEKV_ENDPOINT");
        let (_, output, error) = outcome(shell);
        assert!(format!("{output}{error}").contains(&shown), "{typed}: {output}{error}, not {shown:?}");
    }
    assert!(mistakes.len() >= 20, "the guide lists {} mistakes: are they still found?", mistakes.len());
}
