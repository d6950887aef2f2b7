//! Where each server hangs at each switch. Switches have the same entries, and each its own ports.
//!
//! A server that has a cable to several switches hangs at any port of each of them. There are no cables between switches
//! that carry several servers: the egress stage rewrites by port, so one port leads to one server.

use alloc::collections::BTreeMap;

use crate::{HostId, TableSet};

/// Ports that differ from those that the hosts of a [`TableSet`] have anyway.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Topology {
    /// (switch, server) → port.
    ports: BTreeMap<(u16, HostId), u16>,
}

impl Topology {
    /// Says that at `switch` the server hangs at `port`. The last word counts.
    pub fn attach(&mut self, switch: u16, host: HostId, port: u16) {
        self.ports.insert((switch, host), port);
    }

    /// Where a server hangs at a switch, if that was said.
    pub fn port(&self, switch: u16, host: HostId) -> Option<u16> {
        self.ports.get(&(switch, host)).copied()
    }

    /// The tables of one switch.
    pub fn place(&self, switch: u16, mut tables: TableSet) -> TableSet {
        for host in &mut tables.hosts {
            if let Some(port) = self.port(switch, host.id) {
                host.port = port;
            }
        }
        tables
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::tables;

    #[test]
    fn switches_differ_in_ports_alone() {
        let mut topology = Topology::default();
        topology.attach(1, HostId(2), 9);
        assert_eq!(topology.place(0, tables()), tables());
        let placed = topology.place(1, tables());
        assert_eq!(placed.host(HostId(2)).unwrap().port, 9);
        assert_eq!(placed.host(HostId(1)).unwrap().port, 1);
        let diff = TableSet::diff(&tables(), &placed);
        assert_eq!(diff.hosts.changed.len(), 1);
        assert!(diff.unicast.is_empty() && diff.division.is_empty() && diff.multicast.is_empty());
    }
}
