//! A cluster on one machine with real hosts: network namespaces around a switch in the kernel, one process in each.
//!
//! ```text
//!   nicekv lab up ─▶ namespaces, cables ─▶ nicekv switch | metadata | node | gateway, one per namespace ─▶ ready
//!   nicekv lab exec | kill | start | status ─▶ find them by /run/nicekv/lab.json
//!   nicekv lab cut | loss | pause | heal …  ─▶ faults at the switch's ports, and of processes
//!   nicekv lab down ─▶ nothing left
//! ```
//!
//! Reading order: [`topology`] (who is there), `layout` (at which switch), `scope` (where it lives), `network` (cables), `process`, `up` (and
//! down), `ready`, `commands`, `faults`. Then the tests that an operator can run: `clients`, `own`, `chaos`, `power_loss`.
//!
//! Invariants:
//! - While anything of a lab exists, its state file does; a second lab of that name is refused.
//! - Whatever belongs to a lab is, or is in, one of its namespaces, or below its directory. So `down` finds all of it
//!   whatever has happened, and touches nothing else.
//! - A process is killed only if it is the recorded one or is in a namespace of the lab.

mod chaos;
mod clients;
mod commands;
mod error;
mod etcd;
mod faults;
mod layout;
mod links;
mod lock;
mod namespace;
mod network;
mod own;
mod patience;
mod plan;
mod power_loss;
mod process;
mod progress;
mod ready;
mod scope;
mod state;
mod tool;
pub mod topology;
mod up;

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand, ValueEnum};

pub use nicekv_switch_xdp::Hook;

pub use error::{LabError, Result};
pub use plan::{Plan, PlannedEdge, PlannedHot, PlannedInstance, PlannedNode, PlannedPort, PlannedSwitch};
pub use scope::LAB_VARIABLE;
pub use topology::Fabric;

use faults::CableFaults;
use layout::{Shape, TURBOKV_HOSTS, TURBOKV_SWITCHES};
use scope::Scope;

/// The program whose roles run on the hosts of a lab, as `ROLE --config FILE [--name HOST]`.
#[derive(Clone, Copy)]
pub struct Roles<'a> {
    /// The program.
    pub program: &'a Path,
    /// Writes the configuration file that all of its roles read; an error is one line.
    pub configure: &'a dyn Fn(&Plan) -> std::result::Result<String, String>,
}

