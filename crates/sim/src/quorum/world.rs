//! Nodes, clients, the metadata service and a switch, and what is between them.

use super::Scenario;
use super::client::{Client, now};
use super::machine::Machine;
use crate::checker::model::Change;
use crate::disk::Busy;
use crate::queue::Queue;
use crate::random::Random;
use crate::switch::{Forward, Switch};
use nicekv_dataplane::control::{ControlReply, ControlRequest};
use nicekv_dataplane::{HostId, Prefix, VringConfig};
use nicekv_metadata::{
    Balancing, Config, MemberStatus, MemberStatusState, Metadata, NodeConfig, Persisted, StorageRequest,
    SwitchId,
};
use nicekv_node::StreamPeer;
use nicekv_placement::{KeyspaceDefaults, KeyspaceSpec, Protocol, RingsBase, Vrings};
use nicekv_replication::Replica;
use nicekv_wire::limits::PORT_DEFAULT;
use nicekv_wire::quorum::Quorum;
use nicekv_wire::{ClientId, KeyspaceId, NodeId};
use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddrV4};

const METADATA: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 20, 0, 2), PORT_DEFAULT);
/// Least time from host to host.
const LATENCY_NS: u64 = 10_000;
/// Ordinary variation of it.
const JITTER_NS: u64 = 30_000;
/// A datagram waits so long at most before its node takes it up.
const WAKE_NS: u64 = 20_000;
/// A force of the log takes at least so long.
const FORCE_NS: u64 = 20_000;

/// Something with an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Host {
    /// A storage node, by its index.
    Node(usize),
    /// A client, by its index.
    Client(usize),
    /// The metadata service.
    Metadata,
}

enum Event {
    Arrive { to: Host, from: SocketAddrV4, bytes: Vec<u8> },
    NodeTurn(usize),
    NodeStart(usize),
    DiskDone { node: usize, process: u64, busy: Busy },
    Frame { connection: usize, to_acceptor: bool, bytes: Vec<u8> },
    ClientTurn(usize),
    MetadataTurn,
    Persisted(u64),
    ToSwitch(Box<ControlRequest>),
    FromSwitch(Box<ControlReply>),
    Mishap,
}

/// A copying stream between two processes.
#[derive(PartialEq, Eq)]
struct Connection {
    dialer: (usize, u64),
    acceptor: (usize, u64),
}

/// See the module.
pub struct World {
    /// What it goes through.
    pub scenario: Scenario,
    /// The storage nodes.
    pub machines: Vec<Machine>,
    /// The clients.
    pub clients: Vec<Client>,
    random: Random,
    queue: Queue<Event>,
    metadata: Metadata,
    metadata_turn_ns: Option<u64>,
    switch: Switch,
    connections: Vec<Connection>,
    /// Directions that carry nothing.
    cut: BTreeSet<(Host, Host)>,
    tick: u64,
}

impl World {
    /// All processes start now.
    pub fn new(scenario: Scenario, seed: u64) -> Self {
        let vrings = Vrings::on_network(PORT_DEFAULT);
        let machine = |index: usize| {
            let address = SocketAddrV4::new([10, 20, 1, index as u8 + 1].into(), PORT_DEFAULT);
            Machine::new(NodeId(index as u16 + 1), address)
        };
        let client = |index: usize| {
            let address = SocketAddrV4::new([10, 20, 2, index as u8 + 1].into(), 40_000);
            let id = ClientId::new(crate::node::START_UNIX_MS, index as u64 + 1);
            let mut client = Client::new(id, address, vrings, scenario.quorum, &scenario.workload);
            client.core.plant(scenario.client_plant);
            client
        };
        let machines: Vec<_> = (0..scenario.quorum.replicas()).map(machine).collect();
        let clients: Vec<_> = (0..scenario.clients).map(client).collect();
        let metadata = Metadata::new(metadata_config(&machines, vrings, scenario.quorum), None, now(0))
            .expect("a sound cluster");
        let rings = VringConfig {
            unicast: Prefix::new(vrings.unicast.octets(), 16),
            multicast: Prefix::new(vrings.multicast.octets(), 16),
        };
        let mut world = Self {
            scenario,
            machines,
            clients,
            random: Random::new(seed),
            queue: Queue::default(),
            metadata,
            metadata_turn_ns: None,
            switch: Switch::new(rings),
            connections: Vec::new(),
            cut: BTreeSet::new(),
            tick: 0,
        };
        world.metadata.handle_switch_connected(now(0), SwitchId(0));
        (0..world.machines.len()).for_each(|node| world.queue.at(0, Event::NodeStart(node)));
        (0..world.clients.len()).for_each(|client| world.wake_client(client, 0));
        world.queue.at(world.scenario.faults.mishap_interval_ns, Event::Mishap);
        world.drive_metadata();
        world
    }

