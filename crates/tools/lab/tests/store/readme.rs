//! Runs the commands of the guide's tour of the lab in order.

use crate::fixture::{LabUnderTest, not_run, text};
use crate::{as_root, program};
use std::process::Command;

/// Options that a person waits for, and their replacements in a test.
const SHORTER: [(&str, &str); 2] = [("--minutes 5", "--minutes 0.05"), ("-n 100000", "-n 1000")];
/// Configuration file of a lab without a name.
const CONFIG: &str = "/run/nicekv/lab/config.toml";

#[test]
fn commands_of_the_tour_work_in_their_order() {
    let name = "commands_of_the_tour_work_in_their_order";
    as_root(name, || {
        for tool in ["redis-benchmark", "etcd"] {
            if Command::new(tool).arg("--version").output().is_err() {
                return not_run(tool, name);
            }
        }
        let guide = include_str!("../../../../../docs/guide/lab.md");
        let (_, rest) = guide.split_once("## A tour").expect("the guide has a tour of the lab");
        let (_, block) = rest.split_once("```sh\n").expect("it has commands");
        let (block, _) = block.split_once("```").expect("which end");
        let scratch = tempfile::tempdir().unwrap();
        let lab = LabUnderTest::new("readme");
        let mut commands = 0;
        for line in block.lines().filter(|line| line.starts_with("sudo ")) {
            let (command, comment) = line.split_once(" #").unwrap_or((line, ""));
            if comment.trim_start().starts_with("instead") {
                lab.succeeds(&["down"]);
            }
            let command =
                command.trim_start_matches("sudo target/release/nicekv ").replace(CONFIG, &lab.config());
            let command = SHORTER.iter().fold(command, |command, (long, short)| command.replace(long, short));
            // Runs in this lab, not in another cluster on the machine.
            let output = Command::new(program())
                .args(command.split_ascii_whitespace())
                .current_dir(scratch.path())
                .env("XDG_RUNTIME_DIR", scratch.path())
                .env_remove("NICEKV_ENDPOINT")
                .env(nicekv_lab::LAB_VARIABLE, lab.name())
                .output()
                .unwrap();
            assert!(output.status.success(), "{line}: {}{}", text(&output.stdout), text(&output.stderr));
            commands += 1;
        }
        assert!(commands > 12, "the tour has {commands} commands: are they still found?");
        assert!(block.contains(CONFIG), "the tour names the lab's configuration");
        lab.assert_nothing_left();
    });
}
