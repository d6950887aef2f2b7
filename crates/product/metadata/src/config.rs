//! Configuration of a cluster.

mod hot;
mod matching;

use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::vec::Vec;
use core::net::{Ipv4Addr, SocketAddrV4};
use core::ops::RangeInclusive;

use nicekv_proto::control::direct_lease_ns;
use nicekv_proto::placement::{GroupRing, KeyspaceError, KeyspaceSpec, check_keyspaces, ring_pairs};
use nicekv_proto::{Duration, NodeId};
use nicekv_switch::{HostId, Matching, Prefix, TableError, Topology, TopologyError, VringConfig, VringSet};
use serde::{Deserialize, Serialize};
use thiserror::Error;

pub use hot::{HotSettings, HotSettingsError};
pub use matching::Unmatched;

/// Maximum number of storage nodes.
pub const NODES_MAX: usize = 256;
/// Default rate of the links between initiators and storage targets.
pub const LINK_BITS_PER_SECOND: u64 = 1_000_000_000;
/// Allowed link rates. On slower links control messages would take too long, because they get a
/// tenth of the rate.
pub const LINK_BITS_PER_SECOND_BOUNDS: RangeInclusive<u64> = 10_000_000..=1_000_000_000_000;
/// Maximum number of switches, including edge switches of hosts.
pub const SWITCHES_MAX: usize = 512;

/// Identifies a switch agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SwitchId(pub u16);

/// One storage node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeConfig {
    /// The node's permanent id.
    #[serde(with = "crate::state::node_id")]
    pub id: NodeId,
    /// The node's name, for operators.
    pub name: String,
    /// The address with which the node sends and receives.
    pub address: SocketAddrV4,
    /// The MAC address that switches write into frames to the node. Without Ethernet, any distinct
    /// address.
    pub mac: [u8; 6],
    /// The switch port that leads to the node. No two servers share a port of a switch.
    pub switch_port: u16,
    /// The switch that the node is attached to, if there are several, connected by trunks. `None`:
    /// [`Config::topology`] tells.
    pub home: Option<u16>,
}

/// Addresses of a metadata service, which switches must know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServiceConfig {
    /// The address with which the service sends and receives.
    pub address: SocketAddrV4,
    /// The service's MAC address. Without Ethernet, any distinct address.
    pub mac: [u8; 6],
    /// The switch port that leads to the service. It is not shared with a node.
    pub switch_port: u16,
}

/// How gets are divided among the consistent members of a partition (NICE §4.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Balancing {
    /// The primary answers all gets.
    None,
    /// Gets are divided by client address.
    Source {
        /// The client addresses that are divided; the primary serves all others.
        clients: Prefix,
    },
}

/// Intervals, timeouts and bounds. With [`Default`] a silent node is suspected within about 130 ms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// Interval of a node's heartbeats, and of retransmissions of an unacknowledged
    /// [`nicekv_proto::control::Assign`].
    pub heartbeat: Duration,
    /// A node is suspected after this many missing heartbeats, or this many unanswered ones. It is
    /// probed earlier, when the first heartbeat is overdue by half a period.
    pub heartbeats_missed: u32,
    /// The duration of a lease: how long a node may answer gets, counted from the sending of the
    /// heartbeat for which the lease was granted.
    pub lease: Duration,
    /// The metadata service considers a lease ended after `lease × (1 + 1/drift_divisor)`. The
    /// rates of two clocks must not differ by more.
    pub drift_divisor: u32,
    /// If no consistent member of a partition was live, the first one that returns waits this many
    /// heartbeats for the others, so that a restart of the whole cluster removes no member.
    pub grace_heartbeats: u32,
    /// Interval of retransmissions of a probe.
    pub probe: Duration,
    /// Number of transmissions of a probe after which a node that does not answer is suspected.
    pub probe_tries: u32,
    /// Interval of probes of a node that is not suspected or accused.
    pub probe_idle: Duration,
    /// If a node has accused another one for this long although both answer probes, one of them is
    /// removed.
    pub accusation_timeout: Duration,
    /// How long a node that was removed in this way is barred.
    pub rejoin_delay: Duration,
    /// How long an original may be absent before a handoff joins (R8). If too few members are left
    /// for puts, it joins at once. `None`: never.
    pub handoff_delay: Option<Duration>,
    /// How long a partition must be whole before its first original leads it again. `None`: never.
    pub rebalance_delay: Option<Duration>,
    /// Minimum duration of an epoch before a member may request the next one with the same members
    /// (R14).
    pub fence_interval: Duration,
    /// Interval at which divisions are adapted to load (NICE §4.5).
    pub divide_interval: Duration,
    /// Minimum number of requests of a partition, within about two of these intervals, before its
    /// divisions are changed.
    pub divide_gets_min: u32,
    /// Interval at which switches are asked for their counts of client requests (TurboKV §5.1);
    /// zero: never.
    pub count_interval: Duration,
    /// Duration of the counting period that precedes moves, splits and merges because of load
    /// (TurboKV §5.1).
    pub balance_period: Duration,
    /// Minimum number of requests of a keyspace in such a period. With fewer, nothing is moved,
    /// split or merged.
    pub balance_requests_min: u32,
    /// Interval of rounds of garbage collection among chunks of objects (P8); `None`: rounds begin
    /// only by command.
    pub collect_interval: Option<Duration>,
    /// A storage target that has been absent for this long is considered lost: its copies are
    /// rebuilt elsewhere (P11). `None`: never.
    pub target_timeout: Option<Duration>,
    /// Interval of retransmissions of tables to a switch that does not answer, and of status
    /// requests.
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
            accusation_timeout: Duration::from_millis(500),
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
            target_timeout: Some(Duration::from_secs(600)),
            switch_interval: Duration::from_millis(200),
        }
    }
}

