//! When a lab is ready: every process runs, the metadata service says that every partition has all its replicas consistent and
//! all tables are acknowledged, and every gateway has read back what it wrote.

use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use nicekv_runtime::admin;
use nicekv_runtime::control_plane::AdminRequest;

use crate::clients::{Reply, RespClient};
use crate::error::{LabError, Result};
use crate::patience::Patience;
use crate::progress::Progress;
use crate::scope::Scope;
use crate::state::LabState;
use crate::topology::Host;
use crate::up::last_words;

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
pub(crate) fn wait(
    scope: &Scope,
    state: &LabState,
    interrupted: &AtomicBool,
    progress: &mut Progress,
) -> Result<()> {
    let patience = Patience::from(Instant::now(), READY_TIMEOUT, RETRY_PAUSE);
    let metadata = scope.namespace(Host::Metadata);
    patience
        .retry(interrupted, || {
            check_processes(scope, state)?;
            progress.tell(|| format!("all processes run, not ready yet: {}", why_not(scope, state)));
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
        patience.retry(interrupted, || {
            check_processes(scope, state)?;
            progress.tell(|| format!("the cluster is ready, {client} is being tried"));
            let probed = probe(&mut gateway)?;
            Ok(probed.map_err(|error| format!("the probe through {client}: {error}")))
        })?;
    }
    Ok(())
}

/// A process that has ended makes nothing ready.
fn check_processes(scope: &Scope, state: &LabState) -> Result<()> {
    match state.hosts.iter().find(|host| host.process.is_some() && !host.is_running()) {
        Some(ended) => Err(LabError::Ended { host: ended.name, last_words: last_words(scope, ended.name) }),
        None => Ok(()),
    }
}

/// What the metadata service says.
fn why_not(scope: &Scope, state: &LabState) -> String {
    let ask = || admin::ask(&state.metadata, &AdminRequest::Status, ASK_TIMEOUT);
    let answer = match scope.namespace(Host::Metadata).inside(ask) {
        Ok(Ok(answer)) => answer,
        Ok(Err(error)) => return format!("the metadata service does not answer: {error}"),
        Err(error) => return error.to_string(),
    };
    let status: serde_json::Value = serde_json::from_slice(&answer).unwrap_or_default();
    status["why_not_ready"].as_str().unwrap_or("the metadata service names no reason").to_owned()
}

/// Sets, gets and deletes a key at a gateway.
fn probe(gateway: &mut RespClient) -> Result<std::result::Result<(), String>> {
    let value = format!("written by process {}", std::process::id());
    let (key, value) = (PROBE_KEY.as_bytes(), value.as_bytes());
    let steps: [(&[&[u8]], Reply); 3] = [
        (&[b"SET", key, value], Reply::Simple("OK".into())),
        (&[b"GET", key], Reply::Bulk(Some(value.to_vec()))),
        (&[b"DEL", key], Reply::Integer(1)),
    ];
    for (words, expected) in steps {
        match gateway.ask(words)? {
            Ok(reply) if reply == expected => {}
            Ok(reply) => return Ok(Err(format!("{} was answered by {reply:?}", words[0].escape_ascii()))),
            Err(error) => return Ok(Err(error.to_string())),
        }
    }
    Ok(Ok(()))
}
