//! A process runs out of file descriptors: only new connections are refused.

use crate::cluster::{Redis, Up, limited, outcome};
use crate::large::text;
use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::time::{Duration, Instant};

#[test]
fn too_low_descriptor_limit_is_refused_with_the_number() {
    let scratch = tempfile::tempdir().unwrap();
    let (code, output, error) =
        outcome(limited(scratch.path(), 150, &["up", "--resp", "localhost:0", "--data-dir", "data"]));
    assert_eq!((code, output.as_str(), error.lines().count()), (Some(2), "", 1), "{error}");
    assert!(error.contains("limit of open files is 150") && error.contains(" are needed"), "{error}");
    assert!(!scratch.path().join("data").exists(), "nothing was created");
}

#[test]
fn idle_connections_leave_descriptors_for_the_log() {
    const FILES_MAX: u32 = 1_024;
    const VALUE_BYTES: usize = 50_000;
    /// Together these values fill more than one segment of the log.
    const VALUES: usize = 900;
    let scratch = tempfile::tempdir().unwrap();
    let up = Up::start_limited(scratch.path(), FILES_MAX, &["--data-dir", "data"]);
    let mut redis = up.redis();
    let limit = maxclients(&mut redis);
    assert!((16..FILES_MAX as usize).contains(&limit), "{limit}");
    let connect = || {
        let stream = TcpStream::connect(&up.resp).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream
    };
    let mut idle: Vec<Redis> = (1..limit).map(|_| Redis::new(connect())).collect();
    for redis in &mut idle {
        assert_eq!(redis.call(&["PING"]), "+PONG");
    }
    for _ in 0..10 {
        let mut line = String::new();
        BufReader::new(connect()).read_line(&mut line).unwrap();
        assert_eq!(line, "-ERR max number of clients reached\r\n");
    }
    let value = text(VALUE_BYTES, 3);
    for number in 0..VALUES {
        assert_eq!(redis.call(&["SET", &number.to_string(), &value]), "+OK", "value {number}");
    }
    // Large values need a file descriptor, too.
    assert_eq!(redis.call(&["SET", "large", &text(1 << 20, 4)]), "+OK");
    assert!(redis.call(&["GET", "0"]) == format!("${value}"));
    drop(idle.pop());
    // The gateway may learn of the new connection before it learns that the old one has ended.
    let deadline = Instant::now() + Duration::from_secs(20);
    while Redis::new(connect()).try_call(&["PING"]).ok().as_deref() != Some("+PONG") {
        assert!(Instant::now() < deadline, "no connection became free");
    }
    assert_eq!(up.interrupt(), Some(0));
}

fn maxclients(redis: &mut Redis) -> usize {
    let info = redis.call(&["INFO", "clients"]);
    let line = info.lines().find_map(|line| line.strip_prefix("maxclients:"));
    line.unwrap_or_else(|| panic!("no maxclients in {info}")).parse().unwrap()
}
