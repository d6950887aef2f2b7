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

/// Messages about hot keys from nodes to switches. The last two may also be delayed for long.
const SAID: [Opcode; 4] = [Opcode::HotConfirm, Opcode::HotClose, Opcode::HotValue, Opcode::HotLease];
/// Factor by which messages about hot keys are lost more often than others.
const LOSS_FACTOR: u64 = 3;
/// Maximum delays: overtaken by later messages; after the next lease; after all leases have
/// expired.
const LATE_NS: [u64; 3] = [200_000, 15_000_000, 100_000_000];

/// A hot entry that is installed at a switch.
#[derive(Clone, Debug)]
pub(super) struct Installed {
    pub(super) instance: u64,
    /// Index of the switch.
    pub(super) switch: usize,
    /// Indexes of the nodes that hold copies.
    pub(super) holders: Vec<usize>,
    /// Whether the switch holds a copy, too (H9).
    pub(super) in_switch: bool,
}

/// The hot entries that are installed.
#[derive(Clone)]
pub(super) struct HotEntries {
    pub(super) random: Random,
    /// The number of the newest instance.
    pub(super) newest: u64,
    /// By keyspace and digest. Each is at one switch (H8), but nothing here depends on that.
    pub(super) installed: BTreeMap<(KeyspaceId, KeyDigest), Vec<Installed>>,
}

impl HotEntries {
    pub(super) fn new(seed: u64) -> Self {
        Self { random: Random::new(seed), newest: 0, installed: BTreeMap::new() }
    }
}

impl Cluster {
    /// Loses more of the messages about hot keys than of others, so that owners have to wait for
    /// leases to expire. Delays or duplicates some values and leases. Whether the message is held
    /// back.
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

    /// Installs or removes a random hot entry, or notifies nodes of it again.
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

    /// Replaces the hot entry of a key by a new instance at one switch, with some of its nodes as
    /// holders.
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
        // The switch holds a copy in addition to nodes, or alone.
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
        // A switch without tables knows no nodes, and refuses the entry.
        self.switches[switch].change_hot(&[], &[entry]).then_some(installed)
    }

    /// Sends forged confirmations, so that the switch believes that all holders have the newest
    /// copy.
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

    /// Sends all nodes the assignment of a hot key, as the metadata service would. Sometimes it is
    /// wrong about the copy in the switch.
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

    /// Whether the time of faults is over. Hot entries do not change after it.
    fn faults_are_over(&self) -> bool {
        self.queue.now_ns() >= self.scenario.faults_end_ns
    }
}
