//! A state of the tiny cluster, and how the metadata service, the network and the nodes change it.

mod calls;
mod machine;
mod steps;

pub use calls::{Call, op};
pub use steps::{Bounds, Step};

use super::message::Message;
use crate::checker;
use crate::disk::Disk;
use calls::client_address;
use machine::{Machine, node_address};
use nicekv_proto::chunk::Round;
use nicekv_proto::control::{Assign, HeartbeatReply, Member, MemberRole, MemberState};
use nicekv_proto::limits::PORT_DEFAULT;
use nicekv_proto::placement::Vrings;
use nicekv_proto::{Epoch, KeyspaceId, MatchRange, NodeId, Now, PartitionId, Replication, Term};
use nicekv_replica::Replica;
use nicekv_replica::Standing;
use std::collections::BTreeSet;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::rc::Rc;

pub(super) const KEY: &[u8] = b"k";
pub(super) const NODES: usize = 3;
pub(super) const METADATA: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 20, 0, 2), PORT_DEFAULT);
pub(super) const NOW: Now = Now { boot_ns: 1_000_000, unix_ms: 1 };

/// The decisions of the metadata service.
#[derive(Clone, Debug, Hash)]
pub(super) struct Roles {
    pub(super) epoch: u32,
    pub(super) activated: bool,
    pub(super) primary: usize,
    pub(super) members: Vec<usize>,
    /// Nodes that clients may send gets to.
    pub(super) unicast: Vec<usize>,
}

#[derive(Clone)]
pub struct World {
    pub(super) machines: [Rc<Machine>; NODES],
    pub(super) messages: BTreeSet<Message>,
    pub(super) roles: Roles,
    pub(super) bounds: Bounds,
    pub(super) script: Rc<[Call]>,
    /// Calls and answers in their order.
    pub(super) history: Vec<checker::Call>,
    /// For each call of the history, the client that made it.
    pub(super) callers: Vec<usize>,
    pub(super) events: u64,
    pub(super) replication: Replication,
    pub(super) wrong: Option<String>,
}

fn vrings() -> Vrings {
    Vrings::on_network(PORT_DEFAULT)
}

impl World {
    /// A cluster in its first epoch. Each client will make its call of the script.
    pub fn new(script: Vec<Call>, bounds: Bounds) -> Self {
        Self::with(Replication::Multicast, script, bounds)
    }

    /// The same with chain replication.
    pub fn of_chain(script: Vec<Call>, bounds: Bounds) -> Self {
        Self::with(Replication::Chain, script, bounds)
    }

    fn with(replication: Replication, script: Vec<Call>, bounds: Bounds) -> Self {
        let machine = |index| Rc::new(Machine::start(index, 1, Disk::new()));
        let members: Vec<usize> = (0..NODES).collect();
        let roles = Roles { epoch: 1, activated: true, primary: 0, unicast: members.clone(), members };
        let mut world = Self {
            machines: std::array::from_fn(machine),
            messages: BTreeSet::new(),
            roles,
            bounds,
            script: script.into(),
            history: Vec::new(),
            callers: Vec::new(),
            events: 0,
            replication,
            wrong: None,
        };
        for index in 0..NODES {
            world.act(index, |_, _| {});
        }
        world.announce();
        world.deliver_all();
        // The primary repeats the requests that it sent before the others knew of the epoch.
        world.act(0, |core, _| core.handle_deadline(NOW));
        world.deliver_all();
        assert!(world.machines[0].status.is_some_and(|status| status.leads), "the first epoch has begun");
        world
    }

    /// Delivers all messages and completes all disk operations, in a fixed order. False if that
    /// does not end.
    pub(super) fn deliver_all(&mut self) -> bool {
        for _ in 0..1000 {
            if let Some(message) = self.messages.pop_first() {
                self.receive(&message);
            } else if let Some(index) = (0..NODES).find(|index| !self.machines[*index].busy.is_empty()) {
                self.finish_disk(index);
            } else {
                return true;
            }
        }
        false
    }

    /// Runs `event` on a live node, and sends and stores what its core outputs.
    pub(super) fn act(&mut self, index: usize, event: impl FnOnce(&mut Replica, &mut Disk)) {
        let machine = Rc::make_mut(&mut self.machines[index]);
        let Some(core) = &mut machine.core else { return };
        event(core, &mut machine.disk);
        core.handle_batch_end(NOW);
        machine.busy.extend(machine.disk.execute(NOW, core));
        let mut sent = Vec::new();
        let mut bytes = Vec::new();
        while let Some(to) = core.poll_transmit(&mut bytes) {
            sent.push((to, Rc::from(bytes.as_slice())));
        }
        machine.summarize();
        for (to, bytes) in sent {
            self.send(index, to, bytes);
        }
    }

    fn send(&mut self, from: usize, to: SocketAddrV4, bytes: Rc<[u8]>) {
        if to.ip().octets()[..2] == vrings().multicast.octets()[..2] {
            for member in self.roles.members.clone() {
                if member != from {
                    self.messages.insert(Message::new(member, bytes.clone()));
                }
            }
        } else if let Some(member) = (0..NODES).find(|index| node_address(*index) == to) {
            self.messages.insert(Message::new(member, bytes));
        } else if let Some(client) = (0..self.script.len()).find(|index| client_address(*index) == to) {
            self.answer(client, &bytes);
        }
    }

    pub(super) fn receive(&mut self, message: &Message) {
        let bytes = message.bytes.clone();
        self.act(message.to, |core, _| core.handle_datagram(NOW, METADATA, &bytes));
    }

