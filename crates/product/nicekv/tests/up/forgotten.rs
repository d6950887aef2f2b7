//! Nodes restart with directories that are older than what they had confirmed, or without their
//! logs, after the whole cluster has stopped. Reads still return what was acknowledged
//! (docs/FAULTS.md, rows 36 and 37).

use crate::cluster::{Redis, Up, nicekv, outcome};
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

const KEYS: usize = 60;
/// The position up to which logs are durable is persisted every half second.
const REMEMBERED_WITHIN: Duration = Duration::from_millis(1_200);
/// The second size is longer than a datagram, the third is stored outside the log.
const SIZES: [usize; 3] = [10, 3_000, 100_000];
const OPTIONS: [&str; 8] = [
    "--data-dir",
    "data",
    "--nodes",
    "3",
    "--keyspace",
    "orders=chain",
    "--keyspace",
    "sessions=replication=quorum,write-set=2",
];

fn key(number: usize) -> String {
    format!("key-{number}")
}

/// The value of a key in a round. Few values are long.
fn value(number: usize, round: usize, database: usize) -> String {
    // Keyspaces replicated by chains have no large values.
    let size = if number < SIZES.len() && database != 1 { SIZES[number] } else { SIZES[0] };
    format!("{round}-{number}-{}", "x".repeat(size))
}

fn each_database(redis: &mut Redis, mut visit: impl FnMut(&mut Redis, usize)) {
    for database in 0..3 {
        assert_eq!(redis.call(&["SELECT", &database.to_string()]), "+OK");
        visit(redis, database);
    }
}

fn write(up: &Up, round: usize) {
    each_database(&mut up.redis(), |redis, database| {
        for number in 0..KEYS {
            assert_eq!(redis.call(&["SET", &key(number), &value(number, round, database)]), "+OK");
        }
    });
}

fn read(up: &Up, round: usize, context: &str) {
    each_database(&mut up.redis(), |redis, database| {
        for number in 0..KEYS {
            let expected = format!("${}", value(number, round, database));
            let told = redis.call(&["GET", &key(number)]);
            assert!(
                told == expected,
                "{context}: {} of database {database} is {:.40?}, not {expected:.40}",
                key(number),
                told
            );
        }
    });
}

fn copy(from: &Path, to: &Path) {
    let _ = fs::remove_dir_all(to);
    assert!(Command::new("cp").arg("-a").args([from, to]).status().unwrap().success());
}

fn losses(here: &Path, up: &Up) -> u64 {
    let (code, text, error) = outcome(nicekv(here, &["status", "--json", "--endpoint", &up.endpoint]));
    assert_eq!(code, Some(0), "{error}");
    let status: Value = serde_json::from_str(&text).unwrap();
    let nodes = status["nodes"].as_array().unwrap();
    nodes.iter().map(|node| node["losses"].as_u64().unwrap()).sum()
}

/// Keeps writing until the positions that nodes have confirmed are persisted. Returns the last
/// round.
fn write_on(up: &Up, mut round: usize) -> usize {
    let began = Instant::now();
    while began.elapsed() < REMEMBERED_WITHIN {
        round += 1;
        write(up, round);
    }
    round
}

#[test]
fn older_directories_and_lost_logs_do_not_change_answers() {
    let scratch = tempfile::tempdir().unwrap();
    let here = scratch.path();
    let node = here.join("data/node-1");
    let up = Up::start(here, &OPTIONS);
    write(&up, 1);
    copy(&node, &here.join("old"));
    let round = write_on(&up, 1);
    up.kill();

    copy(&here.join("old"), &node);
    let up = Up::start(here, &OPTIONS);
    read(&up, round, "an older directory");
    assert_eq!(losses(here, &up), 1);
    let round = write_on(&up, round);
    up.kill();
    let up = Up::start(here, &OPTIONS);
    read(&up, round, "an older directory, started again");
    assert_eq!(losses(here, &up), 1, "one node has copied everything");
    let round = write_on(&up, round);
    up.kill();

    let logs = fs::read_dir(node.join("log")).unwrap().map(|entry| entry.unwrap().path());
    let logs: Vec<_> = logs.filter(|path| path.extension().is_some_and(|is| is == "nklog")).collect();
    assert!(!logs.is_empty());
    logs.iter().for_each(|path| fs::remove_file(path).unwrap());
    let (code, text, error) = outcome(nicekv(here, &[&["up"], &OPTIONS[..]].concat()));
    assert_ne!(code, Some(0), "{text}");
    assert!(error.contains(".nklog"), "the error does not name the missing file: {error}");
    fs::remove_dir_all(&node).unwrap();
    let up = Up::start(here, &OPTIONS);
    read(&up, round, "a lost directory");
    up.kill();
    let up = Up::start(here, &OPTIONS);
    read(&up, round, "a lost directory, started again");
}
