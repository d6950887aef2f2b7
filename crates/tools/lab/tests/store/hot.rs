//! A hot key is spread by the switch in the kernel, and its owner dies. No get ever returns an
//! older value than was acknowledged before, even if the switch itself
//! answers.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use serde_json::Value;

use crate::fixture::LabUnderTest;
use crate::kernel_gets::{outcome, until};
use crate::load::{Redis, StopOnDrop};
use crate::{POLL_PAUSE, TIMEOUT, as_root, as_root_in_long_runs, status, succeeds};

const KEY: &str = "color";
const NODES: usize = 6;
const READERS: usize = 4;
/// Number of writes in a row by one connection.
const WRITES: usize = 200;

fn connect(lab: &LabUnderTest, client: usize) -> Redis {
    let mut redis = Redis::on(lab, &format!("client-{client}"));
    assert_eq!(redis.ask(&["SELECT", "1"]), Ok("OK".into()));
    redis
}

/// The hot key in the metadata service's status.
fn shown(lab: &LabUnderTest) -> Value {
    status(lab)["hot"]["switches"][0]["keys"][0].clone()
}

/// Gets the key without pauses until it is stopped. The values must never go back.
fn read(lab: &LabUnderTest, client: usize, stopped: &AtomicBool) {
    let (mut redis, mut last) = (connect(lab, client), 0);
    while !stopped.load(Ordering::Relaxed) {
        // Gets fail while the key has no primary.
        let Ok(value) = redis.ask(&["GET", KEY]) else { continue };
        let value: usize = value.parse().unwrap();
        assert!(value >= last, "{value} after {last}");
        last = value;
    }
}

/// Writes numbers. Each must be seen by a get that begins after it.
fn write(redis: &mut Redis, next: &mut usize) {
    for _ in 0..WRITES {
        let value = next.to_string();
        assert_eq!(redis.ask(&["SET", KEY, &value]), Ok("OK".into()));
        assert_eq!(redis.ask(&["GET", KEY]), Ok(value));
        *next += 1;
    }
}

/// Runs `go` while both clients get a key whose value is 0 at first; then the key becomes cold.
/// `go` gets a connection for writing, and the next number, from 1 on.
fn while_it_is_asked(lab: &LabUnderTest, go: impl FnOnce(&mut Redis, &mut usize)) {
    let (mut redis, mut next, stopped) = (connect(lab, 0), 1, AtomicBool::new(false));
    assert_eq!(redis.ask(&["SET", KEY, "0"]), Ok("OK".into()));
    std::thread::scope(|scope| {
        let stopped = &stopped;
        let _stop = StopOnDrop(stopped);
        for reader in 0..READERS {
            scope.spawn(move || read(lab, reader % 2, stopped));
        }
        go(&mut redis, &mut next);
    });
    wait_for_key(lab, "it is cold", Value::is_null);
}

#[track_caller]
fn wait_for_key(lab: &LabUnderTest, what: &str, holds: impl Fn(&Value) -> bool) -> Value {
    let began = Instant::now();
    loop {
        let key = shown(lab);
        if holds(&key) {
            return key;
        }
        assert!(began.elapsed() < TIMEOUT, "{what}: {}", status(lab)["hot"]);
        std::thread::sleep(POLL_PAUSE);
    }
}

