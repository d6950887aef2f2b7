//! One caller that puts and gets large values in Redis: a SET with its WAIT counts as one op.
//!
//! Commands are built in place, so that only the kernel copies values. It waits for answers as the
//! NICEKV client does: it busy-polls, then sleeps.

use super::large::{bounded, fill, stamp};
use super::{ANSWER_TIMEOUT, Limits, Measured, Meter};
use crate::error::{BenchError, Result};
use crate::workload::{KEY_BYTES, Step};
use nicekv_runtime::{BusyPoll, PollFd, interest, is_ready, now, wait};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddrV4, TcpStream};

const SET: &[u8] = b"*3\r\n$3\r\nSET\r\n$16\r\n";
const GET: &[u8] = b"*2\r\n$3\r\nGET\r\n$16\r\n";
const END: &[u8] = b"\r\n";

/// A connection to a Redis server.
pub(crate) struct LargeRedis {
    stream: TcpStream,
    busy_poll: BusyPoll,
    set: Command,
    get: Vec<u8>,
    /// The expected answer to a get.
    value: Command,
    /// The expected answer to a set.
    stored: Vec<u8>,
    answer: Vec<u8>,
}

/// The bytes of a command or of an answer, with the place of the value in them.
struct Command {
    bytes: Vec<u8>,
    value: std::ops::Range<usize>,
}

impl Command {
    fn new(before: &[u8], value_bytes: usize, behind: &[u8]) -> Self {
        let mut bytes = before.to_vec();
        bytes.resize(before.len() + value_bytes, 0);
        let value = before.len()..bytes.len();
        fill(&mut bytes[value.clone()]);
        bytes.extend_from_slice(behind);
        Self { bytes, value }
    }

    fn stamp(&mut self, step: &Step) {
        stamp(&mut self.bytes[self.value.clone()], step);
    }
}

impl LargeRedis {
    /// Connects from the calling thread's network namespace. A SET counts when `replicas` replicas
    /// have acknowledged it.
    pub(crate) fn connect(server: SocketAddrV4, value_bytes: usize, replicas: usize) -> io::Result<Self> {
        let stream = TcpStream::connect(server)?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        let length = format!("${value_bytes}\r\n");
        let key = [0; KEY_BYTES];
        let (mut behind, mut stored) = (END.to_vec(), b"+OK\r\n".to_vec());
        if replicas > 0 {
            let timeout_ms = ANSWER_TIMEOUT.as_millis();
            // Writing to a vector cannot fail.
            let _ = write!(behind, "*3\r\n$4\r\nWAIT\r\n$1\r\n{replicas}\r\n$4\r\n{timeout_ms}\r\n");
            let _ = write!(stored, ":{replicas}\r\n");
        }
        Ok(Self {
            stream,
            busy_poll: BusyPoll::new(BusyPoll::DEFAULT),
            set: Command::new(&[SET, &key, END, length.as_bytes()].concat(), value_bytes, &behind),
            get: [GET, &key, END].concat(),
            value: Command::new(length.as_bytes(), value_bytes, END),
            stored,
            answer: vec![0; value_bytes + 64],
        })
    }

    /// Runs `steps`, as [`super::large::LargeLoad::run`] does.
    pub(crate) fn run(
        &mut self,
        steps: impl IntoIterator<Item = Step>,
        limits: Limits<'_>,
    ) -> Result<Measured> {
        let mut meter = Meter::start(limits);
        for step in steps.into_iter().take_while(bounded()) {
            self.execute(&step)?;
            if !meter.count(1) {
                break;
            }
        }
        meter.finish()
    }

    /// Runs an op until it is answered.
    pub(crate) fn execute(&mut self, step: &Step) -> Result<()> {
        let Self { stream, busy_poll, set, get, value, stored, answer } = self;
        let key = step.key();
        let (command, expected) = if step.is_get() {
            get[GET.len()..][..KEY_BYTES].copy_from_slice(&key);
            value.stamp(step);
            (&*get, &value.bytes)
        } else {
            set.bytes[SET.len()..][..KEY_BYTES].copy_from_slice(&key);
            set.stamp(step);
            (&set.bytes, &*stored)
        };
        move_all(stream, busy_poll, command.len(), (false, "write to"), |stream, done| {
            stream.write(&command[done..])
        })?;
        let length = expected.len();
        // A wrong answer may be shorter, but its first byte differs.
        move_all(stream, busy_poll, length, (true, "read from"), |stream, done| {
            let read = stream.read(&mut answer[done..length])?;
            let is_right = answer[0] == expected[0];
            if is_right { Ok(read) } else { Err(io::Error::other("it answers an error")) }
        })?;
        if &answer[..length] == expected.as_slice() {
            return Ok(());
        }
        let begins = answer[..length.min(64)].escape_ascii();
        Err(BenchError::Failed(format!("redis: wrong answer to {}: {begins}…", key.escape_ascii())))
    }
}