    pub(super) fn finish_disk(&mut self, index: usize) {
        let busy = Rc::make_mut(&mut self.machines[index]).busy.pop_front().expect("it is busy");
        self.act(index, |core, disk| disk.finish(NOW, core, busy));
    }

    /// Announces the present epoch to every live member.
    pub(super) fn announce(&mut self) {
        for index in self.roles.members.clone() {
            if self.machines[index].core.is_none() {
                continue;
            }
            let incarnation = self.machines[index].process;
            let member = |index: &usize| Member {
                node: NodeId(*index as u16 + 1),
                state: MemberState::Consistent,
                role: MemberRole::Original,
                address: node_address(*index),
            };
            let assign = Assign {
                term: Term(1),
                incarnation,
                partition: PartitionId(0),
                keyspace: KeyspaceId::DEFAULT,
                range: MatchRange::ALL,
                order: nicekv_proto::KeyOrder::Hash,
                replication: self.replication,
                multicast: vrings().multicast_vnode(0),
                epoch: Epoch(self.roles.epoch),
                activated: self.roles.activated,
                primary: NodeId(self.roles.primary as u16 + 1),
                replicas: NODES as u8,
                members: self.roles.members.iter().map(member).collect(),
                discard: false,
                children: Vec::new(),
                sealed: false,
                parents: Vec::new(),
                stamp_min: Round::default(),
            };
            let lease = HeartbeatReply { term: Term(1), incarnation, sent_ns: 0, lease_ns: u64::MAX };
            let mut bytes = Vec::new();
            lease.encode(&mut bytes);
            self.act(index, |core, _| core.handle_datagram(NOW, METADATA, &bytes));
            assign.encode(&mut bytes);
            self.messages.insert(Message::new(index, bytes.as_slice().into()));
        }
    }

    /// Removes a node from the replica set by a new epoch.
    pub(super) fn remove(&mut self, index: usize) {
        let roles = &mut self.roles;
        roles.epoch += 1;
        roles.members.retain(|member| *member != index);
        if roles.primary == index {
            roles.primary = roles.members[0];
        }
        if self.machines[index].core.is_none() && !self.is_chain() {
            return self.activate();
        }
        self.roles.activated = false;
        self.announce();
    }

    pub(super) fn is_chain(&self) -> bool {
        self.replication == Replication::Chain
    }

    /// The member that answers gets in a chain.
    pub(super) fn tail(&self) -> usize {
        *self.roles.members.last().expect("somebody stays")
    }

    /// Whether the epoch may be activated. In a chain all members must be up and have adopted it
    /// (C7).
    pub(super) fn may_activate(&self) -> bool {
        let has_taken_up = |index: &usize| {
            self.machines[*index].status.is_some_and(|status| status.epoch == Epoch(self.roles.epoch))
        };
        !self.roles.activated && (!self.is_chain() || self.roles.members.iter().all(has_taken_up))
    }

    pub(super) fn activate(&mut self) {
        self.roles.activated = true;
        self.roles.unicast.clone_from(&self.roles.members);
        self.announce();
    }

    pub(super) fn restart(&mut self, index: usize) {
        let machine = &self.machines[index];
        let started = Machine::start(index, machine.process + 1, machine.disk.clone());
        self.machines[index] = Rc::new(started);
        self.act(index, |_, _| {});
        self.roles.epoch += 1;
        self.roles.activated &= !self.is_chain();
        self.announce();
    }

    pub(super) fn crash(&mut self, index: usize, kept: u64) {
        let machine = Rc::make_mut(&mut self.machines[index]);
        machine.core = None;
        machine.busy.clear();
        machine.disk.crash_keeping(kept);
        machine.summarize();
        self.messages.retain(|message| message.to != index);
    }

    /// The first invariant that does not hold.
    pub(super) fn broken_invariant(&self) -> Option<String> {
        let mut primaries = Vec::new();
        for machine in &self.machines {
            let Some(core) = &machine.core else { continue };
            if let Err(what) = core.check_invariants() {
                return Some(format!("broken invariant: {what}"));
            }
            let status = machine.status.expect("it is up");
            if status.leads && status.standing == Standing::Consistent {
                primaries.push(status.epoch);
            }
        }
        primaries.sort_unstable();
        if primaries.windows(2).any(|pair| pair[0] == pair[1]) {
            return Some("two primaries in one epoch (P)".into());
        }
        self.wrong.clone()
    }

    /// A hash of the state. Without the remaining bounds, where these make no difference.
    pub(super) fn fingerprint(&self, with_bounds: bool) -> u64 {
        let mut state = DefaultHasher::new();
        let may_crash = with_bounds && self.bounds.crashes > 0;
        for machine in &self.machines {
            (machine.fingerprint, machine.process, machine.core.is_some()).hash(&mut state);
            if may_crash || machine.core.is_none() {
                machine.disk.log().hash(&mut state);
                (machine.disk.appended() - machine.disk.synced()).hash(&mut state);
            }
        }
        (&self.messages, &self.roles).hash(&mut state);
        for (call, caller) in self.history.iter().zip(&self.callers) {
            (caller, call.answered.as_ref().map(|(_, answer)| answer)).hash(&mut state);
            // Of the times, only the order of answers and calls matters.
            let after = self
                .history
                .iter()
                .filter(|other| other.answered.as_ref().is_some_and(|(answered, _)| *answered < call.called));
            after.count().hash(&mut state);
        }
        if with_bounds {
            self.bounds.hash(&mut state);
        }
        state.finish()
    }
}
