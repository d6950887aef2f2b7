//! Open vSwitch as the switch of a lab: for each switch a database and the datapath, in user space,
//! in the switch's namespace. Both are processes of the lab like others, for `kill`, `start` and
//! `pause`; `nicekv switch` beside them is the datapath's controller.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::data_plane::CONTROLLER;
use crate::error::{LabError, Result};
use crate::plan::{PlannedPort, switch_ports};
use crate::process::{ProcessId, spawn_detached};
use crate::scope::Scope;
use crate::state::LabState;
use crate::topology::Host;

const DATABASE: &str = "ovsdb-server";
const DATAPATH: &str = "ovs-vswitchd";
const SCHEMA: &str = "/usr/share/openvswitch/vswitch.ovsschema";
/// The bridge of a switch; its ports have the names of the hosts at the other ends.
const BRIDGE: &str = "br0";
/// Timeout for the database to answer.
const START_TIMEOUT: Duration = Duration::from_secs(10);
const RETRY_PAUSE: Duration = Duration::from_millis(20);

/// Fails if Open vSwitch is not installed.
pub(crate) fn find() -> Result<()> {
    let tools = [DATABASE, DATAPATH, "ovsdb-tool", "ovs-vsctl"];
    match tools.into_iter().find(|tool| !nicekv_testkit::is_installed(tool)) {
        Some(tool) => Err(LabError::ToolMissing { tool: tool.into() }),
        None => Ok(()),
    }
}

/// The files of a switch's Open vSwitch.
struct Files {
    directory: PathBuf,
}

impl Files {
    fn of(scope: &Scope, switch: Host) -> Self {
        Self { directory: scope.directory().join(format!("ovs-{switch}")) }
    }

    fn path(&self, name: &str) -> String {
        self.directory.join(name).to_string_lossy().into_owned()
    }

    fn socket(&self) -> String {
        self.path("db.sock")
    }
}

/// Runs a tool inside the lab's directory for Open vSwitch. The error is what it prints.
fn run(files: &Files, tool: &str, arguments: &[&str]) -> Result<()> {
    let output = Command::new(tool).args(arguments).env("OVS_RUNDIR", &files.directory).output();
    let output = output.map_err(LabError::io("run", Path::new(tool)))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(LabError::Tool {
            command: format!("{tool} {}", arguments.join(" ")),
            reason: String::from_utf8_lossy(&output.stderr).trim().into(),
        }),
    }
}

/// Starts the database of a switch, with the configuration of its last run if there is any.
pub(crate) fn spawn_database(scope: &Scope, host: Host) -> Result<ProcessId> {
    let files = Files::of(scope, host.machine());
    std::fs::create_dir_all(&files.directory).map_err(LabError::io("create", &files.directory))?;
    let database = files.path("conf.db");
    if !Path::new(&database).exists() {
        run(&files, "ovsdb-tool", &["create", &database, SCHEMA])?;
    }
    let remote = format!("--remote=punix:{}", files.socket());
    let control = format!("--unixctl={}", files.path("ovsdb.ctl"));
    let arguments = [database.as_str(), &remote, &control, "--verbose=console:warn"];
    spawn_detached(&scope.namespace(host), Path::new(DATABASE), &arguments, &scope.log_file(host))
}

/// Starts the datapath of a switch. Its bridge has the ports of the plan, and no flows until the
/// controller has installed some: a switch that starts again forwards nothing.
pub(crate) fn spawn_datapath(scope: &Scope, state: &LabState, host: Host) -> Result<ProcessId> {
    let files = Files::of(scope, host.machine());
    let database = format!("--db=unix:{}", files.socket());
    let since = Instant::now();
    while let Err(error) = run(&files, "ovs-vsctl", &[&database, "--no-wait", "init"]) {
        if since.elapsed() > START_TIMEOUT {
            return Err(error);
        }
        std::thread::sleep(RETRY_PAUSE);
    }
    let hosts: Vec<Host> = state.hosts.iter().map(|host| host.name).collect();
    let words = configuration(&switch_ports(state.layout(), host.machine(), &hosts));
    let words = words.split_whitespace();
    run(&files, "ovs-vsctl", &[&database, "--no-wait"].into_iter().chain(words).collect::<Vec<_>>())?;
    let (database, control) =
        (format!("unix:{}", files.socket()), format!("--unixctl={}", files.path("ovs.ctl")));
    // The datapath makes a socket for each bridge there.
    let directory = format!("OVS_RUNDIR={}", files.directory.display());
    let arguments = [&directory, DATAPATH, &database, &control, "--disable-system", "--verbose=console:warn"];
    spawn_detached(&scope.namespace(host), Path::new("env"), &arguments, &scope.log_file(host))
}

/// The words for `ovs-vsctl` that make a bridge with these ports.
fn configuration(ports: &[PlannedPort]) -> String {
    let mut words = format!(
        "--may-exist add-br {BRIDGE} \
         -- set bridge {BRIDGE} datapath_type=netdev protocols=OpenFlow13 fail-mode=secure \
         -- set-controller {BRIDGE} tcp:{CONTROLLER} \
         -- set controller {BRIDGE} connection-mode=out-of-band max_backoff=1000"
    );
    for PlannedPort { number, device, .. } in ports {
        words += &format!(
            " -- --may-exist add-port {BRIDGE} {device} -- set interface {device} ofport_request={number}"
        );
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bridge_is_fail_secure_and_each_port_has_its_number() {
        let port = |number, device: &str| PlannedPort { number, device: device.into(), is_trunk: false };
        let words = configuration(&[port(1, "metadata"), port(2, "node-0")]);
        assert!(words.contains("fail-mode=secure"));
        assert!(words.ends_with(
            "add-port br0 metadata -- set interface metadata ofport_request=1 \
             -- --may-exist add-port br0 node-0 -- set interface node-0 ofport_request=2"
        ));
    }
}
