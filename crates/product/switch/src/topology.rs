//! Where each server hangs at each switch. Switches have the same entries, and each its own ports.
//!
//! A server that has a cable to several switches hangs at any port of each of them. Or the switches are joined by *trunks*, and each
//! server hangs at one of them, its home; at every other switch it hangs at the port of the trunk that leads there.
//!
//! ```text
//!   node-0 ══ 1 ┐            ┌ 1 ══ node-2         at switch 0                    at switch 1
//!               ├ switch 0   │                     node-0: port 1                 node-0: port 9, remote
//!   node-1 ══ 2 ┘ 9 ═trunk═ 9 switch 1             node-1: port 2                 node-1: port 9, remote
//!                                                  node-2: port 9, remote         node-2: port 1
//! ```
//!
//! Trunks may be redundant. Those in use are a tree ([`Routes`]): nothing circles, whatever is flooded. All others are closed.

use alloc::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::coarse;
use crate::routes::Routes;
use crate::{HostId, TableSet};

/// A trunk, by the switches at its ends, the lower number first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Link {
    /// The switch with the lower number.
    pub one: u16,
    /// The other.
    pub other: u16,
}

impl Link {
    /// Whichever is named first.
    pub fn between(one: u16, other: u16) -> Self {
        Self { one: one.min(other), other: one.max(other) }
    }

    /// Whether it ends there.
    pub fn is_of(self, switch: u16) -> bool {
        self.one == switch || self.other == switch
    }
}

/// Ports that differ from those that the hosts of a [`TableSet`] have anyway.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Topology {
    /// (switch, server) → port.
    ports: BTreeMap<(u16, HostId), u16>,
    /// Server → the one switch that it hangs at.
    homes: BTreeMap<HostId, u16>,
    /// (switch, neighbour) → the port of the switch where the trunk to the neighbour is.
    trunks: BTreeMap<(u16, u16), u16>,
}

/// Why trunks are refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum TopologyError {
    #[error("switch {switch} has a trunk to switch {neighbour}, which has none back")]
    OneEnded { switch: u16, neighbour: u16 },
    #[error("switch {switch} has a trunk to itself")]
    ToItself { switch: u16 },
    #[error("no trunks lead from switch {switch} to switch {other}")]
    Apart { switch: u16, other: u16 },
    #[error("where there are trunks every server hangs at one switch; host {} names none", host.0)]
    Homeless { host: HostId },
    #[error("switch {switch} has a trunk at port {port}, where something else hangs, too")]
    SharedPort { switch: u16, port: u16 },
}

impl Topology {
    /// Says that at `switch` the server hangs at `port`. The last word counts.
    pub fn attach(&mut self, switch: u16, host: HostId, port: u16) {
        self.ports.insert((switch, host), port);
    }

    /// Says that the server hangs at this switch alone.
    pub fn settle(&mut self, host: HostId, home: u16) {
        self.homes.insert(host, home);
    }

    /// Says that the trunk from `switch` to `neighbour` is at this port. The other end has to be said, too. True if it is the first one.
    pub fn connect(&mut self, switch: u16, neighbour: u16, port: u16) -> bool {
        self.trunks.insert((switch, neighbour), port).is_none()
    }

    /// Where a server hangs at a switch, if that was said.
    pub fn port(&self, switch: u16, host: HostId) -> Option<u16> {
        self.ports.get(&(switch, host)).copied()
    }

    /// The one switch that a server hangs at, if that was said.
    pub fn home(&self, host: HostId) -> Option<u16> {
        self.homes.get(&host).copied()
    }

    /// Whether there are trunks.
    pub fn has_trunks(&self) -> bool {
        !self.trunks.is_empty()
    }

    /// The port of a switch where its trunk to a neighbour is.
    pub fn trunk(&self, switch: u16, neighbour: u16) -> Option<u16> {
        self.trunks.get(&(switch, neighbour)).copied()
    }

    /// Neighbours of a switch, ascending, and the ports of the trunks to them.
    pub fn neighbours(&self, switch: u16) -> impl Iterator<Item = (u16, u16)> {
        self.trunks.range((switch, 0)..=(switch, u16::MAX)).map(|(&(_, neighbour), &port)| (neighbour, port))
    }

