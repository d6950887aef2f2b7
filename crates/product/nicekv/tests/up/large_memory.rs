//! Large values of many connections stay within the gateway's memory budget. The gateway is a
//! separate process, so that its memory can be measured without the store's.

use crate::cluster::{Redis, Up, nicekv};
use crate::large::text;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

const MIB: usize = 1 << 20;
const BUDGET_MIB: usize = 8;
const VALUE: usize = 2 * MIB;
/// Memory beyond the budget: bytes read before a grant (64 KiB per connection), and what the
/// allocator keeps.
const BESIDE: usize = 10 * MIB;
/// Longer than any step takes, even while the machine builds.
const TIMEOUT: Duration = Duration::from_secs(120);

/// A gateway process for an `up`; it is killed when it is dropped.
struct Gateway {
    process: Child,
    address: String,
    /// Memory in use before the first command.
    at_first: usize,
}

impl Gateway {
    fn start(scratch: &Path, up: &Up, threads: usize) -> Self {
        let (_, port) = up.endpoint.rsplit_once(':').unwrap();
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
        let config = format!(
            "role = \"gateway\"\ncluster_id = \"000000000000000000000000c0ffee00\"\nport = {port}\nreplicas = 1\n\
             partition_bits = 3\nunicast_vring = \"127.10.0.0\"\nmulticast_vring = \"127.11.0.0\"\n\
             [[gateways]]\nname = \"g\"\nlisten = \"{address}\"\nthreads = {threads}\nlarge_mib_max = 1000\n"
        );
        std::fs::write(scratch.join("gateway.toml"), config).unwrap();
        // The flag overrides the file.
        let budget = BUDGET_MIB.to_string();
        let arguments =
            ["gateway", "--config", "gateway.toml", "--name", "g", "--gateway-large-mib", &budget];
        let mut command = nicekv(scratch, &arguments);
        let process = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let mut gateway = Self { process, address, at_first: 0 };
        let started = Instant::now();
        while TcpStream::connect(&gateway.address).is_err() {
            assert!(started.elapsed() < TIMEOUT, "the gateway does not listen");
            std::thread::yield_now();
        }
        assert_eq!(gateway.redis().call(&["SET", "ready", "yes"]), "+OK");
        gateway.at_first = gateway.peak();
        gateway
    }

    fn stream(&self) -> TcpStream {
        let stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        stream.set_write_timeout(Some(TIMEOUT)).unwrap();
        stream
    }

    fn redis(&self) -> Redis {
        Redis::new(self.stream())
    }

    /// The peak memory use of the process.
    fn peak(&self) -> usize {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.process.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        line.trim().strip_suffix(" kB").unwrap().parse::<usize>().unwrap() << 10
    }

    fn assert_within_budget(&self) {
        let grown = self.peak() - self.at_first;
        assert!(grown <= BUDGET_MIB * MIB + BESIDE, "the gateway has grown by {} KiB", grown >> 10);
    }

    fn info(&self, field: &str) -> usize {
        let info = self.redis().call(&["INFO"]);
        let line = info.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
        line.unwrap_or_else(|| panic!("{field}: {info}")).parse().unwrap()
    }

