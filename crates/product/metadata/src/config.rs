//! What the operator decides.

mod hot;

use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::vec::Vec;
use core::net::{Ipv4Addr, SocketAddrV4};
use core::ops::RangeInclusive;

use nicekv_proto::control::direct_lease_ns;
use nicekv_proto::placement::{GroupRing, KeyspaceError, KeyspaceSpec, check_keyspaces, ring_pairs};
use nicekv_proto::{Duration, NodeId};
use nicekv_switch::{HostId, Prefix, TableError, Topology, TopologyError, VringConfig, VringSet};
use serde::{Deserialize, Serialize};
use thiserror::Error;

pub use hot::{HotSettings, HotSettingsError};

/// Most storage nodes.
pub const NODES_MAX: usize = 256;
/// What links are taken to carry where nothing else is said.
pub const LINK_BITS_PER_SECOND: u64 = 1_000_000_000;
/// What they may be said to carry: on slower ones control messages alone, to which a tenth is left, would take too long.
pub const LINK_BITS_PER_SECOND_BOUNDS: RangeInclusive<u64> = 10_000_000..=1_000_000_000_000;
/// Most switches, edges of hosts included.
pub const SWITCHES_MAX: usize = 512;

/// One switch agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SwitchId(pub u16);

/// One storage node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeConfig {
    /// Its number, for ever.
    #[serde(with = "crate::state::node_id")]
    pub id: NodeId,
    /// For operators.
    pub name: String,
    /// Where it sends from and is reached.
    pub address: SocketAddrV4,
    /// Ethernet address that the switch writes; any distinct one where there is no Ethernet.
    pub mac: [u8; 6],
    /// Port of the switch that leads to it; distinct at each switch.
    pub switch_port: u16,
    /// The switch that it hangs at, where there are trunks between several; `None`: as [`Config::topology`] says.
    pub home: Option<u16>,
}

/// A metadata service, as the switches have to know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServiceConfig {
    /// Where it sends from and is reached.
    pub address: SocketAddrV4,
    /// Its Ethernet address; any distinct one where there is no Ethernet.
    pub mac: [u8; 6],
    /// Port of the switch that leads to it; no node's.
    pub switch_port: u16,
}

/// How gets are spread over the consistent members of a partition (NICE §4.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Balancing {
    /// The primary answers all.
    None,
    /// By the client's address.
    Source {
        /// The addresses to divide; all others go to the primary.
        clients: Prefix,
    },
}

/// Periods and bounds. [`Default`] suspects a silent node within about 130 ms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// Between two heartbeats of a node, and between two sendings of an unacknowledged [`nicekv_proto::control::Assign`].
    pub heartbeat: Duration,
    /// A node is suspected when it was not heard for so many heartbeats, or has not heard the answers to so many. Before that, when the
    /// first is overdue by half a period, it is probed.
    pub heartbeats_missed: u32,
    /// How long a node may answer gets after it sent the heartbeat that was granted.
    pub lease: Duration,
    /// A lease is over after `lease × (1 + 1/drift_divisor)`: clocks run apart by no more.
    pub drift_divisor: u32,
    /// A partition none of whose consistent members was there waits so many heartbeats, from the return of the
    /// first, for the others, so that a restart of the whole cluster leaves nobody behind.
    pub grace_heartbeats: u32,
    /// Between two tries of a probe.
    pub probe: Duration,
    /// Tries until an unanswered probe means suspicion.
    pub probe_tries: u32,
    /// Between two probes of a node that nobody accuses.
    pub probe_idle: Duration,
    /// An accusation that is repeated for so long although both sides answer probes costs one of them its place.
    pub accusation_patience: Duration,
    /// How long that one stays out.
    pub rejoin_delay: Duration,
    /// How long an original member may be away before a handoff joins for it (R8); at once where too few members are left for
    /// puts. `None`: none ever does.
    pub handoff_delay: Option<Duration>,
    /// How long a partition must have been whole before its first original leads it again. `None`: it is not given back.
    pub rebalance_delay: Option<Duration>,
    /// Between the beginning of an epoch and of one of the same members that a member asks for (R14), at least.
    pub fence_interval: Duration,
    /// Between two looks at which replicas answer most, after which gets may be divided otherwise (NICE §4.5).
    pub divide_interval: Duration,
    /// A partition is divided otherwise only if it was asked so often within about two of these intervals.
    pub divide_gets_min: u32,
    /// Between two questions to a switch for what clients ask (TurboKV §5.1); zero: it is not asked.
    pub count_interval: Duration,
    /// So long is counted, while nothing else goes on, before partitions are moved, split or merged because of load (TurboKV §5.1).
    pub balance_period: Duration,
    /// That is done because of load only if a keyspace was asked so often in such a period.
    pub balance_requests_min: u32,
    /// Between two rounds of garbage collection among chunks of objects (P8); `None`: they begin by command alone.
    pub collect_interval: Option<Duration>,
    /// A target of chunks that has been away for so long is lost for good: others make the copies that it had (P11). `None`: never.
    pub target_patience: Option<Duration>,
    /// Between two installations of the same tables in a switch that does not answer, and between two
    /// questions for its status.
    pub switch_interval: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            heartbeat: Duration::from_millis(40),
            heartbeats_missed: 3,
            lease: Duration::from_millis(150),
            drift_divisor: 8,
            grace_heartbeats: 10,
            probe: Duration::from_millis(10),
            probe_tries: 12,
            probe_idle: Duration::from_secs(1),
            accusation_patience: Duration::from_millis(500),
            rejoin_delay: Duration::from_secs(2),
            handoff_delay: Some(Duration::from_millis(200)),
            rebalance_delay: Some(Duration::from_secs(5)),
            fence_interval: Duration::from_secs(1),
            divide_interval: Duration::from_secs(5),
            divide_gets_min: 1000,
            count_interval: Duration::from_secs(1),
            balance_period: Duration::from_secs(10),
            balance_requests_min: 1000,
            collect_interval: Some(Duration::from_secs(3600)),
            target_patience: Some(Duration::from_secs(600)),
            switch_interval: Duration::from_millis(200),
        }
    }
}

