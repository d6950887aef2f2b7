//! The command line: `nicekv lab COMMAND` and its options.

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use crate::data_plane::DataPlane;
use crate::layout::{Shape, TURBOKV_HOSTS, TURBOKV_SWITCHES};
use crate::plan;
use crate::topology::Fabric;

/// `nicekv lab`
#[derive(Clone, Debug, Subcommand)]
pub enum LabCommand {
    /// Create the hosts and start a process on each; returns when the cluster is ready
    Up(UpArguments),
    /// Run a command on a host and pass on its exit code
    Exec {
        /// switch, metadata, node-0…, client-0…
        host: String,
        /// The command and its arguments
        #[arg(last = true, required = true)]
        command: Vec<OsString>,
    },
    /// Show the hosts, then the output of `nicekv status`
    Status {
        /// Print JSON
        #[arg(long)]
        json: bool,
        /// Also list the partitions
        #[arg(long)]
        partitions: bool,
    },
    /// Kill a host's process with SIGKILL; of several metadata instances, `metadata` means the leader
    Kill(ProcessHost),
    /// Start a host's process again; of several metadata instances, `metadata` means the first that is not running
    Start(ProcessHost),
    /// Stop a host's process with SIGSTOP until `resume`; of several metadata instances, `metadata` means the leader
    Pause(ProcessHost),
    /// Continue a paused process; of several metadata instances, `metadata` means the first that is paused
    Resume(ProcessHost),
    /// Restart a switch: it loses its tables, and the metadata service fills them again
    SwitchRestart {
        /// Which switch, if there are several
        #[arg(default_value = "switch")]
        host: String,
    },
    /// Drop all traffic of a host, in both directions or in one
    Cut {
        /// metadata, node-0…, client-0…; switch-1…: all of its trunks
        host: String,
        /// Drop only what is sent to the host
        #[arg(long = "in", conflicts_with = "outward")]
        inward: bool,
        /// Drop only what the host sends
        #[arg(long = "out")]
        outward: bool,
    },
    /// Take down the link between two switches; both see it
    Unplug {
        /// switch, switch-1…
        one: String,
        /// The switch at the other end
        other: String,
    },
    /// Bring the link between two switches up again
    Plug {
        /// switch, switch-1…
        one: String,
        /// The switch at the other end
        other: String,
    },
    /// Drop random frames to and from a host
    Loss {
        /// Percentage for each direction, 0 to 100
        #[arg(value_parser = percent)]
        percent: f64,
        /// metadata, node-0…, client-0… [default: all of them]
        host: Option<String>,
    },
    /// Deliver random frames of a host twice
    Duplicate {
        /// Percentage, 0 to 100
        #[arg(value_parser = percent)]
        percent: f64,
        /// metadata, node-0…, client-0… [default: all of them]
        host: Option<String>,
    },
    /// End cuts, loss and duplicates; without HOST, also bring all links between switches up
    Heal {
        /// metadata, node-0…, client-0… [default: all of them]
        host: Option<String>,
    },
    /// Run clients against a cluster with random faults, and check what they saw
    ///
    /// Creates a lab beside the one that may be running, and removes it. Prints for each phase of about 15 s the operations, the
    /// faults, the longest time without a successful update, and the verdict; at the end the figures of each keyspace. The exit code
    /// is 1 if a history is not linearizable, if an acknowledged update is lost, or if the cluster does not recover; then the lab
    /// stays as it is.
    Chaos(ChaosArguments),
    /// Kill all processes of a cluster at once, again and again, and check that nothing acknowledged is lost
    ///
    /// Creates a lab beside the one that may be running, and removes it. Clients write; at a random moment every process gets SIGKILL;
    /// all are started again, and every acknowledged put must be readable. The exit code is 1 if one is missing, or if the cluster
    /// does not recover; then the lab stays as it is.
    PowerLoss(PowerLossArguments),
    /// Kill all processes and remove the hosts
    Down,
}

