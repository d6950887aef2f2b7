//! The hosts of a lab and their addresses.
//!
//! ```text
//!   node-0 10.20.1.1 ══╗                        ╔══ 10.20.2.1 client-0
//!   node-1 10.20.1.2 ══╬══ switch (10.20.0.1) ══╬══ 10.20.2.2 client-1
//!   …                  ║      ║                 ║   …
//!  metadata 10.20.0.2 ═╝      ║
//!           10.30.0.1 ════════╝ 10.30.0.2       the stream of table updates, outside the switch
//! ```
//!
//! With `--switches 2` there is also switch-1, connected to switch by a trunk ([`crate::layout`]).
//! Each switch has its own management links (those of switch-1: 10.30.0.5 to 10.30.0.6).
//!
//! With `--metadata 3` there are also metadata-1 (10.20.0.3, 10.30.1.1) and metadata-2, and with
//! `--metadata-store etcd` a member of etcd beside each (etcd-0 on the host metadata, etcd-1 on
//! metadata-1, …).
//!
//! 10.20.0.1 is not a host: it is the permanent neighbour, with the router's MAC, through which every host reaches the vrings.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::str::FromStr;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// Maximum number of nodes, and of clients: each number fits into a byte of the addresses, and all
/// ports fit into the switch.
pub const HOSTS_OF_A_KIND_MAX: usize = 100;
/// UDP port of the vrings and the nodes, TCP port of the metadata service.
pub const WIRE_PORT: u16 = 7400;
/// The address at which the gateway of a client host listens, inside that host.
pub const RESP: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 6379);
/// The metadata service, for nodes and commands.
pub const METADATA: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 20, 0, 2), WIRE_PORT);
/// Maximum number of instances of the metadata service.
pub const INSTANCES_MAX: usize = 9;
/// TCP port at which members of etcd listen for clients.
pub(crate) const ETCD_CLIENTS: u16 = 2379;
/// TCP port at which members of etcd listen for each other.
pub(crate) const ETCD_PEERS: u16 = 2380;
/// Name of a host's end of its link.
pub(crate) const INTERFACE: &str = "eth0";
/// On a plain network: the interface through which a host sends to the vrings.
pub(crate) const VRING_INTERFACE: &str = "vring0";
/// On a plain network: the interface from which the edge receives what its host sends to the
/// vrings.
pub(crate) const EDGE_INTERFACE: &str = "vring1";
/// The next hop to the vrings.
pub(crate) const ROUTER: Ipv4Addr = Ipv4Addr::new(10, 20, 0, 1);
/// The vrings of all possible keyspaces, 10.10 to 10.19 and 10.40 to 10.61, and the ring of groups.
pub(crate) const VRINGS: [&str; 8] = [
    "10.10.0.0/15",
    "10.12.0.0/14",
    "10.16.0.0/14",
    "10.40.0.0/13",
    "10.48.0.0/13",
    "10.56.0.0/14",
    "10.60.0.0/15",
    "10.64.0.0/12",
];

/// The network between the hosts of a lab.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Fabric {
    /// The switch of NICEKV, in the kernel
    #[default]
    Switch,
    /// A plain Ethernet switch; every node and client host runs the pipeline for what it sends
    Plain,
}

impl fmt::Display for Fabric {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(match self {
            Self::Switch => "switch",
            Self::Plain => "plain",
        })
    }
}

/// A host of the lab. Its names are `metadata`, `switch`, `switch-1`, `node-0`, `client-0`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum Host {
    Switch,
    Metadata,
    Node(u8),
    /// A client host, with a RESP gateway.
    Client(u8),
    /// The plain network that connects the hosts: no process, no tables.
    Fabric,
    /// The edge of a node's host: a process beside the node.
    NodeEdge(u8),
    /// The edge of a client host.
    ClientEdge(u8),
    /// A further instance of the metadata service, counted from 1.
    Instance(u8),
    /// A member of etcd, on the host of the instance with this number.
    Etcd(u8),
    /// A further switch, counted from 1.
    FurtherSwitch(u8),
    /// The database of the Open vSwitch that is the switch with this number.
    OvsDatabase(u8),
    /// The datapath of the Open vSwitch that is the switch with this number.
    OvsDatapath(u8),
}

