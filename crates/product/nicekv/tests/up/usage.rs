//! Stored data and request rates in `nicekv status`.

use crate::cluster::{Redis, Up, has_row, nicekv, outcome};
use std::path::Path;
use std::time::{Duration, Instant};

/// Counting takes less than a second, and nodes report once a second; the rest is a reserve for a
/// busy machine.
const TIMEOUT: Duration = Duration::from_secs(20);
const PUTS: u64 = 500;
const DELETES: u64 = 120;

fn usage(directory: &Path) -> serde_json::Value {
    let json = outcome(nicekv(directory, &["status", "--json"])).1;
    serde_json::from_str(&json).unwrap_or_else(|error| panic!("{error}: {json}"))
}

fn wait_for(directory: &Path, holds: impl Fn(&serde_json::Value) -> bool) -> serde_json::Value {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        let status = usage(directory);
        if holds(&status) {
            return status;
        }
        assert!(Instant::now() < deadline, "{} {}", status["usage"], status["keyspaces"]);
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn fill(redis: &mut Redis) {
    for number in 0..PUTS {
        assert_eq!(redis.call(&["SET", &format!("key-{number:03}"), "12345678"]), "+OK");
    }
    for number in 0..DELETES {
        assert_eq!(redis.call(&["DEL", &format!("key-{number:03}")]), ":1");
    }
    // Writing an existing key again does not change the count.
    assert_eq!(redis.call(&["SET", "key-499", "87654321"]), "+OK");
}

fn counts_and_rates_are_shown(engine: &[&str]) {
    let scratch = tempfile::tempdir().unwrap();
    // With write-set=3, all replicas hold what is acknowledged. Otherwise a replica that missed a
    // delete would count one key too many until replicas are compared.
    let quorum = ["--keyspace", "sessions=replication=quorum,write-set=3,partitions=8"];
    let up = Up::start(scratch.path(), &[engine, &quorum].concat());
    let mut redis = up.redis();
    fill(&mut redis);
    assert_eq!(redis.call(&["SELECT", "1"]), "+OK");
    fill(&mut redis);
    let left = PUTS - DELETES;
    let is_told = |usage: &serde_json::Value, times: u64| {
        // Keys have seven bytes, values eight.
        usage["keys"] == times * left && usage["bytes"] == times * left * 15 && usage["age_ms"] == 0
    };
    let status = wait_for(scratch.path(), |status| {
        let keyspaces = [&status["keyspaces"][0]["usage"], &status["keyspaces"][1]["usage"]];
        is_told(&status["usage"], 2) && keyspaces.iter().all(|usage| is_told(usage, 1))
    });
    assert_eq!(status["usage"]["partitions"], status["partitions"].as_array().unwrap().len());
    let shown = outcome(nicekv(scratch.path(), &["status"])).1;
    let line =
        format!("stored {} keys, {:.1} kB of keys and values, ", 2 * left, (2 * left * 15) as f64 / 1000.0);
    assert!(shown.lines().any(|shown| shown.starts_with(&line) && shown.ends_with(" updates/s")), "{shown}");
    assert!(has_row(&shown, &format!("32 of 32 {left}")), "{shown}");

    // Rates in each keyspace, while requests are sent.
    for (keyspace, number) in ["0", "1"].into_iter().zip(0..) {
        assert_eq!(redis.call(&["SELECT", keyspace]), "+OK");
        let deadline = Instant::now() + TIMEOUT;
        let is_busy = || {
            let usage = &usage(scratch.path())["keyspaces"][number]["usage"];
            usage["gets_per_second"].as_u64() > Some(0) && usage["updates_per_second"].as_u64() > Some(0)
        };
        while !is_busy() {
            assert!(Instant::now() < deadline, "{}", usage(scratch.path()));
            for _ in 0..50 {
                redis.call(&["SET", "key-499", "12345678"]);
                redis.call(&["GET", "key-499"]);
            }
        }
    }
    let is_idle = |status: &serde_json::Value| {
        status["usage"]["gets_per_second"] == 0 && status["usage"]["updates_per_second"] == 0
    };
    wait_for(scratch.path(), is_idle);
    assert_eq!(up.interrupt(), Some(0));
}

#[test]
fn status_shows_keys_bytes_and_rates_of_a_durable_cluster() {
    counts_and_rates_are_shown(&["--data-dir", "data"]);
}

#[test]
fn status_shows_keys_bytes_and_rates_of_a_memory_cluster() {
    counts_and_rates_are_shown(&["--engine", "memory"]);
}
