//! Members of etcd on the hosts of the metadata service's instances. They are processes of the lab
//! like others, for `kill`, `start` and `pause`.
//!
//! Hosts of a lab are close to each other, so the members elect a new leader in less than a second,
//! which the metadata service survives.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::error::{LabError, Result};
use crate::process::{ProcessId, spawn_detached};
use crate::scope::Scope;
use crate::state::LabState;
use crate::topology::{ETCD_CLIENTS, ETCD_PEERS, Host};

const SERVER: &str = "etcd";
const HEARTBEAT_MS: &str = "50";
const ELECTION_MS: &str = "500";

/// Fails if etcd is not installed.
pub(crate) fn find() -> Result<()> {
    let version = Command::new(SERVER).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if version.is_ok_and(|status| status.success()) {
        Ok(())
    } else {
        Err(LabError::ToolMissing { tool: SERVER.into() })
    }
}

/// Starts a member, with the data of its last run if there is any.
pub(crate) fn spawn(scope: &Scope, state: &LabState, host: Host) -> Result<ProcessId> {
    let url = |host: Host, port: u16| format!("http://{}:{port}", host.address());
    let members = state.hosts.iter().map(|other| other.name).filter(|name| matches!(name, Host::Etcd(_)));
    let members: Vec<_> = members.map(|member| format!("{member}={}", url(member, ETCD_PEERS))).collect();
    let (name, directory) = (host.to_string(), scope.directory().join(host.to_string()));
    let (clients, peers, members) = (url(host, ETCD_CLIENTS), url(host, ETCD_PEERS), members.join(","));
    let arguments = [
        ["--name", &name],
        ["--data-dir", &directory.to_string_lossy()],
        ["--initial-cluster", &members],
        ["--listen-client-urls", &clients],
        ["--advertise-client-urls", &clients],
        ["--listen-peer-urls", &peers],
        ["--initial-advertise-peer-urls", &peers],
        ["--heartbeat-interval", HEARTBEAT_MS],
        ["--election-timeout", ELECTION_MS],
        ["--logger", "zap"],
        ["--log-level", "error"],
        ["--log-outputs", "stderr"],
    ];
    spawn_detached(&scope.namespace(host), Path::new(SERVER), &arguments.concat(), &scope.log_file(host))
}
