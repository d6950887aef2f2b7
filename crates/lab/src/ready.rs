//! When a lab is ready: every process runs, the metadata service says that every partition has all its replicas consistent and
//! all tables are acknowledged, and every gateway has read back what it wrote.

use std::io::{self, Read, Write};
use std::net::{SocketAddrV4, TcpStream};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use nicekv_runtime::admin;
use nicekv_runtime::control_plane::AdminRequest;

use crate::error::{LabError, Result};
use crate::scope::Scope;
use crate::state::LabState;
use crate::topology::Host;
use crate::up::{last_words, stop_if};

/// From the start of the processes.
const READY_TIMEOUT: Duration = Duration::from_secs(60);
/// For one question; between two of them it is looked after the processes.
const ASK_TIMEOUT: Duration = Duration::from_millis(250);
/// For a service that is not there yet.
const RETRY_PAUSE: Duration = Duration::from_millis(20);
/// For one answer of a gateway.
const PROBE_TIMEOUT: Duration = Duration::from_secs(1);
const PROBE_KEY: &str = "nicekv lab up: probe";

/// Waits until the lab is ready.
pub(crate) fn wait(scope: &Scope, state: &LabState, interrupted: &AtomicBool) -> Result<()> {
    let deadline = Instant::now() + READY_TIMEOUT;
    let metadata = scope.namespace(Host::Metadata);
    retry(scope, state, interrupted, deadline, || {
        let ready = metadata.inside(|| admin::ask(state.metadata, AdminRequest::Ready, ASK_TIMEOUT))?;
        Ok(ready.map(|_| ()).map_err(|_| String::new()))
    })
    .map_err(|error| match error {
        LabError::NotReady { seconds, .. } => LabError::NotReady { seconds, reason: why_not(scope, state) },
        error => error,
    })?;
    for client in &state.clients {
        let namespace = scope.namespace(*client);
        retry(scope, state, interrupted, deadline, || {
            let probed = namespace.inside(|| probe(state.resp))?;
            Ok(probed.map_err(|error| format!("the probe through {client}: {error}")))
        })?;
    }
    Ok(())
}

/// Tries until it succeeds; a process that has ended, an interruption and the deadline end it.
fn retry(
    scope: &Scope,
    state: &LabState,
    interrupted: &AtomicBool,
    deadline: Instant,
    mut attempt: impl FnMut() -> Result<std::result::Result<(), String>>,
) -> Result<()> {
    loop {
        stop_if(interrupted)?;
        if let Some(ended) = state.hosts.iter().find(|host| !host.is_running()) {
            return Err(LabError::Ended { host: ended.name, last_words: last_words(scope, ended.name) });
        }
        match attempt()? {
            Ok(()) => return Ok(()),
            Err(reason) if Instant::now() >= deadline => {
                return Err(LabError::NotReady { seconds: READY_TIMEOUT.as_secs(), reason });
            }
            Err(_) => std::thread::sleep(RETRY_PAUSE),
        }
    }
}

/// What the metadata service says.
fn why_not(scope: &Scope, state: &LabState) -> String {
    let ask = || admin::ask(state.metadata, AdminRequest::Status, ASK_TIMEOUT);
    let answer = match scope.namespace(Host::Metadata).inside(ask) {
        Ok(Ok(answer)) => answer,
        Ok(Err(error)) => return format!("the metadata service does not answer: {error}"),
        Err(error) => return error.to_string(),
    };
    let status: serde_json::Value = serde_json::from_slice(&answer).unwrap_or_default();
    status["why_not_ready"].as_str().unwrap_or("the metadata service names no reason").to_owned()
}

/// Sets, gets and deletes a key at a gateway.
fn probe(gateway: SocketAddrV4) -> io::Result<()> {
    let mut stream = TcpStream::connect_timeout(&gateway.into(), PROBE_TIMEOUT)?;
    stream.set_read_timeout(Some(PROBE_TIMEOUT))?;
    stream.set_write_timeout(Some(PROBE_TIMEOUT))?;
    let value = format!("written by process {}", std::process::id());
    ask(&mut stream, &["SET", PROBE_KEY, &value], "+OK\r\n")?;
    ask(&mut stream, &["GET", PROBE_KEY], &format!("${}\r\n{value}\r\n", value.len()))?;
    ask(&mut stream, &["DEL", PROBE_KEY], ":1\r\n")
}

fn ask(stream: &mut TcpStream, words: &[&str], expected: &str) -> io::Result<()> {
    let mut command = format!("*{}\r\n", words.len());
    for word in words {
        command += &format!("${}\r\n{word}\r\n", word.len());
    }
    stream.write_all(command.as_bytes())?;
    let mut answer = vec![0; expected.len()];
    // A shorter answer is another one, and complete with its line.
    let mut length = 0;
    while length < answer.len() && (length == 0 || expected.as_bytes().starts_with(&answer[..length])) {
        match stream.read(&mut answer[length..])? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            bytes => length += bytes,
        }
    }
    if answer == expected.as_bytes() {
        return Ok(());
    }
    let answer = String::from_utf8_lossy(&answer[..length]).trim_end().to_owned();
    Err(io::Error::other(format!("{} was answered by {answer:?}", words[0])))
}
