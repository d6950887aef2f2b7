//! Runs the guide's cluster on three hosts, with the commands copied line by line.

use nicekv_testkit::{needs, not_run};
use std::process::Command;

/// The page lets the reader check these by eye: that the cluster is ready, and its status.
const READY: &str = r#"
for try in $(seq 300); do at 1 nicekv status 2>&1 | grep -q ' term 1 ready' && break; sleep 0.2; done
at 1 nicekv status | grep -q '64 of 64 partitions whole'
"#;

/// The page's commands; after a block, the script waits for what the reader would wait for.
fn script(page: &str) -> String {
    let blocks = page.split("```sh\n").skip(1).filter_map(|rest| rest.split("```").next());
    let mut script = String::from("set -e\n");
    for block in blocks {
        // The lost host may not be suspected yet when the status is printed.
        script += &block.replace("at 1 nicekv status\n", "at 1 nicekv status || true\n");
        if block.contains("nicekv gateway") || block.contains("kill -9") {
            script += READY;
        }
    }
    script
}

#[test]
fn the_cluster_on_three_hosts_works_as_the_guide_says() {
    let name = "the_cluster_on_three_hosts_works_as_the_guide_says";
    if !rustix::process::geteuid().is_root() {
        return not_run("root", name);
    }
    if !needs(&["bash", "ip", "ethtool", "redis-cli"], name) {
        return;
    }
    let scratch = tempfile::tempdir().unwrap();
    let directory = scratch.path().to_str().unwrap();
    // Names that belong to this test only, in case another cluster runs on the machine.
    let hosts = format!("nicekv-guide-{}-", std::process::id());
    let script = script(include_str!("../../../../../docs/guide/three-hosts.md"))
        .replace("/etc/nicekv", &format!("{directory}/etc"))
        .replace("/var/lib/nicekv", &format!("{directory}/lib"))
        .replace("nicekv-lan", &format!("{hosts}lan"))
        .replace("nicekv-$", &format!("{hosts}$"));
    let script = (1..=3)
        .fold(script, |script, host| script.replace(&format!("nicekv-{host}"), &format!("{hosts}{host}")));
    let clean = format!(
        "for name in {hosts}1 {hosts}2 {hosts}3 {hosts}lan; do \
           kill -9 $(ip netns pids $name 2>/dev/null) 2>/dev/null; ip netns del $name 2>/dev/null; \
         done; true"
    );
    let program = std::path::Path::new(env!("CARGO_BIN_EXE_nicekv"));
    let path = format!("{}:{}", program.parent().unwrap().display(), std::env::var("PATH").unwrap());
    let output = Command::new("timeout")
        .args(["300", "bash", "-c", &script])
        .env("PATH", path)
        .env_remove("NICEKV_ENDPOINT")
        .output()
        .unwrap();
    let cleaned = Command::new("bash").args(["-c", &clean]).status().unwrap();
    let (told, error) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && cleaned.success(), "{told}\n{error}");
    assert_eq!(told.matches("valid, for a ").count(), 7, "each file is valid: {told}");
    assert!(told.contains("\nhello\n"), "one gateway reads what the other one stored: {told}");
    assert!(told.contains("is suspected: it does not send heartbeats"), "the lost host is named: {told}");
}
