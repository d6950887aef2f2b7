//! Datagrams: routed by a switch or plainly addressed, then lost, late, twice, or simply delivered.

use super::event::Event;
use super::seats::INSTANCES;
use super::{Cluster, SWITCH};
use crate::network::Host;
use crate::switch::{CLIENT_PORT, Forward, METADATA_PORT};
use nicekv_dataplane::Ring;
use std::net::SocketAddrV4;

impl Cluster {
    fn host_of(&self, address: SocketAddrV4) -> Option<Host> {
        let known = &INSTANCES[..self.scenario.instances];
        if let Some(instance) = known.iter().position(|known| *known == address) {
            return Some(Host::instance(instance));
        }
        let node = self.nodes.iter().position(|node| node.address == address).map(Host::Node);
        node.or_else(|| self.clients.iter().position(|client| client.address == address).map(Host::Client))
    }

    pub(super) fn send(&mut self, sender: Host, from: SocketAddrV4, to: SocketAddrV4, bytes: &[u8]) {
        let (attached, port) = match sender {
            Host::Node(index) => (index, self.nodes[index].id.0),
            Host::Client(index) if self.scenario.edges => (self.nodes.len() + index, CLIENT_PORT),
            Host::Client(index) => (index, CLIENT_PORT),
            Host::Metadata | Host::Switch(_) => (0, METADATA_PORT),
            Host::Instance(index) => (0, METADATA_PORT - index as u16),
        };
        if let Host::Node(index) = sender {
            let is_to_members = self.rings.ring_of(to.ip().octets()) == Some(Ring::Multicast);
            self.watch.node_sends((index, self.nodes[index].process), is_to_members, bytes);
        }
        let switch = attached % self.switches.len();
        let (mut bytes, port) = (bytes.to_vec(), (!self.scenario.hides_sources).then_some(port));
        match self.switches[switch].forward(port, from, to, &mut bytes) {
            Forward::Plain => {
                if let Some(host) = self.host_of(to) {
                    self.deliver(sender, host, from, &bytes);
                }
            }
            Forward::Hosts(hosts) => {
                if let (Host::Client(_), [one]) = (sender, &hosts[..]) {
                    *self.tally.asked.entry(usize::from(one.0) - 1).or_default() += 1;
                }
                let from = if self.scenario.hides_sources { SWITCH } else { from };
                for host in hosts {
                    self.deliver(sender, Host::Node(usize::from(host.0) - 1), from, &bytes);
                }
            }
        }
    }

    fn deliver(&mut self, sender: Host, to: Host, from: SocketAddrV4, bytes: &[u8]) {
        let slowness = self.slowness(sender).max(self.slowness(to));
        let copies = self.network.delays(sender, to, &self.faults, &mut self.random);
        match copies {
            [None, _] => {
                self.tally.count("datagrams lost");
                self.note(|names| names.line(sender, to, bytes).map(|line| format!("{line}  (lost)")));
            }
            [_, Some(_)] => self.tally.count("datagrams duplicated"),
            _ => {}
        }
        for delay_ns in copies.into_iter().flatten() {
            let event = Event::Arrive { to, sender, from, bytes: bytes.to_vec() };
            self.queue.after(delay_ns * slowness, event);
        }
    }

    /// By how much everything takes longer at this host.
    pub(super) fn slowness(&self, host: Host) -> u64 {
        match host {
            Host::Node(index) if self.nodes[index].is_slow => self.faults.slow_factor,
            _ => 1,
        }
    }

    pub(super) fn arrive(&mut self, to: Host, sender: Host, from: SocketAddrV4, bytes: Vec<u8>) {
        let now_ns = self.queue.now_ns();
        let is_down = matches!(to, Host::Node(node) if self.nodes[node].core.is_none());
        if !is_down {
            self.note(|names| names.line(sender, to, &bytes));
        }
        match to {
            Host::Node(node) => {
                if !self.nodes[node].receive(from, bytes, self.scenario.pace.inbox_max) {
                    self.tally.count("datagrams for which a socket had no room");
                }
                let late_ns = self.scenario.pace.drain_max_ns.max(self.faults.late_ns);
                let drain_ns = self.random.below(late_ns) * self.slowness(to);
                self.wake_node(node, (now_ns + drain_ns).max(self.nodes[node].busy_until_ns));
            }
            Host::Client(client) => {
                self.clients[client].receive(now_ns, from, &bytes);
                self.wake_client(client, now_ns);
            }
            Host::Metadata => self.metadata_hears(0, from, bytes),
            Host::Instance(index) => self.metadata_hears(index, from, bytes),
            Host::Switch(_) => {}
        }
    }
}
