//! Commands on a running lab: `exec`, `status`, `kill`, `start`, `pause`, `resume`,
//! `switch-restart`.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};
use std::time::Duration;

use nicekv_runtime::admin;
use nicekv_runtime::control_plane::AdminRequest;
use nicekv_switch_xdp::Hook;
use serde_json::{Value, json};

use crate::data_plane::DataPlane;
use crate::error::{LabError, Result};
use crate::faults;
use crate::launch::{last_log_line, spawn};
use crate::lock::Lock;
use crate::process::ProcessId;
use crate::scope::Scope;
use crate::state::{HostState, LabState};
use crate::topology::{Fabric, Host};

/// Tells client commands which cluster to use.
const ENDPOINT_VARIABLE: &str = "NICEKV_ENDPOINT";
/// A process that cannot start exits within this time.
const EARLY_END: Duration = Duration::from_millis(300);
/// Timeout for the election of a leader of the metadata service, which takes about a second.
const LEADER_TIMEOUT: Duration = Duration::from_secs(5);

fn load(scope: &Scope) -> Result<LabState> {
    LabState::load(scope)?.ok_or(LabError::NotRunning)
}

/// Replaces this process by the command, on the host. Returns only if that fails.
pub(crate) fn exec(scope: &Scope, host: &str, command: &[OsString]) -> Result<()> {
    let mut state = load(scope)?;
    let host = state.host_mut(host)?.name;
    scope.namespace(host).enter()?;
    let [program, arguments @ ..] = command else { unreachable!("clap requires a command") };
    let mut command = Command::new(program);
    // Overrides the cluster that the operator's environment may name.
    let error = command.args(arguments).env(ENDPOINT_VARIABLE, state.endpoints()).exec();
    Err(LabError::Execute { program: program.to_string_lossy().into(), source: error })
}

/// Which instance of several the name `metadata` means.
#[derive(Clone, Copy)]
enum Instance {
    Leader,
    /// The first that is not running.
    Ended,
    /// The first that is paused.
    Paused,
}

/// The name of the host that an operator means by `host`. If `metadata` may mean one of several
/// instances, prints which one it means; the first is called `metadata-0`.
fn resolve(scope: &Scope, host: &str, instance: Instance) -> Result<String> {
    let metadata = Host::Metadata.to_string();
    if host == format!("{metadata}-0") {
        return Ok(metadata);
    }
    let state = load(scope)?;
    let instances = || state.hosts.iter().filter(|host| host.name.instance().is_some());
    if host != metadata || instances().count() == 1 {
        return Ok(host.to_owned());
    }
    let first = |is_it: &dyn Fn(&HostState) -> bool| {
        instances().find(|host| is_it(host)).map_or(metadata.clone(), |host| host.name.to_string())
    };
    let (found, how) = match instance {
        Instance::Leader => (leader(scope, &state)?, "the leader"),
        Instance::Ended => (first(&|host| !host.is_running()), "not running"),
        Instance::Paused => {
            (first(&|host| host.process.is_some_and(|process| process.is_paused())), "paused")
        }
    };
    println!("{found} ({how})");
    Ok(found)
}

/// The instance of the metadata service that reports that it leads.
fn leader(scope: &Scope, state: &LabState) -> Result<String> {
    let ask = || admin::ask(&state.metadata, &AdminRequest::Status, LEADER_TIMEOUT);
    let answer = scope.namespace(Host::Metadata).inside(ask)?;
    let named = answer.map_err(|error| error.to_string()).and_then(|json| {
        let status: Value = serde_json::from_slice(&json).map_err(|error| error.to_string())?;
        let instance = status["control_plane"]["instance"].as_str();
        instance.map(str::to_owned).ok_or_else(|| "its status has no instance".to_owned())
    });
    named.map_err(|reason| {
        let numbers = state.hosts.iter().filter_map(|host| host.name.instance());
        let instances = numbers.map(|number| format!("metadata-{number}")).collect::<Vec<_>>().join(", ");
        LabError::NoLeader { instances, reason }
    })
}

pub(crate) fn kill_resolved(scope: &Scope, host: &str) -> Result<()> {
    kill(scope, &resolve(scope, host, Instance::Leader)?)
}

pub(crate) fn start_resolved(scope: &Scope, host: &str) -> Result<()> {
    start(scope, &resolve(scope, host, Instance::Ended)?)
}

pub(crate) fn pause_resolved(scope: &Scope, host: &str) -> Result<()> {
    pause(scope, &resolve(scope, host, Instance::Leader)?)
}

pub(crate) fn resume_resolved(scope: &Scope, host: &str) -> Result<()> {
    resume(scope, &resolve(scope, host, Instance::Paused)?)
}

pub(crate) fn kill(scope: &Scope, host: &str) -> Result<()> {
    let _lock = Lock::take(scope)?;
    let mut state = load(scope)?;
    let host = state.host_mut(host)?;
    let killed = host.process.map_or(Ok(false), |process| process.kill())?;
    if killed { Ok(()) } else { Err(LabError::HostNotRunning { host: host.name }) }
}

fn start(scope: &Scope, host: &str) -> Result<()> {
    let _lock = Lock::take(scope)?;
    let mut state = load(scope)?;
    let host = state.host_mut(host)?;
    let name = host.name;
    if host.is_running() {
        return Err(LabError::HostRunning { host: name });
    }
    let process = start_again(scope, &mut state, name)?;
    watch(scope, name, process)
}

