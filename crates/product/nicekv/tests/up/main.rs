//! `nicekv up` and the client commands, tested with the real binary.

mod access;
mod again;
mod backup;
mod cluster;
mod damaged_files;
mod descriptors;
mod discovery;
mod explain;
mod forgotten;
mod full_disk;
mod groups;
mod hot;
mod keyspaces;
mod large;
mod large_memory;
mod listening;
mod long_keys;
mod manners;
mod matrix;
mod matrix_table;
mod metrics;
mod mistakes;
mod object_backup;
mod objects;
mod older_metadata;
mod outputs;
mod quorum;
mod ranges;
mod readme;
mod refusals;
mod scripts;
#[path = "../shared/sockets.rs"]
mod sockets;
mod usage;
mod versions;

use cluster::{Redis, Up, nicekv, outcome};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

#[test]
fn restart_finds_acknowledged_writes() {
    let scratch = tempfile::tempdir().unwrap();
    let up = Up::start(scratch.path(), &["--data-dir", "data"]);
    let mut redis = up.redis();
    assert_eq!(redis.call(&["PING"]), "+PONG");
    assert_eq!(redis.call(&["SET", "color", "blue"]), "+OK");
    assert_eq!(redis.call(&["INCRBY", "visits", "41"]), ":41");
    assert_eq!(up.interrupt(), Some(0), "Ctrl-C ends the cluster with exit code 0");

    let started = Instant::now();
    let up = Up::start(scratch.path(), &["--data-dir", "data"]);
    assert!(started.elapsed() < Duration::from_secs(10), "ready after {:?}", started.elapsed());
    let mut redis = up.redis();
    assert_eq!(redis.call(&["GET", "color"]), "$blue");
    assert_eq!(redis.call(&["INCR", "visits"]), ":42");
    assert_eq!(redis.call(&["GET", "\0nicekv up: probe"]), "$-1", "the probe leaves nothing behind");
}

#[test]
fn gateway_threads_share_one_gateway_with_64_nodes() {
    let scratch = tempfile::tempdir().unwrap();
    let up = Up::start(scratch.path(), &["--engine", "memory", "--gateway-threads", "3", "--nodes", "64"]);
    let mut connections: Vec<_> = (0..7).map(|_| up.redis()).collect();
    for (number, redis) in connections.iter_mut().enumerate() {
        assert_eq!(redis.call(&["INCR", "visits"]), format!(":{}", number + 1));
    }
    for redis in &mut connections {
        assert_eq!(redis.call(&["GET", "visits"]), "$7", "every thread reads the same value");
        let info = redis.call(&["INFO"]);
        for line in ["gateway_threads:3", "connected_clients:7", "evicted_clients:0"] {
            assert!(info.contains(line), "{line}: {info}");
        }
    }
    assert_eq!(up.interrupt(), Some(0), "Ctrl-C ends all threads with exit code 0");
}

#[test]
fn acknowledged_writes_survive_kill() {
    const WRITERS: usize = 4;
    const ROUNDS: usize = 3;
    let scratch = tempfile::tempdir().unwrap();
    // The last write that was acknowledged to each writer.
    let acknowledged: [AtomicU64; WRITERS] = Default::default();
    for round in 1..=ROUNDS {
        let up = Up::start(scratch.path(), &["--data-dir", "data"]);
        for (writer, last) in acknowledged.iter().enumerate() {
            let mut redis = up.redis();
            for number in 1..=last.load(Ordering::Acquire) {
                let (key, value) = (format!("{writer}:{number}"), format!("${number}"));
                assert_eq!(redis.call(&["GET", &key]), value, "round {round}, key {key}");
            }
        }
        std::thread::scope(|scope| {
            for (writer, last) in acknowledged.iter().enumerate() {
                let mut redis = up.redis();
                scope.spawn(move || {
                    loop {
                        let number = last.load(Ordering::Acquire) + 1;
                        let (key, value) = (format!("{writer}:{number}"), number.to_string());
                        match redis.try_call(&["SET", &key, &value]) {
                            Ok(reply) => assert_eq!(reply, "+OK"),
                            // The cluster was killed.
                            Err(_) => return,
                        }
                        last.store(number, Ordering::Release);
                    }
                });
            }
            let total = || acknowledged.iter().map(|last| last.load(Ordering::Acquire)).sum::<u64>();
            let goal = (round * 500) as u64;
            while total() < goal {
                std::thread::yield_now();
            }
            up.kill();
        });
    }
}

