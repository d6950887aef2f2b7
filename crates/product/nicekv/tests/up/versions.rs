//! Peers with another wire version at every port of a running cluster: they are reported, and the
//! cluster is not disturbed.

use crate::cluster::{Up, nicekv, outcome};
use crate::metrics::{scrape, sum};
use std::io::{Read, Write};
use std::net::{TcpStream, UdpSocket};
use std::time::{Duration, Instant};

const TIMEOUT: Duration = Duration::from_secs(20);

#[test]
fn peers_of_another_version_are_named_and_counted() {
    let scratch = tempfile::tempdir().unwrap();
    let arguments = ["--engine", "memory", "--metrics", "localhost:0"];
    let up = Up::start(scratch.path(), &arguments);
    let page = up.said.iter().find(|line| line.starts_with("metrics at ")).expect("it says where").clone();
    let port: u16 = up.endpoint.rsplit_once(':').unwrap().1.parse().unwrap();
    let (metadata, node) = (up.endpoint.as_str(), ("127.20.0.1", port));

    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let mut heartbeat = [0; 64];
    heartbeat[..4].copy_from_slice(&[b'N', b'K', 9, 32]);
    socket.send_to(&heartbeat, metadata).unwrap();
    socket.send_to(&heartbeat, node).unwrap();
    let mut switch = TcpStream::connect(metadata).unwrap();
    switch.set_read_timeout(Some(TIMEOUT)).unwrap();
    let greeting = [&[0, 0, 0, 8][..], b"nicekv", &[200, 1]].concat();
    switch.write_all(&greeting).unwrap();
    let mut told = Vec::new();
    switch.read_to_end(&mut told).unwrap();
    assert_eq!(
        (&told[4..10], told[10] == 200),
        (&b"nicekv"[..], false),
        "it sends its own version and closes"
    );

    let deadline = Instant::now() + TIMEOUT;
    // `status` shows one line, however many senders there are; `--json` lists all.
    let line = "WRONG: 127.0.0.1 sends version ";
    loop {
        let (code, status, _) = outcome(nicekv(scratch.path(), &["status"]));
        let (_, json, _) = outcome(nicekv(scratch.path(), &["status", "--json"]));
        let is_there = |version: &str| json.replace(' ', "").contains(&format!("\"version\":{version},"));
        let is_one = status.matches(line).count() == 1 && status.contains("and 1 other senders or versions");
        if code == Some(0) && is_one && is_there("9") && is_there("200") {
            break;
        }
        assert!(Instant::now() < deadline, "{status}");
    }
    for (metric, part, count) in [
        ("nicekv_metadata_other_version_total", "", 2),
        ("nicekv_node_other_version_total", "node=\"node-1\"", 1),
    ] {
        while sum(&scrape(&page), metric, part) as u64 != count {
            assert!(Instant::now() < deadline, "{metric}: {}", scrape(&page));
        }
    }
    assert_eq!(up.redis().call(&["SET", "color", "blue"]), "+OK");
    assert_eq!(up.interrupt(), Some(0));
}
