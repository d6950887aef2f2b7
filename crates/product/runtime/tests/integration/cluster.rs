//! A cluster of three nodes on threads of this process: tests of behaviour that needs several nodes
//! on real sockets.

use crate::support;

use futures_executor::block_on;
use nicekv_proto::{Duration, Expiry};
use nicekv_runtime::node::StorageOptions;
use std::time::Instant;
use support::Cluster;

const KEYS: u32 = 300;
/// A wait that takes longer fails the test.
const TIMEOUT: Duration = Duration::from_secs(30);

fn key(number: u32) -> Vec<u8> {
    format!("key {number}").into_bytes()
}

fn value(number: u32, round: u8) -> Vec<u8> {
    vec![round.wrapping_mul(number as u8); 900]
}

fn put_all(cluster: &Cluster, round: u8, every: usize) {
    for number in (0..KEYS).step_by(every) {
        block_on(cluster.client.put(&key(number), &value(number, round), Expiry::Never)).unwrap();
    }
}

fn wait_until(what: &str, holds: impl Fn() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < TIMEOUT, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Stops all nodes but the last one, and checks that it answers all gets.
fn check_alone(cluster: &mut Cluster, expected: impl Fn(u32) -> Option<Vec<u8>>) {
    cluster.stop_node(1);
    cluster.stop_node(2);
    for number in 0..KEYS {
        let read = block_on(cluster.client.get(&key(number))).unwrap();
        assert_eq!(read.map(|read| read.bytes), expected(number), "key {number}");
    }
}

#[test]
fn node_copies_missed_and_lost_data() {
    for loses_its_disk in [false, true] {
        let path = tempfile::tempdir().unwrap();
        let mut cluster = Cluster::start(path.path(), 3, StorageOptions::DEFAULT);
        put_all(&cluster, 1, 1);
        cluster.stop_node(3);
        put_all(&cluster, 2, 3);
        block_on(cluster.client.delete(&key(1))).unwrap();
        if loses_its_disk {
            std::fs::remove_dir_all(path.path().join("node-3")).unwrap();
        }
        cluster.start_node(3);
        wait_until("the node is a member again", || {
            cluster
                .status()
                .partitions
                .iter()
                .all(|partition| partition.away.is_empty() && partition.members.len() == 3)
        });
        cluster.wait_until_ready();
        check_alone(&mut cluster, |number| match number {
            1 => None,
            number if number % 3 == 0 => Some(value(number, 2)),
            number => Some(value(number, 1)),
        });
        cluster.stop();
    }
}

#[test]
fn stopped_cluster_resumes_with_its_data() {
    let path = tempfile::tempdir().unwrap();
    let cluster = Cluster::start(path.path(), 3, StorageOptions::DEFAULT);
    put_all(&cluster, 1, 1);
    let term = cluster.status().term;
    cluster.stop();
    let mut cluster = Cluster::start(path.path(), 3, StorageOptions::DEFAULT);
    assert!(cluster.status().term > term);
    put_all(&cluster, 2, 2);
    wait_until("a node reports its decisions", || {
        let mut told = (1..=3).map(|number| cluster.observe(number));
        told.any(|told| {
            let (status, log) = (told.status, told.log.expect("a durable node"));
            assert!(log.syncs.count() > 0 && log.records > 0 && told.datagrams.received > 0);
            status.counters.decided > 0 && status.puts.decided.count() == status.counters.decided
        })
    });
    check_alone(&mut cluster, |number| Some(value(number, if number % 2 == 0 { 2 } else { 1 })));
    cluster.stop();
}