#[test]
fn a_hot_key_is_spread_by_the_kernel_and_outlives_its_owner() {
    as_root("a_hot_key_is_spread_by_the_kernel_and_outlives_its_owner", || {
        let keyspace = ["--keyspace", "carts=balancing=hot"];
        // Without copies in the switch, which would answer all gets itself.
        let nodes = NODES.to_string();
        let cluster = ["--nodes", &nodes, "--clients", "2", "--engine", "memory", "--hot-values", "0"];
        let lab = LabUnderTest::up("spread", &[&cluster[..], &keyspace].concat());
        while_it_is_asked(&lab, |redis, next| {
            let before = wait_for_key(&lab, "it has copies", |key| holders(key) >= 2);
            // Without spreading, the owner would have six times the mean load of the six nodes.
            let percent = |lab: &LabUnderTest| status(lab)["hot"]["switches"][0]["most_loaded"][1].as_u64();
            wait_for_key(&lab, "others answer, too", |_| percent(&lab).is_some_and(|most| most < 400));
            // The first gets of a copy are too short for its reply, or were stamped before the copy
            // was made.
            let from_copies = || (0..NODES).map(|node| outcome(&lab, node, "copy")).sum::<u64>();
            until("kernels of holders answer", || from_copies() > 1_000);
            write(redis, next);
            let explained = succeeds(&lab, &["explain", KEY, "--keyspace", "carts"]);
            assert!(
                explained.contains("  hot: entry 0x") && explained.contains("one each to node-"),
                "{explained}"
            );
            let owner = before["owner"].as_str().unwrap().to_owned();
            lab.succeeds(&["kill", &owner]);
            let is_another =
                |key: &Value| key["owner"].as_str().is_some_and(|now| now != owner) && holders(key) >= 1;
            let after = wait_for_key(&lab, "it has another owner", is_another);
            assert!(after["instance"].as_u64() > before["instance"].as_u64(), "{before}, {after}");
            write(redis, next);
        });
        lab.down();
    });
}

fn holders(key: &Value) -> usize {
    key["holders"].as_array().map_or(0, Vec::len)
}

/// Whether the switch has answered most gets of the last period.
fn is_answered_by_switch(key: &Value) -> bool {
    let [answered, asked] = ["answered_per_second", "requests_per_second"].map(|rate| key[rate].as_u64());
    key["in_switch"] == true && answered.zip(asked).is_some_and(|(answered, asked)| 2 * answered > asked)
}

/// Starts a lab with these arguments, gets a key until the switch answers, writes to the key, and
/// gets it again. `has_holders`: whether nodes have copies, too.
fn is_in_the_switch(name: &str, arguments: &[&str], has_holders: bool) {
    let keyspace = ["--keyspace", "carts=balancing=hot", "--clients", "2", "--engine", "memory"];
    let lab = LabUnderTest::up(name, &[&keyspace[..], arguments].concat());
    while_it_is_asked(&lab, |redis, next| {
        let is_so = |key: &Value| is_answered_by_switch(key) && (holders(key) > 0) == has_holders;
        wait_for_key(&lab, "the switch answers", is_so);
        // Each write replaces the value in the switch, or removes it while the next write is under
        // way.
        write(redis, next);
        wait_for_key(&lab, "the switch answers again", is_so);
        let told = status(&lab)["hot"]["switches"][0].clone();
        assert_eq!(told["values"], 1, "{told}");
        let explained = succeeds(&lab, &["explain", KEY, "--keyspace", "carts"]);
        assert!(explained.contains("gets answered by the switch while its copy is current"), "{explained}");
        let (top, shown) = (succeeds(&lab, &["top", "--once"]), "gets answered per second");
        assert!(top.contains(shown) && top.contains("most requested keys"), "{top}");
    });
    lab.down();
}

#[test]
fn the_switch_answers_gets_of_a_hot_key_at_tc_beside_nodes() {
    as_root_in_long_runs("the_switch_answers_gets_of_a_hot_key_at_tc_beside_nodes", || {
        is_in_the_switch("hot-tc", &["--nodes", "6", "--switch", "tc"], true);
    });
}

#[test]
fn the_switch_alone_answers_gets_of_a_hot_key_at_xdp_as_in_netcache() {
    as_root("the_switch_alone_answers_gets_of_a_hot_key_at_xdp_as_in_netcache", || {
        let bounds = ["--nodes", "4", "--switch", "xdp", "--hot-values", "8", "--hot-holders", "0"];
        is_in_the_switch("hot-xdp", &bounds, false);
    });
}