/// Starts a host's process again, without checking whether it keeps running.
pub(crate) fn start_unwatched(scope: &Scope, host: Host) -> Result<()> {
    let _lock = Lock::take(scope)?;
    start_again(scope, &mut load(scope)?, host).map(|_| ())
}

/// Kills a switch's process, if it is running, and starts it again: with empty tables, and the same
/// injected faults.
pub(crate) fn restart_switch(scope: &Scope, host: &str) -> Result<()> {
    let _lock = Lock::take(scope)?;
    let mut state = load(scope)?;
    let switch = state.host_mut(host)?.name;
    if switch.switch().is_none() {
        return Err(LabError::NoSwitch { host: switch });
    }
    if let Some(process) = state.process(switch) {
        process.kill()?;
    }
    let process = start_again(scope, &mut state, switch)?;
    watch(scope, switch, process)
}

/// Stops the host's process with SIGSTOP.
pub(crate) fn pause(scope: &Scope, host: &str) -> Result<()> {
    let _lock = Lock::take(scope)?;
    let host = *load(scope)?.host_mut(host)?;
    match host.process {
        Some(process) if process.pause()? => Ok(()),
        _ => Err(LabError::HostNotRunning { host: host.name }),
    }
}

/// Continues the host's process with SIGCONT.
pub(crate) fn resume(scope: &Scope, host: &str) -> Result<()> {
    let _lock = Lock::take(scope)?;
    let mut state = load(scope)?;
    let host = *state.host_mut(host)?;
    match host.process {
        Some(process) if process.resume()? => {}
        _ => return Err(LabError::HostNotRunning { host: host.name }),
    }
    // The switch may have been paused before it had loaded its programs.
    if host.name.switch().is_some() { faults::apply(scope, &state) } else { Ok(()) }
}

/// Fails with the last log line if the process exits at once.
fn watch(scope: &Scope, host: Host, process: ProcessId) -> Result<()> {
    match process.ends_within(EARLY_END)? {
        true => Err(LabError::Ended { host, log_line: last_log_line(scope, host) }),
        false => Ok(()),
    }
}

fn start_again(scope: &Scope, state: &mut LabState, name: Host) -> Result<ProcessId> {
    let process = spawn(scope, state, name)?;
    state.host_mut(&name.to_string())?.process = Some(process);
    state.save(scope)?;
    if name.switch().is_some() && !state.faults.is_empty() {
        faults::apply(scope, state)?;
    }
    Ok(process)
}

/// Shows the hosts, then the output of `nicekv status`. Fails if that fails.
pub(crate) fn status(scope: &Scope, json: bool, partitions: bool) -> Result<ExitCode> {
    let state = load(scope)?;
    let mut ask = Command::new(&state.program);
    ask.args(["status", "--endpoint", &state.endpoints()]);
    ask.args(partitions.then_some("--partitions"));
    let failed = |error| LabError::io("run", &state.program)(error);
    let namespace = scope.namespace(Host::Metadata);
    let answered = if json {
        let output = namespace.inside(|| ask.arg("--json").output())?.map_err(failed)?;
        let cluster: Value = serde_json::from_slice(&output.stdout).unwrap_or(json!({}));
        println!("{:#}", merged(scope, &state, cluster));
        output.status.success()
    } else {
        for host in &state.hosts {
            let HostState { name, process, .. } = host;
            let (word, pid) = (state_of(host), process.map_or(0, |process| process.pid));
            let faults = state.faults.get(name).copied().unwrap_or_default();
            let hook = match *name {
                Host::Switch | Host::FurtherSwitch(_) => format!(" at {}", state.switch),
                Host::NodeEdge(_) | Host::ClientEdge(_) => format!(" at {}", Hook::Tc),
                _ => String::new(),
            };
            println!("host {name} {} {word} pid {pid}{hook}{faults}", name.address());
        }
        namespace.inside(|| ask.status())?.map_err(failed)?.success()
    };
    Ok(if answered { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn state_of(host: &HostState) -> &'static str {
    match host.process {
        None => "unstarted",
        Some(process) if process.is_paused() => "paused",
        Some(process) if process.is_alive() => "running",
        Some(_) => "ended",
    }
}

/// Adds the hosts to the cluster's status, for `--json`.
fn merged(scope: &Scope, state: &LabState, mut cluster: Value) -> Value {
    let counts = faults::counts(scope, state).unwrap_or_default();
    let faults = |host: Host| {
        let mut faults = json!(state.faults.get(&host)?);
        // Only the eBPF programs count.
        if state.fabric == Fabric::Plain || state.switch == DataPlane::OpenFlow {
            return Some(faults);
        }
        let counts = counts.get(&host).copied().unwrap_or_default();
        faults["lost_frames"] = json!(counts.lost);
        faults["doubled_frames"] = json!(counts.doubled);
        Some(faults)
    };
    let host = |host: &HostState| {
        json!({
            "name": host.name,
            "namespace": scope.namespace(host.name).name(),
            "address": host.name.address(),
            "state": state_of(host),
            "pid": host.process.map(|process| process.pid),
            "faults": faults(host.name),
        })
    };
    cluster["phase"] = json!(state.phase);
    cluster["fabric"] = json!(state.fabric);
    cluster["switch_hook"] = json!(state.switch);
    cluster["config"] = json!(state.config);
    cluster["hosts"] = state.hosts.iter().map(host).collect();
    cluster
}
