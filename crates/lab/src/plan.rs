//! What the processes of a lab have to be told, in whatever form the program reads it.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::{Path, PathBuf};

use nicekv_dataplane_xdp::Hook;
use nicekv_placement::KeyspaceSpec;

use crate::topology::{
    EDGE_INTERFACE, ETCD_CLIENTS, Host, INTERFACE, RESP, ROUTER, WIRE_PORT, control_of, mac, ports,
};

/// A cluster whose hosts are known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Copies of each value.
    pub replicas: usize,
    /// k, of a cluster by quorum.
    pub write_set: Option<u8>,
    /// Further keyspaces.
    pub keyspaces: Vec<KeyspaceSpec>,
    /// Where data are kept, a directory for each host in it; `None` for a cluster in memory.
    pub data_directory: Option<PathBuf>,
    /// Where the switch keeps the newest term, also in a cluster in memory.
    pub switch_directory: PathBuf,
    /// UDP port of the vrings, of the nodes and of the metadata service.
    pub wire_port: u16,
    /// The instances of the metadata service, at least one.
    pub metadata: Vec<PlannedInstance>,
    /// Where the members of etcd are, if that has the state.
    pub etcd: Vec<SocketAddrV4>,
    /// The MAC of the neighbour that leads to the vrings.
    pub router_mac: [u8; 6],
    /// The smallest prefix (address, length) that holds all clients and can be divided among the replicas.
    pub clients: (Ipv4Addr, u8),
    /// The storage nodes.
    pub nodes: Vec<PlannedNode>,
    /// Where the switch works on frames, at each of its ports.
    pub hook: Hook,
    /// The ports of the switch: number, interface in the namespace of the switch. On a plain network, of nothing.
    pub ports: Vec<(u16, String)>,
    /// On a plain network: who runs the pipeline instead of the switch.
    pub edges: Vec<PlannedEdge>,
    /// Names of the gateways.
    pub gateways: Vec<String>,
    /// Where each of them listens.
    pub resp: SocketAddrV4,
}

/// An instance of the metadata service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedInstance {
    /// Its name.
    pub name: String,
    /// Where nodes (UDP) and commands (TCP) reach it.
    pub address: SocketAddrV4,
    /// Its Ethernet address.
    pub mac: [u8; 6],
    /// The port of the switch that leads to it.
    pub switch_port: u16,
    /// As the agent of the switch reaches it (TCP).
    pub control: SocketAddrV4,
}

/// A storage node of a [`Plan`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedNode {
    /// Its number, the same with every start on the same data.
    pub id: u16,
    /// Its name.
    pub name: String,
    /// Its address on the network.
    pub address: Ipv4Addr,
    /// Its Ethernet address.
    pub mac: [u8; 6],
    /// The port of the switch that leads to it.
    pub switch_port: u16,
    /// It is none of the nodes that the cluster begins with.
    pub is_spare: bool,
}

/// The edge of a host on a plain network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedEdge {
    /// Its name.
    pub name: String,
    /// The Ethernet address of its host.
    pub mac: [u8; 6],
    /// The port that leads to its host.
    pub port: u16,
    /// Where what the host sends to the vrings comes out.
    pub device: &'static str,
    /// The way to every server.
    pub uplink: &'static str,
    /// Where it keeps the newest term.
    pub directory: PathBuf,
}

impl Plan {
    /// `directory` is that of the lab; the cluster begins with so many `nodes`, others are spares.
    pub(crate) fn new(
        hosts: &[Host],
        nodes: usize,
        replicas: usize,
        directory: &Path,
        data_directory: Option<&Path>,
    ) -> Self {
        let node = |(switch_port, host)| match host {
            Host::Node(index) => Some(PlannedNode {
                is_spare: usize::from(index) >= nodes,
                id: u16::from(index),
                name: host.to_string(),
                address: host.address(),
                mac: mac(host.address()),
                switch_port,
            }),
            _ => None,
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
                control: control_of(host.instance()?),
            })
        };
        let member = |host: &Host| {
            matches!(host, Host::Etcd(_)).then(|| SocketAddrV4::new(host.address(), ETCD_CLIENTS))
        };
        let gateways: Vec<String> =
            hosts.iter().filter(|host| matches!(host, Host::Client(_))).map(Host::to_string).collect();
        Self {
            replicas,
            write_set: None,
            keyspaces: Vec::new(),
            data_directory: data_directory.map(Path::to_path_buf),
            switch_directory: kept.join(Host::Switch.to_string()),
            wire_port: WIRE_PORT,
            metadata: ports(hosts).filter_map(instance).collect(),
            etcd: hosts.iter().filter_map(member).collect(),
            router_mac: mac(ROUTER),
            clients: clients_prefix(gateways.len(), replicas),
            nodes: ports(hosts).filter_map(node).collect(),
            hook: Hook::default().on_veth(),
            ports: ports(hosts).map(|(number, host)| (number, host.to_string())).collect(),
            edges: ports(hosts).filter_map(edge).collect(),
            gateways,
            resp: RESP,
        }
    }
}

/// Addresses 1 to `clients` of the clients' subnet: neighbours fall into different divisions.
fn clients_prefix(clients: usize, replicas: usize) -> (Ipv4Addr, u8) {
    let addresses = (clients + 1).max(replicas).next_power_of_two();
    (Ipv4Addr::new(10, 20, 2, 0), 32 - addresses.ilog2() as u8)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::{Fabric, hosts};

    #[test]
    fn the_clients_prefix_holds_them_and_can_be_divided() {
        for (clients, replicas, length) in
            [(1, 1, 31), (2, 3, 30), (3, 3, 30), (4, 3, 29), (2, 16, 28), (100, 3, 25)]
        {
            assert_eq!(clients_prefix(clients, replicas), (Ipv4Addr::new(10, 20, 2, 0), length));
        }
    }

    #[test]
    fn ports_are_numbered_alike_for_switch_and_nodes() {
        let plan = Plan::new(&hosts(3, 2, Fabric::Switch), 3, 3, Path::new("/run/nicekv/lab"), None);
        for node in &plan.nodes {
            assert!(plan.ports.contains(&(node.switch_port, node.name.clone())), "{node:?}");
        }
        assert_eq!(plan.ports.len(), 6, "everyone but the switch");
        assert_eq!(plan.gateways, ["client-0", "client-1"]);
        assert_eq!(plan.edges, []);
        let plain = Plan::new(&hosts(3, 2, Fabric::Plain), 3, 3, Path::new("/run/nicekv/lab"), None);
        assert_eq!((&plain.nodes, &plain.ports), (&plan.nodes, &plan.ports));
        let edges = plain.edges.iter().map(|edge| (edge.port, edge.name.strip_prefix("edge-").unwrap()));
        assert!(edges.eq(plan.ports[1..].iter().map(|(number, host)| (*number, &host[..]))));
    }
}
