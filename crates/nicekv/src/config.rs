//! A cluster in one TOML file, the same for every role.
//!
//! ```toml
//! cluster_id = "000000000000000000000000c0ffee00"   # 32 hexadecimal digits
//! port = 7400                    # UDP: vrings, nodes, metadata. TCP: nodes (copying), metadata (control)
//! replicas = 3
//! replication = "multicast"      # or "quorum": no primary; then also
//! # write_set = 2                # k: so many replicas hold what is acknowledged, a get asks R - k + 1
//! partition_bits = 6
//! unicast_vring = "10.10.0.0"    # both are /16
//! multicast_vring = "10.11.0.0"
//! clients = "10.20.2.0/24"       # optional: gets from here are spread over the replicas by source address
//!
//! [metadata]
//! address = "10.20.0.2"
//! mac = "02:00:00:00:00:02"      # these two where a switch has ports: what metadata says is let through from here alone
//! switch_port = 0
//! control = ["10.20.0.2:7400", "10.30.0.1:7400"]    # TCP, for switch agents and commands
//! data_directory = "/var/lib/nicekv/metadata"       # absent: in memory
//!
//! [[nodes]]
//! name = "node-0"
//! id = 0
//! address = "10.20.1.1"
//! mac = "02:00:00:00:01:01"      # what the switch writes
//! switch_port = 1
//! data_directory = "/var/lib/nicekv/node-0"         # absent: the memory engine
//!
//! [[switches]]
//! name = "switch"
//! control = "10.30.0.1:7400"     # the metadata service as seen from the switch
//! router_mac = "02:00:00:00:00:01"                  # absent: the user-space switch, on `device`
//! ports = [{ number = 1, device = "port-1" }]
//! data_directory = "/var/lib/nicekv/switch"         # the newest term it has obeyed; absent: /var/lib/nicekv/NAME
//!
//! [[gateways]]
//! name = "client-0"
//! listen = "127.0.0.1:6379"
//! memory_mib_max = 256           # of commands and replies of all its connections together; optional
//!
//! [timing]                       # optional, like each of its lines
//! heartbeat_ms = 40
//! heartbeats_missed = 3          # after which a node is suspected
//! lease_ms = 150                 # for which a node may answer gets after a heartbeat
//! probe_ms = 10                  # between the probes of a node that is in doubt; twelve in vain mean suspicion
//! grace_heartbeats = 10          # for which the first node waits for the others after a restart of all
//! handoffs = true                # whether other nodes stand in for members that are away
//! handoff_delay_ms = 200         # after which they do; at once where too few members are left for puts
//! rebalance_delay_ms = 5000      # after which a partition's first node leads it again; 0: never
//! ```

use crate::failure::Failure;
use clap::ValueEnum;
use nicekv_client::Keyspace;
use nicekv_dataplane::{Prefix, Topology, VringConfig};
use nicekv_metadata::{Balancing, NodeConfig as MetadataNode, ServiceConfig, SwitchId, Timing};
use nicekv_placement::{KeyOrder, KeyspaceSpec, Protocol, Vrings};
use nicekv_wire::quorum::Quorum;
use nicekv_wire::{Duration, KeyspaceId, NodeId};
use serde::{Deserialize, Serialize};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::{Path, PathBuf};

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ClusterConfig {
    pub(crate) cluster_id: String,
    pub(crate) port: u16,
    pub(crate) replicas: usize,
    #[serde(default)]
    pub(crate) replication: Replication,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) write_set: Option<u8>,
    pub(crate) partition_bits: u8,
    pub(crate) unicast_vring: Ipv4Addr,
    pub(crate) multicast_vring: Ipv4Addr,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) clients: Option<String>,
    pub(crate) metadata: MetadataSection,
    pub(crate) nodes: Vec<NodeSection>,
    pub(crate) switches: Vec<SwitchSection>,
    #[serde(default)]
    pub(crate) gateways: Vec<GatewaySection>,
    #[serde(default)]
    pub(crate) timing: TimingSection,
}

/// How the replicas of a keyspace are kept in step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Replication {
    /// A primary orders all puts (multicast two-phase commit): every operation
    #[default]
    Multicast,
    /// Any k replicas hold a put, nobody orders: get, set and delete without conditions or expiry
    Quorum,
}

/// `[timing]`
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct TimingSection {
    pub(crate) heartbeat_ms: u64,
    pub(crate) heartbeats_missed: u32,
    pub(crate) lease_ms: u64,
    pub(crate) probe_ms: u64,
    pub(crate) grace_heartbeats: u32,
    pub(crate) handoffs: bool,
    pub(crate) handoff_delay_ms: u64,
    pub(crate) rebalance_delay_ms: u64,
}

impl Default for TimingSection {
    fn default() -> Self {
        Self {
            heartbeat_ms: 40,
            heartbeats_missed: 3,
            lease_ms: 150,
            probe_ms: 10,
            grace_heartbeats: 10,
            handoffs: Timing::default().handoff_delay.is_some(),
            handoff_delay_ms: 200,
            rebalance_delay_ms: 5000,
        }
    }
}