    /// All trunks, each once, the lower number first.
    pub fn links(&self) -> impl Iterator<Item = Link> {
        self.trunks.keys().filter(|(one, other)| one < other).map(|&(one, other)| Link::between(one, other))
    }

    /// The tables of one switch, where these routes are in force, coarse where all that they say is which trunk.
    ///
    /// # Panics
    /// If a server is at home at a switch to which no trunks lead; [`Self::check`] tells.
    pub fn place(&self, routes: &Routes, switch: u16, mut tables: TableSet) -> TableSet {
        let ways = routes.ways(self, switch);
        for host in &mut tables.hosts {
            match self.home(host.id).filter(|home| *home != switch) {
                Some(home) => {
                    host.port = *ways.get(&home).expect("checked: trunks lead to every home");
                    host.is_remote = true;
                }
                None => host.port = self.port(switch, host.id).unwrap_or(host.port),
            }
        }
        tables.trunks = routes.open_at(self, switch);
        if self.has_trunks() { coarse::merged(tables) } else { tables }
    }

    /// Checks that trunks lead from each switch to each, and that every server has its place: `servers` with the ports that they have anyway.
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
            let ways = Routes::default().ways(self, switch);
            if let Some(&other) = needed.iter().find(|other| **other != switch && !ways.contains_key(other)) {
                return Err(TopologyError::Apart { switch, other });
            }
        }
        Ok(())
    }

    /// At a trunk's port nothing else hangs, no other trunk either.
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

    /// Hosts 1, 2, 3 and 9, the last one at port 5.
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
    fn switches_differ_in_ports_alone() {
        let mut topology = Topology::default();
        topology.attach(1, HostId(2), 9);
        assert_eq!(topology.place(&Routes::default(), 0, tables()), tables());
        let placed = topology.place(&Routes::default(), 1, tables());
        assert_eq!(placed.host(HostId(2)).unwrap().port, 9);
        assert_eq!(placed.host(HostId(1)).unwrap().port, 1);
        let diff = TableSet::diff(&tables(), &placed);
        assert_eq!(diff.hosts.changed.len(), 1);
        assert!(diff.unicast.is_empty() && diff.division.is_empty() && diff.multicast.is_empty());
    }

    /// Hosts 1, 2, 3 and 9 at switches 1, 2, 3 and 0: 3 ─ 1 ─ 0 ─ 2.
    fn tree() -> Topology {
        let mut topology = Topology::default();
        for (one, other) in [(0, 1), (0, 2), (1, 3)] {
            assert!(topology.connect(one, other, 10 + other) && topology.connect(other, one, 10 + one));
        }
        for (host, home) in [(1, 1), (2, 2), (3, 3), (9, 0)] {
            topology.settle(HostId(host), home);
        }
        topology
    }

    fn check(topology: &Topology) -> Result<(), TopologyError> {
        let servers: Vec<_> = tables().hosts.iter().map(|host| (host.id, host.port)).collect();
        topology.check(&[0, 1, 2, 3], &servers)
    }

    #[test]
    fn in_a_tree_a_server_hangs_at_the_trunk_that_leads_to_it() {
        let places = |switch| {
            let placed = tree().place(&Routes::all(&tree()), switch, tables());
            placed.hosts.iter().map(|host| (host.port, host.is_remote)).collect::<Vec<_>>()
        };
        assert_eq!(check(&tree()), Ok(()));
        assert_eq!(places(0), [(11, true), (12, true), (11, true), (5, false)]);
        assert_eq!(places(1), [(1, false), (10, true), (13, true), (10, true)]);
        assert_eq!(places(3), [(11, true), (11, true), (3, false), (11, true)]);
    }

    #[test]
    fn what_does_not_hang_together_is_refused() {
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
        assert_eq!(refused(&|tree| tree.settle(HostId(2), 7)), E::Apart { switch: 0, other: 7 });
        let mut without = Topology::default();
        without.settle(HostId(1), 1);
        assert_eq!(check(&without), Err(E::Apart { switch: 0, other: 1 }));
    }
}
