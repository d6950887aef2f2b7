//! Entries of hot keys in switches, changed at random, and the messages about them to nodes.

use super::Cluster;
use super::addresses::INSTANCES;
use super::event::{Event, Late};
use crate::network::Host;
use nicekv_proto::hot::{HotAssign, HotConfirm, Stamp};
use nicekv_proto::placement::match_digest;
use nicekv_proto::{HeaderLayout, KeyDigest, KeyspaceId, Opcode};
use nicekv_switch::{HostId, HotEntry};
use nicekv_testkit::Random;
use std::collections::BTreeMap;
use std::net::SocketAddrV4;

/// What nodes say to switches, of which the last two may be much too late.
const SAID: [Opcode; 4] = [Opcode::HotConfirm, Opcode::HotClose, Opcode::HotValue, Opcode::HotLease];
/// How much more often it is lost than what nodes say to each other.
const LOSS_FACTOR: u64 = 3;
/// How late: overtaken by others, after the next lease, or when all leases are over.
const LATE_NS: [u64; 3] = [200_000, 15_000_000, 100_000_000];

/// What is installed.
#[derive(Clone, Debug)]
pub(super) struct Installed {
    /// Its instance.
    pub(super) instance: u64,
    /// Where.
    pub(super) switch: usize,
    /// Nodes, by their indexes.
    pub(super) holders: Vec<usize>,
    /// Whether the switch is to have a copy, too (H9).
    pub(super) in_switch: bool,
}

/// What was changed so far.
#[derive(Clone)]
pub(super) struct HotEntries {
    /// Chooses.
    pub(super) random: Random,
    /// The newest instance.
    pub(super) newest: u64,
    /// By keyspace and digest: in one switch (H8), though nothing here depends on that.
    pub(super) installed: BTreeMap<(KeyspaceId, KeyDigest), Vec<Installed>>,
}

impl HotEntries {
    pub(super) fn new(seed: u64) -> Self {
        Self { random: Random::new(seed), newest: 0, installed: BTreeMap::new() }
    }
}

impl Cluster {
    /// What nodes say to switches of hot keys is lost more often than other datagrams, so that it comes to leases. Values and leases arrive late, too, or once more.
    pub(super) fn is_held_up(
        &mut self,
        sender: Host,
        from: SocketAddrV4,
        to: SocketAddrV4,
        bytes: &[u8],
    ) -> bool {
        if self.scenario.hot_interval_ns == 0 || !matches!(sender, Host::Node(_)) {
            return false;
        }
        let Some(opcode) = HeaderLayout::peek(bytes).and_then(HeaderLayout::opcode) else { return false };
        if !SAID.contains(&opcode) {
            return false;
        }
        let drawn = self.hot.random.below(8);
        if matches!(opcode, Opcode::HotValue | Opcode::HotLease) && drawn < 2 {
            let late = Late { sender, from, to, bytes: bytes.to_vec() };
            let late_ns = self.hot.random.pick(&LATE_NS);
            let late_ns = self.hot.random.below(late_ns);
            self.queue.after(late_ns, Event::Hot(Some(Box::new(late))));
            return drawn == 0;
        }
        self.hot.random.chance(LOSS_FACTOR * self.faults.loss)
    }

    pub(super) fn pass_late_or_draw_hot(&mut self, late: Option<Box<Late>>) {
        match late {
            Some(late) => self.meet_switch(late.sender, late.from, late.to, &late.bytes),
            None => self.draw_hot(),
        }
    }

    /// An entry comes, goes, or is told of once more.
    fn draw_hot(&mut self) {
        let interval_ns = self.scenario.hot_interval_ns;
        if self.faults_are_over() {
            return;
        }
        let is_hot = |keyspace: u16| {
            self.scenario.keyspaces.get(usize::from(keyspace)).is_some_and(|shape| shape.is_hot)
        };
        let keys = self.scenario.workload.keys.iter().filter(|key| is_hot(key.keyspace));
        let names: Vec<(KeyspaceId, KeyDigest)> = keys
            .map(|key| {
                let order = self.shape(key.keyspace).order;
                (KeyspaceId(key.keyspace), match_digest(order, &key.name))
            })
            .collect();
        if let Some(name) = names.get(self.hot.random.below(names.len().max(1) as u64) as usize).copied() {
            match self.hot.random.below(10) {
                0..5 => self.install_hot(name),
                5 | 6 => self.remove_hot(name),
                7 | 8 => self.lie_for_holders(name),
                _ => {}
            }
            self.tell_hot(name);
        }
        let pause_ns = self.hot.random.between(interval_ns / 4, interval_ns);
        self.queue.after(pause_ns, Event::Hot(None));
    }

