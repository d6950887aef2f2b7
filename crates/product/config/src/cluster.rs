//! The values of a configuration file, and the configurations of the other crates that are derived
//! from it.

use crate::error::ConfigError;
use crate::gateways::GatewaySection;
use crate::hot::HotSection;
use crate::keyspaces::{KeyspaceSection, Replication, protocol};
use crate::log::LogSection;
use crate::sections::{
    InstanceSection, MetadataSection, NodeSection, SwitchKind, SwitchSection, TimingSection,
};
use nicekv_client::{Addressing, Keyspace};
use nicekv_metadata::{
    Balancing, LINK_BITS_PER_SECOND, NODES_MAX, NodeConfig as MetadataNode, ServiceConfig, SwitchId, Timing,
};
use nicekv_proto::placement::{
    GroupRing, KeyOrder, KeyspaceSpec, LoadBalancing, RingsBase, check_keyspaces, usual_group_ring,
};
use nicekv_proto::{Duration, KeyspaceId, NodeId};
use nicekv_switch::{Matching, Prefix, VringSet};
use serde::{Deserialize, Serialize};
use std::net::{Ipv4Addr, SocketAddrV4};

/// Bits per second.
pub(crate) const MBIT: u64 = 1_000_000;

/// A configuration file. The schema describes each key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClusterConfig {
    /// The role that the file is for; `None`: all roles.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<RoleKind>,
    pub cluster_id: String,
    #[serde(default = "ClusterConfig::port")]
    pub port: u16,
    #[serde(default = "ClusterConfig::replicas")]
    pub replicas: usize,
    #[serde(default)]
    pub replication: Replication,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write_set: Option<u8>,
    #[serde(default = "ClusterConfig::partition_bits")]
    pub partition_bits: u8,
    #[serde(default = "ClusterConfig::unicast_vring")]
    pub unicast_vring: Ipv4Addr,
    #[serde(default = "ClusterConfig::multicast_vring")]
    pub multicast_vring: Ipv4Addr,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group_ring: Option<String>,
    #[serde(default = "ClusterConfig::link_mbit_per_second")]
    pub link_mbit_per_second: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clients: Option<String>,
    #[serde(default)]
    pub metadata: MetadataSection,
    #[serde(default)]
    pub nodes: Vec<NodeSection>,
    #[serde(default)]
    pub switches: Vec<SwitchSection>,
    #[serde(default)]
    pub gateways: Vec<GatewaySection>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub keyspaces: Vec<KeyspaceSection>,
    #[serde(default)]
    pub timing: TimingSection,
    #[serde(default)]
    pub hot: HotSection,
    #[serde(default)]
    pub log: LogSection,
}

/// The roles that may have their own file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RoleKind {
    Metadata,
    Node,
    Switch,
    Gateway,
}

impl RoleKind {
    /// The name in files and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Metadata => "metadata",
            Self::Node => "node",
            Self::Switch => "switch",
            Self::Gateway => "gateway",
        }
    }
}

impl ClusterConfig {
    fn port() -> u16 {
        7400
    }

    fn replicas() -> usize {
        3
    }

    fn partition_bits() -> u8 {
        6
    }

    fn unicast_vring() -> Ipv4Addr {
        RingsBase::Network.rings(KeyspaceId::DEFAULT).0
    }

    fn multicast_vring() -> Ipv4Addr {
        RingsBase::Network.rings(KeyspaceId::DEFAULT).1
    }

    pub fn link_mbit_per_second() -> u64 {
        LINK_BITS_PER_SECOND / MBIT
    }

    /// Checks that the file is for this role, or for all.
    pub(crate) fn of(self, role: RoleKind) -> Result<Self, String> {
        match self.role {
            Some(other) if other != role => {
                let (other, role) = (other.name(), role.name());
                Err(format!(
                    ": role: this file is for a {other}, not for a {role}; `nicekv config print {role}` prints one"
                ))
            }
            _ => Ok(self),
        }
    }

    /// Whether the file must list all nodes and switches.
    pub(crate) fn is_of_cluster(&self) -> bool {
        matches!(self.role, None | Some(RoleKind::Metadata))
    }

    pub fn cluster(&self) -> Result<u128, ConfigError> {
        u128::from_str_radix(&self.cluster_id, 16)
            .map_err(|_| ConfigError::new("cluster_id is not 32 hexadecimal digits"))
    }

