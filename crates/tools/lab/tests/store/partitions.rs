//! Partitions are split and merged while clients write and read (R17).

use serde_json::Value;

use crate::fixture::LabUnderTest;
use crate::load::{Load, Redis};
use crate::{as_root_in_long_runs, nicekv, status, succeeds, wait_for};

const KEY: &str = "color";

/// The number of the partition that a key is in, according to `explain`.
fn partition_of(lab: &LabUnderTest, key: &str) -> u64 {
    let told: Value = serde_json::from_str(&succeeds(lab, &["explain", key, "--json"])).unwrap();
    told["partition"]["id"].as_u64().unwrap()
}

/// The vnodes and numbers of all partitions. They must cover the whole keyspace in order.
fn list(lab: &LabUnderTest) -> Vec<(u32, u32, u64)> {
    let listed: Vec<Value> = serde_json::from_str(&succeeds(lab, &["partition", "list", "--json"])).unwrap();
    let vnode = |value: &Value| u32::from_str_radix(value.as_str().unwrap(), 16).unwrap();
    let row = |it: &Value| (vnode(&it["first_vnode"]), vnode(&it["last_vnode"]), it["id"].as_u64().unwrap());
    let rows: Vec<_> = listed.iter().map(row).collect();
    assert_eq!((rows[0].0, rows[rows.len() - 1].1), (0, 0xffff), "{rows:?}");
    assert!(rows.windows(2).all(|pair| pair[0].1 + 1 == pair[1].0), "{rows:?}");
    rows
}

/// The partition of a key and the one after it.
fn pair(lab: &LabUnderTest, key: &str) -> [String; 2] {
    let (id, rows) = (partition_of(lab, key), list(lab));
    let place = rows.iter().position(|row| row.2 == id).unwrap().min(rows.len() - 2);
    [place, place + 1].map(|place| rows[place].2.to_string())
}

#[test]
fn partitions_are_split_and_merged_while_clients_write() {
    as_root_in_long_runs("partitions_are_split_and_merged_while_clients_write", || {
        let lab = LabUnderTest::up("partitions", &["--nodes", "3", "--spares", "1"]);
        let config = lab.config();
        let mut redis = Redis::on(&lab, "client-0");
        assert_eq!(redis.ask(&["SET", KEY, "blue"]), Ok("OK".into()));
        Load::during(&lab, |load| {
            let (before, first) = (list(&lab), partition_of(&lab, KEY));
            succeeds(&lab, &["partition", "split", "--key", KEY, "--dry-run"]);
            assert_eq!(list(&lab), before, "a dry run changes nothing");
            let told = succeeds(&lab, &["partition", "split", "--key", KEY]);
            assert!(told.contains("done: partitions "), "{told}");
            assert_ne!(partition_of(&lab, KEY), first);
            assert_eq!(list(&lab).len(), before.len() + 1);
            load.wait_for_progress();
            let number = first.to_string();
            let refused = nicekv(&lab, &["partition", "split", &number]);
            assert_eq!(refused.status.code(), Some(2), "{refused:?}");
            let [one, other] = pair(&lab, KEY);
            succeeds(&lab, &["partition", "merge", &other, &one]);
            assert_eq!(list(&lab).len(), before.len());
            load.wait_for_progress();
            lab.succeeds(&["start", "node-3"]);
            succeeds(&lab, &["node", "add", "node-3", "--config", &config]);
            succeeds(&lab, &["partition", "split", "--key", KEY]);
            let [one, other] = pair(&lab, "another key");
            succeeds(&lab, &["partition", "merge", &one, &other]);
            load.wait_for_progress();
            assert_eq!(redis.ask(&["GET", KEY]), Ok("blue".into()));
            assert_eq!(load.failed(), 0, "no operation has failed");
        });
        // It continues, whichever process dies meanwhile.
        for host in ["metadata", "switch", "node-1"] {
            succeeds(&lab, &["partition", "split", "--key", KEY, "--no-wait"]);
            lab.succeeds(&["kill", host]);
            lab.succeeds(&["start", host]);
            wait_for(&lab, |status| {
                let is_done = status["reshapings"].as_array().is_some_and(Vec::is_empty);
                is_done && status["ready"] == true && status["moves"] == 0
            });
            assert_eq!(redis.ask(&["GET", KEY]), Ok("blue".into()), "{host}");
        }
        assert_eq!(status(&lab)["partitions"].as_array().unwrap().len(), list(&lab).len());
        lab.down();
    });
}