    /// Some nodes at a switch are holders from now on, with an instance of its own; what was there before makes room.
    fn install_hot(&mut self, name: (KeyspaceId, KeyDigest)) {
        self.remove_hot(name);
        self.hot.newest += 1;
        let switch = self.hot.random.below(self.switches.len() as u64) as usize;
        if let Some(installed) = self.install_at(name, switch) {
            self.tally.count("hot entries installed");
            self.hot.installed.insert(name, vec![installed]);
        }
    }

    fn install_at(&mut self, name: (KeyspaceId, KeyDigest), switch: usize) -> Option<Installed> {
        let mut holders: Vec<usize> =
            (0..self.nodes.len()).filter(|node| self.hangs_at(Host::Node(*node), switch)).collect();
        // The switch beside nodes, or alone.
        let in_switch = self.scenario.hot_values && self.hot.random.below(2) == 0;
        let count = self.hot.random.between(u64::from(!in_switch), 3) as usize;
        while holders.len() > count {
            holders.remove(self.hot.random.below(holders.len() as u64) as usize);
        }
        let entry = HotEntry {
            keyspace: name.0.0,
            digest: name.1.0,
            instance: self.hot.newest,
            owner_turns: 1,
            holders: holders.iter().map(|node| HostId(self.nodes[*node].id.0)).collect(),
            in_switch,
        };
        let installed = Installed { instance: entry.instance, switch, holders, in_switch };
        // A switch without tables knows no nodes.
        self.switches[switch].change_hot(&[], &[entry]).then_some(installed)
    }

    /// The switch believes that holders have the newest copy.
    fn lie_for_holders(&mut self, name: (KeyspaceId, KeyDigest)) {
        let to = self.clients[0].vring(name.0);
        let (keyspace, digest) = name;
        for Installed { instance, switch, holders, .. } in
            self.hot.installed.get(&name).cloned().unwrap_or_default()
        {
            let seen = self.switches[switch].hot_seen(instance);
            let confirm = HotConfirm { keyspace, digest, stamp: Stamp { instance, seen } };
            for holder in holders {
                let (mut bytes, from) = (Vec::new(), self.nodes[holder].address);
                confirm.encode(&mut bytes);
                self.send(Host::Node(holder), from, to, &bytes);
            }
        }
    }

    fn remove_hot(&mut self, name: (KeyspaceId, KeyDigest)) {
        for Installed { instance, switch, .. } in self.hot.installed.remove(&name).unwrap_or_default() {
            self.switches[switch].change_hot(&[instance], &[]);
        }
    }

    /// All nodes are told, by who speaks for the metadata service; of copies in the switch not always what is so.
    fn tell_hot(&mut self, name: (KeyspaceId, KeyDigest)) {
        let installed = self.hot.installed.get(&name).cloned().unwrap_or_default();
        let holders = installed.iter().flat_map(|installed| &installed.holders);
        let holders: Vec<SocketAddrV4> = holders.map(|node| self.nodes[*node].address).collect();
        let is_lie = self.scenario.hot_values && self.hot.random.below(8) == 0;
        let in_switch = installed.iter().any(|installed| installed.in_switch) != is_lie;
        let instance = installed.first().map_or(self.hot.newest.max(1), |installed| installed.instance);
        for node in 0..self.nodes.len() {
            let Some(core) = &self.nodes[node].core else { continue };
            let (keyspace, digest) = name;
            let assign = HotAssign {
                keyspace,
                digest,
                term: core.status().term,
                instance,
                holders: holders.clone(),
                in_switch,
            };
            let (mut bytes, to) = (Vec::new(), self.nodes[node].address);
            assign.encode(&mut bytes);
            self.send(Host::Metadata, INSTANCES[0], to, &bytes);
        }
    }

    /// Nothing is changed any more when all else is healed.
    fn faults_are_over(&self) -> bool {
        self.queue.now_ns() >= self.scenario.faults_end_ns
    }
}