impl Timing {
    /// Silence that makes a node suspected.
    pub(crate) fn suspicion_ns(&self) -> u64 {
        let heartbeat_ns = nanoseconds(self.heartbeat);
        // One that is only a little late is not missing.
        heartbeat_ns * u64::from(self.heartbeats_missed) + heartbeat_ns / 8
    }

    /// Silence that makes a node probed.
    pub(crate) fn doubt_ns(&self) -> u64 {
        nanoseconds(self.heartbeat) * 3 / 2
    }

    /// From the last grant, by the metadata's clock, until the lease is over by everybody's (R12).
    pub(crate) fn lease_wait_ns(&self) -> u64 {
        self.with_drift_ns(nanoseconds(self.lease))
    }

    /// The same of the part of it in which a node answers gets that come past the switches.
    pub(crate) fn direct_lease_wait_ns(&self) -> u64 {
        self.with_drift_ns(direct_lease_ns(nanoseconds(self.lease)))
    }

    fn with_drift_ns(&self, lease_ns: u64) -> u64 {
        lease_ns + lease_ns.div_ceil(u64::from(self.drift_divisor))
    }

    pub(crate) fn grace_ns(&self) -> u64 {
        nanoseconds(self.heartbeat) * u64::from(self.grace_heartbeats)
    }

    /// Everything that depends on time is looked at this often.
    pub(crate) fn tick_ns(&self) -> u64 {
        nanoseconds(self.heartbeat) / 4
    }
}

pub(crate) fn nanoseconds(duration: Duration) -> u64 {
    duration.as_nanos() as u64
}

/// A cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Its name; persisted state of another one is refused.
    pub cluster: u128,
    /// 1 to [`NODES_MAX`]. Those that a cluster begins with; then it knows its nodes itself ([`crate::Change`]).
    pub nodes: Vec<NodeConfig>,
    /// What is stored where and how; see [`check_keyspaces`]. One that is new to a cluster comes into being when all nodes are there. Others are
    /// created, and dropped, by commands ([`crate::KeyspaceChange`]).
    pub keyspaces: Vec<KeyspaceSpec>,
    /// UDP port of all vrings.
    pub port: u16,
    /// The ring of groups of storage targets beside the vrings, if there is one (Replicast §III).
    pub group_ring: Option<GroupRing>,
    /// What the slowest link between initiators and storage targets carries: all of them reserve windows on links of this rate. Within [`LINK_BITS_PER_SECOND_BOUNDS`].
    pub link_bits_per_second: u64,
    /// How gets are spread, where the protocol leaves a choice.
    pub balancing: Balancing,
    /// Where the metadata services are: the switches let what they say come from there alone.
    pub services: Vec<ServiceConfig>,
    /// Where servers hang at switches, if not at their `switch_port`, and how switches hang together.
    pub topology: Topology,
    /// Every switch that must acknowledge the tables, 1 to [`SWITCHES_MAX`].
    pub switches: Vec<SwitchId>,
    /// Periods and bounds.
    pub timing: Timing,
    /// How hot keys are found and spread, in keyspaces that want it.
    pub hot: HotSettings,
}