impl Timing {
    /// Silence after which a node is suspected.
    pub(crate) fn suspicion_ns(&self) -> u64 {
        let heartbeat_ns = nanoseconds(self.heartbeat);
        // Allows for a heartbeat that is only slightly late.
        heartbeat_ns * u64::from(self.heartbeats_missed) + heartbeat_ns / 8
    }

    /// Silence after which a node is probed.
    pub(crate) fn doubt_ns(&self) -> u64 {
        nanoseconds(self.heartbeat) * 3 / 2
    }

    /// How long after the last grant, by the metadata service's clock, the lease has ended by any
    /// node's clock (R12).
    pub(crate) fn lease_wait_ns(&self) -> u64 {
        self.with_drift_ns(nanoseconds(self.lease))
    }

    /// Like [`Self::lease_wait_ns`], for the direct lease: the part in which a node answers gets
    /// that do not come through switches.
    pub(crate) fn direct_lease_wait_ns(&self) -> u64 {
        self.with_drift_ns(direct_lease_ns(nanoseconds(self.lease)))
    }

    fn with_drift_ns(&self, lease_ns: u64) -> u64 {
        lease_ns + lease_ns.div_ceil(u64::from(self.drift_divisor))
    }

    pub(crate) fn grace_ns(&self) -> u64 {
        nanoseconds(self.heartbeat) * u64::from(self.grace_heartbeats)
    }

    /// Interval at which all timeouts are checked.
    pub(crate) fn tick_ns(&self) -> u64 {
        nanoseconds(self.heartbeat) / 4
    }
}

pub(crate) fn nanoseconds(duration: Duration) -> u64 {
    duration.as_nanos() as u64
}

/// The configuration of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The cluster's id. Persisted state of another cluster is refused.
    pub cluster: u128,
    /// The initial nodes, 1 to [`NODES_MAX`]. Later the persisted state has the list of nodes
    /// ([`crate::Change`]).
    pub nodes: Vec<NodeConfig>,
    /// The configured keyspaces; see [`check_keyspaces`]. One that the cluster does not have yet is
    /// created when all nodes are live. Commands create and drop further keyspaces
    /// ([`crate::KeyspaceChange`]).
    pub keyspaces: Vec<KeyspaceSpec>,
    /// UDP port of all vrings.
    pub port: u16,
    /// The ring of groups of storage targets, if there is one besides the vrings (Replicast §III).
    pub group_ring: Option<GroupRing>,
    /// The rate of the slowest link between initiators and storage targets, for which all of them
    /// reserve windows. Within [`LINK_BITS_PER_SECOND_BOUNDS`].
    pub link_bits_per_second: u64,
    /// How gets are divided, in protocols that allow any consistent member to answer.
    pub balancing: Balancing,
    /// The metadata services: switches accept their messages only from these addresses.
    pub services: Vec<ServiceConfig>,
    /// The topology: trunks between switches, and servers whose port is not their `switch_port`.
    pub topology: Topology,
    /// The switches that must acknowledge tables, 1 to [`SWITCHES_MAX`].
    pub switches: Vec<SwitchId>,
    /// How deep these switches look into packets. It decides which keyspaces are possible.
    pub matching: Matching,
    /// Intervals and bounds.
    pub timing: Timing,
    /// Detection and spreading of hot keys, for keyspaces with `balancing=hot`.
    pub hot: HotSettings,
}

/// A node's id in switch tables and in [`Config::topology`].
pub fn host_id(node: NodeId) -> HostId {
    HostId(node.0)
}

