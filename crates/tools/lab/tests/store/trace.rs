//! `nicekv trace` with the switch in the kernel.

use serde_json::Value;

use crate::fixture::{LabUnderTest, text};
use crate::{as_root, program};

#[test]
fn the_switch_in_the_kernel_is_a_hop_with_a_time_or_says_why_not() {
    as_root("the_switch_in_the_kernel_is_a_hop_with_a_time_or_says_why_not", || {
        for hook in ["tc", "xdp"] {
            let lab = LabUnderTest::up(
                &format!("trace-{hook}"),
                &["--nodes", "3", "--clients", "1", "--engine", "memory", "--switch", hook],
            );
            let trace = |words: &[&str]| -> Value {
                let program = program();
                let command = [&["exec", "client-0", "--", &program, "trace"], words, &["--json"]].concat();
                serde_json::from_slice(&lab.succeeds(&command).stdout).unwrap()
            };
            for (words, opcode) in [(&["put", "color", "blue"][..], "Update"), (&["get", "color"], "Get")] {
                let traced = trace(words);
                let steps: Vec<_> = traced["steps"].as_array().unwrap().iter().map(describe).collect();
                let hop = format!("{opcode} arrives at port");
                let hop = steps.iter().position(|(place, what)| place == "switch" && what.starts_with(&hop));
                let at_node =
                    steps.iter().position(|(_, what)| what == "arrived").expect("a node has got it");
                let notes = traced["notes"].to_string();
                match hook {
                    "tc" => assert!(hop.is_some_and(|hop| hop < at_node) && notes == "[]", "{traced:#}"),
                    _ => assert!(hop.is_none() && notes.contains("no times at XDP"), "{traced:#}"),
                }
                assert!(traced["switches"][0].as_str().unwrap().contains(" matched "), "{traced:#}");
            }
            // The trace leaves nothing behind.
            let sockets = lab.succeeds(&["exec", "switch", "--", "cat", "/proc/net/packet"]);
            assert_eq!(text(&sockets.stdout).lines().count(), 1, "the socket is closed");
            lab.down();
        }
    });
}

fn describe(step: &Value) -> (String, String) {
    let field = |name: &str| step[name].as_str().unwrap().to_owned();
    (field("place"), field("what"))
}