impl Host {
    /// The `nicekv` subcommand that runs there.
    pub fn role(self) -> &'static str {
        match self {
            Self::Switch
            | Self::FurtherSwitch(_)
            | Self::Fabric
            | Self::NodeEdge(_)
            | Self::ClientEdge(_) => "switch",
            Self::Metadata | Self::Instance(_) => "metadata",
            Self::Etcd(_) => "etcd",
            Self::OvsDatabase(_) | Self::OvsDatapath(_) => "ovs",
            Self::Node(_) => "node",
            Self::Client(_) => "gateway",
        }
    }

    /// The address of the host's `eth0`. The switch has none there; the result is the address of
    /// its management link.
    pub fn address(self) -> Ipv4Addr {
        match self {
            Self::Switch | Self::Fabric => switch_control(0, 0),
            Self::FurtherSwitch(index) | Self::OvsDatabase(index) | Self::OvsDatapath(index) => {
                switch_control(0, index)
            }
            Self::Metadata => *METADATA.ip(),
            Self::Instance(index) | Self::Etcd(index) => Ipv4Addr::new(10, 20, 0, 2 + index),
            Self::Node(index) | Self::NodeEdge(index) => Ipv4Addr::new(10, 20, 1, index + 1),
            Self::Client(index) | Self::ClientEdge(index) => Ipv4Addr::new(10, 20, 2, index + 1),
        }
    }

    /// The host whose namespace it is in. An edge is in the namespace of its host.
    pub(crate) fn machine(self) -> Self {
        match self {
            Self::NodeEdge(index) => Self::Node(index),
            Self::ClientEdge(index) => Self::Client(index),
            Self::Etcd(0) => Self::Metadata,
            Self::Etcd(index) => Self::Instance(index),
            Self::OvsDatabase(index) | Self::OvsDatapath(index) => Self::of_switch(index),
            host => host,
        }
    }

    /// The edge of a host on a plain network.
    pub(crate) fn edge(self) -> Option<Self> {
        match self {
            Self::Node(index) => Some(Self::NodeEdge(index)),
            Self::Client(index) => Some(Self::ClientEdge(index)),
            _ => None,
        }
    }

    /// The number of an instance of the metadata service; `None` for other hosts.
    pub(crate) fn instance(self) -> Option<u8> {
        match self {
            Self::Metadata => Some(0),
            Self::Instance(index) => Some(index),
            _ => None,
        }
    }

    /// The instance with this number.
    pub(crate) fn of_instance(number: u8) -> Self {
        if number == 0 { Self::Metadata } else { Self::Instance(number) }
    }

    /// The number of a switch; `None` for other hosts.
    pub(crate) fn switch(self) -> Option<u8> {
        match self {
            Self::Switch => Some(0),
            Self::FurtherSwitch(index) => Some(index),
            _ => None,
        }
    }

    /// The switch with this number.
    pub(crate) fn of_switch(number: u8) -> Self {
        if number == 0 { Self::Switch } else { Self::FurtherSwitch(number) }
    }

    /// Whether a port of a switch leads to it: it has a link or a trunk.
    pub(crate) fn is_at_port(self) -> bool {
        self.has_link() || matches!(self, Self::FurtherSwitch(_))
    }

    /// Whether it has a link of its own to the switch or the plain network.
    pub(crate) fn has_link(self) -> bool {
        matches!(self, Self::Metadata | Self::Instance(_) | Self::Node(_) | Self::Client(_))
    }
}

impl fmt::Display for Host {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Switch => formatter.pad("switch"),
            Self::Metadata => formatter.pad("metadata"),
            Self::FurtherSwitch(index) => formatter.pad(&format!("switch-{index}")),
            Self::Instance(index) => formatter.pad(&format!("metadata-{index}")),
            Self::Etcd(index) => formatter.pad(&format!("etcd-{index}")),
            Self::OvsDatabase(index) => formatter.pad(&format!("ovsdb-{index}")),
            Self::OvsDatapath(index) => formatter.pad(&format!("ovs-{index}")),
            Self::Node(index) => formatter.pad(&format!("node-{index}")),
            Self::Client(index) => formatter.pad(&format!("client-{index}")),
            Self::Fabric => formatter.pad("fabric"),
            Self::NodeEdge(_) | Self::ClientEdge(_) => formatter.pad(&format!("edge-{}", self.machine())),
        }
    }
}

