//! A Redis client of a gateway, as far as the checker's actions go, one command at a time.

use std::io::{self, BufRead, BufReader, Write};
use std::net::{SocketAddrV4, TcpStream};
use std::time::Duration;

use nicekv_history::model::{Change, When};
use nicekv_history::{Action, Answer, Call};
use nicekv_proto::{ClientId, Form, KeyspaceId, OpId, Status};
use nicekv_runtime::now;

use crate::error::Result;
use crate::namespace::Namespace;
use crate::topology::RESP;

/// Before a connection is tried again.
const RECONNECT_PAUSE: Duration = Duration::from_millis(10);
/// No value that is put here is longer.
const BULK_BYTES_MAX: usize = 8 << 20;

/// What a gateway answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    /// `+`
    Simple(String),
    /// `-`
    Error(String),
    /// `:`
    Integer(i64),
    /// `$`; `None` is null.
    Bulk(Option<Vec<u8>>),
    /// `*`, of no others.
    Array(Vec<Reply>),
}

/// A client that connects anew when its connection breaks.
pub(crate) struct RespClient {
    namespace: Namespace,
    timeout: Duration,
    stream: Option<BufReader<TcpStream>>,
    /// To which its connection has been switched; a new one is at the default keyspace.
    selected: KeyspaceId,
    /// Names its calls, since gateways tell no op ids.
    op: OpId,
}

impl RespClient {
    /// A client of the gateway in a namespace. `number`: tells it from others that judge the same keys.
    pub(crate) fn new(namespace: Namespace, number: u64, timeout: Duration) -> Self {
        let op = OpId { client: ClientId(u64::MAX - number), sequence: 0 };
        Self { namespace, timeout, stream: None, selected: KeyspaceId::DEFAULT, op }
    }

    pub(crate) fn call(&mut self, keyspace: KeyspaceId, key: &[u8], mut action: Action) -> Result<Call> {
        self.op.sequence += 1;
        if let Action::Update { op, .. } = &mut action {
            *op = self.op;
        }
        let words = words(key, &action);
        let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        let called = now().boot_ns;
        let reply = match self.select(keyspace)? {
            true => self.ask(&words)?.ok(),
            false => None,
        };
        let answered = reply.and_then(|reply| Some((now().boot_ns, answer(&action, reply)?)));
        Ok(Call { action, called, answered })
    }

    /// Switches the connection to a keyspace, if it is at another; whether it is there.
    pub(crate) fn select(&mut self, keyspace: KeyspaceId) -> Result<bool> {
        if self.stream.is_none() {
            self.selected = KeyspaceId::DEFAULT;
        }
        if self.selected == keyspace {
            return Ok(true);
        }
        let reply = self.ask(&[b"SELECT", keyspace.0.to_string().as_bytes()])?;
        let is_there = reply.is_ok_and(|reply| matches!(reply, Reply::Simple(_)));
        match is_there {
            true => self.selected = keyspace,
            // Whatever was said, the next call begins anew.
            false => self.stream = None,
        }
        Ok(is_there)
    }

    /// The next command gets a connection of its own.
    pub(crate) fn disconnect(&mut self) {
        self.stream = None;
    }

    /// Asks one command; any error leaves its outcome open, and the next one gets a connection of its own.
    pub(crate) fn ask(&mut self, words: &[&[u8]]) -> Result<io::Result<Reply>> {
        let mut stream = match self.stream.take() {
            Some(stream) => stream,
            None => match self.namespace.inside(|| connect(RESP, self.timeout))? {
                Ok(stream) => stream,
                Err(error) => {
                    std::thread::sleep(RECONNECT_PAUSE);
                    return Ok(Err(error));
                }
            },
        };
        let reply = exchange(&mut stream, words);
        if reply.is_ok() {
            self.stream = Some(stream);
        }
        Ok(reply)
    }
}

fn connect(gateway: SocketAddrV4, timeout: Duration) -> io::Result<BufReader<TcpStream>> {
    let stream = TcpStream::connect_timeout(&gateway.into(), timeout)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(timeout))?;
    stream.set_write_timeout(Some(timeout))?;
    Ok(BufReader::new(stream))
}

