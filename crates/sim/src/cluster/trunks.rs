//! Switches in a chain: where hosts hang, and what crosses the trunks between them.

use super::Cluster;
use crate::network::Host;
use crate::switch::TRUNK_PORT;
use nicekv_dataplane::Topology;
use nicekv_metadata::{host_id, service_host_id};

impl Cluster {
    /// A chain of switches, or none: then every server hangs at each.
    pub(super) fn topology(&self) -> Topology {
        let mut topology = Topology::default();
        if !self.scenario.has_trunks() {
            return topology;
        }
        for node in 0..self.nodes.len() {
            topology.settle(host_id(self.nodes[node].id), self.home(Host::Node(node)) as u16);
        }
        for instance in 0..self.scenario.instances {
            topology.settle(service_host_id(instance as u16), 0);
        }
        for switch in 1..self.switches.len() as u16 {
            topology.connect(switch - 1, switch, TRUNK_PORT + switch);
            topology.connect(switch, switch - 1, TRUNK_PORT + switch - 1);
        }
        topology
    }

    /// The switch that a host hangs at; where there are no trunks, the one that it sends by.
    pub(super) fn home(&self, host: Host) -> usize {
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

    /// The neighbour of a switch, in the chain, towards a host.
    pub(super) fn neighbour(&self, switch: usize, host: Host) -> usize {
        if self.home(host) > switch { switch + 1 } else { switch - 1 }
    }

    /// Where a datagram comes in that leaves by the trunk to a neighbour, if it is not lost.
    pub(super) fn cross(&mut self, switch: usize, neighbour: usize) -> Option<(usize, Option<u16>)> {
        self.tally.count("datagrams that crossed a trunk");
        let is_cut = self.network.is_cut(Host::Switch(switch), Host::Switch(neighbour));
        let is_lost = is_cut || self.random.chance(self.faults.loss);
        (!is_lost).then(|| (neighbour, Some(TRUNK_PORT + switch as u16)))
    }
}