/// The host of a process.
#[derive(Clone, Debug, Args)]
pub struct ProcessHost {
    /// switch, metadata, node-0…, client-0…, also switch-1…, metadata-0…, etcd-0…; on a plain network edge-node-0…, edge-client-0…
    pub(crate) host: String,
}

/// `nicekv lab up`
#[derive(Clone, Debug, Args)]
pub struct UpArguments {
    /// Storage nodes [default: 5; 16 with --topology turbokv]
    #[arg(long)]
    pub(crate) nodes: Option<usize>,
    /// Additional hosts whose nodes do not run yet: `lab start NODE` and `nicekv node add` add them to the cluster
    #[arg(long, default_value_t = 0)]
    pub(crate) spares: usize,
    /// Client hosts, each with a RESP gateway on 127.0.0.1:6379 [default: 2; 4 with --topology turbokv]
    #[arg(long)]
    pub(crate) clients: Option<usize>,
    /// Replicas of each value; at most the number of nodes
    #[arg(long, default_value_t = 3)]
    pub(crate) replicas: usize,
    #[command(flatten)]
    pub(crate) control: ControlArguments,
    /// Replicate by quorum, with this write quorum size; a get asks R - k + 1 replicas [default: through a primary]
    #[arg(long, value_name = "K")]
    pub(crate) write_set: Option<u8>,
    /// Add a keyspace, such as sessions=replication=quorum,write-set=2; may be repeated, see `nicekv up --help`
    #[arg(long = "keyspace", value_name = "NAME=SPEC")]
    pub(crate) keyspaces: Vec<String>,
    /// Whether data survives a crash of the processes
    #[arg(long, value_enum, default_value = "durable")]
    pub(crate) engine: Engine,
    #[command(flatten)]
    pub(crate) network: NetworkArguments,
    /// Let nodes forward requests to chains, as where no switch knows the keys (TurboKV §1)
    #[arg(long)]
    pub(crate) nodes_coordinate: bool,
    /// Memory of each node, in MiB, from which its kernel answers gets; 0 turns that off
    #[arg(long, value_name = "MIB", default_value_t = plan::KERNEL_GET_MIB)]
    pub(crate) kernel_get_mib: u32,
    /// Rate of the slowest link between clients and nodes; transfers of object chunks are scheduled by it
    #[arg(long, value_name = "MBIT", default_value_t = plan::LINK_MBIT_PER_SECOND)]
    pub(crate) link_mbit: u64,
    /// Most values with balancing=hot that the switch caches [default: as `[hot] values_max` of the configuration]
    #[arg(long, value_name = "N")]
    pub(crate) hot_values: Option<u32>,
    /// Most nodes with a copy of such a key besides its replicas; 0 with --hot-values N is NetCache [default: as `[hot] holders_max`]
    #[arg(long, value_name = "N")]
    pub(crate) hot_holders: Option<u32>,
    /// Keep the data in this directory, also after `down` [default: below /run, until `down`]
    #[arg(long, value_name = "DIR")]
    pub(crate) data_dir: Option<PathBuf>,
}

impl UpArguments {
    pub(crate) fn nodes(&self) -> usize {
        let default = if self.network.topology == Shape::Turbokv { TURBOKV_HOSTS.0 } else { 5 };
        self.nodes.unwrap_or(default)
    }

    pub(crate) fn clients(&self) -> usize {
        let default = if self.network.topology == Shape::Turbokv { TURBOKV_HOSTS.1 } else { 2 };
        self.clients.unwrap_or(default)
    }
}

/// The metadata service.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct ControlArguments {
    /// Instances of the metadata service, each on a host of its own; several need `--metadata-store etcd`
    #[arg(long = "metadata", value_name = "N", default_value_t = 1)]
    pub(crate) instances: usize,
    /// Where the metadata service keeps its state; etcd (Debian: etcd-server) runs a member on the host of each instance
    #[arg(long = "metadata-store", value_enum, value_name = "STORE", default_value_t)]
    pub(crate) store: MetadataStore,
}