fn exchange(stream: &mut BufReader<TcpStream>, words: &[&[u8]]) -> io::Result<Reply> {
    let mut command = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        command.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        command.extend_from_slice(word);
        command.extend_from_slice(b"\r\n");
    }
    stream.get_mut().write_all(&command)?;
    read_reply(stream, true)
}

fn read_reply(stream: &mut impl BufRead, may_be_array: bool) -> io::Result<Reply> {
    let malformed = || io::Error::from(io::ErrorKind::InvalidData);
    let mut line = String::new();
    stream.read_line(&mut line)?;
    let line = line.strip_suffix("\r\n").ok_or(io::ErrorKind::UnexpectedEof)?;
    let (kind, rest) = line.split_at_checked(1).ok_or_else(malformed)?;
    match kind {
        "+" => Ok(Reply::Simple(rest.to_owned())),
        "-" => Ok(Reply::Error(rest.to_owned())),
        ":" => rest.parse().map(Reply::Integer).map_err(|_| malformed()),
        "$" if rest == "-1" => Ok(Reply::Bulk(None)),
        "$" => {
            let length: usize = rest.parse().map_err(|_| malformed())?;
            if length > BULK_BYTES_MAX {
                return Err(malformed());
            }
            let mut bulk = vec![0; length + 2];
            stream.read_exact(&mut bulk)?;
            bulk.truncate(length);
            Ok(Reply::Bulk(Some(bulk)))
        }
        "*" if may_be_array => {
            let count: usize = rest.parse().map_err(|_| malformed())?;
            (0..count).map(|_| read_reply(stream, false)).collect::<io::Result<_>>().map(Reply::Array)
        }
        _ => Err(malformed()),
    }
}

/// The command for an action. Gateways know no versions, and only some combinations of conditions and changes.
fn words(key: &[u8], action: &Action) -> Vec<Vec<u8>> {
    let words = |command: &str, rest: &[&[u8]]| {
        [command.as_bytes(), key].into_iter().chain(rest.iter().copied()).map(<[u8]>::to_vec).collect()
    };
    match action {
        Action::Get => words("GET", &[]),
        Action::Update { condition, return_old, change, .. } => match (condition, return_old, change) {
            (When::Always, false, Change::Set(value)) => words("SET", &[value]),
            (When::Always, true, Change::Set(value)) => words("GETSET", &[value]),
            (When::IfAbsent, false, Change::Set(value)) => words("SETNX", &[value]),
            (When::IfPresent, false, Change::Set(value)) => words("SET", &[value, b"XX"]),
            (When::Always, false, Change::Delete | Change::Erase) => words("DEL", &[]),
            (When::Always, false, Change::Append(suffix)) => words("APPEND", &[suffix]),
            (When::Always, false, Change::Increment(delta)) => {
                words("INCRBY", &[delta.to_string().as_bytes()])
            }
            other => unreachable!("no command of Redis: {other:?}"),
        },
    }
}

