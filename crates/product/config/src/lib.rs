//! A cluster in TOML: in one file, the same for every role, or in a file for each role, which has what that role needs of it and names the role.
//!
//! ```toml
#![doc = include_str!("cluster.toml")]
//! ```
//!
//! [`templates`] has the files of the roles, [`check`] what is wrong with one, [`across`] what is wrong between several.

mod across;
pub mod address;
mod binds;
mod bounded;
mod check;
mod error;
mod gateways;
mod hot;
mod keyspaces;
mod log;
mod reserve;
mod sections;
mod templates;
#[cfg(test)]
mod tests;
mod thread_count;
mod topology;
mod value_limit;

pub use across::{Checked, Finding, findings};
pub use check::{Problem, problems};
pub use error::ConfigError;
pub use gateways::GatewaySection;
pub use hot::{HotArguments, HotSection};
pub use keyspaces::{KeyspaceBalancing, KeyspaceSection, ObjectChunks, Partitioning, Replication};
pub use log::{LogFormat, LogLevel, LogSection};
pub use reserve::ReserveMib;
pub use sections::{
    InstanceSection, MacAddress, MetadataSection, NodeSection, PortSection, Store, SwitchSection,
    TimingSection,
};

pub use keyspaces::protocol;
pub use templates::Template;
pub use thread_count::ThreadCount;
pub use value_limit::ValueLimit;

use nicekv_client::Keyspace;
use nicekv_metadata::{
    Balancing, LINK_BITS_PER_SECOND, NODES_MAX, NodeConfig as MetadataNode, ServiceConfig, SwitchId, Timing,
};
use nicekv_proto::placement::{
    GroupRing, KeyOrder, KeyspaceSpec, LoadBalancing, RingsBase, check_keyspaces, usual_group_ring,
};
use nicekv_proto::{Duration, KeyspaceId, NodeId};
use nicekv_switch::{Prefix, VringSet};
use serde::{Deserialize, Serialize};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::Path;

/// What `--help` of the roles shows: every field with its unit and default. The tests read it.
pub const EXAMPLE: &str = include_str!("cluster.toml");

/// Bits a second.
const MBIT: u64 = 1_000_000;

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClusterConfig {
    /// Whose file it is; `None`: of all roles.
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

/// The roles that have a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RoleKind {
    Metadata,
    Node,
    Switch,
    Gateway,
}

impl RoleKind {
    /// As the file and the command line say it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Metadata => "metadata",
            Self::Node => "node",
            Self::Switch => "switch",
            Self::Gateway => "gateway",
        }
    }
}

/// Reads and checks the configuration of a role.
pub fn read(path: &Path, role: RoleKind) -> Result<ClusterConfig, ConfigError> {
    read_with(path, role, |_| {})
}

/// The same with what a command line says instead.
pub fn read_with(
    path: &Path,
    role: RoleKind,
    amend: impl FnOnce(&mut ClusterConfig),
) -> Result<ClusterConfig, ConfigError> {
    let text = read_text(path)?;
    let parsed = parse_with(&text, amend).and_then(|config| config.of(role));
    parsed.map_err(|error| ConfigError::new(format!("{}{error}", path.display())))
}

fn read_text(path: &Path) -> Result<String, ConfigError> {
    std::fs::read_to_string(path).map_err(|error| {
        let advice = match error.kind() {
            std::io::ErrorKind::NotFound => "; `nicekv config print ROLE` prints one to begin with",
            _ => "",
        };
        ConfigError::new(format!("{}: {error}{advice}", path.display()))
    })
}

/// The error follows the file's name: `:LINE: FIELD: why`, or `: why` where no line alone is to blame.
fn parse_with(text: &str, amend: impl FnOnce(&mut ClusterConfig)) -> Result<ClusterConfig, String> {
    let mut config: ClusterConfig = toml::from_str(text).map_err(|error| located(text, &error))?;
    amend(&mut config);
    match check::problems(&config).first() {
        Some(problem) => Err(problem.located(text)),
        None => Ok(config),
    }
}