    /// Checks that the memory for large values becomes free, once the gateway has noticed closed
    /// connections.
    fn assert_empty(&self) {
        let started = Instant::now();
        while self.info("large_values_bytes") + self.info("large_values_waiting") > 0 {
            assert!(started.elapsed() < TIMEOUT, "{} bytes are left", self.info("large_values_bytes"));
        }
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn world(scratch: &Path, threads: usize) -> (Up, Gateway) {
    let up = Up::start(scratch, &["--engine", "memory", "--nodes", "1", "--replicas", "1"]);
    let gateway = Gateway::start(scratch, &up, threads);
    assert_eq!(gateway.info("large_values_bytes_max"), BUDGET_MIB * MIB);
    (up, gateway)
}

fn key(number: usize) -> String {
    format!("key-{number}")
}

fn value(number: usize) -> String {
    text(VALUE, number as u64 + 1)
}

/// Runs `act` on `count` threads at the same time.
fn concurrently(count: usize, act: impl Fn(usize) + Sync) {
    let act = &act;
    std::thread::scope(|scope| {
        for number in 0..count {
            scope.spawn(move || act(number));
        }
    });
}

#[test]
fn large_values_beyond_the_memory_budget_take_turns() {
    const CONNECTIONS: usize = 32;
    for threads in [1, 3] {
        let scratch = tempfile::tempdir().unwrap();
        let (_up, gateway) = world(scratch.path(), threads);
        let put = |number| assert_eq!(gateway.redis().call(&["SET", &key(number), &value(number)]), "+OK");
        concurrently(CONNECTIONS, put);
        gateway.assert_within_budget();
        concurrently(CONNECTIONS, |number| {
            let got = gateway.redis().call(&["GET", &key(number)]);
            assert!(got.strip_prefix('$') == Some(&value(number)), "another value");
        });
        // All use the same key, in case connections share what is read.
        concurrently(CONNECTIONS, |number| match number % 4 {
            0 => assert_eq!(gateway.redis().call(&["STRLEN", &key(7)]), format!(":{VALUE}")),
            _ => assert!(gateway.redis().call(&["GET", &key(7)]).strip_prefix('$') == Some(&value(7))),
        });
        gateway.assert_within_budget();
        gateway.assert_empty();
        assert_eq!((gateway.info("evicted_clients"), gateway.info("stalled_clients")), (0, 0), "{threads}");
    }
}

fn request(words: &[&str]) -> Vec<u8> {
    let mut out = format!("*{}\r\n", words.len());
    words.iter().for_each(|word| out.push_str(&format!("${}\r\n{word}\r\n", word.len())));
    out.into_bytes()
}

fn bulk(value: &str) -> String {
    format!("${}\r\n{value}\r\n", value.len())
}

#[test]
fn commands_with_several_large_values_do_not_deadlock() {
    const CONNECTIONS: usize = 12;
    let scratch = tempfile::tempdir().unwrap();
    let (_up, gateway) = world(scratch.path(), 1);
    concurrently(CONNECTIONS, |number| {
        let (one, other) = (format!("one-{number}"), format!("other-{number}"));
        let [first, second] = [value(number), value(number + 100)];
        let commands: [&[&str]; 9] = [
            &["MSET", &one, &first, &other, &second],
            &["GET", &one],
            &["GET", &one],
            &["STRLEN", &one],
            &["GET", &other],
            &["MGET", &one, "absent", &other],
            &["SET", &one, &second, "GET"],
            &["GETRANGE", &one, "10", "20"],
            &["ECHO", &first],
        ];
        let range = &second[10..=20];
        let length = format!(":{VALUE}\r\n");
        let [first, second] = [bulk(&first), bulk(&second)];
        let expected = ["+OK\r\n", &first, &first, &length, &second, "*3\r\n", &first, "$-1\r\n", &second];
        let expected = [&expected[..], &[&first, &bulk(range), &first]].concat().concat();
        let mut stream = gateway.stream();
        let mut sender = stream.try_clone().unwrap();
        std::thread::scope(|scope| {
            scope.spawn(move || commands.iter().for_each(|words| sender.write_all(&request(words)).unwrap()));
            let mut got = vec![0; expected.len()];
            stream.read_exact(&mut got).unwrap();
            assert!(got == expected.as_bytes(), "connection {number} got something else");
        });
    });
    gateway.assert_within_budget();
    gateway.assert_empty();
    assert_eq!((gateway.info("evicted_clients"), gateway.info("stalled_clients")), (0, 0));
}

#[test]
fn commands_larger_than_the_budget_are_refused_and_the_connection_continues() {
    let scratch = tempfile::tempdir().unwrap();
    let (up, gateway) = world(scratch.path(), 1);
    let mut redis = gateway.redis();
    let limit = BUDGET_MIB * MIB / 2;
    let (long, just) = (text(limit + 1, 1), text(limit, 2));
    let is_refused = |reply: String| {
        assert!(reply.starts_with("-ERR") && reply.contains(&limit.to_string()), "{reply}");
    };
    is_refused(redis.call(&["SET", "long", &long]));
    assert_eq!(redis.call(&["GET", "long"]), "$-1", "nothing is stored");
    assert_eq!(redis.call(&["SET", "just", &just]), "+OK");
    assert!(redis.call(&["GET", "just"]).strip_prefix('$') == Some(&just));
    let part = value(1);
    is_refused(redis.call(&["MSET", "a", &part, "b", &part, "c", &part]));
    assert_eq!(redis.call(&["EXISTS", "a", "b", "c", "just"]), ":1", "a refused command stores nothing");
    assert_eq!(redis.call(&["MSET", "a", &part, "b", &part]), "+OK");
    let many: Vec<_> = ["MGET"].into_iter().chain(["just"; 4]).collect();
    is_refused(redis.call(&many));
    // A client of a gateway with a larger budget may have put the value.
    assert_eq!(up.redis().call(&["SET", "long", &long]), "+OK");
    is_refused(redis.call(&["GET", "long"]));
    assert_eq!(redis.call(&["STRLEN", "long"]), format!(":{}", limit + 1));
    assert_eq!(redis.call(&["SET", "a", "b", &part]), "-ERR syntax error");
    gateway.assert_within_budget();
    gateway.assert_empty();
}

#[test]
fn row_32_peers_that_stop_in_the_middle_do_not_block_others_for_long() {
    const STRANGERS: usize = 24;
    let scratch = tempfile::tempdir().unwrap();
    let (_up, gateway) = world(scratch.path(), 1);
    let begin = format!("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n${VALUE}\r\n{}", text(256 << 10, 5));
    let mut strangers: Vec<_> = (0..STRANGERS).map(|_| gateway.stream()).collect();
    strangers.iter_mut().for_each(|stranger| stranger.write_all(begin.as_bytes()).unwrap());
    std::thread::scope(|scope| {
        let honest = scope.spawn(|| assert_eq!(gateway.redis().call(&["SET", "k", &value(1)]), "+OK"));
        let mut small = gateway.redis();
        let mut count = 0;
        while !honest.is_finished() {
            count += 1;
            assert_eq!(
                small.call(&["INCR", "counter"]),
                format!(":{count}"),
                "small commands are served meanwhile"
            );
        }
    });
    gateway.assert_within_budget();
    assert!(gateway.info("stalled_clients") > 0, "only closing stalled peers could free memory");
    let told = strangers.iter_mut().find_map(|stranger| {
        stranger.set_nonblocking(true).unwrap();
        let mut told = [0; 200];
        let count = stranger.read(&mut told).ok().filter(|count| *count > 0)?;
        Some(String::from_utf8_lossy(&told[..count]).into_owned())
    });
    assert!(told.is_none_or(|told| told.starts_with("-ERR closed: others wait for room for large values")));
    drop(strangers);
    gateway.assert_empty();
}

#[test]
fn row_32_peers_that_do_not_read_give_way_to_those_that_do() {
    let scratch = tempfile::tempdir().unwrap();
    let (_up, gateway) = world(scratch.path(), 1);
    let just = text(BUDGET_MIB * MIB / 2, 3);
    assert_eq!(gateway.redis().call(&["SET", "just", &just]), "+OK");
    let ask = request(&["GET", "just"]).repeat(20);
    let mut deaf: Vec<_> = (0..3).map(|_| gateway.stream()).collect();
    deaf.iter_mut().for_each(|stream| stream.write_all(&ask).unwrap());
    let started = Instant::now();
    while gateway.info("large_values_waiting") == 0 {
        assert!(started.elapsed() < TIMEOUT, "the sockets accept all replies unread");
    }
    assert!(gateway.redis().call(&["GET", "just"]).strip_prefix('$') == Some(&just));
    assert!(gateway.info("stalled_clients") > 0);
    gateway.assert_within_budget();
    drop(deaf);
    gateway.assert_empty();
}
