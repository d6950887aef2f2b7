//! `hosts`: the servers of the cluster, and where each hangs at this switch. What the rewrite action writes, and who may send
//! what from which port ([`crate::stages`]); whoever is not here is a client, or a stranger, which is the same.
//!
//! Behind a *trunk*, a port that leads to another switch, there are several hosts, and clients. A trunk behind which there is no server is a port like
//! that of a client.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::TableError;
use crate::VringSet;

/// Servers of one switch.
pub const HOST_CAPACITY: usize = 256;

/// Names a server within the tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct HostId(pub u16);

/// What a server is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum HostRole {
    /// A storage node: entries may name it.
    Node,
    /// A metadata service.
    Metadata,
}

/// Where a server is: what the rewrite action writes, and the switch port that leads there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Host {
    /// The name that entries use.
    pub id: HostId,
    /// What it is.
    pub role: HostRole,
    /// IPv4 address, in the order of the wire. No two hosts share one.
    pub ip: [u8; 4],
    /// Where it receives and sends the store's datagrams.
    pub udp_port: u16,
    /// Ethernet address. No two hosts share one.
    pub mac: [u8; 6],
    /// Index of the switch port that leads there; no two hosts share one, but those behind a trunk.
    pub port: u16,
    /// It hangs at another switch, to which the port is a trunk.
    pub is_remote: bool,
}

#[cfg(test)]
impl Host {
    /// A node at the port of its number.
    pub(crate) fn node(id: u16) -> Self {
        let (ip, mac) = ([10, 0, 0, id as u8], [2, 0, 0, 0, 0, id as u8]);
        Self { id: HostId(id), role: HostRole::Node, ip, udp_port: 7000, mac, port: id, is_remote: false }
    }
}

/// Checks the hosts; returns those that entries may name.
pub(super) fn validate(hosts: &[Host], vrings: &VringSet) -> Result<BTreeSet<HostId>, TableError> {
    let (mut ids, mut ports) = (BTreeSet::new(), BTreeMap::new());
    let (mut ips, mut macs) = (BTreeSet::new(), BTreeSet::new());
    for host in hosts {
        if !ids.insert(host.id) {
            return Err(TableError::DuplicateHost { host: host.id });
        }
        let beside = ports.insert(host.port, host.is_remote);
        if beside.is_some_and(|is_remote| !(is_remote && host.is_remote)) {
            return Err(TableError::DuplicatePort { host: host.id, port: host.port });
        }
        if !ips.insert(host.ip) || !macs.insert(host.mac) {
            return Err(TableError::DuplicateAddress { host: host.id });
        }
        if vrings.contains(host.ip) {
            return Err(TableError::HostInsideVring { host: host.id });
        }
    }
    Ok(hosts.iter().filter(|host| host.role == HostRole::Node).map(|host| host.id).collect())
}

/// The hosts of one generation, to be found by whatever a packet shows. Looking up allocates nothing.
#[derive(Clone, Debug, Default)]
pub struct HostIndex {
    /// Ascending by id.
    hosts: Vec<Host>,
    /// Positions in `hosts`, ascending by what they are found by; by ports those that hang there themselves.
    by_port: Vec<(u16, u16)>,
    by_ip: Vec<([u8; 4], u16)>,
    by_mac: Vec<([u8; 6], u16)>,
    /// Ascending.
    trunks: Vec<u16>,
}

impl HostIndex {
    /// The index of validated hosts, and of the trunks that are open: behind some there are clients alone.
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

    /// The host of that name.
    pub fn get(&self, id: HostId) -> Option<&Host> {
        self.hosts.binary_search_by_key(&id, |host| host.id).ok().map(|index| &self.hosts[index])
    }

    /// The host that hangs at a port; of a trunk's, none.
    pub fn at_port(&self, port: u16) -> Option<&Host> {
        self.find(&self.by_port, port)
    }

    /// Whether a port leads to another switch.
    pub fn is_trunk(&self, port: u16) -> bool {
        self.trunks.binary_search(&port).is_ok()
    }

    /// The host of an address.
    pub fn with_ip(&self, ip: [u8; 4]) -> Option<&Host> {
        self.find(&self.by_ip, ip)
    }

    /// The host of an Ethernet address.
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
    such: impl Fn(&Host) -> bool,
    key: impl Fn(&Host) -> K,
) -> Vec<(K, u16)> {
    let such = hosts.iter().zip(0..).filter(|(host, _)| such(host));
    let mut positions: Vec<(K, u16)> = such.map(|(host, position)| (key(host), position)).collect();
    positions.sort_unstable();
    positions
}