fn located(text: &str, error: &toml::de::Error) -> String {
    let message = error.message();
    let Some(span) = error.span() else { return format!(": {message}") };
    let before = text.get(..span.start).unwrap_or(text);
    let (number, start) = (before.matches('\n').count() + 1, before.rfind('\n').map_or(0, |at| at + 1));
    let line = text.get(start..).and_then(|rest| rest.lines().next()).unwrap_or_default().trim();
    let field = line.split('=').next().unwrap_or_default().trim();
    // What is missing is missing from the section that begins there.
    if field.is_empty() || message.contains(field) {
        format!(":{number}: {message}")
    } else {
        format!(":{number}: {field}: {message}")
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

    /// Refuses the file of another role.
    fn of(self, role: RoleKind) -> Result<Self, String> {
        match self.role {
            Some(other) if other != role => {
                let (other, role) = (other.name(), role.name());
                Err(format!(
                    ": role: the file of a {other}, not of a {role}: see `nicekv config print {role}`"
                ))
            }
            _ => Ok(self),
        }
    }

    /// Whether all nodes and switches are to be in this file.
    fn is_of_cluster(&self) -> bool {
        matches!(self.role, None | Some(RoleKind::Metadata))
    }

    pub fn cluster(&self) -> Result<u128, ConfigError> {
        u128::from_str_radix(&self.cluster_id, 16)
            .map_err(|_| ConfigError::new("cluster_id is not a hexadecimal number"))
    }

    /// Keyspace 0.
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

    /// All keyspaces, the default one first. What makes no sense is refused by [`Self::metadata_config`].
    fn keyspaces(&self) -> Result<Vec<KeyspaceSpec>, ConfigError> {
        let default = self.default_keyspace()?;
        let further = self.keyspaces.iter().map(|section| section.spec(&default));
        let further = further.collect::<Result<Vec<_>, _>>()?;
        Ok(std::iter::once(default).chain(further).collect())
    }

    /// The same, checked; against the number of nodes only where the file has them.
    pub fn checked_keyspaces(&self) -> Result<Vec<KeyspaceSpec>, ConfigError> {
        if self.is_of_cluster() {
            return Ok(self.metadata_config()?.keyspaces);
        }
        let keyspaces = self.keyspaces()?;
        check_keyspaces(&keyspaces, NODES_MAX).map_err(ConfigError::new)?;
        Ok(keyspaces)
    }

    /// The rings of all keyspaces.
    pub fn vrings(&self) -> Result<VringSet, ConfigError> {
        nicekv_metadata::vrings_of(&self.checked_keyspaces()?, self.group_ring()?)
            .map_err(|error| ConfigError::new(format!("group_ring: {error}")))
    }

    /// Of each link, as far as storage targets reserve windows on it.
    fn link_bits_per_second(&self) -> u64 {
        self.link_mbit_per_second.saturating_mul(MBIT)
    }

    /// That of groups of storage targets.
    fn group_ring(&self) -> Result<Option<GroupRing>, ConfigError> {
        let Some(said) = &self.group_ring else {
            return Ok(usual_group_ring(&self.keyspaces()?, self.port));
        };
        let Prefix { address, length } = parse_prefix("group_ring", said)?;
        let target_port = GroupRing::usual_target_port(self.port);
        Ok(Some(GroupRing { base: address.into(), length, port: self.port, target_port }))
    }

    /// What only the whole shows.
    fn validate(&self) -> Result<(), ConfigError> {
        self.cluster()?;
        self.vrings().map(|_| ())
    }

    /// What clients have to know, the default keyspace first.
    pub fn client_keyspaces(&self) -> Result<Vec<Keyspace>, ConfigError> {
        let known = |spec: KeyspaceSpec| Keyspace {
            id: spec.id,
            replication: spec.replication(),
            order: spec.order,
            partition_bits: Some(spec.partitions.ilog2()),
            is_hot: spec.is_hot(),
            holds_objects: spec.chunks.is_some(),
            ..spec.vrings(self.port).into()
        };
        Ok(self.checked_keyspaces()?.into_iter().map(known).collect())
    }

    pub fn heartbeat(&self) -> Duration {
        Duration::from_millis(self.timing.heartbeat_ms)
    }

    /// Where nodes reach the instances of the metadata service.
    pub fn metadata_addresses(&self) -> Vec<SocketAddrV4> {
        let all = self.metadata.all();
        all.iter().map(|instance| SocketAddrV4::new(instance.address, self.port)).collect()
    }

    /// Where commands reach them.
    pub fn metadata_controls(&self) -> Vec<SocketAddrV4> {
        self.metadata_instances().into_iter().flat_map(|(_, controls)| controls).collect()
    }

    /// The names of the instances, and where commands reach them. A file that does not say where, such as a node's, has only their
    /// addresses: there it is the port of the cluster.
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

    /// The switch that hides the senders of what it passes on.
    pub fn hiding_switch(&self) -> Option<SocketAddrV4> {
        let user_space = self.switches.iter().find(|switch| switch.router_mac.is_none())?;
        Some(SocketAddrV4::new(user_space.address(), self.port))
    }

    /// Switches are known to the metadata service by their place in the file.
    pub fn switch_ids(&self) -> Vec<(String, SwitchId)> {
        let named = self.switches.iter().enumerate();
        named.map(|(index, switch)| (switch.name.clone(), SwitchId(index as u16))).collect()
    }

    /// Where the switches have to look for the instances of the metadata service.
    fn services(&self) -> Result<Vec<ServiceConfig>, ConfigError> {
        let has_ports = self.switches.iter().any(|switch| switch.router_mac.is_some());
        let service = |(instance, index): (InstanceSection, u8)| {
            let (mac, switch_port) = match (instance.mac, instance.switch_port) {
                (Some(mac), Some(switch_port)) => (mac.0, switch_port),
                _ if has_ports => {
                    let line = format!(
                        "{} needs mac and switch_port: a switch with ports lets through from there alone what metadata says",
                        instance.name
                    );
                    return Err(ConfigError::new(line));
                }
                // There is no Ethernet, and there are no ports.
                _ => ([2, 0, 0, 0xff, 0xff, 0xff - index], u16::MAX - u16::from(index)),
            };
            Ok(ServiceConfig { address: SocketAddrV4::new(instance.address, self.port), mac, switch_port })
        };
        self.metadata.all().into_iter().zip(0..).map(service).collect()
    }

    /// What the metadata service is configured with; checks everything on the way.
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
                target_patience: (self.timing.target_patience_ms > 0)
                    .then(|| Duration::from_millis(self.timing.target_patience_ms)),
                collect_interval: (self.timing.collect_interval_ms > 0)
                    .then(|| Duration::from_millis(self.timing.collect_interval_ms)),
                ..Timing::default()
            },
            hot: self.hot.settings(),
        };
        self.metadata.check().map_err(ConfigError::new)?;
        // Spares must fit in, too.
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
    parsed.ok_or_else(|| ConfigError::new(format!("{field}: {text:?} is no prefix like 10.20.2.0/24")))
}
