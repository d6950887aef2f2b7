//! A Redis client of a gateway, one command at a time, for the actions that the checker knows.

use std::time::Duration;

use nicekv_history::model::{Change, When};
use nicekv_history::{Action, Answer, Call};
use nicekv_proto::{ClientId, Form, KeyspaceId, OpId, Status};
use nicekv_runtime::now;
use redis::io::tcp::TcpSettings;
use redis::{
    Connection, ConnectionLike, IntoConnectionInfo, RedisConnectionInfo, RedisError, RedisResult, Value,
};

use crate::error::Result;
use crate::namespace::Namespace;
use crate::topology::RESP;

/// Pause before a connection is attempted again.
const RECONNECT_PAUSE: Duration = Duration::from_millis(10);

/// A client that reconnects when its connection breaks.
pub(crate) struct RespClient {
    namespace: Namespace,
    timeout: Duration,
    connection: Option<Connection>,
    /// The keyspace of the connection; a new one begins at the default keyspace.
    selected: KeyspaceId,
    /// The op id of the next call. Gateways return none, so the client numbers its calls itself.
    op: OpId,
}

impl RespClient {
    /// A client of the gateway in a namespace. `number` distinguishes it from other clients that
    /// use the same keys.
    pub(crate) fn new(namespace: Namespace, number: u64, timeout: Duration) -> Self {
        let op = OpId { client: ClientId(u64::MAX - number), sequence: 0 };
        Self { namespace, timeout, connection: None, selected: KeyspaceId::DEFAULT, op }
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

    /// Selects a keyspace on the connection, unless it is selected already. False if that fails.
    pub(crate) fn select(&mut self, keyspace: KeyspaceId) -> Result<bool> {
        if self.connection.is_none() {
            self.selected = KeyspaceId::DEFAULT;
        }
        if self.selected == keyspace {
            return Ok(true);
        }
        let reply = self.ask(&[b"SELECT", keyspace.0.to_string().as_bytes()])?;
        let is_selected = reply.is_ok_and(|reply| reply == Value::Okay);
        match is_selected {
            true => self.selected = keyspace,
            false => self.disconnect(),
        }
        Ok(is_selected)
    }

    /// Closes the connection. The next command opens a new one.
    pub(crate) fn disconnect(&mut self) {
        self.connection = None;
    }

    /// Sends a command. After an error its outcome is unknown, and the next command opens a new
    /// connection. An error reply of the gateway is a value.
    pub(crate) fn ask(&mut self, words: &[&[u8]]) -> Result<RedisResult<Value>> {
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => match self.namespace.inside(|| connect(self.timeout))? {
                Ok(connection) => connection,
                Err(error) => {
                    std::thread::sleep(RECONNECT_PAUSE);
                    return Ok(Err(error));
                }
            },
        };
        let mut command = redis::Cmd::new();
        words.iter().for_each(|word| _ = command.arg(word));
        let reply = connection.req_command(&command);
        if reply.is_ok() {
            self.connection = Some(connection);
        }
        Ok(reply)
    }
}

fn connect(timeout: Duration) -> std::result::Result<Connection, RedisError> {
    let info = (RESP.ip().to_string(), RESP.port()).into_connection_info()?;
    let info = info.set_tcp_settings(TcpSettings::default().set_nodelay(true));
    let info = info.set_redis_settings(RedisConnectionInfo::default().set_skip_set_lib_name());
    let connection = redis::Client::open(info)?.get_connection_with_timeout(timeout)?;
    connection.set_read_timeout(Some(timeout))?;
    connection.set_write_timeout(Some(timeout))?;
    Ok(connection)
}

/// The command for an action. Redis commands have no versions, and only some combinations of
/// conditions and changes.
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
            other => unreachable!("Redis has no command for {other:?}"),
        },
    }
}

/// The answer that a reply means; `None` if the outcome is unknown.
fn answer(action: &Action, reply: Value) -> Option<Answer> {
    let answer = |status, integer, value| {
        Some(Answer { status, version: Answer::VERSION_NOT_TOLD, integer, value, form: Form::Plain })
    };
    let counts = matches!(action, Action::Update { change: Change::Increment(_) | Change::Append(_), .. });
    let (refused, is_set) = match action {
        Action::Update { change: Change::Delete, .. } => (Status::NotFound, false),
        Action::Update { change: Change::Set(_), return_old, .. } => (Status::ConditionFailed, !return_old),
        _ => (Status::NotFound, false),
    };
    match reply {
        Value::Okay | Value::Int(1) if !counts => answer(Status::Ok, 0, None),
        Value::Int(0) if !counts => answer(refused, 0, None),
        Value::Int(integer) => answer(Status::Ok, integer, None),
        Value::Nil if is_set => answer(Status::ConditionFailed, 0, None),
        Value::Nil if *action == Action::Get => answer(Status::NotFound, 0, None),
        // The reply to GETSET of a key without a value.
        Value::Nil => answer(Status::Ok, 0, None),
        Value::BulkString(value) => answer(Status::Ok, 0, Some(value)),
        Value::ServerError(error) => match error.details().unwrap_or_default() {
            text if text.contains("not an integer") => answer(Status::NotAnInteger, 0, None),
            text if text.contains("overflow") => answer(Status::Overflow, 0, None),
            text if text.contains("exceed the limit") => answer(Status::ValueTooLong, 0, None),
            _ => None,
        },
        _ => None,
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
    fn replies_are_translated_to_answers() {
        let delete = || update(When::Always, false, Change::Delete);
        let increment = |by| update(When::Always, false, Change::Increment(by));
        let bulk = || Value::BulkString(b"x".to_vec());
        let error = |line: &str| {
            let reply = redis::parse_redis_value(format!("-{line}\r\n").as_bytes()).unwrap();
            assert!(matches!(reply, Value::ServerError(_)), "{reply:?}");
            reply
        };
        let cases = [
            (Action::Get, Value::Nil, Some((Status::NotFound, 0, None))),
            (Action::Get, bulk(), Some((Status::Ok, 0, Some("x")))),
            (set(When::Always, false), Value::Okay, Some((Status::Ok, 0, None))),
            (set(When::Always, true), Value::Nil, Some((Status::Ok, 0, None))),
            (set(When::Always, true), bulk(), Some((Status::Ok, 0, Some("x")))),
            (set(When::IfAbsent, false), Value::Int(1), Some((Status::Ok, 0, None))),
            (set(When::IfAbsent, false), Value::Int(0), Some((Status::ConditionFailed, 0, None))),
            (set(When::IfPresent, false), Value::Nil, Some((Status::ConditionFailed, 0, None))),
            (delete(), Value::Int(1), Some((Status::Ok, 0, None))),
            (delete(), Value::Int(0), Some((Status::NotFound, 0, None))),
            (increment(1), Value::Int(1), Some((Status::Ok, 1, None))),
            (increment(-1), Value::Int(0), Some((Status::Ok, 0, None))),
            (
                update(When::Always, false, Change::Append(vec![1])),
                Value::Int(0),
                Some((Status::Ok, 0, None)),
            ),
            (
                increment(1),
                error("ERR value is not an integer or out of range"),
                Some((Status::NotAnInteger, 0, None)),
            ),
            (set(When::Always, false), error("ERR outcome unknown"), None),
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
