//! Gets that nodes' kernels answer, while processes stop, die and restart.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::fixture::LabUnderTest;
use crate::load::{Load, Redis};
use crate::{POLL_PAUSE, TIMEOUT, as_root, inside, partition_of, status};

const NODES: usize = 3;
const GETS: u64 = 300;
/// So many keys that each node answers some of them for one client host, whatever the order of a
/// partition's members: the metadata service appends returning members.
const COLORS: u32 = 64;
/// A pause after which a process still has its lease.
const SHORT: Duration = Duration::from_millis(20);

/// A node's count of gets with this outcome, from its metrics.
pub(crate) fn outcome(lab: &LabUnderTest, node: usize, outcome: &str) -> u64 {
    let page = inside(lab, &format!("node-{node}"), || {
        let mut stream = TcpStream::connect(format!("10.20.1.{}:9464", node + 1)).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").unwrap();
        let mut page = String::new();
        stream.read_to_string(&mut page).unwrap();
        page
    });
    let name = format!("nicekv_node_kernel_gets_total{{node=\"node-{node}\",outcome=\"{outcome}\"}} ");
    let line = page.lines().find_map(|line| line.strip_prefix(&name));
    line.unwrap_or_else(|| panic!("{name} in {page}")).parse().unwrap()
}

fn hits(lab: &LabUnderTest) -> u64 {
    (0..NODES).map(|node| outcome(lab, node, "hit")).sum()
}

/// Waits until `is_so` holds. It reads metrics, a page of which is cached for a moment.
#[track_caller]
pub(crate) fn until(what: &str, is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + TIMEOUT;
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(POLL_PAUSE);
    }
}

#[test]
fn kernels_answer_gets_and_never_an_old_value() {
    as_root("kernels_answer_gets_and_never_an_old_value", || {
        let lab = LabUnderTest::up("kernel-serves", &["--nodes", "3", "--engine", "memory"]);
        let mut redis = Redis::on(&lab, "client-0");
        let get = |redis: &mut Redis, value: &str| {
            assert_eq!(redis.ask(&["GET", "color"]), Ok(value.into()));
        };
        assert_eq!(redis.ask(&["SET", "color", "blue"]), Ok("OK".into()));
        (0..GETS).for_each(|_| get(&mut redis, "blue"));
        // All but the first few: those fill entries, or are too short for the reply.
        until("kernels answer gets", || hits(&lab) > GETS / 2);
        // Each get returns the newest value, whether the kernel or the process answers.
        for number in 0..GETS {
            let value = number.to_string();
            assert_eq!(redis.ask(&["SET", "color", &value]), Ok("OK".into()));
            (0..3).for_each(|_| get(&mut redis, &value));
        }
        assert_eq!(redis.ask(&["DEL", "color"]), Ok("1".into()));
        assert!(redis.ask(&["GET", "color"]).is_err(), "it has no value");
        // Nodes' load reports include gets that kernels answer (G7).
        assert_eq!(redis.ask(&["SET", "color", "red"]), Ok("OK".into()));
        until("gets in kernels are reported", || {
            (0..50).for_each(|_| get(&mut redis_again(&lab), "red"));
            let status = status(&lab);
            let nodes = status["nodes"].as_array().unwrap();
            nodes.iter().filter_map(|node| node["gets_per_second"].as_u64()).sum::<u64>() > 20
        });
        lab.down();
    });
}

fn redis_again(lab: &LabUnderTest) -> Redis {
    Redis::on(lab, "client-0")
}

#[test]
fn a_kernel_stops_answering_with_its_process() {
    as_root("a_kernel_stops_answering_with_its_process", || {
        let lab = LabUnderTest::up("kernel-ends", &["--nodes", "3"]);
        let mut redis = Redis::on(&lab, "client-0");
        let colors: Vec<String> = (0..COLORS).map(|number| format!("color-{number}")).collect();
        colors.iter().for_each(|color| assert_eq!(redis.ask(&["SET", color, "blue"]), Ok("OK".into())));
        let primary = partition_of(&status(&lab), &colors[0])["primary"].as_u64().unwrap() as usize;
        let name = format!("node-{primary}");
        Load::during(&lab, |load| {
            for _ in 0..5 {
                // Its kernel answers for the rest of the lease, and no longer: then the other nodes
                // change the keys.
                lab.succeeds(&["pause", &name]);
                std::thread::sleep(SHORT);
                load.wait_for_progress();
                lab.succeeds(&["resume", &name]);
                load.wait_for_progress();
            }
            // The entries are removed with the process (G6). Otherwise gets would return values
            // from before its end.
            lab.succeeds(&["kill", &name]);
            load.wait_for_progress();
            lab.succeeds(&["start", &name]);
            load.wait_for_progress();
        });
        until("the new process has a program", || {
            let mut redis = redis_again(&lab);
            colors.iter().for_each(|color| assert_eq!(redis.ask(&["GET", color]), Ok("blue".into())));
            outcome(&lab, primary, "hit") > 0
        });
        lab.down();
    });
}
