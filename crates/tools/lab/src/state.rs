//! What a running lab leaves for commands to find: `/run/nicekv/lab.json`.
//!
//! ```text
//!             up: written before the first namespace          down: removed after the last
//!   (nothing) ──────────▶ starting ──▶ running ───────────────▶ (nothing)
//! ```
//!
//! Invariant: while anything of a lab exists, so does its state file. It is replaced as a whole (write, rename).

use std::fs;
use std::io;
use std::net::SocketAddrV4;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use nicekv_switch_xdp::Hook;

use crate::error::{LabError, Result};
use crate::faults::Faults;
use crate::layout::{Layout, Shape};
use crate::links::Unplugged;
use crate::process::ProcessId;
use crate::scope::Scope;
use crate::topology::{Fabric, Host};

/// How far a lab is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Phase {
    /// `up` is at work, or was ended in the middle of it.
    Starting,
    /// Was ready.
    Running,
}

/// A lab.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct LabState {
    /// How far it is.
    pub(crate) phase: Phase,
    /// The network namespace of a host is named by this and the host's name.
    pub(crate) namespace_prefix: String,
    /// The instances of the metadata service (UDP: nodes, TCP: commands), as seen from every host.
    pub(crate) metadata: Vec<SocketAddrV4>,
    /// The RESP gateway of each client host, as seen from inside it.
    pub(crate) resp: SocketAddrV4,
    /// The names of the client hosts.
    pub(crate) clients: Vec<Host>,
    /// The program whose roles run.
    pub(crate) program: PathBuf,
    /// Its configuration.
    pub(crate) config: PathBuf,
    /// In the order of their start.
    pub(crate) hosts: Vec<HostState>,
    /// What is in the middle.
    #[serde(default)]
    pub(crate) fabric: Fabric,
    /// Where the switch works on frames: never `auto`.
    #[serde(default)]
    pub(crate) switch: Hook,
    /// How switches hang together.
    #[serde(default)]
    pub(crate) topology: Shape,
    /// Cables between switches that are pulled.
    #[serde(default)]
    pub(crate) unplugged: Unplugged,
    /// What is wrong on purpose.
    #[serde(default)]
    pub(crate) faults: Faults,
}

/// A host of a lab.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct HostState {
    /// Its name, without the prefix.
    pub(crate) name: Host,
    /// Its process, the last one that was started: perhaps it has ended.
    pub(crate) process: Option<ProcessId>,
    /// Nobody has started it yet.
    #[serde(default)]
    pub(crate) is_spare: bool,
}

impl LabState {
    pub(crate) fn load(scope: &Scope) -> Result<Option<Self>> {
        let path = scope.state_file();
        let json = match fs::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            json => json.map_err(LabError::io("read", &path))?,
        };
        let state = serde_json::from_slice(&json);
        state.map(Some).map_err(|error| LabError::State { path, reason: error.to_string() })
    }

    pub(crate) fn save(&self, scope: &Scope) -> Result<()> {
        let path = scope.state_file();
        let new = path.with_extension("json.new");
        let json = serde_json::to_vec_pretty(self).expect("plain data always encodes");
        fs::write(&new, json).map_err(LabError::io("write", &new))?;
        fs::rename(&new, &path).map_err(LabError::io("write", &path))
    }

    /// Which host hangs at which switch.
    pub(crate) fn layout(&self) -> Layout {
        Layout::of(self.topology, self.hosts.iter().map(|host| host.name))
    }

    /// The process of a host, if it runs.
    pub(crate) fn process(&self, name: Host) -> Option<ProcessId> {
        let host = self.hosts.iter().find(|host| host.name == name)?;
        host.process.filter(|process| process.is_alive())
    }

    /// The instances, for the environment of a command.
    pub(crate) fn endpoints(&self) -> String {
        self.metadata.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
    }

    /// The host of that name.
    pub(crate) fn host_mut(&mut self, name: &str) -> Result<&mut HostState> {
        let known: Vec<String> = self.hosts.iter().map(|host| host.name.to_string()).collect();
        let found = self.hosts.iter_mut().find(|host| host.name.to_string() == name);
        found.ok_or_else(|| LabError::UnknownHost { host: name.into(), hosts: known.join(", ") })
    }
}

impl HostState {
    /// Whether its process runs.
    pub(crate) fn is_running(&self) -> bool {
        self.process.is_some_and(ProcessId::is_alive)
    }
}
