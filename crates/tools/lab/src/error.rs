//! Errors of lab commands: one line each.

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::topology::Host;

pub type Result<T> = std::result::Result<T, LabError>;

#[derive(Debug, Error)]
pub enum LabError {
    #[error("nicekv lab needs root, for network namespaces and eBPF: run it with sudo")]
    NotRoot,
    #[error(transparent)]
    Name(#[from] nicekv_cli::lab::InvalidLabName),
    #[error("another nicekv lab command is changing this lab: wait until it ends")]
    Busy,
    #[error(
        "a lab already exists ({path}), running or left behind: `nicekv lab down` removes it",
        path = path.display()
    )]
    AlreadyThere { path: PathBuf },
    #[error("no lab is running: `nicekv lab up` starts one")]
    NotRunning,
    #[error(
        "the network namespace {name} exists already and belongs to no lab: `ip netns del {name}` removes it"
    )]
    ForeignNamespace { name: String },
    #[error("{count} {what} are not supported: choose 1 to {limit}")]
    Count { what: &'static str, count: usize, limit: usize },
    #[error(
        "{replicas} replicas need {replicas} nodes, but there are {nodes}: reduce --replicas or raise --nodes"
    )]
    TooFewNodes { replicas: usize, nodes: usize },
    #[error("the memory engine stores nothing on disk: omit --data-dir or --engine memory")]
    MemoryInDirectory,
    #[error("several instances of the metadata service share their state: add --metadata-store etcd")]
    ManyInstances,
    #[error(transparent)]
    Keyspace(#[from] nicekv_proto::placement::KeyspaceError),
    #[error("the lab has no host {host:?}; its hosts are {hosts}")]
    UnknownHost { host: String, hosts: String },
    #[error("{host} is running already: `nicekv lab kill {host}` ends it")]
    HostRunning { host: Host },
    #[error("{host} is not running: `nicekv lab start {host}` starts it")]
    HostNotRunning { host: Host },
    #[error("no instance of the metadata service leads at the moment ({reason}): name one, {instances}")]
    NoLeader { instances: String, reason: String },
    #[error("the switch has no link of its own: name another host")]
    NoLink,
    #[error("there is no link between {one} and {other}")]
    NoTrunk { one: Host, other: Host },
    #[error("{host} is not a switch")]
    NoSwitch { host: Host },
    #[error("a plain network has no switches of NICEKV: omit --switches or --fabric plain")]
    SwitchesOnPlain,
    #[error("a switch at xdp supports frames of up to 3506 bytes: omit --mtu 9000 or choose --switch tc")]
    JumboAtXdp,
    #[error(transparent)]
    Switch(#[from] nicekv_switch_xdp::XdpError),
    #[error("{0}")]
    Configuration(String),
    #[error("{tool} is not installed, on Debian `apt install {}`", nicekv_testkit::package(tool))]
    ToolMissing { tool: String },
    #[error(
        "Open vSwitch connects switches of one tree, with frames of 1500 bytes: leave out --fabric plain, --topology turbokv and --mtu 9000, or --switch openflow"
    )]
    OpenFlowNetwork,
    #[error("`{command}` failed: {reason}")]
    Tool { command: String, reason: String },
    #[error("cannot {operation} {path}: {source}", path = path.display())]
    Io { operation: &'static str, path: PathBuf, source: io::Error },
    #[error("cannot execute {program}: {source}")]
    Execute { program: String, source: io::Error },
    #[error("cannot {operation}: {source}")]
    System { operation: String, source: io::Error },
    #[error("cannot read the lab's state in {path}: {reason}; `nicekv lab down` removes the lab", path = path.display())]
    State { path: PathBuf, reason: String },
    #[error("the process of {host} has ended; its last log line: {log_line}")]
    Ended { host: Host, log_line: String },
    #[error("not ready after {seconds} s: {reason}")]
    NotReady { seconds: u64, reason: String },
    #[error("interrupted")]
    Interrupted,
    #[error("process {pid} does not end on SIGKILL: it hangs in the kernel")]
    KillTimeout { pid: i32 },
    #[error("after {rounds} rounds of SIGKILL processes are still in the lab's namespaces")]
    ProcessesRemain { rounds: usize },
}

impl LabError {
    /// Exit code, as of every command: 1 for a failed operation, 2 for usage or environment.
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
            | Self::KillTimeout { .. }
            | Self::ProcessesRemain { .. } => 1,
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