impl From<Host> for String {
    fn from(host: Host) -> Self {
        host.to_string()
    }
}

impl TryFrom<String> for Host {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        name.parse()
    }
}

impl FromStr for Host {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        if let Some(machine) = name.strip_prefix("edge-") {
            let edge = machine.parse::<Self>().ok().and_then(Self::edge);
            return edge.ok_or_else(|| format!("{name:?} is not an edge: edge-node-0…, edge-client-0…"));
        }
        let index = |digits: &str| digits.parse::<u8>().ok().filter(|index| index.to_string() == digits);
        let host = match name.split_once('-') {
            None if name == "switch" => Some(Self::Switch),
            None if name == "metadata" => Some(Self::Metadata),
            None if name == "fabric" => Some(Self::Fabric),
            Some(("node", digits)) => index(digits).map(Self::Node),
            Some(("client", digits)) => index(digits).map(Self::Client),
            Some(("metadata", digits)) => index(digits).filter(|index| *index > 0).map(Self::Instance),
            Some(("etcd", digits)) => index(digits).map(Self::Etcd),
            Some(("ovsdb", digits)) => index(digits).map(Self::OvsDatabase),
            Some(("ovs", digits)) => index(digits).map(Self::OvsDatapath),
            Some(("switch", digits)) => index(digits).filter(|index| *index > 0).map(Self::FurtherSwitch),
            _ => None,
        };
        host.ok_or_else(|| format!("{name:?} is not a host: switch, metadata, node-0…, client-0…"))
    }
}

/// The locally administered MAC address for an IP address.
pub(crate) fn mac(address: Ipv4Addr) -> [u8; 6] {
    let [a, b, c, d] = address.octets();
    [0x02, 0, a, b, c, d]
}

/// A MAC address in the notation of `ip link` and of configuration files.
pub(crate) fn format_mac(mac: [u8; 6]) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}

/// Further instances of the metadata service, and with etcd a member beside each instance.
pub(crate) fn control_hosts(instances: usize, has_etcd: bool) -> Vec<Host> {
    assert!((1..=INSTANCES_MAX).contains(&instances), "checked with the options");
    let members = (0..instances as u8).filter(|_| has_etcd).map(Host::Etcd);
    (1..instances as u8).map(Host::Instance).chain(members).collect()
}

/// The database and the datapath of each switch that is an Open vSwitch.
pub(crate) fn open_vswitch_hosts(switches: u8) -> impl Iterator<Item = Host> {
    (0..switches).flat_map(|number| [Host::OvsDatabase(number), Host::OvsDatapath(number)])
}

/// The address of a switch's end of its management link to the instance with this number.
pub(crate) fn switch_control(instance: u8, switch: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 30, instance, 4 * switch + 2)
}

/// The address at which a switch's agent reaches the instance with this number.
pub(crate) fn control_of(instance: u8, switch: u8) -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::new(10, 30, instance, 4 * switch + 1), WIRE_PORT)
}

/// The hosts with a link to a switch or the plain network, with their port numbers, which are
/// unique among all switches. They begin with 1, like those of OpenFlow.
pub(crate) fn ports(hosts: &[Host]) -> impl Iterator<Item = (u16, Host)> {
    (1..).zip(hosts.iter().copied().filter(|host| host.has_link()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::{Layout, SWITCHES_MAX, Shape, hosts};

    #[test]
    fn host_names_round_trip_and_others_are_refused() {
        for fabric in [Fabric::Switch, Fabric::Plain] {
            let control = control_hosts(INSTANCES_MAX, true);
            for host in hosts(HOSTS_OF_A_KIND_MAX, 3, fabric, Layout::new(Shape::Tree, SWITCHES_MAX, 0))
                .into_iter()
                .chain(control)
            {
                assert_eq!(host.to_string().parse(), Ok(host));
            }
        }
        for name in [
            "",
            "node",
            "node-",
            "node-00",
            "node-+1",
            "node-256",
            "node-0-switch",
            "x-node-0",
            "Switch",
            "edge-",
            "edge-metadata",
            "metadata-0",
            "switch-0",
            "etcd",
        ] {
            assert!(name.parse::<Host>().is_err(), "{name}");
        }
    }
}
