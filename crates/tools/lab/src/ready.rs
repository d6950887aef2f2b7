//! Determines when a lab is ready: every process is running, the metadata service reports all
//! replicas consistent and all tables installed, and every gateway has read back what it wrote.

use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use nicekv_runtime::admin;
use nicekv_runtime::control_plane::AdminRequest;

use redis::Value;

use crate::clients::RespClient;
use crate::error::{LabError, Result};
use crate::launch::last_log_line;
use crate::scope::Scope;
use crate::state::LabState;
use crate::topology::Host;
use crate::wait::{Progress, Retry};

/// Timeout from the start of the processes.
const READY_TIMEOUT: Duration = Duration::from_secs(60);
/// Timeout of one request. Between two requests the processes are checked.
const ASK_TIMEOUT: Duration = Duration::from_millis(250);
/// Pause between two requests.
const RETRY_PAUSE: Duration = Duration::from_millis(20);
/// Timeout of one reply of a gateway.
const PROBE_TIMEOUT: Duration = Duration::from_secs(1);
const PROBE_KEY: &str = "nicekv lab up: probe";

/// Waits until the lab is ready.
pub(crate) fn wait(
    scope: &Scope,
    state: &LabState,
    interrupted: &AtomicBool,
    progress: &mut Progress,
) -> Result<()> {
    let retry = Retry::from(Instant::now(), READY_TIMEOUT, RETRY_PAUSE);
    let metadata = scope.namespace(Host::Metadata);
    retry
        .run(interrupted, || {
            check_processes(scope, state)?;
            progress
                .report(|| format!("all processes are running, not ready yet: {}", why_not(scope, state)));
            let ready = metadata.inside(|| admin::ask(&state.metadata, &AdminRequest::Ready, ASK_TIMEOUT))?;
            Ok(ready.map(|_| ()).map_err(|_| String::new()))
        })
        .map_err(|error| match error {
            LabError::NotReady { seconds, .. } => {
                LabError::NotReady { seconds, reason: why_not(scope, state) }
            }
            error => error,
        })?;
    for client in &state.clients {
        let mut gateway = RespClient::new(scope.namespace(*client), 0, PROBE_TIMEOUT);
        retry.run(interrupted, || {
            check_processes(scope, state)?;
            progress.report(|| format!("the cluster is ready, testing the gateway of {client}"));
            let probed = probe(&mut gateway)?;
            Ok(probed.map_err(|error| format!("the gateway of {client}: {error}")))
        })?;
    }
    Ok(())
}

/// Fails if a process has ended.
fn check_processes(scope: &Scope, state: &LabState) -> Result<()> {
    match state.hosts.iter().find(|host| host.process.is_some() && !host.is_running()) {
        Some(ended) => Err(LabError::Ended { host: ended.name, log_line: last_log_line(scope, ended.name) }),
        None => Ok(()),
    }
}

/// The reason why the cluster is not ready, according to the metadata service.
fn why_not(scope: &Scope, state: &LabState) -> String {
    let ask = || admin::ask(&state.metadata, &AdminRequest::Status, ASK_TIMEOUT);
    let answer = match scope.namespace(Host::Metadata).inside(ask) {
        Ok(Ok(answer)) => answer,
        Ok(Err(error)) => return format!("the metadata service does not answer: {error}"),
        Err(error) => return error.to_string(),
    };
    let status: serde_json::Value = serde_json::from_slice(&answer).unwrap_or_default();
    status["why_not_ready"].as_str().unwrap_or("the metadata service gives no reason").to_owned()
}

/// Sets, gets and deletes a key at a gateway.
fn probe(gateway: &mut RespClient) -> Result<std::result::Result<(), String>> {
    let value = format!("written by process {}", std::process::id());
    let (key, value) = (PROBE_KEY.as_bytes(), value.as_bytes());
    let steps: [(&[&[u8]], Value); 3] = [
        (&[b"SET", key, value], Value::Okay),
        (&[b"GET", key], Value::BulkString(value.to_vec())),
        (&[b"DEL", key], Value::Int(1)),
    ];
    for (words, expected) in steps {
        match gateway.ask(words)? {
            Ok(reply) if reply == expected => {}
            Ok(reply) => return Ok(Err(format!("{} returned {reply:?}", words[0].escape_ascii()))),
            Err(error) => return Ok(Err(error.to_string())),
        }
    }
    Ok(Ok(()))
}
