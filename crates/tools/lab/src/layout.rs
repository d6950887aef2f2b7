//! Which hosts and switches a lab has, and how they are connected.
//!
//! ```text
//!   --switches 2:  a chain                                  --switches 3:  a root and leaves
//!
//!   metadata ═╗                    ╔═ node-1                              ╔═ switch-1 ═╦═ node-0, node-2 …
//!   node-0 ═══╬═ switch ═══ switch-1 ═ node-3               metadata ═ switch          ╚═ client-0 …
//!   client-0 ═╝                    ╚═ client-1                            ╚═ switch-2 ═╦═ node-1, node-3 …
//!                                                                                      ╚═ client-1 …
//!   --topology turbokv:  two Cores, two AGGs, four ToRs, each joined to all of the level above
//!
//!   metadata, client-0, client-2 ═ switch      switch-1 ═ client-1, client-3
//!                                    ║    ╲  ╱    ║
//!                                 switch-2 ╳  switch-3
//!                                    ║  ╲ ╳ ╳ ╱   ║
//!                  switch-4        switch-5       switch-6        switch-7
//!                node-0 … node-3     … node-7       … node-11      … node-15
//! ```
//!
//! In a chain and at leaves, nodes and clients are assigned round-robin, so members of a partition are at different switches. The last
//! topology is TurboKV's: the paper gives the number of switches and hosts, and says that clients stand for traffic from outside the racks
//! (§8). Its Fig. 12 is not available, so the links are ours: each switch has one to each of the level above, as in Fig. 11.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use std::fmt;

use crate::topology::{Fabric, HOSTS_OF_A_KIND_MAX, Host};

/// Maximum number of switches: the addresses of their management links have one byte for it.
pub(crate) const SWITCHES_MAX: usize = 9;
/// Switches in TurboKV's topology: Cores, then AGGs and ToRs.
const CORES: u8 = 2;
const AGGREGATIONS: u8 = 2;
const RACKS: u8 = 4;
const FIRST_RACK: u8 = CORES + AGGREGATIONS;
pub(crate) const TURBOKV_SWITCHES: usize = (FIRST_RACK + RACKS) as usize;
/// Default numbers of nodes and clients with TurboKV's topology.
pub(crate) const TURBOKV_HOSTS: (usize, usize) = (16, 4);

/// How switches are connected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Shape {
    /// One switch, a chain of two, or a root with leaves: see --switches
    #[default]
    Tree,
    /// TurboKV's topology: two Core, two AGG and four ToR switches with redundant links, nodes at the ToRs, clients at the Cores
    Turbokv,
}

impl fmt::Display for Shape {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(match self {
            Self::Tree => "tree",
            Self::Turbokv => "turbokv",
        })
    }
}

/// The arrangement of switches, which follows from the topology and the numbers of switches and
/// nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    shape: Shape,
    switches: u8,
    nodes: u8,
}

impl Layout {
    /// `switches` is ignored if the shape has a fixed number.
    pub(crate) fn new(shape: Shape, switches: usize, nodes: usize) -> Self {
        let switches = if shape == Shape::Turbokv { TURBOKV_SWITCHES } else { switches };
        assert!((1..=SWITCHES_MAX).contains(&switches), "checked with the options");
        Self { shape, switches: switches as u8, nodes: nodes as u8 }
    }

    /// The layout of a lab with these hosts.
    pub(crate) fn of(shape: Shape, hosts: impl IntoIterator<Item = Host>) -> Self {
        let (mut switches, mut nodes) = (1, 0);
        for host in hosts {
            match host {
                Host::FurtherSwitch(_) => switches += 1,
                Host::Node(_) => nodes += 1,
                _ => {}
            }
        }
        Self::new(shape, switches, nodes)
    }

    /// A single switch.
    pub(crate) fn single() -> Self {
        Self::new(Shape::Tree, 1, 0)
    }

    /// All switches, the upper levels first.
    pub(crate) fn switches(self) -> impl Iterator<Item = Host> {
        (0..self.switches).map(Host::of_switch)
    }

    /// The switch that a host is connected to.
    pub(crate) fn home(self, host: Host) -> Host {
        if self.shape == Shape::Turbokv {
            return match host.machine() {
                Host::Node(index) => {
                    let rack = u16::from(index) * u16::from(RACKS) / u16::from(self.nodes.max(1));
                    Host::of_switch(FIRST_RACK + rack as u8)
                }
                Host::Client(index) | Host::Instance(index) => Host::of_switch(index % CORES),
                _ => Host::Switch,
            };
        }
        let leaves = match self.switches {
            1 | 2 => 0..self.switches,
            more => 1..more,
        };
        match host.machine() {
            Host::Node(index) | Host::Client(index) => {
                Host::of_switch(leaves.start + index % leaves.len() as u8)
            }
            _ => Host::Switch,
        }
    }

