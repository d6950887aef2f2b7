//! The state file of a running lab, by which commands find it: `/run/nicekv/lab.json`.
//!
//! ```text
//!             up: written before the first namespace          down: removed after the last
//!   (nothing) ──────────▶ starting ──▶ running ───────────────▶ (nothing)
//! ```
//!
//! Invariant: while anything of a lab exists, so does its state file. It is replaced as a whole
//! (write, rename).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::io;
use std::net::SocketAddrV4;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::data_plane::DataPlane;
use crate::error::{LabError, Result};
use crate::layout::{Layout, Shape};
use crate::process::ProcessId;
use crate::scope::Scope;
use crate::topology::{Fabric, Host};

/// Injected faults of a host's link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct LinkFaults {
    /// Drops what is sent to the host.
    pub(crate) cut_in: bool,
    /// Drops what the host sends.
    pub(crate) cut_out: bool,
    /// Percentage of frames that are dropped, in each direction.
    pub(crate) loss_percent: f64,
    /// Percentage of the host's frames that are delivered twice.
    pub(crate) duplicate_percent: f64,
}

/// The links with injected faults.
pub(crate) type Faults = BTreeMap<Host, LinkFaults>;

/// Links between switches that are down, by their ends, the upper one first.
pub(crate) type Unplugged = BTreeSet<(Host, Host)>;

/// Prints the faults as `status` shows them: nothing, or ` cut in, loss 10 %`.
impl fmt::Display for LinkFaults {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cut = match (self.cut_in, self.cut_out) {
            (true, true) => Some("cut".to_owned()),
            (true, false) => Some("cut in".to_owned()),
            (false, true) => Some("cut out".to_owned()),
            (false, false) => None,
        };
        let share = |name, percent: f64| (percent > 0.0).then(|| format!("{name} {percent} %"));
        let parts = [cut, share("loss", self.loss_percent), share("duplicate", self.duplicate_percent)];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        if parts.is_empty() { Ok(()) } else { write!(formatter, " {}", parts.join(", ")) }
    }
}

/// Whether `up` has finished.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Phase {
    /// `up` is under way, or was killed.
    Starting,
    /// The lab was ready.
    Running,
}

/// A lab, as its state file describes it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct LabState {
    pub(crate) phase: Phase,
    /// Prefix of the namespaces' names; the host's name follows.
    pub(crate) namespace_prefix: String,
    /// The addresses of the metadata service's instances (UDP: nodes, TCP: commands), as seen from
    /// every host.
    pub(crate) metadata: Vec<SocketAddrV4>,
    /// The RESP gateway of each client host, as seen from inside it.
    pub(crate) resp: SocketAddrV4,
    /// The client hosts.
    pub(crate) clients: Vec<Host>,
    pub(crate) program: PathBuf,
    pub(crate) config: PathBuf,
    /// The hosts, in start order.
    pub(crate) hosts: Vec<HostState>,
    #[serde(default)]
    pub(crate) fabric: Fabric,
    #[serde(default)]
    pub(crate) switch: DataPlane,
    /// How switches are connected.
    #[serde(default)]
    pub(crate) topology: Shape,
    #[serde(default)]
    pub(crate) unplugged: Unplugged,
    #[serde(default)]
    pub(crate) faults: Faults,
}

/// A host of a lab.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct HostState {
    pub(crate) name: Host,
    /// The process that was started last; it may have ended.
    pub(crate) process: Option<ProcessId>,
    /// Whether its node does not start with the lab.
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

    pub(crate) fn layout(&self) -> Layout {
        Layout::of(self.topology, self.hosts.iter().map(|host| host.name))
    }

    /// The process of a host, if it is running.
    pub(crate) fn process(&self, name: Host) -> Option<ProcessId> {
        let host = self.hosts.iter().find(|host| host.name == name)?;
        host.process.filter(|process| process.is_alive())
    }

    /// The addresses of the metadata instances in the form of `--endpoint`.
    pub(crate) fn endpoints(&self) -> String {
        self.metadata.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
    }

    pub(crate) fn host_mut(&mut self, name: &str) -> Result<&mut HostState> {
        let known: Vec<String> = self.hosts.iter().map(|host| host.name.to_string()).collect();
        let found = self.hosts.iter_mut().find(|host| host.name.to_string() == name);
        found.ok_or_else(|| LabError::UnknownHost { host: name.into(), hosts: known.join(", ") })
    }
}

impl HostState {
    pub(crate) fn is_running(&self) -> bool {
        self.process.is_some_and(ProcessId::is_alive)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_shows_cable_faults() {
        let faults = LinkFaults { cut_in: true, cut_out: false, loss_percent: 10.0, duplicate_percent: 2.5 };
        assert_eq!(faults.to_string(), " cut in, loss 10 %, duplicate 2.5 %");
        assert_eq!(LinkFaults::default().to_string(), "");
    }
}
