//! Runs the commands of README's first part as they are written there.

use crate::cluster::{Up, nicekv, outcome};
use std::process::Command;

#[test]
fn first_commands_of_the_readme_work() {
    let readme = include_str!("../../../../../README.md");
    let (first, _) = readme.split_once("## The lab").expect("README has the part");
    let scratch = tempfile::tempdir().unwrap();
    let up = Up::start(scratch.path(), &["--data-dir", "nicekv-data"]);
    let port = up.resp.rsplit_once(':').unwrap().1;
    let has_redis = Command::new("redis-cli").arg("--version").output().is_ok();
    let (mut natives, mut is_shell) = (0, false);
    for line in first.lines() {
        if let Some(language) = line.strip_prefix("```") {
            is_shell = language == "sh";
        } else if is_shell {
            let words: Vec<&str> = line.split(" #").next().unwrap().split_ascii_whitespace().collect();
            let run = match words[..] {
                ["target/release/nicekv", ref arguments @ ..] => {
                    natives += 1;
                    nicekv(scratch.path(), arguments)
                }
                [tool @ ("redis-cli" | "redis-benchmark"), ref arguments @ ..] if has_redis => {
                    let mut command = Command::new(tool);
                    // Fewer requests than in the README, to save time.
                    let arguments =
                        arguments.iter().map(|word| if *word == "100000" { "1000" } else { word });
                    command.args(["-p", port]).args(arguments);
                    command
                }
                _ => continue,
            };
            let (code, output, error) = outcome(run);
            assert_eq!(code, Some(0), "{line}: {output}{error}");
        }
    }
    assert_eq!(natives, 3, "put, get and status");
}
