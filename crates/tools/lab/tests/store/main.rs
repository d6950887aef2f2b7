//! Labs with the real program: Redis clients on client hosts, datagrams on links, nodes that are
//! killed.

mod balancing;
mod edges;
mod etcd;
mod faults;
#[path = "../lab/fixture.rs"]
mod fixture;
mod hot;
mod kernel_gets;
mod keyspaces;
mod large;
mod listening;
mod load;
#[path = "../../../../product/nicekv/tests/up/matrix_table.rs"]
mod matrix_table;
mod messages;
mod migration;
mod nodes;
mod objects;
mod openflow;
mod partitions;
mod ranges;
mod readme;
mod replicast;
mod sizes;
#[path = "../../../../product/nicekv/tests/shared/sockets.rs"]
mod sockets;
mod switches;
mod tap;
mod trace;
mod turbokv;

use std::fs::File;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::path::Path;
use std::process::Output;
use std::time::{Duration, Instant};

use fixture::{LabUnderTest, not_run, text};
use load::{Load, Redis};
use nicekv_proto::placement::key_digest;
use serde_json::Value;
use tap::Tap;

/// Timeout for everything that must happen after a fault.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Interval between two checks of a condition.
const POLL_PAUSE: Duration = Duration::from_millis(20);
const NODES: usize = 5;

/// Path of `nicekv`, which `cargo test --workspace` builds beside `nicekv-lab`.
pub(crate) fn program() -> String {
    let program = Path::new(env!("CARGO_BIN_EXE_nicekv-lab")).with_file_name("nicekv");
    assert!(program.exists(), "there is no {}: build it with `cargo build -p nicekv`", program.display());
    program.into_os_string().into_string().expect("a path in UTF-8")
}

/// Runs `nicekv WORDS` on a client host.
fn nicekv(lab: &LabUnderTest, words: &[&str]) -> Output {
    nicekv_on(lab, "client-0", words)
}

fn nicekv_on(lab: &LabUnderTest, client: &str, words: &[&str]) -> Output {
    let (program, endpoint) = (program(), ["--endpoint", "10.20.0.2:7400"]);
    let command = [&["exec", client, "--", &program], words, &endpoint].concat();
    lab.command(&command).output().unwrap()
}

fn succeeds(lab: &LabUnderTest, words: &[&str]) -> String {
    succeeds_on(lab, "client-0", words)
}

fn succeeds_on(lab: &LabUnderTest, client: &str, words: &[&str]) -> String {
    let output = nicekv_on(lab, client, words);
    assert!(output.status.success(), "{words:?}: {output:?}");
    text(&output.stdout)
}

