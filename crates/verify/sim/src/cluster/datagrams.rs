//! Datagrams: routed by a switch or addressed to a host, then lost, delayed, duplicated or
//! delivered.

use super::addresses::INSTANCES;
use super::event::Event;
use super::{Cluster, SWITCH};
use crate::network::Host;
use crate::switch::{CLIENT_PORT, Forward, METADATA_PORT, TRUNK_PORT};
use nicekv_proto::limits::DATAGRAM_BYTES_MAX;
use nicekv_proto::{HeaderLayout, Opcode};
use nicekv_switch::{Hop, HostId, Ring};
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
        assert!(bytes.len() <= DATAGRAM_BYTES_MAX, "a datagram of {} bytes", bytes.len());
        if let Host::Node(index) = sender {
            let is_to_members = self.rings.ring_of(to.ip().octets()) == Some(Ring::Multicast);
            self.watch.node_sends((index, self.nodes[index].process), is_to_members, bytes);
        }
        if !self.is_held_up(sender, from, to, bytes) {
            self.meet_switch(sender, from, to, bytes);
        }
    }

    /// A datagram enters the switch that its sender is attached to.
    pub(super) fn meet_switch(&mut self, sender: Host, from: SocketAddrV4, to: SocketAddrV4, bytes: &[u8]) {
        let port = match sender {
            Host::Node(index) => self.nodes[index].id.0,
            Host::Client(_) => CLIENT_PORT,
            Host::Metadata | Host::Switch(_) => METADATA_PORT,
            Host::Instance(index) => METADATA_PORT - index as u16,
        };
        let port = (!self.scenario.hides_sources).then_some(port);
        self.pass(sender, (self.home(sender), port), (from, to), &mut bytes.to_vec());
    }

    /// Passes a datagram from switch to switch to all hosts that it reaches. It visits each switch
    /// at most once, and each host at most once.
    fn pass(
        &mut self,
        sender: Host,
        first: (usize, Option<u16>),
        (from, to): (SocketAddrV4, SocketAddrV4),
        bytes: &mut [u8],
    ) {
        let ends = (from, to);
        let (mut arriving, mut seen, mut reached) = (vec![first], Vec::new(), Vec::new());
        while let Some((switch, port)) = arriving.pop() {
            if seen.contains(&switch) {
                self.switches[switch]
                    .violate(format!("a datagram for {} arrives at switch {switch} a second time", to.ip()));
                return;
            }
            seen.push(switch);
            let turned_back = self.switches[switch].turned_back();
            let forward = self.switches[switch].forward(self.queue.now_ns(), port, ends, bytes);
            let is_asked = self.scenario.ways_are_whole && matches!(sender, Host::Client(_));
            if is_asked && self.switches[switch].turned_back() > turned_back {
                let what =
                    format!("a datagram for {} would go back to where it came from, and is dropped", to.ip());
                self.switches[switch].violate(what);
            }
            match forward {
                Forward::Plain => match self.host_of(to) {
                    Some(host) if self.hangs_at(host, switch) => self.deliver(sender, host, from, bytes),
                    Some(host) => {
                        let next = self.neighbour(switch, host);
                        arriving.extend(next.and_then(|next| self.cross(switch, next)));
                    }
                    None => {}
                },
                Forward::Hops(hops) => {
                    let is_get = self.rings.ring_of(to.ip().octets()) == Some(Ring::Unicast);
                    if let (Host::Client(_), true, [Hop::Host(one)]) = (sender, is_get, &hops[..]) {
                        *self.tally.asked.entry(usize::from(one.0) - 1).or_default() += 1;
                    }
                    let from = if self.scenario.hides_sources { SWITCH } else { from };
                    for hop in hops {
                        match hop {
                            Hop::Host(host) => self.reach(sender, (switch, host), from, bytes, &mut reached),
                            Hop::Trunk(port) => {
                                arriving.extend(self.cross(switch, usize::from(port - TRUNK_PORT)));
                            }
                        }
                    }
                }
                Forward::Answered(length) => return self.give_back(switch, (sender, ends), &bytes[..length]),
                Forward::Pieces(pieces) => {
                    self.tally.count("scans split by a switch");
                    if self.scenario.has_trunks() && self.is_above_racks(switch) {
                        self.tally.count("scans split above the racks");
                    }
                    pieces.into_iter().for_each(|piece| self.pass_piece(sender, switch, ends, piece));
                }
            }
        }
    }

    /// Sends a switch's answer back along the path of the get.
    fn give_back(
        &mut self,
        switch: usize,
        (client, (from, to)): (Host, (SocketAddrV4, SocketAddrV4)),
        bytes: &[u8],
    ) {
        self.tally.count("gets answered by a switch");
        let answers = if self.scenario.hides_sources { SWITCH } else { to };
        let sender = Host::Switch(switch);
        if self.hangs_at(client, switch) {
            return self.deliver(sender, client, answers, bytes);
        }
        let next = self.neighbour(switch, client);
        if let Some(first) = next.and_then(|next| self.cross(switch, next)) {
            self.pass(sender, first, (answers, from), &mut bytes.to_vec());
        }
    }

    /// Sends one piece of a scan. Several pieces may go to the same host.
    fn pass_piece(
        &mut self,
        sender: Host,
        switch: usize,
        (from, to): (SocketAddrV4, SocketAddrV4),
        (hop, mut bytes): (Hop, Vec<u8>),
    ) {
        match hop {
            Hop::Host(host) => {
                let from = if self.scenario.hides_sources { SWITCH } else { from };
                self.reach(sender, (switch, host), from, &bytes, &mut Vec::new());
            }
            Hop::Trunk(port) => {
                if let Some(first) = self.cross(switch, usize::from(port - TRUNK_PORT)) {
                    self.pass(sender, first, (from, to), &mut bytes);
                }
            }
        }
    }

    /// Delivers a multicast datagram to a host. A second copy at the same host is a violation,
    /// whatever the tables say.
    fn reach(
        &mut self,
        sender: Host,
        (switch, host): (usize, HostId),
        from: SocketAddrV4,
        bytes: &[u8],
        reached: &mut Vec<HostId>,
    ) {
        if reached.contains(&host) {
            self.switches[switch].violate(format!("host {} gets two copies", host.0));
        }
        reached.push(host);
        self.deliver(sender, Host::Node(usize::from(host.0) - 1), from, bytes);
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
            let mut bytes = bytes.to_vec();
            if self.faults.garbled > 0 && is_chunk(&bytes) && self.random.chance(self.faults.garbled) {
                self.tally.count("chunks damaged on their way");
                bytes.last_mut().into_iter().for_each(|last| *last ^= 1);
            }
            let event = Event::Arrive { to, sender, from, bytes };
            self.queue.after(delay_ns * slowness, event);
        }
    }

    /// The factor by which everything takes longer at this host.
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
                if !self.nodes[node].receive(now_ns, from, bytes, self.scenario.pace.inbox_max) {
                    self.tally.count("datagrams for which a socket had no room");
                }
                let late_ns = self.scenario.pace.drain_max_ns.max(self.faults.late_ns);
                let drain_ns = self.random.below(late_ns) * self.slowness(to);
                self.pass_kernel(node);
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

/// Whether the datagram is a chunk of a large value, whose last bytes are the value's.
fn is_chunk(bytes: &[u8]) -> bool {
    HeaderLayout::peek(bytes).and_then(HeaderLayout::opcode) == Some(Opcode::Chunk)
}