    /// The simulated time.
    pub fn now_ns(&self) -> u64 {
        self.queue.now_ns()
    }

    /// What the metadata service says.
    pub fn status(&self) -> nicekv_metadata::Status {
        self.metadata.status()
    }

    /// Whether every node counts, and the metadata service knows it. Only then one may lose its disk: more than k − 1 lost at once
    /// are beyond what R14 tolerates, and of a last member that the metadata service knows to be consistent it waits for the return.
    pub fn is_whole(&self) -> bool {
        let partitions = self.metadata.status().partitions;
        let consistent = |member: &MemberStatus| member.state == MemberStatusState::Consistent;
        self.machines.iter().all(Machine::is_counted)
            && partitions.iter().all(|partition| partition.members.iter().all(consistent))
    }

    /// Lets everything happen before `end_ns`; stops earlier when `is_enough`.
    pub fn run_until(&mut self, end_ns: u64, mut is_enough: impl FnMut(&Self) -> bool) {
        while !is_enough(self)
            && let Some(event) = self.queue.next_before(end_ns)
        {
            self.happen(event);
        }
    }

    /// Runs for so long.
    pub fn run_for(&mut self, time_ns: u64) {
        self.run_until(self.now_ns() + time_ns, |_| false);
    }

    /// No fault happens any more; what is down comes back, with the disk that it has.
    pub fn heal(&mut self) {
        self.scenario.faults = super::Faults::NONE;
        self.cut.clear();
        self.heal_nodes();
    }

    /// What is down comes back, what is slow is not slow any more.
    pub fn heal_nodes(&mut self) {
        for node in 0..self.machines.len() {
            self.machines[node].slowness = 1;
            self.start(node);
        }
    }

    /// Starts a node's process if it has none.
    pub fn start(&mut self, node: usize) {
        self.queue.at(self.now_ns(), Event::NodeStart(node));
    }

    /// Kills a node's process; `loses_disk`: and it comes back with an empty one.
    pub fn kill(&mut self, node: usize, loses_disk: bool) {
        self.machines[node].kill(loses_disk, &mut self.random);
    }

    /// Nothing gets from one to the other any more.
    pub fn cut(&mut self, from: Host, to: Host) {
        self.cut.insert((from, to));
    }

    /// Everything gets everywhere again.
    pub fn mend(&mut self) {
        self.cut.clear();
    }

    /// A client makes a call outside its workload; its place in the client's history.
    pub fn call(&mut self, client: usize, key: usize, change: Option<Change>) -> usize {
        let (now_ns, timeout_ns) = (self.now_ns(), self.scenario.workload.timeout_ns);
        let call = self.clients[client].call(now_ns, key, change, timeout_ns, &mut self.tick);
        self.flush_client(client);
        call
    }

    /// Makes a call and waits for its end.
    pub fn finish_call(&mut self, client: usize, key: usize, change: Option<Change>) -> super::KeyCall {
        let call = self.call(client, key, change);
        let end_ns = self.now_ns() + 2 * self.scenario.workload.timeout_ns;
        self.run_until(end_ns, |world| world.clients[client].history[call].ended_ns.is_some());
        self.clients[client].history[call].clone()
    }