/// Number of pieces into which switches have split scans, from their metrics. A page of metrics is
/// cached for a moment.
fn scan_splits(lab: &LabUnderTest, switches: &[&str]) -> u64 {
    let of = |switch: &&str| {
        let metrics = inside(lab, switch, || {
            let mut stream = TcpStream::connect("127.0.0.1:9465").unwrap();
            stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").unwrap();
            let mut metrics = String::new();
            stream.read_to_string(&mut metrics).unwrap();
            metrics
        });
        let line = metrics.lines().find(|line| line.contains(r#"event="scan_splits""#));
        line.map_or(0, |line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap())
    };
    switches.iter().map(of).sum()
}

/// Scans until the switches' metrics show splits.
fn scan_until_split(lab: &LabUnderTest, switches: &[&str], scan: impl Fn()) {
    let (before, deadline) = (scan_splits(lab, switches), Instant::now() + TIMEOUT);
    while scan_splits(lab, switches) == before {
        assert!(Instant::now() < deadline, "no switch has split a scan");
        scan();
    }
}

fn as_root(name: &str, test: impl FnOnce()) {
    if rustix::process::geteuid().is_root() { test() } else { not_run("root", name) }
}

/// A slow test. Other tests of an ordinary run touch its subject, too.
fn as_root_in_long_runs(name: &str, test: impl FnOnce()) {
    if nicekv_testkit::runs_slow(name) {
        as_root(name, test);
    }
}

#[test]
fn a_put_leaves_the_client_once_and_arrives_once_at_each_replica() {
    as_root("a_put_leaves_the_client_once_and_arrives_once_at_each_replica", || {
        let lab = LabUnderTest::up("multicast", &["--engine", "memory"]);
        let client = Tap::on(&lab, "client-0");
        let nodes: Vec<Tap> = (0..NODES).map(|node| Tap::on(&lab, &format!("node-{node}"))).collect();
        let mut sent_by_put = Vec::new();
        for number in 0..40 {
            let key = format!("key-{number}");
            let before = partition_of(&status(&lab), &key);
            lab.succeeds(&["exec", "client-0", "--", &program(), "put", &key, "value"]);
            let sent = client.count(|packet| packet.destination[..2] == [10, 11]);
            let arrived: Vec<usize> =
                nodes.iter().map(|node| node.count(|packet| packet.source == [10, 20, 2, 1])).collect();
            // On a busy machine nodes may be suspected wrongly; then this put proves nothing.
            if partition_of(&status(&lab), &key) != before {
                continue;
            }
            // A client that has waited too long resends; each copy is a multicast of its own.
            let is_member =
                |node| before["members"].as_array().unwrap().iter().any(|member| member["node"] == node);
            let expected: Vec<usize> =
                (0..NODES).map(|node| if is_member(node) { sent } else { 0 }).collect();
            assert_eq!(arrived, expected, "{key}, sent {sent} times to {before}");
            sent_by_put.push(sent);
        }
        println!("{sent_by_put:?}");
        assert!(sent_by_put.contains(&1), "one datagram is enough for a put: {sent_by_put:?}");
        lab.down();
    });
}

#[test]
fn redis_clients_work_on_client_hosts() {
    as_root("redis_clients_work_on_client_hosts", || {
        if !nicekv_testkit::needs(&["redis-cli"], "redis_clients_work_on_client_hosts") {
            return;
        }
        let lab = LabUnderTest::up("redis", &["--nodes", "3", "--clients", "2"]);
        let redis = |client: &str, words: &[&str]| {
            text(&lab.succeeds(&[&["exec", client, "--", "redis-cli"], words].concat()).stdout)
        };
        assert_eq!(redis("client-0", &["set", "color", "blue"]), "OK\n");
        assert_eq!(redis("client-1", &["get", "color"]), "blue\n");
        let output = lab.succeeds(&["exec", "client-1", "--", &program(), "get", "color"]);
        assert_eq!(text(&output.stdout), "blue");
        // A gateway is killed like any other process.
        lab.succeeds(&["kill", "client-1"]);
        assert_eq!(lab.state_of("client-1"), "ended");
        lab.refuses(&["up"], "a lab already exists");
        lab.succeeds(&["start", "client-1"]);
        let mut client = Redis::on(&lab, "client-1");
        assert_eq!(client.ask(&["GET", "color"]), Ok("blue".into()));
        lab.down();
    });
}

#[test]
fn puts_go_on_when_nodes_are_killed_and_nothing_acknowledged_is_lost() {
    as_root("puts_go_on_when_nodes_are_killed_and_nothing_acknowledged_is_lost", || {
        let lab = LabUnderTest::up("kill", &[]);
        Load::during(&lab, |load| {
            for role in [Victim::Secondary, Victim::Primary] {
                let victim = role.of(&status(&lab)["partitions"][0]);
                let name = format!("node-{victim}");
                lab.succeeds(&["kill", &name]);
                wait_for(&lab, |status| status["nodes"][victim]["state"] == "suspected");
                load.wait_for_progress();
                lab.succeeds(&["start", &name]);
                wait_for(&lab, |status| {
                    status["nodes"][victim]["state"] == "live" && status["ready"] == true
                });
                load.wait_for_progress();
            }
        });
        lab.down();
    });
}

#[test]
fn a_lab_on_the_same_directory_finds_its_data() {
    as_root("a_lab_on_the_same_directory_finds_its_data", || {
        let directory = tempfile::tempdir().unwrap();
        let arguments = ["--nodes", "3", "--clients", "1", "--data-dir", directory.path().to_str().unwrap()];
        let lab = LabUnderTest::up("data", &arguments);
        lab.succeeds(&["exec", "client-0", "--", &program(), "put", "color", "blue"]);
        lab.down();
        let lab = LabUnderTest::up("data", &arguments);
        let output = lab.succeeds(&["exec", "client-0", "--", &program(), "get", "color"]);
        assert_eq!(text(&output.stdout), "blue");
        lab.down();
    });
}

/// Runs `work` on a thread on a host.
fn inside<T: Send>(lab: &LabUnderTest, host: &str, work: impl FnOnce() -> T + Send) -> T {
    let namespace = File::open(format!("/run/netns/{}{host}", lab.namespace_prefix())).unwrap();
    let on_host = || {
        rustix::thread::move_into_link_name_space(namespace.as_fd(), None).unwrap();
        work()
    };
    std::thread::scope(|scope| scope.spawn(on_host).join().unwrap())
}

fn status(lab: &LabUnderTest) -> Value {
    let output = lab.command(&["status", "--json"]).output().unwrap();
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

/// The status of the partition that a key is in.
fn partition_of(status: &Value, key: &str) -> Value {
    let value = key_digest(key.as_bytes()).match_value();
    let end = |text: &Value| u128::from_str_radix(text.as_str().unwrap(), 16).unwrap();
    let owns = |it: &&Value| it["keyspace"] == 0 && (end(&it["first"])..=end(&it["last"])).contains(&value);
    status["partitions"].as_array().unwrap().iter().find(owns).unwrap().clone()
}

fn wait_for(lab: &LabUnderTest, holds: impl Fn(&Value) -> bool) {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        let status = status(lab);
        if holds(&status) {
            return;
        }
        assert!(
            Instant::now() < deadline,
            "the cluster does not change any more, {}: {status:#}",
            status["why_not_ready"]
        );
        std::thread::sleep(POLL_PAUSE);
    }
}

#[derive(Clone, Copy)]
enum Victim {
    Primary,
    Secondary,
}

impl Victim {
    /// Index of the node that this victim means.
    fn of(self, partition: &Value) -> usize {
        let primary = &partition["primary"];
        let mut members = partition["members"].as_array().unwrap().iter().map(|member| &member["node"]);
        let node = match self {
            Self::Primary => primary,
            Self::Secondary => members.find(|node| *node != primary).unwrap(),
        };
        node.as_u64().unwrap() as usize
    }
}