/// `nicekv lab`
#[derive(Clone, Debug, Subcommand)]
pub enum LabCommand {
    /// Build the hosts and start a process on each; returns when the cluster is ready
    Up(UpArguments),
    /// Run a command on a host; its exit code is passed on
    Exec {
        /// switch, metadata, node-0…, client-0…
        host: String,
        /// The command and its arguments
        #[arg(last = true, required = true)]
        command: Vec<OsString>,
    },
    /// Show the hosts, then what `nicekv status` shows
    Status {
        /// For programs
        #[arg(long)]
        json: bool,
        /// List the partitions, too
        #[arg(long)]
        partitions: bool,
    },
    /// End a host's process at once, by SIGKILL; of several instances of the metadata service, `metadata` is the one that leads
    Kill {
        /// switch, metadata, node-0…, client-0…, also switch-1…, metadata-0…, etcd-0…; on a plain network edge-node-0…, edge-client-0…
        host: String,
    },
    /// Start a host's process again; of several instances, `metadata` is the first one that does not run
    Start {
        /// switch, metadata, node-0…, client-0…, also switch-1…, metadata-0…, etcd-0…; on a plain network edge-node-0…, edge-client-0…
        host: String,
    },
    /// Stop a host's process where it is, by SIGSTOP, until `resume`; `metadata` is as for `kill`
    Pause {
        /// switch, metadata, node-0…, client-0…, also switch-1…, metadata-0…, etcd-0…; on a plain network edge-node-0…, edge-client-0…
        host: String,
    },
    /// Let a paused process go on; of several instances, `metadata` is the first one that is paused
    Resume {
        /// switch, metadata, node-0…, client-0…, also switch-1…, metadata-0…, etcd-0…; on a plain network edge-node-0…, edge-client-0…
        host: String,
    },
    /// Restart a switch: its tables are lost, and filled again by the metadata service
    SwitchRestart {
        /// Which, of several
        #[arg(default_value = "switch")]
        host: String,
    },
    /// Cut a host off the network: both ways, or one of them
    Cut {
        /// metadata, node-0…, client-0…; switch-1…, at all of its trunks
        host: String,
        /// Nothing reaches the host, what it sends arrives
        #[arg(long = "in", conflicts_with = "outward")]
        inward: bool,
        /// Nothing that the host sends arrives, it is reached
        #[arg(long = "out")]
        outward: bool,
    },
    /// Pull the cable between two switches: both see that it is dead
    Unplug {
        /// switch, switch-1…
        one: String,
        /// The switch at its other end
        other: String,
    },
    /// Put it in again
    Plug {
        /// switch, switch-1…
        one: String,
        /// The switch at its other end
        other: String,
    },
    /// Lose frames at random, on their way to a host and from it
    Loss {
        /// Of each way, 0 to 100
        #[arg(value_parser = percent)]
        percent: f64,
        /// metadata, node-0…, client-0… [default: all of them]
        host: Option<String>,
    },
    /// Deliver at random frames twice that a host sends
    Duplicate {
        /// 0 to 100
        #[arg(value_parser = percent)]
        percent: f64,
        /// metadata, node-0…, client-0… [default: all of them]
        host: Option<String>,
    },
    /// End cuts, loss and duplicates; of all hosts, put in cables that were pulled, too
    Heal {
        /// metadata, node-0…, client-0… [default: all of them]
        host: Option<String>,
    },
    /// Test a cluster of its own under random faults: real clients, and a judge of what they saw
    ///
    /// Builds a lab beside the one that may be running, and removes it. Prints for each phase of about 15 s the operations, the
    /// faults, the longest time without a successful update, and the verdict; at the end figures of each keyspace. Exit code 1 if a history is not linearizable, if an
    /// acknowledged update is lost, or if the cluster does not recover; the lab is then left as it is.
    Chaos(ChaosArguments),
    /// Test that a cluster of its own loses nothing when all of its processes are killed at once, again and again
    ///
    /// Builds a lab beside the one that may be running, and removes it. Clients write; at a random moment every process gets SIGKILL;
    /// all are started again, and every acknowledged put must be readable. Exit code 1 if one is missing, or if the cluster does not
    /// recover; the lab is then left as it is.
    PowerLoss(PowerLossArguments),
    /// End all processes and remove the hosts
    Down,
}

/// `nicekv lab up`
#[derive(Clone, Debug, Args)]
pub struct UpArguments {
    /// Storage nodes [default: 5; 16 with --topology turbokv]
    #[arg(long)]
    nodes: Option<usize>,
    /// Further hosts with nodes that do not run yet: `lab start NODE` and `nicekv node add` make them nodes of the cluster
    #[arg(long, default_value_t = 0)]
    spares: usize,
    /// Client hosts, each with a RESP gateway on 127.0.0.1:6379 [default: 2; 4 with --topology turbokv]
    #[arg(long)]
    clients: Option<usize>,
    /// Copies of each value; at most as many as nodes
    #[arg(long, default_value_t = 3)]
    replicas: usize,
    #[command(flatten)]
    control: ControlArguments,
    /// Replicate by quorum: so many copies hold what is acknowledged (k), a get asks R - k + 1 [default: through a primary]
    #[arg(long, value_name = "K")]
    write_set: Option<u8>,
    /// Another keyspace beside the default one, such as sessions=replication=quorum,write-set=2; may be repeated, see `nicekv up --help`
    #[arg(long = "keyspace", value_name = "NAME=SPEC")]
    keyspaces: Vec<String>,
    /// Whether data survive the processes
    #[arg(long, value_enum, default_value = "durable")]
    engine: Engine,
    #[command(flatten)]
    network: NetworkArguments,
    /// Nodes pass on requests to chains that are for others, as where no switch knows keys (TurboKV §1)
    #[arg(long)]
    nodes_coordinate: bool,
    /// MiB of each node's memory from which its kernel answers gets; 0: none
    #[arg(long, value_name = "MIB", default_value_t = plan::KERNEL_GET_MIB)]
    kernel_get_mib: u32,
    /// Mbit/s of the slowest link between clients and nodes, as it is shaped: windows of chunks of objects are reserved on it
    #[arg(long, value_name = "MBIT", default_value_t = plan::LINK_MBIT_PER_SECOND)]
    link_mbit: u64,
    /// Keys with balancing=hot of which the switch has a copy itself [default: as `[hot] values_max` of the configuration]
    #[arg(long, value_name = "N")]
    hot_values: Option<u32>,
    /// Nodes that have copies of such a key besides its members; 0 with --hot-values N is NetCache [default: as `[hot] holders_max`]
    #[arg(long, value_name = "N")]
    hot_holders: Option<u32>,
    /// Where the data are kept, also after `down` [default: below /run, until `down`]
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
}

