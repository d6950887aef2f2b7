//! The configuration files of the roles, as `nicekv config print` prints them, edited for each
//! host.

use crate::hosts::Host;
use crate::{CLIENT, METADATA, NODES};
use std::process::Command;

/// A printed file with some texts replaced.
pub(crate) fn edited(template: &str, changes: &[(&str, &str)]) -> String {
    let output =
        Command::new(env!("CARGO_BIN_EXE_nicekv")).args(["config", "print", template]).output().unwrap();
    let mut text = String::from_utf8(output.stdout).unwrap();
    for (from, to) in changes {
        assert!(text.contains(from), "{template} has no {from}");
        text = text.replace(from, to);
    }
    text
}

pub(crate) fn node_file(node: &Host) -> String {
    let id = node.name.trim_start_matches("node-");
    edited(
        "node",
        &[
            ("node-0", node.name),
            ("\nid = 0\n", &format!("\nid = {id}\n")),
            ("10.20.1.1", node.address),
            ("02:00:00:00:01:01", node.mac),
            ("\nswitch_port = 1\n", &format!("\nswitch_port = {}\n", node.port)),
            ("# instances = [{ name = \"metadata-1\", address = \"10.20.0.3\" }]", INSTANCES_FOR_NODES),
            ("# metrics", "metrics"),
        ],
    )
}

const INSTANCES_FOR_NODES: &str = "instances = [{ name = \"metadata-1\", address = \"10.20.0.3\" }, { name = \"metadata-2\", address = \"10.20.0.4\" }]";

pub(crate) fn metadata_file() -> String {
    let instance = |number: usize| {
        let Host { name, address, mac, port } = METADATA[number];
        format!(
            "{{ name = \"{name}\", address = \"{address}\", mac = \"{mac}\", switch_port = {port}, control = [\"{address}:7400\", \"10.30.{number}.1:7400\"], metrics = \"{address}:9464\" }}"
        )
    };
    let instances = format!("instances = [{}, {}]", instance(1), instance(2));
    let text = edited(
        "metadata",
        &[
            ("#store = \"file\"", "store = \"etcd\""),
            ("# endpoints", "endpoints"),
            ("data_directory =", "# data_directory ="),
            ("# metrics", "metrics"),
        ],
    );
    let line = |line: &str| {
        if line.starts_with("# instances") { instances.clone() } else { line.to_owned() }
    };
    text.lines().map(line).collect::<Vec<_>>().join("\n")
}

pub(crate) fn switch_file() -> String {
    let ports = METADATA.iter().chain(&NODES).chain([&CLIENT]).map(|host| host.port);
    let ports = ports.map(|port| format!("  {{ number = {port}, device = \"port-{port}\" }},\n"));
    let text = edited(
        "switch",
        &[("[\"10.30.0.1:7400\"]", "[\"10.30.0.1:7400\", \"10.30.1.1:7400\", \"10.30.2.1:7400\"]")],
    );
    let (before, rest) = text.split_once("ports = [\n").unwrap();
    let (_, after) = rest.split_once("\n]\n").unwrap();
    format!("{before}ports = [\n{}]\n{after}", ports.collect::<String>())
}
