//! Redis clients that write and read while the test changes the cluster.

use crate::hosts::Network;
use crate::{CLIENT, TIMEOUT};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Operations that must succeed to show that clients are served.
const PROGRESS: usize = 200;

#[derive(Default)]
pub(crate) struct Load {
    is_stopped: AtomicBool,
    done: AtomicUsize,
}

struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn key(number: usize) -> String {
    format!("key-{}", number % 2000)
}

impl Load {
    /// Runs `work` while a client puts and gets. No operation may fail, and every get must return
    /// the last value put.
    pub(crate) fn during(network: &Network, work: impl FnOnce(&Self)) {
        let load = Self::default();
        std::thread::scope(|scope| {
            let _stop = StopOnDrop(&load.is_stopped);
            let client = scope.spawn(|| load.run(network));
            load.wait_for_progress();
            work(&load);
            load.wait_for_progress();
            load.is_stopped.store(true, Ordering::Relaxed);
            client.join().unwrap();
        });
    }

    fn run(&self, network: &Network) {
        let mut redis = Redis::connect(network);
        let mut last = 0;
        for number in 0.. {
            if self.is_stopped.load(Ordering::Relaxed) {
                break;
            }
            let put = redis.ask(&["SET", &key(number), &number.to_string()]);
            assert_eq!(put, "+OK", "put {number}");
            let earlier = number - number.min(number * 7 % 1000);
            assert_eq!(
                redis.ask(&["GET", &key(earlier)]),
                earlier.to_string(),
                "get {earlier} after put {number}"
            );
            self.done.fetch_add(1, Ordering::Relaxed);
            last = number;
        }
        for number in last.saturating_sub(1999)..=last {
            assert_eq!(redis.ask(&["GET", &key(number)]), number.to_string(), "after everything");
        }
    }

    pub(crate) fn wait_for_progress(&self) {
        let aim = self.done.load(Ordering::Relaxed) + PROGRESS;
        let deadline = Instant::now() + TIMEOUT;
        while self.done.load(Ordering::Relaxed) < aim {
            assert!(
                Instant::now() < deadline && !self.is_stopped.load(Ordering::Relaxed),
                "the clients' operations are stuck"
            );
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// A connection to the gateway on the client's host.
struct Redis(BufReader<TcpStream>);

impl Redis {
    fn connect(network: &Network) -> Self {
        let stream = network.inside(CLIENT.name, || TcpStream::connect("127.0.0.1:6379").unwrap());
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        Self(BufReader::new(stream))
    }

    /// Sends a command. Returns the content of a bulk string, or any other reply as it is.
    fn ask(&mut self, words: &[&str]) -> String {
        let words = words.iter().map(|word| format!("${}\r\n{word}\r\n", word.len()));
        let command: Vec<String> = words.collect();
        let command = format!("*{}\r\n{}", command.len(), command.concat());
        self.0.get_mut().write_all(command.as_bytes()).unwrap();
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        let line = line.trim_end();
        let length = line.strip_prefix('$').and_then(|length| length.parse::<usize>().ok());
        let Some(length) = length else { return line.to_owned() };
        let mut bulk = vec![0; length + 2];
        self.0.read_exact(&mut bulk).unwrap();
        String::from_utf8_lossy(&bulk[..length]).into_owned()
    }
}