/// `[metadata]`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct MetadataSection {
    pub(crate) address: Ipv4Addr,
    /// Its place at the switch, where that has ports.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) mac: Option<MacAddress>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) switch_port: Option<u16>,
    pub(crate) control: Vec<SocketAddrV4>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) data_directory: Option<PathBuf>,
}

/// `[[nodes]]`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NodeSection {
    pub(crate) name: String,
    pub(crate) id: u16,
    pub(crate) address: Ipv4Addr,
    pub(crate) mac: MacAddress,
    pub(crate) switch_port: u16,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) data_directory: Option<PathBuf>,
    /// Microseconds for which the node polls before it sleeps: less latency for a whole core.
    #[serde(default)]
    pub(crate) busy_poll_us: u64,
}

/// `[[switches]]`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SwitchSection {
    pub(crate) name: String,
    pub(crate) control: SocketAddrV4,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) router_mac: Option<MacAddress>,
    /// XDP: the interfaces.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) ports: Vec<PortSection>,
    /// User space: the interface whose addresses include the vrings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) device: Option<String>,
    /// User space: the source of what it passes on; nodes hear messages of each other from there. Absent: 127.0.0.1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) address: Option<Ipv4Addr>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) data_directory: Option<PathBuf>,
}

impl SwitchSection {
    /// Where the agent keeps the newest term. There is no switch without: an older controller could reach one that has just
    /// started.
    pub(crate) fn data_directory(&self) -> PathBuf {
        let default = || Path::new("/var/lib/nicekv").join(&self.name);
        self.data_directory.clone().unwrap_or_else(default)
    }
}

/// One of `ports`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PortSection {
    pub(crate) number: u16,
    pub(crate) device: String,
}

/// `[[gateways]]`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct GatewaySection {
    pub(crate) name: String,
    pub(crate) listen: SocketAddrV4,
    /// Most MiB of commands and replies that all its connections together may hold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) memory_mib_max: Option<usize>,
}

/// An Ethernet address, written as `02:00:00:00:00:01`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct MacAddress(pub(crate) [u8; 6]);

impl TryFrom<String> for MacAddress {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let bytes: Vec<u8> = text
            .split(':')
            .map(|byte| u8::from_str_radix(byte, 16).map_err(|_| format!("{text:?} is no Ethernet address")))
            .collect::<Result<_, _>>()?;
        bytes.try_into().map(Self).map_err(|_| format!("{text:?} is no Ethernet address"))
    }
}

impl From<MacAddress> for String {
    fn from(address: MacAddress) -> Self {
        address.0.map(|byte| format!("{byte:02x}")).join(":")
    }
}

