//! Trunks between switches: the topology, where hosts are attached, and datagrams that cross
//! trunks.

use super::Cluster;
use super::event::Event;
use crate::network::Host;
use crate::switch::{METADATA_PORT, TRUNK_PORT};
use nicekv_metadata::{host_id, service_host_id};
use nicekv_switch::control::ControlReply;
use nicekv_switch::{TableSet, Topology};

/// Time until an agent notices a dead link and its report arrives.
const NOTICE_NS: u64 = 100_000;
impl Cluster {
    /// The switch that a node is attached to.
    pub(crate) fn switch_of(&self, node: usize) -> usize {
        self.home(Host::Node(node))
    }

    /// Whether no node is attached to this switch of a tree.
    pub(super) fn is_above_racks(&self, switch: usize) -> bool {
        self.scenario.trunks.racks().is_some_and(|(first, _)| switch < first)
    }

    /// The neighbours of a switch, ascending.
    pub(crate) fn neighbours(&self, switch: usize) -> &[usize] {
        &self.trunks[switch]
    }

    /// The topology for the metadata service. Without trunks it is empty: every server is attached
    /// to all switches.
    pub(super) fn topology(&self) -> Topology {
        let mut topology = Topology::default();
        if !self.scenario.has_trunks() {
            return topology;
        }
        for node in 0..self.nodes.len() {
            topology.set_home(host_id(self.nodes[node].id), self.home(Host::Node(node)) as u16);
        }
        for instance in 0..self.scenario.instances {
            topology.set_home(service_host_id(instance as u16), 0);
        }
        for (switch, neighbours) in self.trunks.iter().enumerate() {
            for neighbour in neighbours {
                topology.connect(switch as u16, *neighbour as u16, port_of(*neighbour));
            }
        }
        topology
    }

    /// The switch that a host is attached to; without trunks, the switch that it sends through.
    pub(crate) fn home(&self, host: Host) -> usize {
        if let Some((first, racks)) = self.scenario.trunks.racks().filter(|_| self.scenario.has_trunks()) {
            let rack = |node: usize| first + node * racks / self.nodes.len();
            return match host {
                Host::Node(index) => rack(index),
                // Even clients are attached to a node's switch, odd ones to any.
                Host::Client(index) if index % 2 == 0 => rack(index % self.nodes.len()),
                Host::Client(index) => index * 5 % self.switches.len(),
                Host::Metadata | Host::Switch(_) | Host::Instance(_) => 0,
            };
        }
        let attached = match host {
            Host::Node(index) => index,
            Host::Client(index) if self.scenario.edges => self.nodes.len() + index,
            Host::Client(index) => index,
            Host::Metadata | Host::Switch(_) | Host::Instance(_) => 0,
        };
        attached % self.switches.len()
    }

    pub(super) fn hangs_at(&self, host: Host, switch: usize) -> bool {
        !self.scenario.has_trunks() || self.home(host) == switch
    }

    /// The next switch towards a host, over trunks that are open at both ends. Learned and flooded
    /// frames take this path.
    pub(super) fn neighbour(&self, switch: usize, host: Host) -> Option<usize> {
        let mut next: Vec<Option<usize>> = vec![None; self.switches.len()];
        let mut level = vec![self.home(host)];
        next[level[0]] = Some(level[0]);
        while !level.is_empty() && next[switch].is_none() {
            let mut farther = Vec::new();
            for near in level {
                for &far in &self.trunks[near] {
                    if next[far].is_none() && self.is_open(near, far) {
                        next[far] = Some(near);
                        farther.push(far);
                    }
                }
            }
            level = farther;
        }
        next[switch]
    }

    fn is_open(&self, one: usize, other: usize) -> bool {
        self.switches[one].has_open(port_of(other)) && self.switches[other].has_open(port_of(one))
    }

    /// Passes a datagram over the trunk to a neighbour. Returns the neighbour and its port, or
    /// `None` if the datagram is lost or either end is closed.
    pub(super) fn cross(&mut self, switch: usize, neighbour: usize) -> Option<(usize, Option<u16>)> {
        self.tally.count("datagrams that crossed a trunk");
        let is_cut = self.network.is_cut(Host::Switch(switch), Host::Switch(neighbour));
        let is_lost = is_cut || self.random.chance(self.faults.loss);
        (!is_lost && self.is_open(switch, neighbour)).then(|| (neighbour, Some(port_of(switch))))
    }

    /// Whether the tables use the port that no switch has.
    pub(super) fn lacks_port(&self, tables: &TableSet) -> bool {
        tables.validate_ports(|port| self.missing_port != Some(port)).is_err()
    }

    /// Reports a switch's ports and dead trunks over all its connections that have not got this
    /// report yet.
    pub(super) fn tell_ports(&mut self, switch: usize) {
        let present = self.missing_port.map(|missing| {
            let all =
                (0..METADATA_PORT + self.scenario.instances as u16).chain(TRUNK_PORT..TRUNK_PORT + 1_000);
            all.filter(|port| *port != missing).collect::<Vec<_>>()
        });
        let has_told = self.links.values().any(|link| link.told.is_some());
        if !self.scenario.has_trunks() && present.is_none() && !has_told {
            return;
        }
        let is_dead = |other: &usize| self.is_parted(Host::Switch(switch), Host::Switch(*other));
        let down: Vec<u16> =
            self.trunks[switch].iter().filter(|other| is_dead(other)).map(|other| port_of(*other)).collect();
        for (number, link) in self.links.iter_mut().filter(|(_, link)| link.switch == switch) {
            let told = (present.clone(), down.clone());
            if link.told.as_ref() != Some(&told) {
                link.told = Some(told);
                let reply = ControlReply::Ports { present: present.clone(), down: down.clone() };
                self.queue.after(NOTICE_NS, Event::FromAgent(*number, Box::new(reply)));
            }
        }
    }
}

/// The port number of the trunk to a neighbour; the same at every switch.
fn port_of(neighbour: usize) -> u16 {
    TRUNK_PORT + neighbour as u16
}
