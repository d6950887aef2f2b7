//! Nodes that are added, drained and removed while clients write.

use std::process::Output;

use serde_json::Value;

use crate::fixture::{LabUnderTest, text};
use crate::load::Load;
use crate::{as_root, as_root_in_long_runs, nicekv, status};

/// Runs `nicekv node WORDS` on a client host.
fn node(lab: &LabUnderTest, words: &[&str]) -> Output {
    nicekv(lab, &[&["node"], words].concat())
}

fn succeeds(lab: &LabUnderTest, words: &[&str]) -> String {
    let output = node(lab, words);
    assert!(output.status.success(), "{words:?}: {output:?}");
    text(&output.stdout)
}

/// Number of partitions of which each node is a member, by node name.
fn members(lab: &LabUnderTest) -> Vec<(String, u64)> {
    let nodes: Vec<Value> = serde_json::from_str(&succeeds(lab, &["list", "--json"])).unwrap();
    let held = |node: &Value| (node["name"].as_str().unwrap().into(), node["members"].as_u64().unwrap());
    nodes.iter().map(held).collect()
}

#[test]
fn puts_go_on_when_nodes_are_added_drained_and_removed() {
    as_root("puts_go_on_when_nodes_are_added_drained_and_removed", || {
        let lab = LabUnderTest::up("nodes", &["--nodes", "3", "--spares", "2"]);
        let config = lab.config();
        Load::during(&lab, |load| {
            for name in ["node-3", "node-4"] {
                lab.succeeds(&["start", name]);
                let before = members(&lab);
                succeeds(&lab, &["add", name, "--config", &config, "--dry-run"]);
                assert_eq!(members(&lab), before, "a dry run changes nothing");
                succeeds(&lab, &["add", name, "--config", &config]);
                load.wait_for_progress();
            }
            assert!(members(&lab).iter().all(|(_, held)| *held > 0), "{:?}", members(&lab));
            succeeds(&lab, &["drain", "node-0"]);
            load.wait_for_progress();
            let drained = members(&lab);
            assert_eq!(drained[0], ("node-0".into(), 0));
            lab.succeeds(&["kill", "node-1"]);
            succeeds(&lab, &["remove", "node-1"]);
            load.wait_for_progress();
            assert!(members(&lab).iter().all(|(name, _)| name != "node-1"));
            // Only three nodes are left that may hold data.
            let refused = node(&lab, &["drain", "node-2"]);
            assert_eq!(refused.status.code(), Some(2), "{refused:?}");
            assert!(text(&refused.stderr).contains("3 replicas need at least as many nodes"), "{refused:?}");
            succeeds(&lab, &["add", "node-0", "--config", &config]);
            assert_eq!(load.failed(), 0, "no operation has failed");
        });
        assert_eq!(status(&lab)["moves"], 0);
        lab.down();
    });
}

/// See docs/FAULTS.md row 25.
#[test]
fn a_node_on_a_port_that_the_switch_does_not_have_is_refused() {
    let name = "a_node_on_a_port_that_the_switch_does_not_have_is_refused";
    as_root(name, || {
        let lab = LabUnderTest::up("noport", &["--nodes", "3", "--spares", "1"]);
        let config = std::fs::read_to_string(lab.config()).unwrap();
        // Gives the spare node a port that no switch has.
        let (before, entry) = config.split_once("name = \"node-3\"").unwrap();
        let line = entry.lines().find(|line| line.starts_with("switch_port")).unwrap();
        let wrong = format!("{before}name = \"node-3\"{}", entry.replacen(line, "switch_port = 99", 1));
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), wrong).unwrap();
        lab.succeeds(&["start", "node-3"]);
        for dry_run in [&["--dry-run"][..], &[]] {
            let words = [&["add", "node-3", "--config", file.path().to_str().unwrap()], dry_run].concat();
            let refused = node(&lab, &words);
            assert_eq!(refused.status.code(), Some(2), "{refused:?}");
            let error = text(&refused.stderr);
            assert!(error.contains("has no port 99") && error.contains("node-3"), "{error}");
        }
        assert_eq!(members(&lab).len(), 3, "nothing has changed");
        // The next failover can still be installed.
        Load::during(&lab, |load| {
            lab.succeeds(&["kill", "node-1"]);
            load.wait_for_progress();
        });
        let switches = status(&lab)["switches"].clone();
        assert!(switches.as_array().unwrap().iter().all(|switch| switch["current"] == true), "{switches}");
        // With its own port the node is accepted.
        lab.succeeds(&["start", "node-1"]);
        succeeds(&lab, &["add", "node-3", "--config", &lab.config()]);
        lab.down();
    });
}

#[test]
fn three_nodes_become_nine_and_three_again() {
    as_root_in_long_runs("three_nodes_become_nine_and_three_again", || grow_and_shrink("grow", &[]));
}

#[test]
fn three_nodes_become_nine_and_three_again_by_quorum() {
    let name = "three_nodes_become_nine_and_three_again_by_quorum";
    as_root_in_long_runs(name, || grow_and_shrink("growq", &["--write-set", "2"]));
}

/// Grows and shrinks a cluster under load. No operation may fail.
fn grow_and_shrink(name: &str, options: &[&str]) {
    let lab = LabUnderTest::up(name, &[&["--nodes", "3", "--spares", "6"], options].concat());
    let config = lab.config();
    let spares: Vec<String> = (3..9).map(|number| format!("node-{number}")).collect();
    Load::during(&lab, |load| {
        for name in &spares {
            lab.succeeds(&["start", name]);
            succeeds(&lab, &["add", name, "--config", &config]);
            load.wait_for_progress();
        }
        let grown = members(&lab);
        assert!(grown.len() == 9 && grown.iter().all(|(_, held)| *held > 0), "{grown:?}");
        for name in &spares {
            succeeds(&lab, &["remove", name]);
            load.wait_for_progress();
        }
        assert_eq!(load.failed(), 0, "no operation has failed");
    });
    let names: Vec<String> = members(&lab).into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["node-0", "node-1", "node-2"]);
    assert_eq!(status(&lab)["moves"], 0);
    lab.down();
}
