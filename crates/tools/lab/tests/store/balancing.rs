//! Gets of one hot object, from several hosts, are shared by its replicas (NICE §4.5).

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::fixture::LabUnderTest;
use crate::load::Redis;
use crate::{TIMEOUT, as_root_in_long_runs, partition_of, status};

const CLIENTS: usize = 3;
const REPLICAS: usize = 3;
/// Interval between two gets of a client.
const PACE: Duration = Duration::from_millis(1);
/// Minimum total rate once the gets of all clients are in the nodes' reports.
const GETS_PER_SECOND_MIN: u64 = 2_000;
/// Interval between two checks: nodes report once a second.
const REPORTED: Duration = Duration::from_millis(1_000);

/// A key for which the primary serves two of the three clients until their load is known. The first
/// divisions begin at another replica in each partition, so one partition in four has this
/// property.
fn hot_key(lab: &LabUnderTest) -> String {
    let status = status(lab);
    let is_uneven = |key: &String| partition_of(&status, key)["id"].as_u64().unwrap() % 4 == 2;
    (0..).map(|number| format!("hot-{number}")).find(is_uneven).unwrap()
}

/// Gets a key at a steady rate until it is stopped.
fn ask(lab: &LabUnderTest, client: usize, key: &str, stopped: &AtomicBool) {
    let mut redis = Redis::on(lab, &format!("client-{client}"));
    let mut next = Instant::now();
    while !stopped.load(Ordering::Relaxed) {
        assert_eq!(redis.ask(&["GET", key]), Ok("value".into()));
        next = (next + PACE).max(Instant::now() - REPORTED);
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
    }
}

/// Gets per second of each node that answers any.
fn shares(lab: &LabUnderTest) -> Vec<u64> {
    let status = status(lab);
    let nodes = status["nodes"].as_array().unwrap().iter();
    nodes.map(|node| node["gets_per_second"].as_u64().unwrap()).filter(|gets| *gets > 0).collect()
}

fn are_equal(shares: &[u64]) -> bool {
    let sum: u64 = shares.iter().sum();
    let fair = sum / REPLICAS as u64;
    let is_fair = |share: &u64| (fair * 9 / 10..=fair * 11 / 10).contains(share);
    sum >= GETS_PER_SECOND_MIN && shares.len() == REPLICAS && shares.iter().all(is_fair)
}

#[test]
fn the_replicas_of_a_hot_object_serve_equal_shares() {
    as_root_in_long_runs("the_replicas_of_a_hot_object_serve_equal_shares", || {
        let arguments = ["--nodes", "4", "--clients", "3", "--engine", "memory"];
        let lab = LabUnderTest::up("balancing", &arguments);
        let key = hot_key(&lab);
        assert_eq!(Redis::on(&lab, "client-0").ask(&["SET", &key, "value"]), Ok("OK".into()));
        let stopped = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let clients: Vec<_> = (0..CLIENTS)
                .map(|client| {
                    scope.spawn({
                        let (lab, key, stopped) = (&lab, &key, &stopped);
                        move || ask(lab, client, key, stopped)
                    })
                })
                .collect();
            let (began, mut seen) = (Instant::now(), Vec::new());
            while !seen.last().is_some_and(|shares: &Vec<u64>| are_equal(shares)) && began.elapsed() < TIMEOUT
            {
                std::thread::sleep(REPORTED);
                seen.push(shares(&lab));
            }
            stopped.store(true, Ordering::Relaxed);
            clients.into_iter().for_each(|client| client.join().unwrap());
            println!("{:.0?}: {seen:?}", began.elapsed());
            assert!(are_equal(seen.last().unwrap()), "{seen:?}");
        });
        let balancing = &status(&lab)["balancing"];
        assert_eq!((&balancing["entries_per_partition"], &balancing["left_out"]), (&4.into(), &0.into()));
        lab.down();
    });
}
