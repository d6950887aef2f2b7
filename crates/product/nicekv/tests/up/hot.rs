//! A hot key is copied to nodes outside its partition, or into the user-space switch; every get
//! returns the newest write.

use crate::cluster::{Up, has_row, nicekv, outcome};
use crate::refusals::refused;
use serde_json::Value;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const TIMEOUT: Duration = Duration::from_secs(30);

/// Ends the reader threads even if an assertion fails.
struct EndOnDrop<'a>(&'a AtomicBool);

impl Drop for EndOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Checks that `explain` and `status` show who has copies.
fn is_shown(scratch: &Path) {
    let run = |arguments: &[&str]| outcome(nicekv(scratch, arguments));
    let explained = run(&["explain", "color", "--keyspace", "carts"]).1;
    assert!(explained.contains("hot: entry 0x") && explained.contains("one each to node-"), "{explained}");
    let status = run(&["status"]).1;
    assert!(has_row(&status, "1 carts multicast 3 hot"), "{status}");
    for part in ["most requested keys", "copies at", "node-"] {
        assert!(status.contains(part), "{part} in {status}");
    }
    let top = run(&["top", "--once"]).1;
    assert!(top.contains("hot keys\n  switch  entries  copied"), "{top}");
}

/// Readers get a key until its status satisfies `is_spread`. Then gets that begin after a write
/// must see it, and `is_shown` checks what operators see.
fn spread(arguments: &[&str], is_spread: fn(&Value) -> bool, is_shown: fn(&Path)) {
    let scratch = tempfile::tempdir().unwrap();
    let cluster = ["--engine", "memory", "--nodes", "6", "--keyspace", "carts=balancing=hot"];
    let up = Up::start(scratch.path(), &[&cluster[..], arguments].concat());
    let run = |arguments: &[&str]| outcome(nicekv(scratch.path(), arguments));
    let hot = || -> Value {
        let status: Value = serde_json::from_str(&run(&["status", "--json"]).1).unwrap();
        status["hot"]["switches"][0].clone()
    };
    let (until, ended) = (Instant::now() + TIMEOUT, AtomicBool::new(false));
    let connect = || {
        let mut redis = up.redis();
        assert_eq!(redis.call(&["SELECT", "1"]), "+OK");
        redis
    };
    assert_eq!(connect().call(&["SET", "color", "0"]), "+OK");
    std::thread::scope(|scope| {
        let _end = EndOnDrop(&ended);
        for _ in 0..4 {
            let (mut redis, ended) = (connect(), &ended);
            scope.spawn(move || {
                while !ended.load(Ordering::Relaxed) {
                    assert!(redis.call(&["GET", "color"]).starts_with('$'));
                }
            });
        }
        while !is_spread(&hot()) {
            assert!(Instant::now() < until, "{}", hot());
            std::thread::sleep(Duration::from_millis(200));
        }
        let mut redis = connect();
        for number in 1..=200 {
            let value = number.to_string();
            assert_eq!(redis.call(&["SET", "color", &value]), "+OK");
            assert_eq!(
                redis.call(&["GET", "color"]),
                format!("${value}"),
                "after its write was acknowledged"
            );
        }
        is_shown(scratch.path());
    });
    while hot()["entries"].as_u64() != Some(0) {
        assert!(Instant::now() < until + TIMEOUT, "the key did not become hot: {}", hot());
        std::thread::sleep(Duration::from_millis(200));
    }
    assert_eq!(up.interrupt(), Some(0));
}

#[test]
fn hot_key_is_copied_to_nodes_and_gets_see_every_write() {
    // Without copies, the owner would answer all gets: six times the mean of six nodes.
    let is_spread = |told: &Value| {
        let most = told["most_loaded"][1].as_u64().unwrap_or(u64::MAX);
        told["copies"].as_u64() >= Some(2) && most < 300
    };
    spread(&["--hot-values", "0"], is_spread, is_shown);
}

#[test]
fn switch_answers_gets_of_a_hot_key_and_every_write_is_seen() {
    let is_spread = |told: &Value| {
        let [answered, asked] =
            ["answered_per_second", "requests_per_second"].map(|rate| told[rate].as_u64());
        told["values"] == 1 && told["copies"] == 0 && answered > asked.map(|asked| asked / 2)
    };
    let is_shown = |scratch: &Path| {
        let run = |arguments: &[&str]| outcome(nicekv(scratch, arguments)).1;
        let explained = run(&["explain", "color", "--keyspace", "carts"]);
        assert!(explained.contains("gets answered by the switch while its copy is current"), "{explained}");
        let status = run(&["status"]);
        assert!(status.contains("in switch") && status.contains(" yes"), "{status}");
    };
    spread(&["--hot-values", "8", "--hot-holders", "0"], is_spread, is_shown);
}

#[test]
fn hot_keys_need_multicast() {
    let scratch = tempfile::tempdir().unwrap();
    for spec in ["x=quorum,write-set=2,balancing=hot", "x=chain,balancing=hot"] {
        refused(scratch.path(), &["--data-dir", "data", "--keyspace", spec], "hot keys need multicast: ");
    }
    let up = Up::start(scratch.path(), &["--engine", "memory"]);
    let run = |arguments: &[&str]| outcome(nicekv(scratch.path(), arguments));
    let created = run(&["keyspace", "create", "carts", "--balancing", "hot", "--replication", "chain"]);
    assert!(created.0 == Some(2) && created.2.contains("hot keys need multicast: "), "{created:?}");
    assert_eq!(run(&["keyspace", "create", "carts", "--balancing", "hot"]).0, Some(0));
    assert_eq!(run(&["put", "color", "blue", "--keyspace", "carts"]).0, Some(0));
    assert_eq!(run(&["get", "color", "--keyspace", "carts"]).1, "blue");
    assert!(has_row(&run(&["status"]).1, "multicast 3 hot"));
    assert_eq!(up.interrupt(), Some(0));
}