impl UpArguments {
    fn nodes(&self) -> usize {
        let default = if self.network.topology == Shape::Turbokv { TURBOKV_HOSTS.0 } else { 5 };
        self.nodes.unwrap_or(default)
    }

    fn clients(&self) -> usize {
        let default = if self.network.topology == Shape::Turbokv { TURBOKV_HOSTS.1 } else { 2 };
        self.clients.unwrap_or(default)
    }
}

/// Who controls the cluster.
#[derive(Clone, Copy, Debug, Args)]
struct ControlArguments {
    /// Instances of the metadata service, each on a host of its own; several need `--metadata-store etcd`
    #[arg(long = "metadata", value_name = "N", default_value_t = 1)]
    instances: usize,
    /// Where the metadata service keeps its state; etcd (Debian: etcd-server) has a member on the host of each instance
    #[arg(long = "metadata-store", value_enum, value_name = "STORE", default_value_t)]
    store: MetadataStore,
}

impl Default for ControlArguments {
    fn default() -> Self {
        Self { instances: 1, store: MetadataStore::File }
    }
}

/// As it is given.
impl fmt::Display for ControlArguments {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let store = match self.store {
            MetadataStore::File => "file",
            MetadataStore::Etcd => "etcd",
        };
        write!(formatter, "--metadata {} --metadata-store {store}", self.instances)
    }
}

/// Where the metadata service keeps its state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum MetadataStore {
    /// In one file of its own
    #[default]
    File,
    /// In an etcd that is started with the lab
    Etcd,
}

/// What is between the hosts.
#[derive(Clone, Copy, Debug, Args)]
struct NetworkArguments {
    /// Where the switch works on frames: xdp, tc or auto, by the driver of its ports, which in a lab means tc
    #[arg(long, value_name = "HOOK", env = "NICEKV_LAB_SWITCH", default_value_t)]
    switch: Hook,
    /// What is in the middle: the switch, or a plain network, on which each host runs the pipeline for what it sends, at tc
    #[arg(long, value_enum, env = "NICEKV_LAB_FABRIC", default_value_t)]
    fabric: Fabric,
    /// Switches: 2 are a chain, more are a root, which has the metadata service, and leaves; nodes and clients are dealt out over them
    #[arg(long, value_name = "N", env = "NICEKV_LAB_SWITCHES", default_value_t = 1)]
    switches: usize,
    /// How switches hang together
    #[arg(long, value_enum, env = "NICEKV_LAB_TOPOLOGY", default_value_t, conflicts_with = "switches")]
    topology: Shape,
    /// Longest frame on cables between hosts and switches, without its Ethernet header: a switch at xdp takes none of 9000
    #[arg(long, value_enum, env = "NICEKV_LAB_MTU", default_value_t)]
    mtu: Mtu,
}

/// Bytes of a frame's payload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Mtu {
    /// Ethernet's
    #[default]
    #[value(name = "1500")]
    Plain,
    /// Jumbo frames, which others' traffic may have; ours have 1500
    #[value(name = "9000")]
    Jumbo,
}

impl fmt::Display for Mtu {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Plain => "1500",
            Self::Jumbo => "9000",
        })
    }
}

impl NetworkArguments {
    /// How many there are.
    fn switch_count(&self) -> usize {
        if self.topology == Shape::Turbokv { TURBOKV_SWITCHES } else { self.switches }
    }
}