    fn default_keyspace(&self) -> Result<KeyspaceSpec, ConfigError> {
        Ok(KeyspaceSpec {
            id: KeyspaceId::DEFAULT,
            name: "default".into(),
            protocol: protocol("default", self.replication, self.write_set)?,
            order: KeyOrder::Hash,
            balancing: LoadBalancing::None,
            partition_keys: None,
            partition_bytes: None,
            chunks: None,
            replicas: self.replicas,
            partitions: 1u32.checked_shl(self.partition_bits.into()).unwrap_or(0),
            unicast: self.unicast_vring,
            multicast: self.multicast_vring,
        })
    }

    /// All keyspaces, the default one first, unchecked: [`Self::metadata_config`] checks them.
    pub(crate) fn keyspaces(&self) -> Result<Vec<KeyspaceSpec>, ConfigError> {
        let default = self.default_keyspace()?;
        let further = self.keyspaces.iter().map(|section| section.spec(&default));
        let further = further.collect::<Result<Vec<_>, _>>()?;
        Ok(std::iter::once(default).chain(further).collect())
    }

    /// All keyspaces, checked. Replicas are compared with the number of nodes only if the file has
    /// all nodes.
    pub fn checked_keyspaces(&self) -> Result<Vec<KeyspaceSpec>, ConfigError> {
        if self.is_of_cluster() {
            return Ok(self.metadata_config()?.keyspaces);
        }
        let keyspaces = self.keyspaces()?;
        check_keyspaces(&keyspaces, NODES_MAX).map_err(ConfigError::new)?;
        Ok(keyspaces)
    }

    pub fn vrings(&self) -> Result<VringSet, ConfigError> {
        nicekv_metadata::vrings_of(&self.checked_keyspaces()?, self.group_ring()?)
            .map_err(|error| ConfigError::new(format!("group_ring: {error}")))
    }

    /// Rate of each link on which storage targets reserve windows, in bits per second.
    pub(crate) fn link_bits_per_second(&self) -> u64 {
        self.link_mbit_per_second.saturating_mul(MBIT)
    }

    /// The ring of groups of storage targets, if there is one.
    pub(crate) fn group_ring(&self) -> Result<Option<GroupRing>, ConfigError> {
        let Some(said) = &self.group_ring else {
            return Ok(usual_group_ring(&self.keyspaces()?, self.port));
        };
        let Prefix { address, length } = parse_prefix("group_ring", said)?;
        let target_port = GroupRing::usual_target_port(self.port);
        Ok(Some(GroupRing { base: address.into(), length, port: self.port, target_port }))
    }

    /// Checks the file as a whole.
    pub(crate) fn validate(&self) -> Result<(), ConfigError> {
        self.cluster()?;
        self.vrings().map(|_| ())
    }

    /// The keyspaces as clients see them, the default one first.
    pub fn client_keyspaces(&self) -> Result<Vec<Keyspace>, ConfigError> {
        let known = |spec: KeyspaceSpec| Keyspace {
            id: spec.id,
            replication: spec.replication(),
            order: spec.order,
            partition_bits: Some(spec.partitions.ilog2()),
            is_hot: spec.is_hot(),
            holds_objects: spec.chunks.is_some(),
            addressing: self.addressing(),
            ..spec.vrings(self.port).into()
        };
        Ok(self.checked_keyspaces()?.into_iter().map(known).collect())
    }

    pub fn heartbeat(&self) -> Duration {
        Duration::from_millis(self.timing.heartbeat_ms)
    }

    /// UDP addresses of the metadata instances, to which nodes send.
    pub fn metadata_addresses(&self) -> Vec<SocketAddrV4> {
        let all = self.metadata.all();
        all.iter().map(|instance| SocketAddrV4::new(instance.address, self.port)).collect()
    }

    /// TCP addresses of the metadata instances, to which commands connect.
    pub fn metadata_controls(&self) -> Vec<SocketAddrV4> {
        self.metadata_instances().into_iter().flat_map(|(_, controls)| controls).collect()
    }

    /// Names of the metadata instances, each with its TCP addresses. If an instance has no
    /// `control`, as in a node's file, it is its address with the port of the cluster.
    pub fn metadata_instances(&self) -> Vec<(String, Vec<SocketAddrV4>)> {
        let all = self.metadata.all().into_iter();
        let all = all.filter(|instance| !instance.address.is_unspecified() || !instance.control.is_empty());
        let of = |instance: InstanceSection| {
            let usual = SocketAddrV4::new(instance.address, self.port);
            let control = if instance.control.is_empty() { vec![usual] } else { instance.control };
            (instance.name, control)
        };
        all.map(of).collect()
    }

    /// Address of the user-space switch, which replaces the source addresses of datagrams by its
    /// own.
    pub fn hiding_switch(&self) -> Option<SocketAddrV4> {
        let user_space = self.switches.iter().find(|switch| switch.kind() == SwitchKind::UserSpace)?;
        Some(SocketAddrV4::new(user_space.address(), self.port))
    }

