//! A state of the tiny cluster, and the steps that lead on from it.

use crate::checker::{self, Action, Answer};
use crate::disk::{Busy, Disk};
use nicekv_node::{NodeConfig, PartitionStatus, Plant, Standing, Timing};
use nicekv_placement::{Vrings, key_digest};
use nicekv_replication::Replica;
use nicekv_wire::control::{Assign, HeartbeatReply, Member, MemberState};
use nicekv_wire::limits::PORT_DEFAULT;
use nicekv_wire::{
    ClientId, Datagram, Duration, Epoch, Get, KeyspaceId, MatchRange, NodeId, Now, OpId, PartitionId,
    Replication, Term, Update,
};
use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeSet, VecDeque};
use std::hash::{Hash, Hasher};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::rc::Rc;

/// The only key.
pub(super) const KEY: &[u8] = b"k";
const NODES: usize = 3;
const METADATA: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 20, 0, 2), PORT_DEFAULT);
/// Time stands still.
pub(super) const NOW: Now = Now { boot_ns: 1_000_000, unix_ms: 1 };
const FOREVER: Duration = Duration::from_secs(1 << 30);

/// How often the rarer things may happen on one way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Bounds {
    /// A message is lost.
    pub losses: u8,
    /// A node dies.
    pub crashes: u8,
    /// A dead node starts again and is admitted.
    pub restarts: u8,
    /// A node is removed.
    pub removals: u8,
    /// Also one that is alive, and does not hear of it. Else only a dead one, and its epoch is activated at once: it answers nobody.
    pub removes_live: bool,
    /// A node looks for what is overdue.
    pub sweeps: u8,
    /// A disk may take its time. Else it is done before anything else happens, unless its node dies first: a late force is then
    /// only seen as a late ack.
    pub slow_disks: bool,
}

impl Bounds {
    /// Nothing but delays.
    pub const NONE: Self = Self {
        losses: 0,
        crashes: 0,
        restarts: 0,
        removals: 0,
        removes_live: false,
        sweeps: 0,
        slow_disks: false,
    };
}

/// The one call of a client.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Call {
    /// An update; its op is named by the client.
    Update(Action),
    /// A get; any consistent replica may be the one that is asked.
    Get,
}

/// One step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// A message arrives.
    Deliver(Message),
    /// A message does not.
    Lose(Message),
    /// The disk has finished what it began first.
    Disk(usize),
    /// A client calls; a get goes to this node.
    Call(usize, usize),
    /// A node dies; of its log the records up to this one stay.
    Crash(usize, u64),
    /// It starts again.
    Restart(usize),
    /// A node is removed by a new epoch.
    Remove(usize),
    /// The epoch is activated: the removed one is asked no more.
    Activate,
    /// A node looks for what is overdue.
    Sweep(usize),
}

/// A datagram on its way.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Message {
    /// Index of the node.
    pub to: usize,
    pub(super) bytes: Rc<[u8]>,
    /// Of a message between nodes.
    epoch: Option<Epoch>,
}

impl Message {
    fn new(to: usize, bytes: Rc<[u8]>) -> Self {
        let epoch = epoch_of(&bytes);
        Self { to, bytes, epoch }
    }
}

impl std::fmt::Debug for Message {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "to node {}: {}", self.to, crate::transcript::describe(&self.bytes))
    }
}

/// A node that has not heard of the partition.
const UNTOLD: PartitionStatus = PartitionStatus {
    partition: PartitionId(0),
    epoch: Epoch(0),
    standing: Standing::Outside,
    primary: NodeId(0),
    leads: false,
    open_ops: 0,
    logged: 0,
    released: 0,
};

#[derive(Clone)]
pub(super) struct Machine {
    pub(super) core: Option<Replica>,
    pub(super) disk: Disk,
    pub(super) busy: VecDeque<Busy>,
    process: u64,
    /// Of the core and what the disk is busy with.
    fingerprint: u64,
    status: Option<PartitionStatus>,
}