#[test]
fn wiped_nodes_are_refilled_from_the_last_one() {
    const KEYS: u32 = 3_000;
    let scratch = tempfile::tempdir().unwrap();
    let up = Up::start(scratch.path(), &["--data-dir", "data"]);
    let mut redis = up.redis();
    for key in 0..KEYS {
        assert_eq!(redis.call(&["SET", &key.to_string(), &format!("value {key}")]), "+OK");
    }
    assert_eq!(redis.call(&["DEL", "0"]), ":1");
    assert_eq!(up.interrupt(), Some(0));
    // One node after the other loses its disk, until no original copy is left. `up` is ready only
    // when all copies are restored.
    for node in ["node-1", "node-2", "node-3"] {
        std::fs::remove_dir_all(scratch.path().join("data").join(node)).unwrap();
        let up = Up::start(scratch.path(), &["--data-dir", "data"]);
        assert_eq!(up.interrupt(), Some(0));
    }
    let up = Up::start(scratch.path(), &["--data-dir", "data"]);
    let mut redis = up.redis();
    assert_eq!(redis.call(&["GET", "0"]), "$-1");
    for key in 1..KEYS {
        assert_eq!(redis.call(&["GET", &key.to_string()]), format!("$value {key}"));
    }
}

#[test]
fn commands_find_the_running_cluster_and_report_the_outcome() {
    let scratch = tempfile::tempdir().unwrap();
    let (code, _, error) = outcome(nicekv(scratch.path(), &["get", "color"]));
    assert_eq!((code, error.lines().count()), (Some(2), 1), "{error}");
    assert!(error.contains("no cluster is running"), "{error}");

    let chain = ["--keyspace", "chained=replication=chain"];
    let nodes = ["--engine", "memory", "--nodes", "2", "--replicas", "2"];
    let up = Up::start(scratch.path(), &[&nodes[..], &chain].concat());
    let run = |arguments: &[&str]| outcome(nicekv(scratch.path(), arguments));
    assert_eq!(run(&["put", "color", "blue"]), (Some(0), String::new(), String::new()));
    assert_eq!(run(&["get", "color"]), (Some(0), "blue".into(), String::new()));
    assert_eq!(run(&["get", "color", "--endpoint", &up.endpoint]).1, "blue");
    assert_eq!(up.redis().call(&["GET", "color"]), "$blue");
    assert_eq!(run(&["delete", "color"]).0, Some(0));
    let (code, output, error) = run(&["get", "color"]);
    assert_eq!((code, output.as_str()), (Some(1), ""));
    assert!(error.contains("color") && error.lines().count() == 1, "{error}");

    // docs/FAULTS.md row 33: an error that names the limit, and nothing is stored.
    let (code, _, error) = run(&["put", "color", &"x".repeat(57_345), "--keyspace", "chained"]);
    assert!(code == Some(2) && error.contains("57344"), "{code:?} {error}");
    let (code, _, error) = run(&["put", &"k".repeat(1_025), "blue"]);
    assert!(code == Some(2) && error.contains("1024"), "{code:?} {error}");
    assert_eq!(run(&["get", "color"]).0, Some(1));

    let (code, json, _) = run(&["status", "--json"]);
    assert_eq!(code, Some(0));
    let status: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(status["nodes"].as_array().unwrap().len(), 2);
    assert!(status["nodes"].as_array().unwrap().iter().all(|node| node["state"] == "live"));
    for partition in status["partitions"].as_array().unwrap() {
        let members = partition["members"].as_array().unwrap();
        assert!(partition["epoch"].as_u64() >= Some(1) && partition["primary"].is_u64(), "{partition}");
        assert!(
            members.len() == 2 && members.iter().all(|member| member["state"] == "consistent"),
            "{partition}"
        );
    }
    let unicast = &status["tables"][0];
    assert_eq!(unicast["name"], "unicast_vring");
    assert!(unicast["entries"].as_u64() > Some(0) && unicast["capacity"].as_u64() > Some(0), "{unicast}");
    assert!(unicast["hits"].is_u64());
}