impl Default for ControlArguments {
    fn default() -> Self {
        Self { instances: 1, store: MetadataStore::File }
    }
}

/// Prints the options in command-line form.
impl fmt::Display for ControlArguments {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let store = match self.store {
            MetadataStore::File => "file",
            MetadataStore::Etcd => "etcd",
        };
        write!(formatter, "--metadata {} --metadata-store {store}", self.instances)
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum MetadataStore {
    /// In a file
    #[default]
    File,
    /// In an etcd cluster that is started with the lab
    Etcd,
}

/// The network between the hosts.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct NetworkArguments {
    /// Data plane of the switches: eBPF at xdp, at tc, or auto to choose by the driver of its ports, which in a lab means tc; or openflow, an Open vSwitch
    #[arg(long, value_name = "DATA_PLANE", env = "NICEKV_LAB_SWITCH", default_value_t)]
    pub(crate) switch: DataPlane,
    /// What connects the hosts: the switch, or a plain network on which each host runs the pipeline for what it sends, at tc
    #[arg(long, value_enum, env = "NICEKV_LAB_FABRIC", default_value_t)]
    pub(crate) fabric: Fabric,
    /// Number of switches: 2 form a chain, more form a root with the metadata service and leaves; nodes and clients are spread over them
    #[arg(long, value_name = "N", env = "NICEKV_LAB_SWITCHES", default_value_t = 1)]
    pub(crate) switches: usize,
    /// How switches are connected
    #[arg(long, value_enum, env = "NICEKV_LAB_TOPOLOGY", default_value_t, conflicts_with = "switches")]
    pub(crate) topology: Shape,
    /// MTU of the links between hosts and switches; a switch at xdp does not support 9000
    #[arg(long, value_enum, env = "NICEKV_LAB_MTU", default_value_t)]
    pub(crate) mtu: Mtu,
}

/// Bytes of a frame's payload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Mtu {
    /// Ethernet's default
    #[default]
    #[value(name = "1500")]
    Plain,
    /// Jumbo frames for other traffic; NICEKV sends frames of 1500
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
    pub(crate) fn switch_count(&self) -> usize {
        if self.topology == Shape::Turbokv { TURBOKV_SWITCHES } else { self.switches }
    }
}

/// Prints the options in command-line form.
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
    /// Number of power losses
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) times: u32,
    /// Seed for the moments of the power losses [default: random; it is printed]
    #[arg(long)]
    pub(crate) seed: Option<u64>,
    #[command(flatten)]
    pub(crate) network: NetworkArguments,
}

/// `nicekv lab chaos`
#[derive(Clone, Debug, Args)]
pub struct ChaosArguments {
    /// Duration in minutes; fractions are allowed
    #[arg(long, default_value_t = 1.0, value_parser = minutes)]
    pub(crate) minutes: f64,
    /// Seed for operations and faults [default: random; it is printed]
    #[arg(long)]
    pub(crate) seed: Option<u64>,
    /// Add a keyspace, as for `lab up`; may be repeated, each is checked by itself
    #[arg(long = "keyspace", value_name = "NAME=SPEC")]
    pub(crate) keyspaces: Vec<String>,
    #[command(flatten)]
    pub(crate) control: ControlArguments,
    #[command(flatten)]
    pub(crate) network: NetworkArguments,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Engine {
    /// On disk: acknowledged writes survive a power loss
    Durable,
    /// In memory: data is lost when its process ends
    Memory,
}

fn percent(text: &str) -> Result<f64, String> {
    let percent = text.parse().ok().filter(|percent| (0.0..=100.0).contains(percent));
    percent.ok_or_else(|| format!("{text:?} is not a percentage from 0 to 100"))
}

/// Parses minutes, at most a week.
fn minutes(text: &str) -> Result<f64, String> {
    let minutes = text.parse().ok().filter(|minutes| (0.01..=10_080.0).contains(minutes));
    minutes.ok_or_else(|| format!("{text:?} is not a number of minutes from 0.01 to 10080"))
}
