//! A cluster in one TOML file, the same for every role.
//!
//! ```toml
#![doc = include_str!("cluster.toml")]
//! ```

use crate::address;
use crate::failure::Failure;
use clap::ValueEnum;
use nicekv_client::Keyspace;
use nicekv_dataplane::{Prefix, Topology};
use nicekv_metadata::{Balancing, NodeConfig as MetadataNode, ServiceConfig, SwitchId, Timing};
use nicekv_placement::{KeyOrder, KeyspaceError, KeyspaceSpec, Protocol, Refusal, RingsBase};
use nicekv_wire::{Duration, KeyspaceId, NodeId};
use serde::{Deserialize, Serialize};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::{Path, PathBuf};

/// What `--help` of the roles shows: every field with its unit and default. The tests read it.
pub(crate) const EXAMPLE: &str = include_str!("cluster.toml");

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
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) keyspaces: Vec<KeyspaceSection>,
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
    #[serde(deserialize_with = "address::deserialize_all")]
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
    #[serde(deserialize_with = "address::deserialize")]
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
    #[serde(deserialize_with = "address::deserialize")]
    pub(crate) listen: SocketAddrV4,
    /// Most MiB of commands and replies that all its connections together may hold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) memory_mib_max: Option<usize>,
}

/// `[[keyspaces]]`: one beside the default one. What it does not say is as in that.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct KeyspaceSection {
    pub(crate) name: String,
    pub(crate) id: u16,
    #[serde(default)]
    pub(crate) replication: Replication,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) write_set: Option<u8>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) replicas: Option<usize>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) partitions: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) unicast_vring: Option<Ipv4Addr>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) multicast_vring: Option<Ipv4Addr>,
}

impl KeyspaceSection {
    /// Says everything.
    pub(crate) fn of(spec: &KeyspaceSpec) -> Self {
        let (replication, write_set) = match spec.protocol {
            Protocol::Multicast => (Replication::Multicast, None),
            Protocol::Quorum { write_set } => (Replication::Quorum, Some(write_set)),
        };
        Self {
            name: spec.name.clone(),
            id: spec.id.0,
            replication,
            write_set,
            replicas: Some(spec.replicas),
            partitions: Some(spec.partitions),
            unicast_vring: Some(spec.unicast),
            multicast_vring: Some(spec.multicast),
        }
    }

    fn spec(&self, default: &KeyspaceSpec) -> Result<KeyspaceSpec, Failure> {
        let refused = |reason| KeyspaceError::Refused { name: self.name.clone(), reason };
        let protocol = protocol(self.replication, self.write_set).map_err(refused);
        let rings = if default.unicast.is_loopback() { RingsBase::Loopback } else { RingsBase::Network };
        let (unicast, multicast) = rings.rings(KeyspaceId(self.id));
        Ok(KeyspaceSpec {
            id: KeyspaceId(self.id),
            name: self.name.clone(),
            protocol: protocol.map_err(Failure::environment)?,
            order: KeyOrder::Hash,
            replicas: self.replicas.unwrap_or(default.replicas),
            partitions: self.partitions.unwrap_or(default.partitions),
            unicast: self.unicast_vring.unwrap_or(unicast),
            multicast: self.multicast_vring.unwrap_or(multicast),
        })
    }
}

fn protocol(replication: Replication, write_set: Option<u8>) -> Result<Protocol, Refusal> {
    match (replication, write_set) {
        (Replication::Multicast, None) => Ok(Protocol::Multicast),
        (Replication::Multicast, Some(_)) => Err(Refusal::WriteSetOfMulticast),
        (Replication::Quorum, None) => Err(Refusal::QuorumWithoutWriteSet),
        (Replication::Quorum, Some(write_set)) => Ok(Protocol::Quorum { write_set }),
    }
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
    parse(&text).map_err(|error| Failure::Environment(format!("{}{error}", path.display())))
}

