//! Adapts tables to the switches of a topology: all switches get the same entries, with their own
//! ports.

use alloc::collections::BTreeSet;

use crate::aggregate;
use crate::spanning_tree::SpanningTree;
use crate::topology::{Topology, TopologyError};
use crate::{HostId, TableSet};

impl Topology {
    /// The tables of one switch while this spanning tree is in use. If the topology has trunks,
    /// transit entries are aggregated.
    ///
    /// # Panics
    /// If no path leads to the switch that a server is attached to. [`Self::check`] refuses such
    /// topologies.
    pub fn place(&self, tree: &SpanningTree, switch: u16, mut tables: TableSet) -> TableSet {
        let ports = tree.ports_to(self, switch);
        for host in &mut tables.hosts {
            match self.home(host.id).filter(|home| *home != switch) {
                Some(home) => {
                    host.port = *ports.get(&home).expect("checked: trunks lead to every home");
                    host.is_remote = true;
                }
                None => host.port = self.port(switch, host.id).unwrap_or(host.port),
            }
        }
        tables.trunks = tree.open_at(self, switch);
        if self.has_trunks() { aggregate::aggregated(tables) } else { tables }
    }

    /// Checks that trunks connect all switches, and that every server has a port. `servers`: all
    /// servers with their default ports.
    pub fn check(&self, switches: &[u16], servers: &[(HostId, u16)]) -> Result<(), TopologyError> {
        let one_ended = self.trunks.keys().find(|(one, other)| !self.trunks.contains_key(&(*other, *one)));
        if let Some(&(switch, neighbour)) = one_ended {
            return Err(TopologyError::OneEnded { switch, neighbour });
        }
        if self.has_trunks() {
            if let Some(&(switch, _)) = self.trunks.keys().find(|(one, other)| one == other) {
                return Err(TopologyError::ToItself { switch });
            }
            if let Some((host, _)) = servers.iter().find(|(host, _)| self.home(*host).is_none()) {
                return Err(TopologyError::Homeless { host: *host });
            }
        }
        self.check_homes(switches, servers)?;
        switches.iter().try_for_each(|switch| self.check_ports(*switch, servers))
    }

    fn check_homes(&self, switches: &[u16], servers: &[(HostId, u16)]) -> Result<(), TopologyError> {
        let homes = servers.iter().filter_map(|(host, _)| self.home(*host));
        let others = switches.iter().copied().filter(|_| self.has_trunks());
        let needed: BTreeSet<u16> = homes.chain(others).collect();
        for &switch in switches {
            let ports = SpanningTree::default().ports_to(self, switch);
            if let Some(&other) = needed.iter().find(|other| **other != switch && !ports.contains_key(other))
            {
                return Err(TopologyError::Apart { switch, other });
            }
        }
        Ok(())
    }