/// A metadata service's id in switch tables and in [`Config::topology`]. `index`: its position in
/// [`Config::services`].
pub fn service_host_id(index: u16) -> HostId {
    HostId(u16::MAX - index)
}

/// Why a configuration is refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ConfigError {
    #[error("{nodes} nodes; 1 to {NODES_MAX} are allowed")]
    NodeCount { nodes: usize },
    #[error("{switches} switches; 1 to {SWITCHES_MAX} different ones are allowed")]
    SwitchCount { switches: usize },
    #[error("{node} has the id, address or switch port of another node")]
    DuplicateNode { node: NodeId },
    #[error("the address of {node} is inside a vring, or in the range for those of further keyspaces")]
    NodeInsideVring { node: NodeId },
    #[error("switch {}: two servers are attached to port {port}", switch.0)]
    SharedPort { switch: SwitchId, port: u16 },
    #[error(transparent)]
    Topology(#[from] TopologyError),
    #[error(
        "the metadata service {address} needs its own address, outside of all vrings, and its own switch port"
    )]
    Service { address: SocketAddrV4 },
    #[error(transparent)]
    Keyspaces(#[from] KeyspaceError),
    #[error("the ring of groups: {0}")]
    GroupRing(#[from] TableError),
    #[error(
        "links of {bits_per_second} bit/s; {} to {} are allowed",
        LINK_BITS_PER_SECOND_BOUNDS.start(),
        LINK_BITS_PER_SECOND_BOUNDS.end()
    )]
    Link { bits_per_second: u64 },
    #[error("the client addresses {clients} are not a prefix that can be divided among {replicas} replicas")]
    Clients { clients: Prefix, replicas: usize },
    #[error(
        "every period must be positive, the heartbeat at least 4 ns, the lease longer than the heartbeat"
    )]
    Timing,
    #[error("hot keys: {0}")]
    Hot(#[from] HotSettingsError),
    #[error(transparent)]
    Unmatched(#[from] Unmatched),
    #[error(
        "{trunks} trunks connect {switches} switches; OpenFlow switches must form a tree, since they may still flood by old tables after a trunk was closed"
    )]
    RedundantTrunks { trunks: usize, switches: usize },
}

/// The rings of a cluster with these keyspaces, including those of keyspaces that do not exist yet,
/// and its ring of groups.
///
/// # Errors
/// The ring of groups is malformed, or overlaps another ring.
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
    /// The rings that every switch must know before its first tables arrive, including those of
    /// keyspaces that do not exist yet.
    ///
    /// # Panics
    /// If the configuration was not validated.
    pub fn vrings(&self) -> VringSet {
        vrings_of(&self.keyspaces, self.group_ring).expect("a validated ring of groups overlaps none")
    }

    /// The pairs of unicast and multicast rings, in the order of the ids of configured keyspaces.
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
        self.keyspaces.iter().try_for_each(|spec| self.check_matching(spec))?;
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

    /// Checks that the switches can serve the keyspace.
    pub(crate) fn check_matching(&self, spec: &KeyspaceSpec) -> Result<(), ConfigError> {
        Ok(matching::check(self.matching, spec)?)
    }

    /// The topology, completed by the homes from the nodes' own configuration.
    pub(crate) fn settled(topology: &Topology, nodes: &[NodeConfig]) -> Topology {
        let mut topology = topology.clone();
        let homes = nodes.iter().filter_map(|node| Some((host_id(node.id), node.home?)));
        homes.for_each(|(host, home)| topology.set_home(host, home));
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

    /// Checks that no two servers share a port, because the egress stage of a switch rewrites by
    /// port for hosts that are attached to it.
    fn validate_topology(&self) -> Result<(), ConfigError> {
        let topology = Self::settled(&self.topology, &self.nodes);
        let nodes = self.nodes.iter().map(|node| (host_id(node.id), node.switch_port));
        let services = self.services.iter().zip(0..);
        let services = services.map(|(service, index)| (service_host_id(index), service.switch_port));
        let servers: Vec<_> = nodes.chain(services).collect();
        let switches: Vec<u16> = self.switches.iter().map(|switch| switch.0).collect();
        topology.check(&switches, &servers)?;
        let (trunks, switches) = (topology.links().count(), switches.len());
        if self.matching == Matching::Headers && trunks >= switches {
            return Err(ConfigError::RedundantTrunks { trunks, switches });
        }
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
            timing.accusation_timeout,
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

/// Number of bits of a client's address that select its division.
pub(crate) fn division_bits(replicas: usize) -> u32 {
    replicas.next_power_of_two().ilog2()
}
