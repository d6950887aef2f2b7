//! Scans of a Redis server: SCAN in large steps, and MGET of the keys of each step.
//!
//! ```text
//!   one connection    SCAN 0 ─▶ keys ─▶ SCAN c, MGET keys ─▶ more keys ─▶ SCAN d, MGET more keys ─▶ values, …
//!   redis-cli         redis-cli --scan ─▶ a line for each key ─▶ MGET of some thousand
//! ```
//!
//! On one connection the server is never idle: the next SCAN is sent before the MGET of the keys
//! that the last one returned. Answers are parsed by hand, at fixed offsets, so that the client
//! does not limit the server.

use super::data::{KEY_BYTES, Seen, VALUE_BYTES, key, value};
use crate::error::{BenchError, Result};
use crate::redis_server;
use crate::session::Session;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddrV4, TcpStream};
use std::process::{Command, Stdio};

/// Keys of a SCAN step, and of an MGET.
pub(super) const COUNT: u32 = 1_000;
const CLI: &str = "redis-cli";
/// Bytes read at once.
const READ_BYTES: usize = 256 << 10;
/// Commands of a preload sent at once.
const PRELOAD_BATCH: usize = 512;
/// The prefix of a key in commands and answers.
const KEY_HEAD: &[u8] = b"$16\r\n";
const BULK_KEY_BYTES: usize = KEY_HEAD.len() + KEY_BYTES + 2;
const _: () = assert!(KEY_BYTES == 16 && VALUE_BYTES == 100, "the lengths are written out here");

/// A connection to a Redis server.
pub(super) struct RedisScan {
    server: SocketAddrV4,
    stream: TcpStream,
    /// Bytes read; those from `at` on are not parsed yet.
    bytes: Vec<u8>,
    at: usize,
    request: Vec<u8>,
    /// Keys encoded as in commands: those whose values are requested, and those to request next.
    asked: Vec<u8>,
    next: Vec<u8>,
}