/// Reads and checks a configuration.
pub(crate) fn read(path: &Path) -> Result<ClusterConfig, Failure> {
    let named = |error: &dyn std::fmt::Display| Failure::Environment(format!("{}: {error}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|error| named(&error))?;
    let config: ClusterConfig = toml::from_str(&text).map_err(|error| named(&error))?;
    config.metadata_config().map_err(|error| named(&error))?;
    Ok(config)
}

impl ClusterConfig {
    pub(crate) fn cluster(&self) -> Result<u128, Failure> {
        u128::from_str_radix(&self.cluster_id, 16)
            .map_err(|_| Failure::Environment("cluster_id is not a hexadecimal number".into()))
    }

    pub(crate) fn vrings(&self) -> Vrings {
        Vrings { unicast: self.unicast_vring, multicast: self.multicast_vring, port: self.port }
    }

    /// R and k of a quorum keyspace. What makes no sense is refused.
    pub(crate) fn quorum(&self) -> Result<Option<Quorum>, Failure> {
        let refused = |line: &str| Err(Failure::Environment(line.into()));
        match (self.replication, self.write_set) {
            (Replication::Multicast, None) => Ok(None),
            (Replication::Multicast, Some(_)) => {
                refused("write_set is of quorum replication: with multicast every replica holds every put")
            }
            (Replication::Quorum, None) => {
                refused("quorum replication needs a write_set, 1 to the number of replicas")
            }
            (Replication::Quorum, Some(_)) if self.clients.is_some() => refused(
                "clients (gets spread by source) and quorum replication exclude each other: a get asks several replicas",
            ),
            (Replication::Quorum, Some(write_set)) => {
                let replicas = u8::try_from(self.replicas).unwrap_or(u8::MAX);
                Quorum::new(replicas, write_set).map(Some).map_err(Failure::environment)
            }
        }
    }

    /// Keyspace 0.
    fn default_keyspace(&self) -> Result<KeyspaceSpec, Failure> {
        let protocol = match self.quorum()? {
            None => Protocol::Multicast,
            Some(quorum) => Protocol::Quorum { write_set: quorum.write_set() as u8 },
        };
        Ok(KeyspaceSpec {
            id: KeyspaceId::DEFAULT,
            name: "default".into(),
            protocol,
            order: KeyOrder::Hash,
            replicas: self.replicas,
            partitions: 1u32.checked_shl(self.partition_bits.into()).unwrap_or(0),
            unicast: self.unicast_vring,
            multicast: self.multicast_vring,
        })
    }

    /// What clients have to know.
    pub(crate) fn keyspace(&self) -> Result<Keyspace, Failure> {
        use nicekv_wire::Replication::{Multicast, Quorum};
        let replication = self.quorum()?.map_or(Multicast, Quorum);
        Ok(Keyspace { id: KeyspaceId::DEFAULT, vrings: self.vrings(), replication })
    }

    pub(crate) fn vring_config(&self) -> VringConfig {
        VringConfig {
            unicast: Prefix::new(self.unicast_vring.octets(), 16),
            multicast: Prefix::new(self.multicast_vring.octets(), 16),
        }
    }

    pub(crate) fn heartbeat(&self) -> Duration {
        Duration::from_millis(self.timing.heartbeat_ms)
    }

    pub(crate) fn metadata_address(&self) -> SocketAddrV4 {
        SocketAddrV4::new(self.metadata.address, self.port)
    }

    /// The switch that hides the senders of what it passes on.
    pub(crate) fn hiding_switch(&self) -> Option<SocketAddrV4> {
        let user_space = self.switches.iter().find(|switch| switch.router_mac.is_none())?;
        Some(SocketAddrV4::new(user_space.address.unwrap_or(Ipv4Addr::LOCALHOST), self.port))
    }

    /// Switches are known to the metadata service by their place in the file.
    pub(crate) fn switch_ids(&self) -> Vec<(String, SwitchId)> {
        let named = self.switches.iter().enumerate();
        named.map(|(index, switch)| (switch.name.clone(), SwitchId(index as u16))).collect()
    }

    /// Where the switches have to look for the metadata service.
    fn service(&self) -> Result<ServiceConfig, Failure> {
        let has_ports = self.switches.iter().any(|switch| switch.router_mac.is_some());
        let (mac, switch_port) = match (self.metadata.mac, self.metadata.switch_port) {
            (Some(mac), Some(switch_port)) => (mac.0, switch_port),
            _ if has_ports => {
                let line = "metadata needs mac and switch_port: a switch with ports lets through from there alone \
                            what metadata says";
                return Err(Failure::Environment(line.into()));
            }
            // There is no Ethernet, and there are no ports.
            _ => ([2, 0, 0, 0xff, 0xff, 0xff], u16::MAX),
        };
        Ok(ServiceConfig { address: self.metadata_address(), mac, switch_port })
    }

    /// What the metadata service is configured with; checks everything on the way.
    pub(crate) fn metadata_config(&self) -> Result<nicekv_metadata::Config, Failure> {
        let node = |node: &NodeSection| MetadataNode {
            id: NodeId(node.id),
            name: node.name.clone(),
            address: SocketAddrV4::new(node.address, self.port),
            mac: node.mac.0,
            switch_port: node.switch_port,
        };
        let balancing = match &self.clients {
            Some(clients) => Balancing::Source { clients: parse_prefix(clients)? },
            None => Balancing::None,
        };
        let config = nicekv_metadata::Config {
            cluster: self.cluster()?,
            nodes: self.nodes.iter().map(node).collect(),
            keyspaces: vec![self.default_keyspace()?],
            port: self.port,
            balancing,
            switches: self.switch_ids().into_iter().map(|(_, id)| id).collect(),
            services: vec![self.service()?],
            topology: Topology::default(),
            timing: Timing {
                heartbeat: self.heartbeat(),
                heartbeats_missed: self.timing.heartbeats_missed,
                lease: Duration::from_millis(self.timing.lease_ms),
                probe: Duration::from_millis(self.timing.probe_ms),
                grace_heartbeats: self.timing.grace_heartbeats,
                handoff_delay: self
                    .timing
                    .handoffs
                    .then(|| Duration::from_millis(self.timing.handoff_delay_ms)),
                rebalance_delay: (self.timing.rebalance_delay_ms > 0)
                    .then(|| Duration::from_millis(self.timing.rebalance_delay_ms)),
                ..Timing::default()
            },
        };
        config.validate().map_err(Failure::environment)?;
        Ok(config)
    }
}

fn parse_prefix(text: &str) -> Result<Prefix, Failure> {
    let parsed = text.split_once('/').and_then(|(address, length)| {
        Some(Prefix::new(address.parse::<Ipv4Addr>().ok()?.octets(), length.parse().ok()?))
    });
    parsed.ok_or_else(|| Failure::Environment(format!("clients: {text:?} is no prefix like 10.20.2.0/24")))
}

/// Bits for a cluster of this many nodes: about eight partitions each, so that they spread evenly.
pub(crate) fn partition_bits_for(nodes: usize) -> u8 {
    (8 * nodes).next_power_of_two().ilog2() as u8
}
