//! A keyspace that is partitioned by range, behind switches in the kernel.

use crate::fixture::LabUnderTest;
use crate::load::Redis;
use crate::{as_root, scan_until_split, succeeds, wait_for};

const KEYS: [&str; 4] = ["a", "fruit:apple", "m", "zebra"];

#[test]
fn keys_in_order_are_split_merged_moved_and_survive_a_node_at_both_hooks() {
    as_root("keys_in_order_are_split_merged_moved_and_survive_a_node_at_both_hooks", || {
        for hook in ["tc", "xdp"] {
            let keyspace = "orders=partitioning=range,partitions=2";
            let nodes = ["--nodes", "3", "--spares", "1", "--clients", "1", "--engine", "memory"];
            let lab = LabUnderTest::up(
                &format!("ranges-{hook}"),
                &[&nodes[..], &["--switch", hook, "--keyspace", keyspace]].concat(),
            );
            let mut redis = Redis::on(&lab, "client-0");
            assert_eq!(redis.ask(&["SELECT", "1"]), Ok("OK".into()));
            let mut check = |value: &str| {
                for key in KEYS {
                    assert_eq!(redis.ask(&["SET", key, value]), Ok("OK".into()), "{key} {value} at {hook}");
                    assert_eq!(redis.ask(&["GET", key]), Ok(value.into()), "{key} at {hook}");
                }
            };
            check("first");
            let split = ["partition", "split", "--keyspace", "orders", "--key"];
            succeeds(&lab, &[&split[..], &["m"]].concat());
            check("split");
            let list = || succeeds(&lab, &["partition", "list", "--keyspace", "orders"]);
            let listed = list();
            assert!(listed.contains("orders \"m\" to before \"\\x80\""), "{listed}");
            check_scans(&lab, hook);
            let told = succeeds(&lab, &["explain", "m", "--keyspace", "orders"]);
            assert!(
                told.contains("put: record to node-0, node-1, node-2") && told.contains("agree"),
                "{told}"
            );
            let ids: Vec<&str> = listed.lines().map(|line| line.split(' ').nth(1).unwrap()).collect();
            succeeds(&lab, &["partition", "merge", ids[0], ids[1]]);
            check("merged");
            lab.succeeds(&["start", "node-3"]);
            succeeds(&lab, &["node", "add", "node-3", "--config", &lab.config()]);
            check("moved");
            lab.succeeds(&["kill", "node-1"]);
            check("killed");
            lab.succeeds(&["start", "node-1"]);
            succeeds(&lab, &[&split[..], &["fruit:apple", "--no-wait"]].concat());
            wait_for(&lab, |status| {
                let is_done = status["reshapings"].as_array().is_some_and(Vec::is_empty);
                is_done && status["ready"] == true && status["moves"] == 0
            });
            check("whole");
            lab.down();
        }
    });
}

/// Scans three partitions with clients of both kinds, and checks that keys come in order. The
/// switch splits the scans.
fn check_scans(lab: &LabUnderTest, hook: &str) {
    let scan = |words: &[&str]| succeeds(lab, &[&["scan", "--keyspace", "orders"], words].concat());
    scan_until_split(lab, &["switch"], || {
        assert_eq!(scan(&[]), "a\nfruit:apple\nm\nzebra\n", "at {hook}");
    });
    assert_eq!(scan(&["b", "m"]), "fruit:apple\nm\n", "at {hook}");
    assert_eq!(scan(&["b", "--limit", "2"]), "fruit:apple\nm\n", "at {hook}");
    assert_eq!(scan(&["b", "y", "--count"]), "2\n", "at {hook}");
    let mut redis = Redis::on(lab, "client-0");
    assert_eq!(redis.ask(&["SELECT", "1"]), Ok("OK".into()));
    let mut keys = redis.list(&["KEYS", "*"]);
    keys.sort();
    assert_eq!(keys, KEYS, "at {hook}");
    assert_eq!(redis.list(&["SCAN", "0", "COUNT", "100"])[1..], KEYS, "at {hook}");
}