impl RedisScan {
    /// Connects from the calling thread's network namespace.
    pub(super) fn connect(server: SocketAddrV4) -> std::io::Result<Self> {
        let stream = TcpStream::connect(server)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(crate::load::ANSWER_TIMEOUT))?;
        let (bytes, request, asked, next) = Default::default();
        Ok(Self { server, stream, bytes, at: 0, request, asked, next })
    }

    /// Stores `keys` keys.
    pub(super) fn preload(&self, keys: u32, session: &Session) -> Result<()> {
        let failed = |error: ::redis::RedisError| BenchError::failed(format_args!("redis: {error}"));
        let mut connection = redis_server::connect(self.server).map_err(failed)?;
        let mut numbers = 0..keys;
        while !numbers.is_empty() {
            let mut pipe = ::redis::pipe();
            for number in numbers.by_ref().take(PRELOAD_BATCH) {
                pipe.set(&key(number, keys), &value(number, keys)).ignore();
            }
            pipe.exec(&mut connection).map_err(failed)?;
            session.check()?;
        }
        Ok(())
    }

    /// Scans everything, in steps of `count` keys, and records it in `seen`.
    pub(super) fn run(&mut self, count: u32, seen: &mut Seen) -> Result<()> {
        self.asked.clear();
        self.request.clear();
        append_scan(&mut self.request, b"0", count);
        self.send()?;
        let mut is_last = false;
        while !is_last {
            let cursor = self.read_step()?;
            is_last = cursor == b"0";
            self.request.clear();
            if !is_last {
                append_scan(&mut self.request, &cursor, count);
            }
            append_mget(&mut self.request, &self.next);
            self.send()?;
            self.read_values(seen)?;
            std::mem::swap(&mut self.asked, &mut self.next);
        }
        self.read_values(seen)?;
        all(seen)
    }

    /// The same, with the keys that `redis-cli --scan` prints. Its steps are of ten keys, which
    /// only Redis 7.2 can change.
    pub(super) fn run_by_cli(&mut self, count: u32, seen: &mut Seen) -> Result<()> {
        let mut child = Command::new(CLI)
            .args(["-h", &self.server.ip().to_string(), "-p", &self.server.port().to_string()])
            .arg("--scan")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(BenchError::system(format!("start {CLI}")))?;
        let output = child.stdout.take().expect("piped");
        let listed = self.get_listed(count, BufReader::with_capacity(READ_BYTES, output), seen);
        // It has ended, or its output is no longer needed.
        let _ = child.kill();
        let _ = child.wait();
        listed.and_then(|()| all(seen))
    }

    /// Gets the values of the keys on these lines.
    fn get_listed(&mut self, count: u32, mut lines: impl BufRead, seen: &mut Seen) -> Result<()> {
        self.asked.clear();
        let mut line = Vec::new();
        loop {
            self.next.clear();
            while self.next.len() < count as usize * BULK_KEY_BYTES {
                line.clear();
                let read = lines.read_until(b'\n', &mut line);
                if read.map_err(BenchError::system(format!("read from {CLI}")))? == 0 {
                    break;
                }
                let key = line.strip_suffix(b"\n").and_then(|key| key.try_into().ok());
                append_key(&mut self.next, key.ok_or_else(wrong)?);
            }
            self.request.clear();
            append_mget(&mut self.request, &self.next);
            self.send()?;
            self.read_values(seen)?;
            if self.next.is_empty() {
                return Ok(());
            }
            std::mem::swap(&mut self.asked, &mut self.next);
        }
    }

    fn send(&mut self) -> Result<()> {
        self.stream.write_all(&self.request).map_err(BenchError::system("write to redis"))
    }

    /// Reads the answer to a SCAN: returns the next cursor, and keeps the keys in `next`.
    fn read_step(&mut self) -> Result<Vec<u8>> {
        self.expect(b"*2")?;
        self.number(b'$')?;
        let cursor = self.line()?;
        let cursor = self.bytes[cursor].to_vec();
        let keys = self.number(b'*')?;
        self.next.clear();
        for _ in 0..keys {
            self.fill(BULK_KEY_BYTES)?;
            let bulk = &self.bytes[self.at..self.at + BULK_KEY_BYTES];
            if !bulk.starts_with(KEY_HEAD) {
                return Err(wrong());
            }
            self.next.extend_from_slice(bulk);
            self.at += BULK_KEY_BYTES;
        }
        Ok(cursor)
    }

    /// Reads the answer to the MGET of the keys in `asked`.
    fn read_values(&mut self, seen: &mut Seen) -> Result<()> {
        const HEAD: &[u8] = b"$100\r\n";
        const BULK: usize = HEAD.len() + VALUE_BYTES + 2;
        if self.asked.is_empty() {
            return Ok(());
        }
        let keys = self.asked.len() / BULK_KEY_BYTES;
        if self.number(b'*')? != keys {
            return Err(wrong());
        }
        for place in 0..keys {
            self.fill(BULK)?;
            let bulk = &self.bytes[self.at..self.at + BULK];
            let key = &self.asked[place * BULK_KEY_BYTES + KEY_HEAD.len()..][..KEY_BYTES];
            let value = bulk.strip_prefix(HEAD).ok_or_else(wrong)?;
            if !seen.record(key, &value[..VALUE_BYTES]) {
                return Err(wrong());
            }
            self.at += BULK;
        }
        self.asked.clear();
        Ok(())
    }

    fn expect(&mut self, expected: &[u8]) -> Result<()> {
        let line = self.line()?;
        if self.bytes[line] == *expected { Ok(()) } else { Err(wrong()) }
    }

    /// Reads a line of this kind with a number.
    fn number(&mut self, kind: u8) -> Result<usize> {
        let line = self.line()?;
        let digits = self.bytes[line].strip_prefix(&[kind]).and_then(|digits| str::from_utf8(digits).ok());
        digits.and_then(|digits| digits.parse().ok()).ok_or_else(wrong)
    }

    /// Reads a line; returns where it is, without its end.
    fn line(&mut self) -> Result<std::ops::Range<usize>> {
        let mut looked = 0;
        loop {
            let rest = &self.bytes[self.at + looked..];
            if let Some(end) = rest.windows(2).position(|pair| pair == b"\r\n") {
                let start = self.at;
                self.at += looked + end + 2;
                return Ok(start..self.at - 2);
            }
            looked += rest.len().saturating_sub(1);
            self.fill(self.bytes.len() - self.at + 1)?;
        }
    }

    /// Reads until `bytes` bytes are there to be parsed.
    fn fill(&mut self, bytes: usize) -> Result<()> {
        while self.bytes.len() - self.at < bytes {
            self.bytes.drain(..self.at);
            self.at = 0;
            let before = self.bytes.len();
            self.bytes.resize(before + READ_BYTES, 0);
            let read = self.stream.read(&mut self.bytes[before..]);
            self.bytes.truncate(before + *read.as_ref().unwrap_or(&0));
            if read.map_err(BenchError::system("read from redis"))? == 0 {
                return Err(BenchError::Failed("redis closed the connection".into()));
            }
        }
        Ok(())
    }
}

fn all(seen: &Seen) -> Result<()> {
    match seen.is_all() {
        true => Ok(()),
        false => Err(BenchError::Failed(format!("redis returned {} keys", seen.count()))),
    }
}

fn wrong() -> BenchError {
    BenchError::Failed("redis: a wrong answer".into())
}