    fn happen(&mut self, event: Event) {
        let now_ns = self.now_ns();
        match event {
            Event::Arrive { to, from, bytes } => self.arrive(to, from, bytes),
            Event::NodeTurn(node) => {
                if self.machines[node].turn_at_ns == Some(now_ns) {
                    self.machines[node].turn_at_ns = None;
                    self.turn(node);
                }
            }
            Event::NodeStart(node) => {
                if self.machines[node].core.is_none() {
                    let Scenario { replica_plant, .. } = self.scenario;
                    let machine = &mut self.machines[node];
                    machine.start(now_ns, METADATA, replica_plant, &mut self.random);
                    self.turn(node);
                }
            }
            Event::DiskDone { node, process, busy } => {
                let machine = &mut self.machines[node];
                if let Some(core) = machine.core.as_mut().filter(|_| machine.process == process) {
                    machine.disk.finish(now(now_ns), core, busy);
                    self.turn(node);
                }
            }
            Event::Frame { connection, to_acceptor, bytes } => self.frame(connection, to_acceptor, &bytes),
            Event::ClientTurn(client) => {
                if self.clients[client].turn_at_ns == Some(now_ns) {
                    self.clients[client].turn_at_ns = None;
                    let Self { scenario, clients, random, tick, .. } = self;
                    clients[client].turn(now_ns, &scenario.workload, random, tick);
                    self.flush_client(client);
                }
            }
            Event::MetadataTurn => {
                if self.metadata_turn_ns == Some(now_ns) {
                    self.metadata_turn_ns = None;
                    self.metadata.handle_deadline(now(now_ns));
                    self.drive_metadata();
                }
            }
            Event::Persisted(version) => {
                self.metadata.handle_storage(now(now_ns), Persisted { version });
                self.drive_metadata();
            }
            Event::ToSwitch(request) => {
                let reply = self.switch.agent.handle(*request);
                self.queue.after(LATENCY_NS, Event::FromSwitch(Box::new(reply)));
            }
            Event::FromSwitch(reply) => {
                self.metadata.handle_switch(now(now_ns), SwitchId(0), *reply);
                self.drive_metadata();
            }
            Event::Mishap => self.mishap(),
        }
    }

    // --- Datagrams.

    fn slowness(&self, host: Host) -> u64 {
        match host {
            Host::Node(node) => self.machines[node].slowness,
            _ => 1,
        }
    }

    fn send(&mut self, sender: Host, from: SocketAddrV4, to: SocketAddrV4, bytes: &[u8]) {
        let ingress = match sender {
            Host::Node(node) => Some(HostId(self.machines[node].id.0)),
            _ => None,
        };
        let hosts = match self.switch.forward(from, to, ingress) {
            Forward::Plain => self.host_of(to).into_iter().collect(),
            Forward::Hosts(hosts) => {
                hosts.into_iter().map(|host| Host::Node(usize::from(host.0) - 1)).collect()
            }
        };
        let hosts: Vec<Host> = hosts;
        for host in hosts {
            self.deliver(sender, host, from, bytes);
        }
    }

    fn host_of(&self, address: SocketAddrV4) -> Option<Host> {
        if address == METADATA {
            return Some(Host::Metadata);
        }
        let node = self.machines.iter().position(|machine| machine.address == address).map(Host::Node);
        node.or_else(|| self.clients.iter().position(|client| client.address == address).map(Host::Client))
    }

    fn deliver(&mut self, sender: Host, to: Host, from: SocketAddrV4, bytes: &[u8]) {
        let faults = self.scenario.faults;
        if self.cut.contains(&(sender, to)) || self.random.chance(faults.loss_per_million) {
            return;
        }
        let copies = if self.random.chance(faults.duplication_per_million) { 2 } else { 1 };
        let slowness = self.slowness(sender).max(self.slowness(to));
        for _ in 0..copies {
            let is_held_up = self.random.chance(faults.delay_per_million);
            let held_up_ns = if is_held_up { self.random.below(faults.delay_ns_max) } else { 0 };
            let delay_ns = slowness * (LATENCY_NS + self.random.below(JITTER_NS)) + held_up_ns;
            self.queue.after(delay_ns, Event::Arrive { to, from, bytes: bytes.to_vec() });
        }
    }

    fn arrive(&mut self, to: Host, from: SocketAddrV4, bytes: Vec<u8>) {
        let now_ns = self.now_ns();
        match to {
            Host::Node(node) => {
                let machine = &mut self.machines[node];
                if machine.core.is_some() {
                    machine.inbox.push((from, bytes));
                    let at_ns = now_ns + machine.slowness * self.random.below(WAKE_NS);
                    self.wake_node(node, at_ns);
                }
            }
            Host::Client(client) => {
                self.clients[client].core.handle_datagram(now(now_ns), &bytes);
                self.wake_client(client, now_ns);
                self.flush_client(client);
            }
            Host::Metadata => {
                self.metadata.handle_datagram(now(now_ns), from, &bytes);
                self.drive_metadata();
            }
        }
    }

