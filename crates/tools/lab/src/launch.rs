//! Starts the processes of a lab, and reads the last lines of their logs.

use std::fs;
use std::sync::atomic::AtomicBool;

use crate::error::Result;
use crate::process::{ProcessId, spawn_detached};
use crate::scope::Scope;
use crate::state::LabState;
use crate::topology::Host;
use crate::wait::{Progress, fail_if};
use crate::{etcd, open_vswitch};

/// Starts the process of every host except the spares.
pub(crate) fn start_all(
    scope: &Scope,
    state: &mut LabState,
    interrupted: &AtomicBool,
    progress: &mut Progress,
) -> Result<()> {
    for index in 0..state.hosts.len() {
        fail_if(interrupted)?;
        progress.report(|| format!("{index} of {} processes are started", state.hosts.len()));
        if state.hosts[index].is_spare {
            continue;
        }
        state.hosts[index].process = Some(spawn(scope, state, state.hosts[index].name)?);
        state.save(scope)?;
    }
    Ok(())
}

/// Starts the process of a host.
pub(crate) fn spawn(scope: &Scope, state: &LabState, host: Host) -> Result<ProcessId> {
    match host {
        Host::Etcd(_) => return etcd::spawn(scope, state, host),
        Host::OvsDatabase(_) => return open_vswitch::spawn_database(scope, host),
        Host::OvsDatapath(_) => return open_vswitch::spawn_datapath(scope, state, host),
        _ => {}
    }
    let (config, name) = (state.config.to_string_lossy(), host.to_string());
    let mut arguments = vec![host.role(), "--config", &config];
    if host != Host::Metadata {
        arguments.extend(["--name", &name]);
    }
    spawn_detached(&scope.namespace(host), &state.program, &arguments, &scope.log_file(host))
}

/// The last line of a host's log.
pub(crate) fn last_log_line(scope: &Scope, host: Host) -> String {
    let log = fs::read(scope.log_file(host)).unwrap_or_default();
    let log = String::from_utf8_lossy(&log);
    log.lines().rfind(|line| !line.is_empty()).unwrap_or("nothing").to_owned()
}
