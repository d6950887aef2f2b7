//! The switch has the ring of target groups beside the vrings, with no group in it.

use crate::cluster::Up;
use crate::metrics::{scrape, sum};
use nicekv_proto::placement::GroupRing;
use nicekv_proto::{HeaderLayout, Opcode};
use std::net::UdpSocket;
use std::time::{Duration, Instant};

const TIMEOUT: Duration = Duration::from_secs(20);

#[test]
fn datagrams_for_unknown_groups_are_counted_misses() {
    let scratch = tempfile::tempdir().unwrap();
    let memory = ["--engine", "memory", "--nodes", "1", "--replicas", "1", "--metrics", "localhost:0"];
    let up = Up::start(scratch.path(), &memory);
    let line = up.said.iter().find(|line| line.starts_with("metrics at ")).expect("it says where").clone();
    let port = up.endpoint.rsplit_once(':').unwrap().1.parse().unwrap();
    let mut chunk = vec![0; size_of::<HeaderLayout>()];
    chunk[..2].copy_from_slice(&HeaderLayout::MAGIC.to_be_bytes());
    (chunk[2], chunk[3]) = (HeaderLayout::VERSION, Opcode::Chunk as u8);
    let mut get = chunk.clone();
    get[3] = Opcode::Get as u8;
    let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
    for sent in [chunk, get] {
        sender.send_to(&sent, GroupRing::on_loopback(port).address(1, 0b111)).unwrap();
    }
    let counted = |event: &str| sum(&scrape(&line), "nicekv_switch_packets_total", event) as u64;
    let begun = Instant::now();
    while counted("event=\"opcode_refused\"") == 0 {
        assert!(begun.elapsed() < TIMEOUT, "the switch does not receive datagrams for groups");
    }
    assert_eq!(counted("event=\"vring_miss\""), 1);
    assert_eq!(up.interrupt(), Some(0));
}