fn append_key(out: &mut Vec<u8>, key: &[u8; KEY_BYTES]) {
    out.extend_from_slice(KEY_HEAD);
    out.extend_from_slice(key);
    out.extend_from_slice(b"\r\n");
}

fn append_scan(out: &mut Vec<u8>, cursor: &[u8], count: u32) {
    let cursor = String::from_utf8_lossy(cursor);
    let count = count.to_string();
    // Writing to a vector cannot fail.
    let _ = write!(out, "*4\r\n$4\r\nSCAN\r\n${}\r\n{cursor}\r\n", cursor.len());
    let _ = write!(out, "$5\r\nCOUNT\r\n${}\r\n{count}\r\n", count.len());
}

/// Appends an MGET of keys that are encoded as in commands.
fn append_mget(out: &mut Vec<u8>, keys: &[u8]) {
    if keys.is_empty() {
        return;
    }
    let _ = write!(out, "*{}\r\n$4\r\nMGET\r\n", 1 + keys.len() / BULK_KEY_BYTES);
    out.extend_from_slice(keys);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, TcpListener};

    const KEYS: u32 = 7;

    /// A server of [`KEYS`] keys that returns `step` of them at a time. `spoilt`: the last one has
    /// a wrong value.
    fn serve(listener: &TcpListener, step: u32, spoilt: bool) -> Option<()> {
        let stream = listener.accept().ok()?.0;
        let (mut lines, mut out) = (BufReader::new(stream.try_clone().ok()?), stream);
        loop {
            let words = words(&mut lines)?;
            let mut answer = Vec::new();
            if words[0] == b"SCAN" {
                let from: u32 = str::from_utf8(&words[1]).ok()?.parse().ok()?;
                let to = (from + step).min(KEYS);
                let cursor = if to == KEYS { 0 } else { to };
                let _ = write!(answer, "*2\r\n$1\r\n{cursor}\r\n*{}\r\n", to - from);
                (from..to).for_each(|number| append_key(&mut answer, &key(number, KEYS)));
            } else {
                let _ = write!(answer, "*{}\r\n", words.len() - 1);
                for word in &words[1..] {
                    let number = (0..KEYS).find(|number| key(*number, KEYS) == word.as_slice())?;
                    let returned = if spoilt && number == KEYS - 1 { 0 } else { number };
                    answer.extend_from_slice(b"$100\r\n");
                    answer.extend_from_slice(&value(returned, KEYS));
                    answer.extend_from_slice(b"\r\n");
                }
            }
            // In two parts, which may arrive apart.
            let (first, rest) = answer.split_at(answer.len() / 2);
            out.write_all(first).ok()?;
            out.write_all(rest).ok()?;
        }
    }

    fn words(lines: &mut impl BufRead) -> Option<Vec<Vec<u8>>> {
        let mut line = || {
            let mut line = Vec::new();
            lines.read_until(b'\n', &mut line).ok()?;
            line.strip_suffix(b"\r\n").map(<[u8]>::to_vec)
        };
        let count: usize = str::from_utf8(line()?.strip_prefix(b"*")?).ok()?.parse().ok()?;
        (0..count).map(|_| line().and_then(|_| line())).collect()
    }

    fn with_server<T>(step: u32, spoilt: bool, work: impl FnOnce(&mut RedisScan) -> T) -> T {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = SocketAddrV4::new(Ipv4Addr::LOCALHOST, listener.local_addr().unwrap().port());
        std::thread::scope(|scope| {
            scope.spawn(move || serve(&listener, step, spoilt));
            work(&mut RedisScan::connect(address).unwrap())
        })
    }

    #[test]
    fn everything_is_scanned_in_steps_of_any_length() {
        for step in [1, 3, 7, 10] {
            let mut seen = Seen::none_of(KEYS);
            with_server(step, false, |redis| redis.run(step, &mut seen)).unwrap();
            assert!(seen.is_all() && !seen.is_repeated(), "{step}");
        }
    }

    #[test]
    fn keys_listed_on_lines_are_fetched() {
        let lines: Vec<u8> = (0..KEYS).flat_map(|number| [&key(number, KEYS)[..], b"\n"].concat()).collect();
        for count in [1, 3, 7, 10] {
            let mut seen = Seen::none_of(KEYS);
            with_server(1, false, |redis| redis.get_listed(count, &lines[..], &mut seen)).unwrap();
            assert!(seen.is_all() && !seen.is_repeated(), "{count}");
        }
    }

    #[test]
    fn a_wrong_value_or_a_missing_key_fails() {
        let mut seen = Seen::none_of(KEYS);
        assert!(with_server(3, true, |redis| redis.run(3, &mut seen)).is_err());
        let mut more = Seen::none_of(KEYS + 1);
        assert!(with_server(3, false, |redis| redis.run(3, &mut more)).is_err());
    }
}
