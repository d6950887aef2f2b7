//! Redis under load: one connection per caller, one command (a SET with its WAIT counts as one) in
//! flight on each.
//!
//! One thread serves all connections through epoll, with one `write` and one `read` per op and no
//! change of interest. It waits for answers as the NICEKV client does: it busy-polls, then sleeps.

use super::{ANSWER_TIMEOUT, Limits, Measured, Meter};
use crate::error::{BenchError, Result};
use crate::workload::{KEY_BYTES, Sequence, Step, VALUE_BYTES};
use nicekv_runtime::{BusyPoll, now};
use rustix::event::{Timespec, epoll};
use rustix::fd::OwnedFd;
use std::io::{self, Read, Write};
use std::net::{SocketAddrV4, TcpStream};

/// Maximum bytes of an answer, errors included, that are read at once.
const ANSWER_BYTES_MAX: usize = 4_096;

/// Connections served per `epoll_wait`.
const EVENTS_MAX: usize = 64;
const NO_EVENT: epoll::Event =
    epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) };
const AT_ONCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };
const AT_LAST: Timespec = Timespec { tv_sec: ANSWER_TIMEOUT.as_secs() as i64, tv_nsec: 0 };

/// Connections to a Redis server.
pub(crate) struct RedisLoad {
    connections: Vec<Connection>,
    epoll: OwnedFd,
    busy_poll: BusyPoll,
    /// Replicas that must have acknowledged a SET before it counts.
    wait_for: Option<usize>,
    /// Commands sent at once on a connection, whenever all its earlier ones are answered. They
    /// share a WAIT.
    pipeline: usize,
}

struct Connection {
    stream: TcpStream,
    /// Commands in flight.
    steps: u64,
    request: Vec<u8>,
    /// The bytes of the right answer.
    expected: Vec<u8>,
    answer: [u8; ANSWER_BYTES_MAX],
    answer_bytes: usize,
}

enum Progress {
    Partial,
    Complete,
}

impl RedisLoad {
    /// Connects from the calling thread's network namespace.
    pub(crate) fn connect(
        server: SocketAddrV4,
        connections: usize,
        wait_for: Option<usize>,
    ) -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let connect = |index| {
            let stream = TcpStream::connect(server)?;
            stream.set_nodelay(true)?;
            stream.set_nonblocking(true)?;
            epoll::add(&epoll, &stream, epoll::EventData::new_u64(index as u64), epoll::EventFlags::IN)?;
            Ok(Connection::new(stream))
        };
        let connections = (0..connections).map(connect).collect::<io::Result<_>>()?;
        Ok(Self { connections, epoll, busy_poll: BusyPoll::new(BusyPoll::DEFAULT), wait_for, pipeline: 1 })
    }

    /// The same load with `pipeline` commands at once on each connection.
    pub(crate) fn pipelined(self, pipeline: usize) -> Self {
        Self { pipeline, ..self }
    }

    /// Runs `sequence` with one caller per connection.
    pub(crate) fn run(&mut self, mut sequence: Sequence, limits: Limits<'_>) -> Result<Measured> {
        let mut meter = Meter::start(limits);
        let mut in_flight = 0;
        let pipeline = self.pipeline;
        for connection in &mut self.connections {
            in_flight += usize::from(connection.send(sequence.by_ref().take(pipeline), self.wait_for)?);
        }
        let mut ready = Vec::with_capacity(self.connections.len());
        while in_flight > 0 {
            self.wait(&mut ready)?;
            let mut finished = 0;
            for &index in &ready {
                if let Progress::Complete = self.connections[index].receive()? {
                    finished += self.connections[index].steps;
                } else {
                    continue;
                }
                // The next commands follow at once: the server must not wait for the other
                // connections.
                let count = if meter.finished.is_none() { pipeline } else { 0 };
                if !self.connections[index].send(sequence.by_ref().take(count), self.wait_for)? {
                    in_flight -= 1;
                }
            }
            meter.count(finished);
        }
        meter.finish()
    }

    /// Waits for connections with input.
    fn wait(&mut self, ready: &mut Vec<usize>) -> Result<()> {
        ready.clear();
        let mut events = [NO_EVENT; EVENTS_MAX];
        let mut count = 0;
        while count == 0 {
            // Each poll is one system call, and the last one if a connection is ready.
            let is_polling = self.busy_poll.is_on();
            let timeout = if is_polling { AT_ONCE } else { AT_LAST };
            count = match epoll::wait(&self.epoll, &mut events, Some(&timeout)) {
                Err(rustix::io::Errno::INTR) => return Ok(()),
                count => count.map_err(BenchError::system("wait for redis"))?,
            };
            match (count, is_polling) {
                (0, true) => std::thread::yield_now(),
                (0, false) => {
                    return Err(BenchError::Failed(format!("redis: no answer in {ANSWER_TIMEOUT:?}")));
                }
                _ => {}
            }
        }
        self.busy_poll.begin(now());
        ready.extend(events[..count].iter().map(|event| event.data.u64() as usize));
        Ok(())
    }
}

impl Connection {
    fn new(stream: TcpStream) -> Self {
        let (request, expected) = (Vec::with_capacity(256), Vec::with_capacity(256));
        Self { stream, steps: 0, request, expected, answer: [0; ANSWER_BYTES_MAX], answer_bytes: 0 }
    }

