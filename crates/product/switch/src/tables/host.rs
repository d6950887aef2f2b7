//! `hosts`: the servers of the cluster and the port of this switch that leads to each. The rewrite
//! action writes their addresses, and [admission](crate::admission) decides by them who may send
//! what. Every other sender is a client.
//!
//! A *trunk* is a port that leads to another switch; several servers and clients may be behind it.
//! A trunk with no server behind it is treated like a client's port.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

/// Identifies a server within the tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct HostId(pub u16);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum HostRole {
    /// A storage node: entries may name it.
    Node,
    /// A metadata service.
    Metadata,
}

/// A server's addresses, which the rewrite action writes, and the switch port that leads to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Host {
    /// The id that table entries use.
    pub id: HostId,
    pub role: HostRole,
    /// IPv4 address, in network byte order. No two hosts share one.
    pub ip: [u8; 4],
    /// The UDP port with which the server sends and receives datagrams of the store.
    pub udp_port: u16,
    /// Ethernet address. No two hosts share one.
    pub mac: [u8; 6],
    /// Index of the switch port that leads to the server. Only hosts behind a trunk share a port.
    pub port: u16,
    /// Whether the server is attached to another switch, and `port` is the trunk that leads there.
    pub is_remote: bool,
}

#[cfg(test)]
impl Host {
    /// A node at the port whose number equals its id.
    pub(crate) fn node(id: u16) -> Self {
        let (ip, mac) = ([10, 0, 0, id as u8], [2, 0, 0, 0, 0, id as u8]);
        Self { id: HostId(id), role: HostRole::Node, ip, udp_port: 7000, mac, port: id, is_remote: false }
    }
}

/// The hosts of one generation, indexed by id, port, IP and MAC address. Lookups do not allocate.
#[derive(Clone, Debug, Default)]
pub struct HostIndex {
    /// The hosts, ascending by id.
    hosts: Vec<Host>,
    /// Positions in `hosts`, ascending by key. `by_port` contains only hosts that are attached to
    /// this switch.
    by_port: Vec<(u16, u16)>,
    by_ip: Vec<([u8; 4], u16)>,
    by_mac: Vec<([u8; 6], u16)>,
    /// Trunk ports, ascending.
    trunks: Vec<u16>,
}

impl HostIndex {
    /// Indexes validated hosts. `open_trunks`: open trunk ports, including those that lead only to
    /// clients.
    pub fn new(hosts: &[Host], open_trunks: &[u16]) -> Self {
        let mut hosts = hosts.to_vec();
        hosts.sort_unstable_by_key(|host| host.id);
        let to_hosts = hosts.iter().filter(|host| host.is_remote).map(|host| host.port);
        let trunks: BTreeSet<u16> = to_hosts.chain(open_trunks.iter().copied()).collect();
        Self {
            trunks: trunks.into_iter().collect(),
            by_port: positions_if(&hosts, |host| !host.is_remote, |host| host.port),
            by_ip: positions(&hosts, |host| host.ip),
            by_mac: positions(&hosts, |host| host.mac),
            hosts,
        }
    }

    /// The host with this id.
    pub fn get(&self, id: HostId) -> Option<&Host> {
        self.hosts.binary_search_by_key(&id, |host| host.id).ok().map(|index| &self.hosts[index])
    }

    /// The host that is attached to a port; `None` for a trunk.
    pub fn at_port(&self, port: u16) -> Option<&Host> {
        self.find(&self.by_port, port)
    }

    /// Whether a port leads to another switch.
    pub fn is_trunk(&self, port: u16) -> bool {
        self.trunks.binary_search(&port).is_ok()
    }

    /// The host with this IP address.
    pub fn with_ip(&self, ip: [u8; 4]) -> Option<&Host> {
        self.find(&self.by_ip, ip)
    }

    /// The host with this MAC address.
    pub fn with_mac(&self, mac: [u8; 6]) -> Option<&Host> {
        self.find(&self.by_mac, mac)
    }

    fn find<K: Ord + Copy>(&self, positions: &[(K, u16)], key: K) -> Option<&Host> {
        let found = positions.binary_search_by_key(&key, |(key, _)| *key).ok()?;
        Some(&self.hosts[usize::from(positions[found].1)])
    }
}

fn positions<K: Ord + Copy>(hosts: &[Host], key: impl Fn(&Host) -> K) -> Vec<(K, u16)> {
    positions_if(hosts, |_| true, key)
}

fn positions_if<K: Ord + Copy>(
    hosts: &[Host],
    is_indexed: impl Fn(&Host) -> bool,
    key: impl Fn(&Host) -> K,
) -> Vec<(K, u16)> {
    let indexed = hosts.iter().zip(0..).filter(|(host, _)| is_indexed(host));
    let mut positions: Vec<(K, u16)> = indexed.map(|(host, position)| (key(host), position)).collect();
    positions.sort_unstable();
    positions
}