    // --- Nodes.

    fn wake_node(&mut self, node: usize, at_ns: u64) {
        let machine = &mut self.machines[node];
        if machine.core.is_some() && machine.turn_at_ns.is_none_or(|turn_ns| at_ns < turn_ns) {
            machine.turn_at_ns = Some(at_ns);
            self.queue.at(at_ns, Event::NodeTurn(node));
        }
    }

    fn turn(&mut self, node: usize) {
        let now_ns = self.now_ns();
        for busy in self.machines[node].turn(now_ns, &mut self.random) {
            let longest_ns = FORCE_NS + self.scenario.faults.disk_ns_max;
            let takes_ns = FORCE_NS + self.random.below(self.scenario.faults.disk_ns_max);
            let machine = &mut self.machines[node];
            // Group commit: whatever waits for the force that runs is served by the next one.
            let begins_ns = machine.disk_free_ns.clamp(now_ns, now_ns + machine.slowness * longest_ns);
            machine.disk_free_ns = machine.disk_free_ns.max(begins_ns + machine.slowness * takes_ns);
            let (at_ns, process) = (machine.disk_free_ns, machine.process);
            self.queue.at(at_ns, Event::DiskDone { node, process, busy });
        }
        let from = self.machines[node].address;
        let mut bytes = Vec::new();
        while let Some(to) = self.machines[node].core.as_mut().and_then(|core| core.poll_transmit(&mut bytes))
        {
            self.send(Host::Node(node), from, to, &bytes);
        }
        while let Some((peer, frame)) = self.machines[node].core.as_mut().and_then(Replica::poll_stream) {
            self.send_frame(node, peer, frame);
        }
        if let Some(core) = &self.machines[node].core {
            // Never at once again: time must go on.
            let at_ns = core.next_deadline().max(now_ns + 1);
            self.wake_node(node, at_ns);
        }
    }

    fn send_frame(&mut self, node: usize, peer: StreamPeer, bytes: Vec<u8>) {
        let process = (node, self.machines[node].process);
        let connection = match peer {
            StreamPeer::Accepted(number) => number as usize,
            StreamPeer::Dialed(address) => {
                let Some(Host::Node(other)) = self.host_of(address) else { return };
                let acceptor = (other, self.machines[other].process);
                let wanted = Connection { dialer: process, acceptor };
                self.connections.iter().position(|known| *known == wanted).unwrap_or_else(|| {
                    self.connections.push(wanted);
                    self.connections.len() - 1
                })
            }
        };
        let Connection { dialer, acceptor } = self.connections[connection];
        let to_acceptor = dialer == process;
        let ends = (Host::Node(dialer.0), Host::Node(acceptor.0));
        let is_cut = self.cut.contains(&ends) || self.cut.contains(&(ends.1, ends.0));
        if is_cut || self.random.chance(self.scenario.faults.loss_per_million) {
            return;
        }
        let delay_ns = LATENCY_NS * self.slowness(ends.0).max(self.slowness(ends.1));
        self.queue.after(delay_ns, Event::Frame { connection, to_acceptor, bytes });
    }

    fn frame(&mut self, connection: usize, to_acceptor: bool, bytes: &[u8]) {
        let now_ns = self.now_ns();
        let Connection { dialer, acceptor } = self.connections[connection];
        let (end, peer) = match to_acceptor {
            true => (acceptor, StreamPeer::Accepted(connection as u64)),
            false => (dialer, StreamPeer::Dialed(self.machines[acceptor.0].address)),
        };
        let machine = &mut self.machines[end.0];
        if let Some(core) = machine.core.as_mut().filter(|_| machine.process == end.1) {
            core.handle_stream(now(now_ns), peer, bytes);
            self.turn(end.0);
        }
    }

    // --- Clients.