    /// Checks that the port of a trunk is used by nothing else.
    fn check_ports(&self, switch: u16, servers: &[(HostId, u16)]) -> Result<(), TopologyError> {
        let mut taken = BTreeSet::new();
        let own = servers.iter().filter(|(host, _)| self.home(*host).is_none_or(|home| home == switch));
        taken.extend(own.map(|(host, port)| self.port(switch, *host).unwrap_or(*port)));
        let mut trunks = self.trunks.range((switch, 0)..=(switch, u16::MAX));
        match trunks.find(|(_, port)| !taken.insert(**port)) {
            Some((_, &port)) => Err(TopologyError::SharedPort { switch, port }),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DivisionEntry, Host, MemberSet, MulticastEntry, Prefix, UnicastEntry};
    use alloc::vec;

    /// Tables with hosts 1, 2, 3 and 9, of which the last one is at port 5.
    fn tables() -> TableSet {
        let members = MemberSet::new([1, 2, 3].map(HostId));
        TableSet {
            generation: 1,
            hosts: vec![Host::node(1), Host::node(2), Host::node(3), Host { port: 5, ..Host::node(9) }],
            unicast: vec![UnicastEntry {
                destination: Prefix::new([10, 10, 0, 0], 17),
                partition: 1,
                host: HostId(1),
                chain: None,
            }],
            division: vec![DivisionEntry {
                partition: 1,
                source: Prefix::new([10, 0, 9, 0], 24),
                host: HostId(3),
            }],
            multicast: vec![MulticastEntry {
                destination: Prefix::new([10, 11, 0, 0], 17),
                members,
                chain: None,
                places: None,
            }],
            ..TableSet::default()
        }
    }

    #[test]
    fn switches_differ_only_in_ports() {
        let mut topology = Topology::default();
        topology.attach(1, HostId(2), 9);
        assert_eq!(topology.place(&SpanningTree::default(), 0, tables()), tables());
        let placed = topology.place(&SpanningTree::default(), 1, tables());
        assert_eq!(placed.host(HostId(2)).unwrap().port, 9);
        assert_eq!(placed.host(HostId(1)).unwrap().port, 1);
        let diff = TableSet::diff(&tables(), &placed);
        assert_eq!(diff.hosts.changed.len(), 1);
        assert!(diff.unicast.is_empty() && diff.division.is_empty() && diff.multicast.is_empty());
    }

    /// Hosts 1, 2, 3 and 9 are attached to switches 1, 2, 3 and 0; trunks 3 ─ 1 ─ 0 ─ 2.
    fn tree() -> Topology {
        let mut topology = Topology::default();
        for (one, other) in [(0, 1), (0, 2), (1, 3)] {
            assert!(topology.connect(one, other, 10 + other) && topology.connect(other, one, 10 + one));
        }
        for (host, home) in [(1, 1), (2, 2), (3, 3), (9, 0)] {
            topology.set_home(HostId(host), home);
        }
        topology
    }

    fn check(topology: &Topology) -> Result<(), TopologyError> {
        let servers: Vec<_> = tables().hosts.iter().map(|host| (host.id, host.port)).collect();
        topology.check(&[0, 1, 2, 3], &servers)
    }

    #[test]
    fn remote_server_is_reached_by_the_trunk_that_leads_to_it() {
        let places = |switch| {
            let placed = tree().place(&SpanningTree::full(&tree()), switch, tables());
            placed.hosts.iter().map(|host| (host.port, host.is_remote)).collect::<Vec<_>>()
        };
        assert_eq!(check(&tree()), Ok(()));
        assert_eq!(places(0), [(11, true), (12, true), (11, true), (5, false)]);
        assert_eq!(places(1), [(1, false), (10, true), (13, true), (10, true)]);
        assert_eq!(places(3), [(11, true), (11, true), (3, false), (11, true)]);
    }

    #[test]
    fn disconnected_topology_is_refused() {
        use TopologyError as E;
        let refused = |change: &dyn Fn(&mut Topology)| {
            let mut topology = tree();
            change(&mut topology);
            check(&topology).expect_err("must be refused")
        };
        assert_eq!(
            refused(&|tree| tree.trunks.retain(|ends, _| *ends != (3, 1))),
            E::OneEnded { switch: 1, neighbour: 3 }
        );
        let to_itself = refused(&|tree| {
            tree.connect(2, 2, 20);
        });
        assert_eq!(to_itself, E::ToItself { switch: 2 });
        let apart = refused(&|tree| {
            tree.trunks.retain(|ends, _| !matches!(ends, (1, 3) | (3, 1)));
            tree.connect(1, 2, 20);
            tree.connect(2, 1, 20);
        });
        assert_eq!(apart, E::Apart { switch: 0, other: 3 });
        assert_eq!(
            refused(&|tree| tree.homes.retain(|host, _| *host != HostId(2))),
            E::Homeless { host: HostId(2) }
        );
        let moved = |switch, neighbour, port| {
            refused(&|tree| {
                tree.connect(switch, neighbour, port);
            })
        };
        assert_eq!(moved(1, 0, 1), E::SharedPort { switch: 1, port: 1 });
        assert_eq!(moved(0, 1, 12), E::SharedPort { switch: 0, port: 12 });
        assert_eq!(refused(&|tree| tree.set_home(HostId(2), 7)), E::Apart { switch: 0, other: 7 });
        let mut without = Topology::default();
        without.set_home(HostId(1), 1);
        assert_eq!(check(&without), Err(E::Apart { switch: 0, other: 1 }));
    }
}