/// What the metadata service has decided.
#[derive(Clone, Debug, Hash)]
pub(super) struct Roles {
    pub(super) epoch: u32,
    pub(super) activated: bool,
    pub(super) primary: usize,
    pub(super) members: Vec<usize>,
    /// Who may be asked.
    pub(super) unicast: Vec<usize>,
}

/// See the module.
#[derive(Clone)]
pub struct World {
    pub(super) machines: [Rc<Machine>; NODES],
    pub(super) messages: BTreeSet<Message>,
    pub(super) roles: Roles,
    bounds: Bounds,
    script: Rc<[Call]>,
    /// Calls and answers in their order.
    history: Vec<checker::Call>,
    /// Which client made a call of the history.
    callers: Vec<usize>,
    events: u64,
    plant: Option<Plant>,
    wrong: Option<String>,
}

pub(super) fn node_address(index: usize) -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::new(10, 20, 1, index as u8 + 1), PORT_DEFAULT)
}

fn client_address(index: usize) -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::new(10, 20, 2, index as u8 + 1), PORT_DEFAULT)
}

/// The op of a client's call.
pub fn op(client: usize) -> OpId {
    OpId { client: ClientId(client as u64 + 100), sequence: 1 }
}

fn vrings() -> Vrings {
    Vrings::on_network(PORT_DEFAULT)
}

impl Machine {
    fn start(index: usize, process: u64, disk: Disk, plant: Option<Plant>) -> Self {
        let zero = Duration::ZERO;
        let timing = Timing {
            heartbeat: FOREVER,
            resend: zero,
            accuse_after_resends: u32::MAX,
            progress_delay: FOREVER,
            copy_retry: FOREVER,
            scrub_interval: zero,
            scrub_bytes_per_second: 0,
            expiry_deletes_per_second: 0,
        };
        let mut core = Replica::new(NodeConfig {
            node: NodeId(index as u16 + 1),
            metadata: METADATA,
            switch: Some(METADATA),
            incarnation: process,
            storage: 1,
            internal_client: ClientId(index as u64 + 1),
            hash_seed: 7,
            timing,
        });
        if let Some(plant) = plant {
            core.plant(plant);
        }
        let mut machine =
            Self { core: None, disk, busy: VecDeque::new(), process, fingerprint: 0, status: None };
        machine.disk.replay(NOW, &mut core);
        // The only heartbeat; later deadlines are sweeps.
        core.handle_deadline(NOW);
        machine.core = Some(core);
        machine
    }

    fn summarize(&mut self) {
        let mut state = DefaultHasher::new();
        if let Some(core) = &self.core {
            core.fingerprint(&mut state);
        }
        for busy in &self.busy {
            match busy {
                Busy::Force { through } => (self.disk.appended() - through).hash(&mut state),
                Busy::Sync { .. } => unreachable!("nobody joins"),
            }
        }
        self.disk.entries().hash(&mut state);
        self.fingerprint = state.finish();
        let status = |core: &Replica| core.status().partitions.first().copied().unwrap_or(UNTOLD);
        self.status = self.core.as_ref().map(status);
    }
}