#[test]
fn clusters_run_side_by_side() {
    let scratch = tempfile::tempdir().unwrap();
    let start = || Up::start(scratch.path(), &["--engine", "memory", "--nodes", "1", "--replicas", "1"]);
    let (one, other) = (start(), start());
    assert_eq!(one.redis().call(&["SET", "color", "blue"]), "+OK");
    assert_eq!(other.redis().call(&["GET", "color"]), "$-1");
    // Commands use the cluster that was started last; after it has ended, the other one. As long as
    // both run, a read says which one it used, and in a second line how to use the other.
    let (code, _, said) = outcome(nicekv(scratch.path(), &["get", "color"]));
    assert_eq!((code, said.lines().count()), (Some(1), 2), "{said}");
    let line = said.lines().next().unwrap();
    let parts = [&*other.endpoint, &*other.resp, &*one.endpoint, "--endpoint"];
    assert!(parts.iter().all(|part| line.contains(part)), "{line}");
    let named = outcome(nicekv(scratch.path(), &["get", "color", "--endpoint", &one.endpoint]));
    assert_eq!(named, (Some(0), "blue".into(), String::new()), "an explicit endpoint needs no hint");
    assert_eq!(other.interrupt(), Some(0));
    assert_eq!(outcome(nicekv(scratch.path(), &["get", "color"])), (Some(0), "blue".into(), String::new()));
}

#[test]
fn fifty_connections_increment_one_counter_without_loss() {
    const CONNECTIONS: usize = 50;
    const INCREMENTS: usize = 40;
    let scratch = tempfile::tempdir().unwrap();
    let up = Up::start(scratch.path(), &["--engine", "memory"]);
    let increment = |mut redis: Redis| (0..INCREMENTS).for_each(|_| drop(redis.call(&["INCR", "visits"])));
    std::thread::scope(|scope| {
        for _ in 0..CONNECTIONS {
            let redis = up.redis();
            scope.spawn(move || increment(redis));
        }
    });
    assert_eq!(up.redis().call(&["GET", "visits"]), format!("${}", CONNECTIONS * INCREMENTS));
}

#[test]
fn garbage_at_every_port_is_ignored() {
    let scratch = tempfile::tempdir().unwrap();
    let up = Up::start(scratch.path(), &["--engine", "memory", "--nodes", "2", "--replicas", "2"]);
    let port: u16 = up.endpoint.rsplit_once(':').unwrap().1.parse().unwrap();
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    // docs/FAULTS.md row 29: every length up to the MTU and one more, with and without the header of a NICEKV
    // datagram.
    let mut datagram = vec![0u8; 1473];
    for (index, byte) in datagram.iter_mut().enumerate() {
        *byte = (index as u32).wrapping_mul(2_654_435_761).to_be_bytes()[0];
    }
    for target in ["127.10.3.4", "127.11.3.4", "127.20.0.1", "127.20.255.1"] {
        for opcode in [0, 1, 2, 3, 16, 17, 18, 32, 34, 255] {
            datagram[..4].copy_from_slice(&[b'N', b'K', 1, opcode]);
            for length in (0..=datagram.len()).step_by(7).chain([48, 1472, 1473]) {
                socket.send_to(&datagram[..length], (target, port)).unwrap();
            }
        }
    }
    for target in ["127.20.0.1", "127.20.255.1"] {
        for garbage in [b"GET / HTTP/1.1\r\n\r\n".as_slice(), &[255; 9], &[0, 0, 0, 1, 7, 0, 0]] {
            let mut stream = std::net::TcpStream::connect((target, port)).unwrap();
            std::io::Write::write_all(&mut stream, garbage).unwrap();
        }
    }
    let mut redis = up.redis();
    assert_eq!(redis.call(&["SET", "color", "blue"]), "+OK");
    assert_eq!(redis.call(&["GET", "color"]), "$blue");
    assert_eq!(outcome(nicekv(scratch.path(), &["status"])).0, Some(0));
    assert_eq!(up.interrupt(), Some(0));
}