/// What the reply to an action's command says; `None` if it says that the outcome is unknown.
fn answer(action: &Action, reply: Reply) -> Option<Answer> {
    let told = |status, integer, value| {
        Some(Answer { status, version: Answer::VERSION_NOT_TOLD, integer, value, form: Form::Plain })
    };
    let counts = matches!(action, Action::Update { change: Change::Increment(_) | Change::Append(_), .. });
    let (refused, is_set) = match action {
        Action::Update { change: Change::Delete, .. } => (Status::NotFound, false),
        Action::Update { change: Change::Set(_), return_old, .. } => (Status::ConditionFailed, !return_old),
        _ => (Status::NotFound, false),
    };
    match reply {
        Reply::Simple(_) | Reply::Integer(1) if !counts => told(Status::Ok, 0, None),
        Reply::Integer(0) if !counts => told(refused, 0, None),
        Reply::Integer(integer) => told(Status::Ok, integer, None),
        Reply::Bulk(None) if is_set => told(Status::ConditionFailed, 0, None),
        Reply::Bulk(None) if *action == Action::Get => told(Status::NotFound, 0, None),
        // Of GETSET: there was no value.
        Reply::Bulk(value) => told(Status::Ok, 0, value),
        Reply::Error(text) if text.contains("not an integer") => told(Status::NotAnInteger, 0, None),
        Reply::Error(text) if text.contains("overflow") => told(Status::Overflow, 0, None),
        Reply::Error(text) if text.contains("exceed the limit") => told(Status::ValueTooLong, 0, None),
        Reply::Simple(_) | Reply::Error(_) | Reply::Array(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn update(condition: When, return_old: bool, change: Change) -> Action {
        Action::Update { op: OpId::NONE, condition, return_old, change }
    }

    fn set(condition: When, return_old: bool) -> Action {
        update(condition, return_old, Change::Set(b"v".to_vec()))
    }

    #[test]
    fn replies_are_read_to_their_last_byte() {
        let mut stream =
            &b"+OK\r\n-ERR no\r\n:-7\r\n$-1\r\n$4\r\na\r\nb\r\n$0\r\n\r\n*2\r\n:1\r\n$-1\r\n*0\r\n"[..];
        let expected = [
            Reply::Simple("OK".into()),
            Reply::Error("ERR no".into()),
            Reply::Integer(-7),
            Reply::Bulk(None),
            Reply::Bulk(Some(b"a\r\nb".to_vec())),
            Reply::Bulk(Some(Vec::new())),
            Reply::Array(vec![Reply::Integer(1), Reply::Bulk(None)]),
            Reply::Array(Vec::new()),
        ];
        for reply in expected {
            assert_eq!(read_reply(&mut stream, true).unwrap(), reply);
        }
        for broken in
            [&b""[..], b"+OK", b"?\r\n", b"\r\n", b":x\r\n", b"$9999999\r\n", b"$3\r\nab", b"*1\r\n*0\r\n"]
        {
            assert!(read_reply(&mut { broken }, true).is_err(), "{broken:?}");
        }
    }

    #[test]
    fn replies_mean_what_the_model_says() {
        let ok = |text: &str| Reply::Simple(text.into());
        let cases = [
            (Action::Get, Reply::Bulk(None), Some((Status::NotFound, 0, None))),
            (Action::Get, Reply::Bulk(Some(b"x".to_vec())), Some((Status::Ok, 0, Some("x")))),
            (set(When::Always, false), ok("OK"), Some((Status::Ok, 0, None))),
            (set(When::Always, true), Reply::Bulk(None), Some((Status::Ok, 0, None))),
            (set(When::Always, true), Reply::Bulk(Some(b"x".to_vec())), Some((Status::Ok, 0, Some("x")))),
            (set(When::IfAbsent, false), Reply::Integer(1), Some((Status::Ok, 0, None))),
            (set(When::IfAbsent, false), Reply::Integer(0), Some((Status::ConditionFailed, 0, None))),
            (set(When::IfPresent, false), Reply::Bulk(None), Some((Status::ConditionFailed, 0, None))),
            (update(When::Always, false, Change::Delete), Reply::Integer(1), Some((Status::Ok, 0, None))),
            (
                update(When::Always, false, Change::Delete),
                Reply::Integer(0),
                Some((Status::NotFound, 0, None)),
            ),
            (
                update(When::Always, false, Change::Increment(1)),
                Reply::Integer(1),
                Some((Status::Ok, 1, None)),
            ),
            (
                update(When::Always, false, Change::Increment(-1)),
                Reply::Integer(0),
                Some((Status::Ok, 0, None)),
            ),
            (
                update(When::Always, false, Change::Append(vec![1])),
                Reply::Integer(0),
                Some((Status::Ok, 0, None)),
            ),
            (
                update(When::Always, false, Change::Increment(1)),
                Reply::Error("ERR value is not an integer or out of range".into()),
                Some((Status::NotAnInteger, 0, None)),
            ),
            (set(When::Always, false), Reply::Error("ERR outcome unknown".into()), None),
        ];
        for (action, reply, expected) in cases {
            let found = answer(&action, reply.clone());
            let expected = expected.map(|(status, integer, value): (_, _, Option<&str>)| Answer {
                status,
                version: Answer::VERSION_NOT_TOLD,
                integer,
                value: value.map(|value| value.as_bytes().to_vec()),
                form: Form::Plain,
            });
            assert_eq!(found, expected, "{action:?} {reply:?}");
        }
    }
}