    /// Sends all `steps` at once; false if there are none.
    fn send(&mut self, steps: impl Iterator<Item = Step>, wait_for: Option<usize>) -> Result<bool> {
        self.request.clear();
        self.expected.clear();
        (self.steps, self.answer_bytes) = (0, 0);
        let mut is_put = false;
        for step in steps {
            encode(&step, &mut self.request, &mut self.expected);
            self.steps += 1;
            is_put |= !step.is_get();
        }
        if self.steps == 0 {
            return Ok(false);
        }
        if let Some(replicas) = wait_for.filter(|_| is_put) {
            encode_wait(replicas, &mut self.request, &mut self.expected);
        }
        // It fits: a request is far smaller than the socket's buffer, which is empty since the last
        // answer came.
        self.stream.write_all(&self.request).map_err(BenchError::system("write to redis"))?;
        Ok(true)
    }

    fn receive(&mut self) -> Result<Progress> {
        let bytes = match self.stream.read(&mut self.answer[self.answer_bytes..]) {
            Ok(0) => return Err(BenchError::Failed("redis closed the connection".into())),
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => 0,
            Err(error) => return Err(BenchError::system("read from redis")(error)),
        };
        self.answer_bytes += bytes;
        let answer = &self.answer[..self.answer_bytes];
        if answer == self.expected {
            Ok(Progress::Complete)
        } else if self.expected.starts_with(answer) {
            Ok(Progress::Partial)
        } else {
            let answer = answer.escape_ascii();
            Err(BenchError::Failed(format!(
                "redis: wrong answer to {}: {answer}",
                self.request.escape_ascii()
            )))
        }
    }
}

/// Appends the command of an op, and its right answer.
fn encode(step: &Step, request: &mut Vec<u8>, expected: &mut Vec<u8>) {
    let (key, value) = (step.key(), step.value());
    const { assert!(KEY_BYTES == 16 && VALUE_BYTES == 64, "the lengths are written out below") };
    if step.is_get() {
        request.extend_from_slice(b"*2\r\n$3\r\nGET\r\n$16\r\n");
        request.extend_from_slice(&key);
        request.extend_from_slice(b"\r\n");
        expected.extend_from_slice(b"$64\r\n");
        expected.extend_from_slice(&value);
        expected.extend_from_slice(b"\r\n");
        return;
    }
    request.extend_from_slice(b"*3\r\n$3\r\nSET\r\n$16\r\n");
    request.extend_from_slice(&key);
    request.extend_from_slice(b"\r\n$64\r\n");
    request.extend_from_slice(&value);
    request.extend_from_slice(b"\r\n");
    expected.extend_from_slice(b"+OK\r\n");
}

/// Appends a WAIT for all puts of the connection, and its right answer.
fn encode_wait(replicas: usize, request: &mut Vec<u8>, expected: &mut Vec<u8>) {
    let timeout_ms = ANSWER_TIMEOUT.as_millis();
    // Writing to a vector cannot fail.
    let _ = write!(request, "*3\r\n$4\r\nWAIT\r\n$1\r\n{replicas}\r\n$4\r\n{timeout_ms}\r\n");
    let _ = write!(expected, ":{replicas}\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::testing::limits;
    use crate::workload::Work;
    use nicekv_runtime::Stop;
    use std::net::{Ipv4Addr, TcpListener};

    /// Runs `work` with this many callers against a server that answers each request by `answer`.
    fn run(
        work: Work,
        callers: usize,
        wait_for: Option<usize>,
        answer: fn(&[u8]) -> Vec<u8>,
    ) -> Result<Measured> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = SocketAddrV4::new(Ipv4Addr::LOCALHOST, listener.local_addr().unwrap().port());
        std::thread::scope(|scope| {
            scope.spawn(move || {
                for _ in 0..callers {
                    let mut stream = listener.accept().unwrap().0;
                    stream.set_nodelay(true).unwrap();
                    scope.spawn(move || {
                        let mut request = [0; 512];
                        while let Ok(bytes @ 1..) = stream.read(&mut request) {
                            // In two parts, which may arrive apart.
                            let answer = answer(&request[..bytes]);
                            let sent =
                                stream.write_all(&answer[..3]).and_then(|()| stream.write_all(&answer[3..]));
                            if sent.is_err() {
                                return;
                            }
                        }
                    });
                }
            });
            let mut load = RedisLoad::connect(address, callers, wait_for).unwrap();
            load.run(Sequence::new(work, 1), limits(&Stop::new()))
        })
    }

    fn right_value(request: &[u8]) -> Vec<u8> {
        let key = &request[request.len() - 2 - KEY_BYTES..request.len() - 2];
        [b"$64\r\n", Step::preloaded(key).value().as_slice(), b"\r\n"].concat()
    }

    #[test]
    fn right_answers_are_counted_with_one_and_with_many_connections() {
        for callers in [1, 8] {
            assert!(run(Work::Get, callers, None, right_value).unwrap().operations > 0);
            let put = run(Work::Put, callers, Some(2), |_| b"+OK\r\n:2\r\n".to_vec());
            assert!(put.unwrap().operations > 0);
        }
    }

    #[test]
    fn a_wrong_answer_fails_the_run() {
        let wrong = |result: Result<Measured>| result.unwrap_err().to_string();
        let missing = wrong(run(Work::Get, 8, None, |_| b"$-1\r\n".to_vec()));
        assert!(missing.contains("GET") && missing.contains("$-1"), "{missing}");
        let unacknowledged = wrong(run(Work::Put, 1, Some(2), |_| b"+OK\r\n:1\r\n".to_vec()));
        assert!(unacknowledged.contains(":1"), "{unacknowledged}");
    }
}