/// As it is given.
impl fmt::Display for NetworkArguments {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { switch, fabric, switches, topology, mtu } = self;
        write!(formatter, "--switch {switch} --fabric {fabric} --mtu {mtu}")?;
        match topology {
            Shape::Tree => write!(formatter, " --switches {switches}"),
            Shape::Turbokv => write!(formatter, " --topology {topology}"),
        }
    }
}

/// `nicekv lab power-loss`
#[derive(Clone, Debug, Args)]
pub struct PowerLossArguments {
    /// How often
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    times: u32,
    /// Chooses the moments [default: another one each time; it is printed]
    #[arg(long)]
    seed: Option<u64>,
    #[command(flatten)]
    network: NetworkArguments,
}

/// `nicekv lab chaos`
#[derive(Clone, Debug, Args)]
pub struct ChaosArguments {
    /// For how long; fractions are allowed
    #[arg(long, default_value_t = 1.0, value_parser = minutes)]
    minutes: f64,
    /// Chooses operations and faults [default: another one each time; it is printed]
    #[arg(long)]
    seed: Option<u64>,
    /// Another keyspace beside the default one, as `lab up` has it; may be repeated, each is judged for itself
    #[arg(long = "keyspace", value_name = "NAME=SPEC")]
    keyspaces: Vec<String>,
    #[command(flatten)]
    control: ControlArguments,
    #[command(flatten)]
    network: NetworkArguments,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Engine {
    /// In files: an acknowledged write survives a power loss
    Durable,
    /// In memory: a process that ends forgets
    Memory,
}

/// Carries out a command on the lab that [`LAB_VARIABLE`] names.
pub fn run(command: LabCommand, roles: Roles<'_>) -> Result<ExitCode> {
    require_root()?;
    let scope = Scope::from_environment()?;
    match command {
        LabCommand::Up(arguments) => up::up(&scope, &arguments, roles)?,
        LabCommand::Exec { host, command } => commands::exec(&scope, &host, &command)?,
        LabCommand::Status { json, partitions } => return commands::status(&scope, json, partitions),
        LabCommand::Kill { host } => commands::kill_meant(&scope, &host)?,
        LabCommand::Start { host } => commands::start_meant(&scope, &host)?,
        LabCommand::Pause { host } => commands::pause_meant(&scope, &host)?,
        LabCommand::Resume { host } => commands::resume_meant(&scope, &host)?,
        LabCommand::SwitchRestart { host } => commands::restart_switch(&scope, &host)?,
        LabCommand::Cut { host, inward, outward } => faults::change(&scope, Some(&host), |faults| {
            (faults.cut_in, faults.cut_out) = (!outward, !inward);
        })?,
        LabCommand::Loss { percent, host } => {
            faults::change(&scope, host.as_deref(), |faults| faults.loss_percent = percent)?;
        }
        LabCommand::Duplicate { percent, host } => {
            faults::change(&scope, host.as_deref(), |faults| faults.duplicate_percent = percent)?;
        }
        LabCommand::Heal { host } => {
            faults::change(&scope, host.as_deref(), |faults| *faults = CableFaults::default())?;
            if host.is_none() {
                links::plug_all(&scope)?;
            }
        }
        LabCommand::Unplug { one, other } => links::change(&scope, &one, &other, false)?,
        LabCommand::Plug { one, other } => links::change(&scope, &one, &other, true)?,
        LabCommand::Chaos(arguments) => return chaos::run(&scope, &arguments, roles),
        LabCommand::PowerLoss(arguments) => return power_loss::run(&scope, &arguments, roles),
        LabCommand::Down => up::down(&scope)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn percent(text: &str) -> std::result::Result<f64, String> {
    let percent = text.parse().ok().filter(|percent| (0.0..=100.0).contains(percent));
    percent.ok_or_else(|| format!("{text:?} is no percentage from 0 to 100"))
}

/// At most a week.
fn minutes(text: &str) -> std::result::Result<f64, String> {
    let minutes = text.parse().ok().filter(|minutes| (0.01..=10_080.0).contains(minutes));
    minutes.ok_or_else(|| format!("{text:?} is no number of minutes from 0.01 to 10080"))
}

fn require_root() -> Result<()> {
    if rustix::process::geteuid().is_root() { Ok(()) } else { Err(LabError::NotRoot) }
}
