//! The content of the configuration for a lab's processes, independent of the form in which the
//! program reads it.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::{Path, PathBuf};

use nicekv_proto::placement::KeyspaceSpec;

use crate::data_plane::DataPlane;
use crate::layout::Layout;
use crate::topology::{
    EDGE_INTERFACE, ETCD_CLIENTS, Host, INTERFACE, RESP, ROUTER, WIRE_PORT, control_of, mac, ports,
};

/// Default memory of a node's kernel for gets, in MiB.
pub(crate) const KERNEL_GET_MIB: u32 = 32;

/// Default rate of links, by which storage targets reserve transfer windows.
pub(crate) const LINK_MBIT_PER_SECOND: u64 = 1_000;

/// The program whose roles run on the hosts of a lab, as `ROLE --config FILE [--name HOST]`.
#[derive(Clone, Copy)]
pub struct Roles<'a> {
    pub program: &'a Path,
    /// Writes the configuration file that all roles read. An error is one line.
    pub configure: &'a dyn Fn(&Plan) -> Result<String, String>,
}

/// Inputs of a lab's configuration file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Copies of each value.
    pub replicas: usize,
    /// The write quorum k, if the default keyspace is by quorum.
    pub write_set: Option<u8>,
    /// Keyspaces in addition to the default one.
    pub keyspaces: Vec<KeyspaceSpec>,
    /// Where data is kept, in a directory for each host; `None` for a cluster in memory.
    pub data_directory: Option<PathBuf>,
    /// Directory for the data of the metadata service. It exists also if nodes store in memory,
    /// since the metadata service may be killed alone.
    pub metadata_directory: PathBuf,
    /// UDP port of the vrings, of the nodes and of the metadata service.
    pub wire_port: u16,
    /// The instances of the metadata service, at least one.
    pub metadata: Vec<PlannedInstance>,
    /// The members of etcd, if the metadata service keeps its state there.
    pub etcd: Vec<SocketAddrV4>,
    /// MAC address of the next hop to the vrings.
    pub router_mac: [u8; 6],
    /// The smallest prefix (address, length) that holds all clients and can be divided among the
    /// replicas.
    pub clients: (Ipv4Addr, u8),
    pub nodes: Vec<PlannedNode>,
    /// Whether nodes forward requests to chains that are for others (TurboKV §1).
    pub nodes_coordinate: bool,
    /// Memory per node for gets that its kernel answers, in MiB.
    pub kernel_get_mib: u32,
    /// Rate of the slowest link between clients and nodes.
    pub link_mbit_per_second: u64,
    /// Limits for copies of hot keys.
    pub hot: PlannedHot,
    /// The data plane of the switches.
    pub data_plane: DataPlane,
    /// The switches, connected by trunks if there are several. A plain network has none.
    pub switches: Vec<PlannedSwitch>,
    /// On a plain network: the edges, which run the pipeline instead of the switch.
    pub edges: Vec<PlannedEdge>,
    /// Names of the gateways.
    pub gateways: Vec<String>,
    /// The RESP address at which each gateway listens, inside its host.
    pub resp: SocketAddrV4,
}

/// Limits for copies of hot keys; `None` for the default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PlannedHot {
    /// Maximum keys of which the switch has a copy.
    pub values_max: Option<u32>,
    /// Maximum nodes that have a copy of a key.
    pub holders_max: Option<u32>,
}

/// An instance of the metadata service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedInstance {
    pub name: String,
    /// The address for nodes (UDP) and commands (TCP).
    pub address: SocketAddrV4,
    pub mac: [u8; 6],
    /// The switch's port to this instance.
    pub switch_port: u16,
    /// The switch that it is attached to, if there are several.
    pub switch: Option<String>,
    /// The addresses at which the switches' agents reach it, one for each switch (TCP).
    pub controls: Vec<SocketAddrV4>,
}

/// A switch of a [`Plan`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedSwitch {
    pub name: String,
    pub ports: Vec<PlannedPort>,
    /// The addresses at which its agent reaches the instances of the metadata service.
    pub control: Vec<SocketAddrV4>,
    /// Directory in which it keeps the newest term, also if nodes store in memory.
    pub directory: PathBuf,
}

/// A port of a switch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedPort {
    pub number: u16,
    /// The interface in the switch's namespace, named after the host at the other end.
    pub device: String,
    /// Whether another switch is at the other end.
    pub is_trunk: bool,
}

/// A storage node of a [`Plan`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedNode {
    /// The node's number, the same at every start on the same data.
    pub id: u16,
    pub name: String,
    pub address: Ipv4Addr,
    pub mac: [u8; 6],
    /// The switch's port to this node.
    pub switch_port: u16,
    /// The switch that it is attached to, if there are several.
    pub switch: Option<String>,
    /// Whether the node is not in the cluster at the beginning.
    pub is_spare: bool,
}