    fn wake_client(&mut self, client: usize, at_ns: u64) {
        if self.clients[client].turn_at_ns.is_none_or(|turn_ns| at_ns < turn_ns) {
            self.clients[client].turn_at_ns = Some(at_ns);
            self.queue.at(at_ns, Event::ClientTurn(client));
        }
    }

    fn flush_client(&mut self, index: usize) {
        let (from, mut bytes) = (self.clients[index].address, Vec::new());
        while let Some(to) = self.clients[index].core.poll_transmit(&mut bytes) {
            self.send(Host::Client(index), from, to, &bytes);
        }
        if let Some(at_ns) = self.clients[index].next_turn_ns(&self.scenario.workload) {
            self.wake_client(index, at_ns.max(self.now_ns() + 1));
        }
    }

    // --- The metadata service.

    fn drive_metadata(&mut self) {
        let now_ns = self.now_ns();
        self.metadata.handle_batch_end(now(now_ns));
        while let Some(StorageRequest::Persist { version, .. }) = self.metadata.poll_storage() {
            self.queue.after(FORCE_NS, Event::Persisted(version));
        }
        let mut bytes = Vec::new();
        while let Some(to) = self.metadata.poll_transmit(&mut bytes) {
            self.send(Host::Metadata, METADATA, to, &bytes);
        }
        while let Some((_, request)) = self.metadata.poll_switch() {
            self.queue.after(LATENCY_NS, Event::ToSwitch(Box::new(request)));
        }
        if let Some(at_ns) = self.metadata.next_deadline() {
            let at_ns = at_ns.max(now_ns + 1);
            if self.metadata_turn_ns != Some(at_ns) {
                self.metadata_turn_ns = Some(at_ns);
                self.queue.at(at_ns, Event::MetadataTurn);
            }
        }
    }

    // --- Mishaps.

    /// Something goes wrong, or one thing is mended.
    fn mishap(&mut self) {
        let faults = self.scenario.faults;
        if faults.mishap_interval_ns == 0 {
            return;
        }
        let node = self.random.below(self.machines.len() as u64) as usize;
        match self.random.below(4) {
            0 => self.cut.clear(),
            1 if faults.cuts => {
                let hosts: Vec<Host> = (0..self.machines.len())
                    .map(Host::Node)
                    .chain((0..self.clients.len()).map(Host::Client))
                    .chain([Host::Metadata])
                    .collect();
                let other = self.random.pick(&hosts);
                self.cut.insert((Host::Node(node), other));
                self.cut.insert((other, Host::Node(node)));
            }
            2 if faults.slow_nodes => {
                self.machines[node].slowness = self.random.pick(&[1, 1, 10, 100]);
            }
            _ if faults.kills => {
                let may_lose = self.scenario.quorum.write_set() > 1 && self.is_whole();
                let loses_disk = may_lose && faults.lost_disks && self.random.below(2) == 0;
                if self.machines[node].core.is_some() {
                    self.kill(node, loses_disk);
                }
                let downtime_ns = self.random.below(faults.downtime_ns_max);
                self.queue.after(downtime_ns, Event::NodeStart(node));
            }
            _ => {}
        }
        let pause_ns = self.random.between(1, faults.mishap_interval_ns);
        self.queue.after(pause_ns, Event::Mishap);
    }
}

fn metadata_config(machines: &[Machine], vrings: Vrings, quorum: Quorum) -> Config {
    let nodes = machines.iter().map(|machine| NodeConfig {
        id: machine.id,
        name: machine.id.to_string(),
        address: machine.address,
        mac: [2, 0, 0, 0, 0, machine.id.0 as u8],
        switch_port: machine.id.0,
    });
    let defaults = KeyspaceDefaults {
        id: KeyspaceId::DEFAULT,
        replicas: machines.len(),
        partitions: 1,
        rings: RingsBase::Network,
    };
    let protocol = Protocol::Quorum { write_set: quorum.write_set() as u8 };
    let keyspace = KeyspaceSpec { protocol, ..KeyspaceSpec::of(&defaults) };
    Config {
        cluster: 1,
        nodes: nodes.collect(),
        keyspaces: vec![keyspace],
        port: vrings.port,
        balancing: Balancing::None,
        switches: vec![SwitchId(0)],
        timing: nicekv_metadata::Timing::default(),
    }
}