    /// Names and ids of the switches: the id is the position in the file.
    pub fn switch_ids(&self) -> Vec<(String, SwitchId)> {
        let named = self.switches.iter().enumerate();
        named.map(|(index, switch)| (switch.name.clone(), SwitchId(index as u16))).collect()
    }

    fn addressing(&self) -> Addressing {
        match self.matching() {
            Matching::Headers => Addressing::Vnode,
            Matching::Messages => Addressing::Ring,
        }
    }

    /// How deep the switches look into packets: as deep as the one that sees least.
    fn matching(&self) -> Matching {
        match self.switches.iter().any(|switch| matches!(switch.kind(), SwitchKind::OpenFlow { .. })) {
            true => Matching::Headers,
            false => Matching::Messages,
        }
    }

    /// The metadata instances, as switches need to know them.
    fn services(&self) -> Result<Vec<ServiceConfig>, ConfigError> {
        let has_ports = self.switches.iter().any(|switch| switch.router_mac.is_some());
        let service = |(instance, index): (InstanceSection, u8)| {
            let (mac, switch_port) = match (instance.mac, instance.switch_port) {
                (Some(mac), Some(switch_port)) => (mac.0, switch_port),
                _ if has_ports => {
                    let line = format!(
                        "{} needs mac and switch_port: a switch with ports accepts control messages from there only",
                        instance.name
                    );
                    return Err(ConfigError::new(line));
                }
                // Switches without ports do not use Ethernet addresses and port numbers: any
                // distinct values will do.
                _ => ([2, 0, 0, 0xff, 0xff, 0xff - index], u16::MAX - u16::from(index)),
            };
            Ok(ServiceConfig { address: SocketAddrV4::new(instance.address, self.port), mac, switch_port })
        };
        self.metadata.all().into_iter().zip(0..).map(service).collect()
    }

    /// The configuration of the metadata service, after all checks.
    pub fn metadata_config(&self) -> Result<nicekv_metadata::Config, ConfigError> {
        let node = |node: &NodeSection| {
            Ok(MetadataNode {
                id: NodeId(node.id),
                name: node.name.clone(),
                address: SocketAddrV4::new(node.address, self.port),
                mac: node.mac.0,
                switch_port: node.switch_port,
                home: self.home(&node.name, node.switch.as_deref())?,
            })
        };
        let balancing = match &self.clients {
            Some(clients) => Balancing::Source { clients: parse_prefix("clients", clients)? },
            None => Balancing::None,
        };
        let config = nicekv_metadata::Config {
            cluster: self.cluster()?,
            nodes: self.nodes.iter().map(node).collect::<Result<_, ConfigError>>()?,
            keyspaces: self.keyspaces()?,
            port: self.port,
            group_ring: self.group_ring()?,
            link_bits_per_second: self.link_bits_per_second(),
            balancing,
            switches: self.switch_ids().into_iter().map(|(_, id)| id).collect(),
            matching: self.matching(),
            services: self.services()?,
            topology: self.topology()?,
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
                balance_period: Duration::from_millis(self.timing.balance_period_ms),
                balance_requests_min: self.timing.balance_requests_min,
                target_timeout: (self.timing.target_timeout_ms > 0)
                    .then(|| Duration::from_millis(self.timing.target_timeout_ms)),
                collect_interval: (self.timing.collect_interval_ms > 0)
                    .then(|| Duration::from_millis(self.timing.collect_interval_ms)),
                ..Timing::default()
            },
            hot: self.hot.settings(),
        };
        self.metadata.check().map_err(ConfigError::new)?;
        // Spare nodes are included in this check, because they may be added later.
        config.validate().map_err(ConfigError::new)?;
        let is_first =
            |node: &MetadataNode| self.nodes.iter().any(|first| first.id == node.id.0 && !first.spare);
        let first = nicekv_metadata::Config {
            nodes: config.nodes.iter().filter(|node| is_first(node)).cloned().collect(),
            ..config
        };
        first.validate().map_err(ConfigError::new)?;
        Ok(first)
    }
}

fn parse_prefix(field: &str, text: &str) -> Result<Prefix, ConfigError> {
    let parsed = text.split_once('/').and_then(|(address, length)| {
        Some(Prefix::new(address.parse::<Ipv4Addr>().ok()?.octets(), length.parse().ok()?))
    });
    parsed.ok_or_else(|| ConfigError::new(format!("{field}: {text:?} is not a prefix such as 10.20.2.0/24")))
}