    /// The upper neighbours of a switch.
    pub(crate) fn above(self, switch: Host) -> Vec<Host> {
        let above = match (self.shape, switch.switch()) {
            (_, None | Some(0)) => 0..0,
            (Shape::Tree, _) => 0..1,
            (Shape::Turbokv, Some(number)) if number < CORES => 0..0,
            (Shape::Turbokv, Some(number)) if number < FIRST_RACK => 0..CORES,
            (Shape::Turbokv, _) => CORES..FIRST_RACK,
        };
        above.map(Host::of_switch).collect()
    }

    /// All neighbours of a switch, the upper ones first.
    pub(crate) fn neighbours(self, switch: Host) -> Vec<Host> {
        let is_neighbour =
            |other: &Host| self.above(switch).contains(other) || self.above(*other).contains(&switch);
        self.switches().filter(is_neighbour).collect()
    }

    /// All trunks, as pairs with the upper end first.
    pub(crate) fn links(self) -> Vec<(Host, Host)> {
        let of = |below: Host| self.above(below).into_iter().map(move |above| (above, below));
        self.switches().flat_map(of).collect()
    }

    /// The trunk between two switches, upper end first; `None` if there is none.
    pub(crate) fn link(self, one: Host, other: Host) -> Option<(Host, Host)> {
        self.links().into_iter().find(|link| *link == (one, other) || *link == (other, one))
    }
}

/// All hosts, in start order. On a plain network each has an edge, and there are no switches.
pub(crate) fn hosts(nodes: usize, clients: usize, fabric: Fabric, layout: Layout) -> Vec<Host> {
    let some = |count: usize, host: fn(u8) -> Host| {
        assert!(count <= HOSTS_OF_A_KIND_MAX, "checked with the options");
        (0..count as u8).map(host)
    };
    let others: Vec<Host> = some(nodes, Host::Node).chain(some(clients, Host::Client)).collect();
    match fabric {
        Fabric::Switch => layout.switches().chain([Host::Metadata]).chain(others).collect(),
        Fabric::Plain => {
            let edges: Vec<Host> = others.iter().filter_map(|host| host.edge()).collect();
            [&[Host::Metadata], &edges[..], &others].concat()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(hosts: impl IntoIterator<Item = Host>) -> String {
        hosts.into_iter().map(|host| host.to_string()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn hosts_are_spread_over_the_leaves() {
        let homes = |switches| {
            let hosts = [0, 1, 2].map(Host::Node).into_iter().chain([Host::Client(1), Host::Metadata]);
            names(hosts.map(|host| Layout::new(Shape::Tree, switches, 3).home(host)))
        };
        assert_eq!(homes(1), "switch switch switch switch switch");
        assert_eq!(homes(2), "switch switch-1 switch switch-1 switch");
        assert_eq!(homes(3), "switch-1 switch-2 switch-1 switch-2 switch");
        let tree = Layout::new(Shape::Tree, 3, 0);
        assert_eq!(Layout::of(Shape::Tree, tree.switches()), tree);
        assert_eq!(names(tree.neighbours(Host::FurtherSwitch(2))), "switch");
        assert_eq!(names(tree.neighbours(Host::Switch)), "switch-1 switch-2");
    }

    #[test]
    fn racks_have_equal_numbers_of_nodes_and_two_uplinks() {
        let layout = Layout::new(Shape::Turbokv, 1, 16);
        let racks = names((0..16).map(|node| layout.home(Host::Node(node))));
        let rack = |number| vec![format!("switch-{number}"); 4].join(" ");
        assert_eq!(racks, [4, 5, 6, 7].map(rack).join(" "));
        assert_eq!(
            names((0..4).map(|client| layout.home(Host::Client(client)))),
            "switch switch-1 switch switch-1"
        );
        let few = Layout::new(Shape::Turbokv, 1, 5);
        assert_eq!(
            names((0..5).map(|node| few.home(Host::Node(node)))),
            "switch-4 switch-4 switch-5 switch-6 switch-7"
        );
        assert_eq!(layout.links().len(), 12);
        assert_eq!(names(layout.neighbours(Host::Switch)), "switch-2 switch-3");
        assert_eq!(
            names(layout.neighbours(Host::FurtherSwitch(3))),
            "switch switch-1 switch-4 switch-5 switch-6 switch-7"
        );
        assert_eq!(names(layout.neighbours(Host::FurtherSwitch(7))), "switch-2 switch-3");
        let (upper, lower) = (Host::FurtherSwitch(2), Host::FurtherSwitch(5));
        assert_eq!(layout.link(lower, upper), Some((upper, lower)));
        assert_eq!(layout.link(lower, Host::Switch), None);
    }
}