/// The error follows the file's name: `:LINE: FIELD: why`, or `: why` where no line alone is to blame.
fn parse(text: &str) -> Result<ClusterConfig, String> {
    let config: ClusterConfig = toml::from_str(text).map_err(|error| located(text, &error))?;
    config.metadata_config().map_err(|error| format!(": {error}"))?;
    Ok(config)
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
    pub(crate) fn cluster(&self) -> Result<u128, Failure> {
        u128::from_str_radix(&self.cluster_id, 16)
            .map_err(|_| Failure::Environment("cluster_id is not a hexadecimal number".into()))
    }

    /// Keyspace 0.
    fn default_keyspace(&self) -> Result<KeyspaceSpec, Failure> {
        let refused = |reason| KeyspaceError::Refused { name: "default".into(), reason };
        let protocol = protocol(self.replication, self.write_set).map_err(refused);
        Ok(KeyspaceSpec {
            id: KeyspaceId::DEFAULT,
            name: "default".into(),
            protocol: protocol.map_err(Failure::environment)?,
            order: KeyOrder::Hash,
            replicas: self.replicas,
            partitions: 1u32.checked_shl(self.partition_bits.into()).unwrap_or(0),
            unicast: self.unicast_vring,
            multicast: self.multicast_vring,
        })
    }

    /// All keyspaces, the default one first. What makes no sense is refused by [`Self::metadata_config`].
    fn keyspaces(&self) -> Result<Vec<KeyspaceSpec>, Failure> {
        let default = self.default_keyspace()?;
        let further = self.keyspaces.iter().map(|section| section.spec(&default));
        let further = further.collect::<Result<Vec<_>, _>>()?;
        Ok(std::iter::once(default).chain(further).collect())
    }

    /// What clients have to know, the default keyspace first.
    pub(crate) fn client_keyspaces(&self) -> Result<Vec<Keyspace>, Failure> {
        let known = |spec: KeyspaceSpec| Keyspace {
            id: spec.id,
            vrings: spec.vrings(self.port),
            replication: spec.replication(),
        };
        Ok(self.metadata_config()?.keyspaces.into_iter().map(known).collect())
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
            keyspaces: self.keyspaces()?,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_is_a_configuration_with_the_defaults() {
        let config = parse(EXAMPLE).unwrap();
        assert_eq!(config.timing, TimingSection::default());
        assert_eq!(config.replication, Replication::default());
        assert_eq!(config.nodes[0].busy_poll_us, 0);
    }

    #[test]
    fn the_example_has_every_field() {
        let mut config = parse(EXAMPLE).unwrap();
        // What the example only mentions.
        config.write_set = Some(2);
        config.switches[0].device = Some("lo".into());
        config.switches[0].address = Some(Ipv4Addr::LOCALHOST);
        let toml::Value::Table(all) = toml::Value::try_from(&config).unwrap() else { panic!("a table") };
        let mut tables = vec![&all];
        while let Some(table) = tables.pop() {
            for (field, value) in table {
                let is_described = EXAMPLE.lines().any(|line| {
                    let line = line.trim_start_matches(['#', ' ', '[']);
                    line.starts_with(&format!("{field} =")) || line.starts_with(&format!("{field}]"))
                });
                let is_inline = EXAMPLE.contains(&format!("{field} = "));
                assert!(is_described || is_inline, "{field} is not in the example");
                match value {
                    toml::Value::Table(inner) => tables.push(inner),
                    toml::Value::Array(items) => {
                        tables.extend(items.iter().filter_map(|item| item.as_table()));
                    }
                    _ => {}
                }
            }
        }
    }

    #[test]
    fn an_error_names_line_and_field() {
        let line_of = |field: &str| {
            EXAMPLE.lines().position(|line| line.starts_with(field)).expect("in the example") + 1
        };
        let broken = |from: &str, to: &str| parse(&EXAMPLE.replacen(from, to, 1)).unwrap_err();
        for (from, to, parts) in [
            (
                "replicas = 3",
                "replicas = \"three\"",
                [format!(":{}:", line_of("replicas")), "replicas".into()],
            ),
            ("heartbeat_ms", "heartbeat_s", [format!(":{}:", line_of("heartbeat_ms")), "heartbeat_s".into()]),
            ("\"02:00:00:00:00:02\"", "\"02\"", [format!(":{}:", line_of("mac")), "mac".into()]),
            (
                "\"10.30.0.1:7400\" ",
                "\"localhost\" ",
                [format!(":{}:", line_of("control = \"")), "localhost:7400".into()],
            ),
            ("port = 7400", "port 7400", [format!(":{}:", line_of("port")), "port".into()]),
            ("port = 7400", "", [":".into(), "missing field `port`".into()]),
            ("replicas = 3", "replicas = 4", [": 4 replicas".into(), "3".into()]),
            ("6379\"", "6379", [format!(":{}:", line_of("listen")), "listen".into()]),
        ] {
            let error = broken(from, to);
            assert!(parts.iter().all(|part| error.contains(part)), "{to}: {error:?}, not {parts:?}");
            assert!(!error.contains('\n'), "{error:?}");
        }
    }
}