/// A node's name in switch tables and in [`Config::topology`].
pub fn host_id(node: NodeId) -> HostId {
    HostId(node.0)
}

/// The same of a metadata service, by its place in [`Config::services`].
pub fn service_host_id(index: u16) -> HostId {
    HostId(u16::MAX - index)
}

/// Why a configuration is refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ConfigError {
    #[error("{nodes} nodes, allowed are 1 to {NODES_MAX}")]
    NodeCount { nodes: usize },
    #[error("{switches} switches, allowed are 1 to {SWITCHES_MAX}, all different")]
    SwitchCount { switches: usize },
    #[error("nodes must have different ids, addresses and switch ports: {node} does not")]
    DuplicateNode { node: NodeId },
    #[error("the address of {node} lies inside a vring, or where those of further keyspaces are to be")]
    NodeInsideVring { node: NodeId },
    #[error("switch {}: two servers hang at port {port}", switch.0)]
    SharedPort { switch: SwitchId, port: u16 },
    #[error(transparent)]
    Topology(#[from] TopologyError),
    #[error("the metadata service {address} must have an address and a switch port of its own, in no vring")]
    Service { address: SocketAddrV4 },
    #[error(transparent)]
    Keyspaces(#[from] KeyspaceError),
    #[error("the ring of groups: {0}")]
    GroupRing(#[from] TableError),
    #[error(
        "links of {bits_per_second} bit/s, allowed are {} to {}",
        LINK_BITS_PER_SECOND_BOUNDS.start(),
        LINK_BITS_PER_SECOND_BOUNDS.end()
    )]
    Link { bits_per_second: u64 },
    #[error("the client addresses {clients} are no prefix that can be divided among {replicas} replicas")]
    Clients { clients: Prefix, replicas: usize },
    #[error(
        "every period must be positive, the heartbeat at least 4 ns, the lease longer than the heartbeat"
    )]
    Timing,
    #[error("hot keys: {0}")]
    Hot(#[from] HotSettingsError),
}

/// The rings of a cluster that is configured with these keyspaces, also those of keyspaces that are not there yet, and its ring of groups, which is refused if it is none, or overlaps
/// one of these.
///
/// # Panics
/// If the keyspaces were not checked.
pub fn vrings_of(keyspaces: &[KeyspaceSpec], group_ring: Option<GroupRing>) -> Result<VringSet, TableError> {
    let pair = |(unicast, multicast): (Ipv4Addr, Ipv4Addr)| VringConfig {
        unicast: Prefix::new(unicast.octets(), 16),
        multicast: Prefix::new(multicast.octets(), 16),
    };
    let vrings = VringSet::new(ring_pairs(keyspaces).into_iter().map(pair));
    let vrings = vrings.expect("checked keyspaces share no ring");
    group_ring.map_or(Ok(vrings.clone()), |ring| vrings.with_group(ring))
}

impl Config {
    /// The rings that every switch has to know before its first tables arrive: also those of keyspaces that are not there yet.
    ///
    /// # Panics
    /// If the configuration was not validated.
    pub fn vrings(&self) -> VringSet {
        vrings_of(&self.keyspaces, self.group_ring).expect("a validated ring of groups overlaps none")
    }

    /// The same as pairs of unicast and multicast rings, in the order of the numbers of configured keyspaces.
    pub(crate) fn ring_pairs(&self) -> Vec<(Ipv4Addr, Ipv4Addr)> {
        ring_pairs(&self.keyspaces)
    }

    pub(crate) fn node(&self, id: NodeId) -> Option<&NodeConfig> {
        self.nodes.iter().find(|node| node.id == id)
    }