/// The edge of a host on a plain network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedEdge {
    pub name: String,
    /// MAC address of its host.
    pub mac: [u8; 6],
    /// The port to its host.
    pub port: u16,
    /// The interface from which it receives what its host sends to the vrings.
    pub device: &'static str,
    /// The interface to all servers.
    pub uplink: &'static str,
    /// Directory in which it keeps the newest term.
    pub directory: PathBuf,
}

impl Plan {
    /// `directory` is the lab's directory. The first `nodes` nodes are in the cluster at the
    /// beginning; the others are spares.
    pub(crate) fn new(
        hosts: &[Host],
        layout: Layout,
        nodes: usize,
        replicas: usize,
        directory: &Path,
        data_directory: Option<&Path>,
    ) -> Self {
        let home = |host| (layout.switches().count() > 1).then(|| layout.home(host).to_string());
        let node = |(switch_port, host)| {
            let Host::Node(index) = host else { return None };
            Some(PlannedNode {
                is_spare: usize::from(index) >= nodes,
                id: u16::from(index),
                name: host.to_string(),
                address: host.address(),
                mac: mac(host.address()),
                switch_port,
                switch: home(host),
            })
        };
        let kept = data_directory.unwrap_or(directory);
        let edge = |(port, host): (u16, Host)| {
            let edge = host.edge().filter(|edge| hosts.contains(edge))?;
            Some(PlannedEdge {
                name: edge.to_string(),
                mac: mac(host.address()),
                port,
                device: EDGE_INTERFACE,
                uplink: INTERFACE,
                directory: kept.join(edge.to_string()),
            })
        };
        let instance = |(switch_port, host): (u16, Host)| {
            Some(PlannedInstance {
                name: host.to_string(),
                address: SocketAddrV4::new(host.address(), WIRE_PORT),
                mac: mac(host.address()),
                switch_port,
                switch: home(host),
                controls: controls(layout, host.instance()?),
            })
        };
        let clients = hosts.iter().filter(|host| matches!(host, Host::Client(_)));
        let gateways: Vec<String> = clients.map(Host::to_string).collect();
        Self {
            replicas,
            write_set: None,
            keyspaces: Vec::new(),
            data_directory: data_directory.map(Path::to_path_buf),
            metadata_directory: kept.join(Host::Metadata.to_string()),
            wire_port: WIRE_PORT,
            metadata: ports(hosts).filter_map(instance).collect(),
            etcd: members_of_etcd(hosts),
            router_mac: mac(ROUTER),
            clients: clients_prefix(gateways.len(), replicas),
            nodes: ports(hosts).filter_map(node).collect(),
            nodes_coordinate: false,
            kernel_get_mib: KERNEL_GET_MIB,
            link_mbit_per_second: LINK_MBIT_PER_SECOND,
            hot: PlannedHot::default(),
            data_plane: DataPlane::default().on_veth(),
            switches: planned_switches(layout, hosts, kept),
            edges: ports(hosts).filter_map(edge).collect(),
            gateways,
            resp: RESP,
        }
    }
}

fn members_of_etcd(hosts: &[Host]) -> Vec<SocketAddrV4> {
    let members = hosts.iter().filter(|host| matches!(host, Host::Etcd(_)));
    members.map(|host| SocketAddrV4::new(host.address(), ETCD_CLIENTS)).collect()
}

/// The addresses at which the agents of all switches reach an instance of the metadata service.
fn controls(layout: Layout, instance: u8) -> Vec<SocketAddrV4> {
    layout.switches().filter_map(Host::switch).map(|switch| control_of(instance, switch)).collect()
}

/// The switches; none on a plain network.
fn planned_switches(layout: Layout, hosts: &[Host], kept: &Path) -> Vec<PlannedSwitch> {
    let there = layout.switches().filter(|switch| hosts.contains(switch));
    there.map(|switch| planned_switch(layout, switch, hosts, kept)).collect()
}

/// A host's port has the same number at all switches. Trunks follow after the hosts' ports.
pub(crate) fn switch_ports(layout: Layout, switch: Host, hosts: &[Host]) -> Vec<PlannedPort> {
    let own = ports(hosts)
        .filter(|(_, host)| layout.home(*host) == switch)
        .map(|(number, host)| (number, host, false));
    let neighbours = layout.neighbours(switch);
    let first = ports(hosts).count() as u16 + 1;
    let trunks = (first..).zip(neighbours).map(|(number, host)| (number, host, true));
    let port = |(number, host, is_trunk): (u16, Host, bool)| PlannedPort {
        number,
        device: host.to_string(),
        is_trunk,
    };
    own.chain(trunks).map(port).collect()
}

