//! Why a lab command did not do what was asked: one line for the operator each.

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::topology::Host;

/// Result of the crate.
pub type Result<T> = std::result::Result<T, LabError>;

/// Why a lab command failed.
#[derive(Debug, Error)]
pub enum LabError {
    #[error("nicekv lab needs root, for network namespaces and eBPF: run it with sudo")]
    NotRoot,
    #[error("NICEKV_LAB={name:?} is no name of a lab: up to {limit} of a-z, 0-9 and -")]
    LabName { name: String, limit: usize },
    #[error("another nicekv lab command is at work on this lab: wait for it, or end it")]
    Busy,
    #[error(
        "a lab is there already ({path}), running or left behind: `nicekv lab down` removes it",
        path = path.display()
    )]
    AlreadyThere { path: PathBuf },
    #[error("no lab is running: `nicekv lab up` starts one")]
    NotRunning,
    #[error("the network namespace {name} is there already and not ours: `ip netns del {name}` removes it")]
    ForeignNamespace { name: String },
    #[error("{count} {what}, allowed are 1 to {limit}")]
    Count { what: &'static str, count: usize, limit: usize },
    #[error("{replicas} replicas need as many nodes, and there are {nodes}: choose fewer, or more --nodes")]
    TooFewNodes { replicas: usize, nodes: usize },
    #[error("the memory engine keeps nothing, in no directory: leave out --data-dir or --engine memory")]
    MemoryInDirectory,
    #[error("several instances of the metadata service share their state: --metadata-store etcd")]
    ManyInstances,
    #[error(transparent)]
    Keyspace(#[from] nicekv_proto::placement::KeyspaceError),
    #[error("the lab has no host {host:?}; its hosts are {hosts}")]
    UnknownHost { host: String, hosts: String },
    #[error("{host} is running already: `nicekv lab kill {host}` ends it")]
    Runs { host: Host },
    #[error("{host} is not running: `nicekv lab start {host}` starts it")]
    RunsNot { host: Host },
    #[error(
        "no instance of the metadata service leads now, so none is \"metadata\": name one, {instances} ({reason})"
    )]
    NoLeader { instances: String, reason: String },
    #[error("the switch has no cable of its own: name one of the other hosts")]
    NoCable,
    #[error("there is no cable between {one} and {other}, or these are no switches")]
    NoTrunk { one: Host, other: Host },
    #[error("{host} is no switch")]
    NoSwitch { host: Host },
    #[error("on a plain network there are no switches of ours: leave out --switches, or --fabric plain")]
    SwitchesOnPlain,
    #[error(
        "a switch at xdp takes no frames of 9000 bytes (3506 at most): leave out --mtu, or say --switch tc"
    )]
    JumboAtXdp,
    #[error(transparent)]
    Switch(#[from] nicekv_switch_xdp::XdpError),
    #[error("{0}")]
    Configuration(String),
    #[error("{tool} is not installed, on Debian `apt install {}`", nicekv_testkit::package(tool))]
    ToolMissing { tool: String },
    #[error("`{command}` failed: {reason}")]
    Tool { command: String, reason: String },
    #[error("cannot {operation} {path}: {source}", path = path.display())]
    Io { operation: &'static str, path: PathBuf, source: io::Error },
    #[error("cannot execute {program}: {source}")]
    Execute { program: String, source: io::Error },
    #[error("cannot {operation}: {source}")]
    System { operation: String, source: io::Error },
    #[error("the lab's state in {path} is unreadable: {reason}; `nicekv lab down` removes the lab", path = path.display())]
    State { path: PathBuf, reason: String },
    #[error("{host} has ended; it said: {last_words}")]
    Ended { host: Host, last_words: String },
    #[error("not ready after {seconds} s: {reason}")]
    NotReady { seconds: u64, reason: String },
    #[error("interrupted")]
    Interrupted,
    #[error("the process {pid} survives SIGKILL, since it waits in the kernel")]
    Immortal { pid: i32 },
    #[error("after {rounds} rounds of SIGKILL there are still processes in the lab's namespaces")]
    Hydra { rounds: usize },
}

impl LabError {
    /// As of every command: 1 is a failed operation, 2 usage or environment.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Tool { .. }
            | Self::Io { .. }
            | Self::System { .. }
            | Self::State { .. }
            | Self::Ended { .. }
            | Self::Switch(_)
            | Self::NotReady { .. }
            | Self::Interrupted
            | Self::Immortal { .. }
            | Self::Hydra { .. } => 1,
            _ => 2,
        }
    }

    pub(crate) fn io(operation: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_path_buf();
        move |source| Self::Io { operation, path, source }
    }

    pub(crate) fn system(operation: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let operation = operation.into();
        move |source| Self::System { operation, source }
    }
}