    /// Checks everything that the core relies on.
    pub fn validate(&self) -> Result<(), ConfigError> {
        if self.nodes.is_empty() || self.nodes.len() > NODES_MAX {
            return Err(ConfigError::NodeCount { nodes: self.nodes.len() });
        }
        let switches: BTreeSet<_> = self.switches.iter().collect();
        if switches.is_empty() || switches.len() > SWITCHES_MAX || switches.len() != self.switches.len() {
            return Err(ConfigError::SwitchCount { switches: self.switches.len() });
        }
        self.keyspaces.iter().try_for_each(KeyspaceSpec::check_configured)?;
        check_keyspaces(&self.keyspaces, self.nodes.len())?;
        vrings_of(&self.keyspaces, self.group_ring)?;
        let bits_per_second = self.link_bits_per_second;
        if !LINK_BITS_PER_SECOND_BOUNDS.contains(&bits_per_second) {
            return Err(ConfigError::Link { bits_per_second });
        }
        self.validate_nodes()?;
        self.validate_topology()?;
        self.validate_clients()?;
        self.hot.check()?;
        self.validate_timing()
    }

    /// Where servers hang, nodes at the homes that they have themselves.
    pub(crate) fn settled(topology: &Topology, nodes: &[NodeConfig]) -> Topology {
        let mut topology = topology.clone();
        let homes = nodes.iter().filter_map(|node| Some((host_id(node.id), node.home?)));
        homes.for_each(|(host, home)| topology.settle(host, home));
        topology
    }

    fn validate_nodes(&self) -> Result<(), ConfigError> {
        let (mut ids, mut addresses, mut ports) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        let (vrings, topology) = (self.vrings(), Self::settled(&self.topology, &self.nodes));
        for node in &self.nodes {
            let port = (topology.home(host_id(node.id)), node.switch_port);
            if !(ids.insert(node.id) && addresses.insert(node.address) && ports.insert(port)) {
                return Err(ConfigError::DuplicateNode { node: node.id });
            }
            if vrings.contains(node.address.ip().octets()) {
                return Err(ConfigError::NodeInsideVring { node: node.id });
            }
        }
        for (&ServiceConfig { address, switch_port, .. }, index) in self.services.iter().zip(0..) {
            let port = (topology.home(service_host_id(index)), switch_port);
            let is_own = addresses.insert(address) && ports.insert(port);
            if !is_own || vrings.contains(address.ip().octets()) {
                return Err(ConfigError::Service { address });
            }
        }
        Ok(())
    }

    /// The egress stage of a switch rewrites by port, for those that hang there themselves.
    fn validate_topology(&self) -> Result<(), ConfigError> {
        let topology = Self::settled(&self.topology, &self.nodes);
        let nodes = self.nodes.iter().map(|node| (host_id(node.id), node.switch_port));
        let services = self.services.iter().zip(0..);
        let services = services.map(|(service, index)| (service_host_id(index), service.switch_port));
        let servers: Vec<_> = nodes.chain(services).collect();
        let switches: Vec<u16> = self.switches.iter().map(|switch| switch.0).collect();
        topology.check(&switches, &servers)?;
        for &switch in &self.switches {
            let mut ports = BTreeSet::new();
            let hangs_here = |host| topology.home(host).is_none_or(|home| home == switch.0);
            for (host, port) in servers.iter().filter(|(host, _)| hangs_here(*host)) {
                let port = topology.port(switch.0, *host).unwrap_or(*port);
                if !ports.insert(port) {
                    return Err(ConfigError::SharedPort { switch, port });
                }
            }
        }
        Ok(())
    }

    fn validate_clients(&self) -> Result<(), ConfigError> {
        let Balancing::Source { clients } = self.balancing else { return Ok(()) };
        let replicas = self.keyspaces.iter().map(|spec| spec.replicas).max().unwrap_or(1);
        if clients.is_canonical() && u32::from(clients.length) + division_bits(replicas) <= 32 {
            return Ok(());
        }
        Err(ConfigError::Clients { clients, replicas })
    }

    fn validate_timing(&self) -> Result<(), ConfigError> {
        let timing = &self.timing;
        let counts =
            [timing.heartbeats_missed, timing.drift_divisor, timing.grace_heartbeats, timing.probe_tries];
        let periods = [
            timing.probe,
            timing.probe_idle,
            timing.accusation_patience,
            timing.rejoin_delay,
            timing.fence_interval,
            timing.divide_interval,
            timing.balance_period,
            timing.switch_interval,
        ];
        let sound = counts.iter().all(|count| *count > 0)
            && periods.iter().all(|period| !period.is_zero())
            && timing.tick_ns() > 0
            && timing.lease > timing.heartbeat;
        sound.then_some(()).ok_or(ConfigError::Timing)
    }
}

/// Bits of a client's address that choose its division.
pub(crate) fn division_bits(replicas: usize) -> u32 {
    replicas.next_power_of_two().ilog2()
}