impl World {
    /// A cluster in its first epoch; each client will make its call of the script.
    pub fn new(script: Vec<Call>, bounds: Bounds, plant: Option<Plant>) -> Self {
        let machine = |index| Rc::new(Machine::start(index, 1, Disk::new(), plant));
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
            plant,
            wrong: None,
        };
        for index in 0..NODES {
            world.act(index, |_, _| {});
        }
        world.announce();
        world.deliver_all();
        // What the primary asked before the others knew of the epoch, it asks again.
        world.act(0, |core, _| core.handle_deadline(NOW));
        world.deliver_all();
        assert!(world.machines[0].status.is_some_and(|status| status.leads), "the first epoch has begun");
        world
    }

    /// The calls so far.
    pub fn calls(&self) -> &[checker::Call] {
        &self.history
    }

    /// Delivers and finishes everything, in a fixed order. Whether that came to an end.
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

    /// Runs `event` on a live node, and takes what comes of it.
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

    fn answer(&mut self, client: usize, bytes: &[u8]) {
        let Ok((_, Datagram::Reply(reply))) = Datagram::decode(bytes) else { return };
        let Some(position) = self.callers.iter().position(|caller| *caller == client) else { return };
        let value = reply.value.map(<[u8]>::to_vec);
        let answer = Answer { status: reply.status, version: reply.version, integer: reply.integer, value };
        self.events += 1;
        let call = &mut self.history[position];
        match &call.answered {
            None => call.answered = Some((self.events, answer)),
            // A get that is asked for once may be answered once more with a newer value; an update has one result.
            Some((_, first)) if call.action != Action::Get && *first != answer => {
                self.wrong = Some(format!("an op has two results: {first:?} and {answer:?} (X)"));
            }
            Some(_) => {}
        }
    }

    fn receive(&mut self, message: &Message) {
        let bytes = message.bytes.clone();
        self.act(message.to, |core, _| core.handle_datagram(NOW, METADATA, &bytes));
    }

    fn finish_disk(&mut self, index: usize) {
        let busy = Rc::make_mut(&mut self.machines[index]).busy.pop_front().expect("it is busy");
        self.act(index, |core, disk| disk.finish(NOW, core, busy));
    }

    /// Tells every live member its epoch.
    pub(super) fn announce(&mut self) {
        for index in self.roles.members.clone() {
            if self.machines[index].core.is_none() {
                continue;
            }
            let incarnation = self.machines[index].process;
            let member = |index: &usize| Member {
                node: NodeId(*index as u16 + 1),
                state: MemberState::Consistent,
                handoff: false,
                address: node_address(*index),
            };
            let assign = Assign {
                term: Term(1),
                incarnation,
                partition: PartitionId(0),
                keyspace: KeyspaceId::DEFAULT,
                range: MatchRange::ALL,
                replication: Replication::Multicast,
                multicast: vrings().multicast_vnode(0),
                epoch: Epoch(self.roles.epoch),
                activated: self.roles.activated,
                primary: NodeId(self.roles.primary as u16 + 1),
                replicas: NODES as u8,
                members: self.roles.members.iter().map(member).collect(),
            };
            let lease = HeartbeatReply { term: Term(1), incarnation, sent_ns: 0, lease_ns: u64::MAX };
            let mut bytes = Vec::new();
            lease.encode(&mut bytes);
            self.act(index, |core, _| core.handle_datagram(NOW, METADATA, &bytes));
            assign.encode(&mut bytes);
            self.messages.insert(Message::new(index, bytes.as_slice().into()));
        }
    }

    /// A client calls, or calls again.
    pub(super) fn request(&mut self, client: usize, target: usize) {
        let (op, digest) = (op(client), key_digest(KEY));
        let reply_to = Some(client_address(client));
        let mut bytes = Vec::new();
        match &self.script[client] {
            Call::Get => {
                Get { keyspace: KeyspaceId::DEFAULT, op, digest, reply_to, forwarded: None, key: KEY }
                    .encode(&mut bytes);
                self.messages.insert(Message::new(target, bytes.as_slice().into()));
            }
            Call::Update(Action::Update { condition, return_old, change, .. }) => {
                let (condition, operation) = (condition.condition(), change.operation());
                let return_old = *return_old;
                Update {
                    keyspace: KeyspaceId::DEFAULT,
                    op,
                    digest,
                    reply_to,
                    watermark: 1,
                    condition,
                    return_old,
                    operation,
                    key: KEY,
                }
                .encode(&mut bytes);
                for to in self.roles.members.clone() {
                    self.messages.insert(Message::new(to, bytes.as_slice().into()));
                }
            }
            Call::Update(Action::Get) => unreachable!("a get is no update"),
        }
    }

    fn call(&mut self, client: usize, target: usize) {
        let action = match &self.script[client] {
            Call::Get => Action::Get,
            Call::Update(action) => action.clone(),
        };
        self.events += 1;
        self.history.push(checker::Call { action, called: self.events, answered: None });
        self.callers.push(client);
        self.request(client, target);
    }

    /// Clients whose call is not answered.
    pub(super) fn unanswered(&self) -> Vec<usize> {
        let open = |client: &usize| {
            let position = self.callers.iter().position(|caller| caller == client);
            position.is_none_or(|position| self.history[position].answered.is_none())
        };
        (0..self.script.len()).filter(open).collect()
    }

    /// A node is gone from the replica set by a new epoch.
    pub(super) fn remove(&mut self, index: usize) {
        let roles = &mut self.roles;
        roles.epoch += 1;
        roles.members.retain(|member| *member != index);
        if roles.primary == index {
            roles.primary = roles.members[0];
        }
        if self.machines[index].core.is_none() {
            return self.activate();
        }
        roles.activated = false;
        self.announce();
    }

    pub(super) fn activate(&mut self) {
        self.roles.activated = true;
        self.roles.unicast.clone_from(&self.roles.members);
        self.announce();
    }

    pub(super) fn restart(&mut self, index: usize) {
        let machine = &self.machines[index];
        let started = Machine::start(index, machine.process + 1, machine.disk.clone(), self.plant);
        self.machines[index] = Rc::new(started);
        self.act(index, |_, _| {});
        self.roles.epoch += 1;
        self.announce();
    }

    fn crash(&mut self, index: usize, kept: u64) {
        let machine = Rc::make_mut(&mut self.machines[index]);
        machine.core = None;
        machine.busy.clear();
        machine.disk.crash_keeping(kept);
        machine.summarize();
        self.messages.retain(|message| message.to != index);
    }

    /// All steps from here.
    pub fn steps(&self) -> Vec<Step> {
        let mut steps = Vec::new();
        let called = |client: &usize| self.callers.contains(client);
        let bounds = &self.bounds;
        for index in 0..NODES {
            let machine = &self.machines[index];
            match &machine.core {
                None if bounds.restarts > 0 && self.roles.members.contains(&index) => {
                    steps.push(Step::Restart(index));
                }
                None => {}
                Some(core) => {
                    if bounds.crashes > 0 {
                        let (forced, appended) = (machine.disk.forced(), machine.disk.appended());
                        steps.extend((forced..=appended).map(|kept| Step::Crash(index, kept)));
                    }
                    if bounds.sweeps > 0 && core.next_deadline() <= NOW.boot_ns {
                        steps.push(Step::Sweep(index));
                    }
                }
            }
            let is_removable = bounds.removes_live || machine.core.is_none();
            let is_member = self.roles.members.len() > 1 && self.roles.members.contains(&index);
            if bounds.removals > 0 && is_removable && is_member {
                steps.push(Step::Remove(index));
            }
        }
        if !self.roles.activated {
            steps.push(Step::Activate);
        }
        for client in (0..self.script.len()).filter(|client| !called(client)) {
            match self.script[client] {
                Call::Get => steps.extend(self.roles.unicast.iter().map(|node| Step::Call(client, *node))),
                Call::Update(_) => steps.push(Step::Call(client, 0)),
            }
        }
        let busy: Vec<usize> = (0..NODES).filter(|index| !self.machines[*index].busy.is_empty()).collect();
        if let Some(first) = busy.first().filter(|_| !bounds.slow_disks) {
            steps.retain(|step| matches!(step, Step::Crash(..)));
            steps.push(Step::Disk(*first));
            return steps;
        }
        for message in &self.messages {
            if bounds.losses > 0 && !matches!(decoded(&message.bytes), Datagram::Assign(_)) {
                steps.push(Step::Lose(message.clone()));
            }
            steps.push(Step::Deliver(message.clone()));
        }
        steps.extend(busy.into_iter().map(Step::Disk));
        steps
    }

    /// Takes a step. False if it is one that changes nothing.
    pub fn take(&mut self, step: &Step) -> bool {
        match step {
            Step::Deliver(message) => {
                self.messages.remove(message);
                let before = (self.machines[message.to].fingerprint, self.messages.len(), self.events);
                self.receive(message);
                let after = (self.machines[message.to].fingerprint, self.messages.len(), self.events);
                if before == after && !self.is_stale(message) {
                    return false;
                }
            }
            Step::Lose(message) => {
                self.bounds.losses -= 1;
                self.messages.remove(message);
            }
            Step::Disk(index) => self.finish_disk(*index),
            Step::Call(client, target) => self.call(*client, *target),
            Step::Crash(index, kept) => {
                self.bounds.crashes -= 1;
                self.crash(*index, *kept);
            }
            Step::Restart(index) => {
                self.bounds.restarts -= 1;
                self.restart(*index);
            }
            Step::Remove(index) => {
                self.bounds.removals -= 1;
                self.remove(*index);
            }
            Step::Activate => self.activate(),
            Step::Sweep(index) => {
                self.bounds.sweeps -= 1;
                self.act(*index, |core, _| core.handle_deadline(NOW));
            }
        }
        let stale: Vec<Message> =
            self.messages.iter().filter(|message| self.is_stale(message)).cloned().collect();
        stale.iter().for_each(|message| {
            self.messages.remove(message);
        });
        true
    }

    /// Whether a message will be refused for ever: its epoch is past for its receiver, or nobody is there to receive it.
    fn is_stale(&self, message: &Message) -> bool {
        let Some(status) = &self.machines[message.to].status else { return true };
        message.epoch.is_some_and(|epoch| epoch < status.epoch)
    }

    /// Whether nothing is under way, and every client has called.
    pub(super) fn is_at_end(&self, steps: &[Step]) -> bool {
        self.callers.len() == self.script.len()
            && steps.iter().all(|step| match step {
                Step::Deliver(_) => !self.clone().take(step),
                Step::Disk(_) | Step::Activate | Step::Call(..) => false,
                _ => true,
            })
    }

    /// An invariant that does not hold.
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

    /// Of the state; without the bounds that are left, if those do not matter.
    pub(super) fn fingerprint(&self, with_bounds: bool) -> u64 {
        let mut state = DefaultHasher::new();
        let may_crash = with_bounds && self.bounds.crashes > 0;
        for machine in &self.machines {
            (machine.fingerprint, machine.process, machine.core.is_some()).hash(&mut state);
            if may_crash || machine.core.is_none() {
                machine.disk.log().hash(&mut state);
                (machine.disk.appended() - machine.disk.forced()).hash(&mut state);
            }
        }
        (&self.messages, &self.roles).hash(&mut state);
        for (call, caller) in self.history.iter().zip(&self.callers) {
            (caller, call.answered.as_ref().map(|(_, answer)| answer)).hash(&mut state);
            // Only the order of an answer and a call tells anything.
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

fn decoded(bytes: &[u8]) -> Datagram<'_> {
    Datagram::decode(bytes).expect("sent by our own").1
}

/// The epoch of a message between nodes.
fn epoch_of(bytes: &[u8]) -> Option<Epoch> {
    Some(match decoded(bytes) {
        Datagram::Acks(acks) => {
            let prepares = acks.prepares.iter().map(|ack| ack.epoch);
            prepares.chain(acks.progress.iter().map(|progress| progress.epoch)).max()?
        }
        Datagram::Decisions(decisions) => {
            decisions.watermarks.iter().map(|watermark| watermark.epoch).max()?
        }
        Datagram::Resend(resend) => resend.epoch,
        Datagram::RecoverRequest(request) => request.epoch,
        Datagram::RecoverReply(reply) => reply.epoch,
        Datagram::Fetch(fetch) => fetch.epoch,
        Datagram::Assign(assign) => assign.epoch,
        Datagram::Get(get) => get.forwarded?.1,
        _ => return None,
    })
}