fn planned_switch(layout: Layout, switch: Host, hosts: &[Host], kept: &Path) -> PlannedSwitch {
    let number = switch.switch().expect("a switch");
    PlannedSwitch {
        name: switch.to_string(),
        ports: switch_ports(layout, switch, hosts),
        control: hosts
            .iter()
            .filter_map(|host| host.instance())
            .map(|instance| control_of(instance, number))
            .collect(),
        directory: kept.join(switch.to_string()),
    }
}

/// The prefix with addresses 1 to `clients` of the clients' subnet. Neighbouring clients are in
/// different divisions of it.
fn clients_prefix(clients: usize, replicas: usize) -> (Ipv4Addr, u8) {
    let addresses = (clients + 1).max(replicas).next_power_of_two();
    (Ipv4Addr::new(10, 20, 2, 0), 32 - addresses.ilog2() as u8)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::Shape;
    use crate::topology::Fabric;

    fn plan_of(fabric: Fabric, switches: usize) -> Plan {
        plan_in(fabric, Layout::new(Shape::Tree, switches, 3))
    }

    fn plan_in(fabric: Fabric, layout: Layout) -> Plan {
        let hosts = crate::layout::hosts(3, 2, fabric, layout);
        Plan::new(&hosts, layout, 3, 3, Path::new("/run/nicekv/lab"), None)
    }

    #[test]
    fn clients_prefix_contains_all_clients_and_is_divisible() {
        for (clients, replicas, length) in
            [(1, 1, 31), (2, 3, 30), (3, 3, 30), (4, 3, 29), (2, 16, 28), (100, 3, 25)]
        {
            assert_eq!(clients_prefix(clients, replicas), (Ipv4Addr::new(10, 20, 2, 0), length));
        }
    }

    #[test]
    fn switch_and_nodes_agree_on_port_numbers() {
        let plan = plan_of(Fabric::Switch, 1);
        let [switch] = &plan.switches[..] else { panic!("{:?}", plan.switches) };
        for node in &plan.nodes {
            let port = PlannedPort { number: node.switch_port, device: node.name.clone(), is_trunk: false };
            assert!(switch.ports.contains(&port), "{node:?}");
        }
        assert_eq!(switch.ports.len(), 6, "all hosts but the switch");
        assert_eq!(plan.gateways, ["client-0", "client-1"]);
        assert_eq!(plan.edges, []);
        let plain = plan_of(Fabric::Plain, 1);
        assert_eq!((&plain.nodes, &plain.switches[..]), (&plan.nodes, &[][..]));
        let edges = plain.edges.iter().map(|edge| (edge.port, edge.name.strip_prefix("edge-").unwrap()));
        assert!(edges.eq(switch.ports[1..].iter().map(|port| (port.number, &port.device[..]))));
    }

    #[test]
    fn every_trunk_has_two_ends_and_every_host_one_switch() {
        let ports = |layout| {
            let of = |switch: &PlannedSwitch| {
                let ports = switch.ports.iter().map(|port| format!("{}:{}", port.number, port.device));
                format!("{} {}", switch.name, ports.collect::<Vec<_>>().join(" "))
            };
            let Plan { switches, .. } = plan_in(Fabric::Switch, layout);
            switches.iter().map(of).collect::<Vec<_>>()
        };
        let tree = |switches| Layout::new(Shape::Tree, switches, 3);
        let chain = [
            "switch 1:metadata 2:node-0 4:node-2 5:client-0 7:switch-1",
            "switch-1 3:node-1 6:client-1 7:switch",
        ];
        assert_eq!(ports(tree(2)), chain);
        let root = [
            "switch 1:metadata 7:switch-1 8:switch-2",
            "switch-1 2:node-0 4:node-2 5:client-0 7:switch",
            "switch-2 3:node-1 6:client-1 7:switch",
        ];
        assert_eq!(ports(tree(3)), root);
        let fabric = ports(Layout::new(Shape::Turbokv, 1, 3));
        assert_eq!(fabric[0], "switch 1:metadata 5:client-0 7:switch-2 8:switch-3");
        assert_eq!(fabric[3], "switch-3 7:switch 8:switch-1 9:switch-4 10:switch-5 11:switch-6 12:switch-7");
        assert_eq!(
            fabric[6..],
            ["switch-6 4:node-2 7:switch-2 8:switch-3", "switch-7 7:switch-2 8:switch-3"]
        );
        let nodes = plan_of(Fabric::Switch, 3).nodes;
        assert!(
            nodes.iter().map(|node| node.switch.as_deref().unwrap()).eq(["switch-1", "switch-2", "switch-1"])
        );
    }
}