/// Writes or reads `count` bytes.
fn move_all(
    stream: &mut TcpStream,
    busy_poll: &mut BusyPoll,
    count: usize,
    (is_input, what): (bool, &str),
    mut step: impl FnMut(&mut TcpStream, usize) -> io::Result<usize>,
) -> Result<()> {
    let failed = || BenchError::system(format!("{what} redis"));
    let mut done = 0;
    while done < count {
        let mut moved = 0;
        let is_moved = busy_poll.look(None, || match step(stream, done) {
            Ok(0) => Err(ErrorKind::UnexpectedEof.into()),
            Ok(bytes) => {
                moved = bytes;
                Ok(true)
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Ok(false),
            Err(error) => Err(error),
        });
        if is_moved.map_err(failed())? {
            done += moved;
            busy_poll.begin(now());
            continue;
        }
        let mut ready: [PollFd<'_>; 1] = [interest(&*stream, is_input, !is_input)];
        wait(&mut ready, Some(now().after(ANSWER_TIMEOUT))).map_err(failed())?;
        if !is_ready(&ready[0]) {
            return Err(BenchError::Failed(format!("redis: no answer in {ANSWER_TIMEOUT:?}")));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::testing::limits;
    use crate::workload::{Sequence, Work};
    use nicekv_runtime::Stop;
    use std::net::{Ipv4Addr, TcpListener};

    const VALUE_BYTES: usize = 300_000;

    /// Runs `work` against a server that keeps the last value, changes it by `change`, and
    /// acknowledges for `replicas`.
    fn run(works: &[Work], change: fn(&mut Vec<u8>), replicas: usize) -> Result<Measured> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = SocketAddrV4::new(Ipv4Addr::LOCALHOST, listener.local_addr().unwrap().port());
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let mut stream = listener.accept().unwrap().0;
                let (mut buffer, mut kept) = (vec![0; VALUE_BYTES + 256], Vec::new());
                let (set_bytes, get_bytes) = (SET.len() + KEY_BYTES + END.len(), GET.len() + KEY_BYTES + 2);
                // Everything of a set but its value: the length, the end, and WAIT.
                let rest = b"$300000\r\n\r\n*3\r\n$4\r\nWAIT\r\n$1\r\n2\r\n$4\r\n5000\r\n".len();
                while stream.read_exact(&mut buffer[..4]).is_ok() {
                    let is_get = buffer[..4] == GET[..4];
                    let length = if is_get { get_bytes } else { set_bytes + VALUE_BYTES + rest };
                    stream.read_exact(&mut buffer[4..length]).unwrap();
                    let answer = if is_get {
                        [b"$300000\r\n", kept.as_slice(), END].concat()
                    } else {
                        kept = buffer[set_bytes + "$300000\r\n".len()..][..VALUE_BYTES].to_vec();
                        change(&mut kept);
                        format!("+OK\r\n:{replicas}\r\n").into_bytes()
                    };
                    if stream.write_all(&answer).is_err() {
                        return;
                    }
                }
            });
            let mut load = LargeRedis::connect(address, VALUE_BYTES, 2).unwrap();
            let stop = Stop::new();
            let runs = works.iter().map(|work| load.run(Sequence::of_first(1, *work, 1), limits(&stop)));
            let last = runs.collect::<Result<Vec<_>>>().map(|runs| runs[runs.len() - 1]);
            drop(load);
            last
        })
    }

    #[test]
    fn a_stored_value_is_read() {
        assert!(run(&[Work::Preload, Work::Get], |_| {}, 2).unwrap().operations > 0);
        assert!(run(&[Work::Put], |_| {}, 2).unwrap().operations > 0);
    }

    #[test]
    fn a_wrong_byte_or_a_missing_replica_fails_the_run() {
        assert!(run(&[Work::Preload, Work::Get], |value| value[200_000] ^= 1, 2).is_err());
        assert!(run(&[Work::Put], |_| {}, 1).is_err());
    }
}
