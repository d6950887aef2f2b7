//! A whole cluster and its event loop.
//!
//! [`Cluster`] holds everything; what happens is an `Event` of its queue, and each file here handles some of them:
//!
//! ```text
//!   traffic      datagrams: through a switch or not, lost, late, twice
//!   machines     nodes: turns, disks, crashes, restarts
//!   streams      copying between nodes
//!   controllers  the metadata service, its store, the switches' agents
//!   mishaps      faults: drawn by chance, or done by a script
//! ```
//!
//! A cluster is a value: a clone goes on exactly as the original does, or differently if something is done to it.

mod controllers;
mod machines;
mod mishaps;
mod streams;
mod traffic;

pub use mishaps::{Direction, Mishap};

use crate::client::{Client, Workload};
use crate::disk::Busy;
use crate::faults::Faults;
use crate::keyspace::{Shape, specs};
use crate::network::{Host, Network, Pace};
use crate::node::{Clock, Node, Surroundings};
use crate::plants::Planted;
use crate::queue::Queue;
use crate::random::Random;
use crate::switch::Switch;
use crate::transcript::Names;
use crate::watch::Watch;
use controllers::{Controllers, Link};
use nicekv_dataplane::control::{ControlReply, ControlRequest};
use nicekv_dataplane::{Prefix, VringConfig, VringSet};
use nicekv_metadata::{Metadata, Timing};
use nicekv_node::Counters;
use nicekv_wire::limits::PORT_DEFAULT;
use nicekv_wire::{ClientId, NodeId, PartitionId};
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddrV4};
use streams::Connection;

pub(crate) const METADATA: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 20, 0, 2), PORT_DEFAULT);
pub(crate) const SWITCH: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 20, 0, 1), PORT_DEFAULT);
const CLIENT_PORT: u16 = 40_000;
const MILLISECOND_NS: u64 = 1_000_000;

/// Shape of a cluster and of what it goes through.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Storage nodes.
    pub nodes: usize,
    /// Numbered from 0.
    pub keyspaces: Vec<Shape>,
    /// Switches; hosts are attached to them in turn, and all of them have the same tables.
    pub switches: usize,
    /// Whether gets are spread over the replicas by their source.
    pub balancing: bool,
    /// Whether the switches hide the source addresses, as the one in user space does.
    pub hides_sources: bool,
    /// Clients.
    pub clients: usize,
    /// What they do.
    pub workload: Workload,
    /// How long things take.
    pub pace: Pace,
    /// Periods of the metadata service.
    pub timing: Timing,
    /// What goes wrong, for `faults_end_ns`.
    pub faults: Faults,
    /// When everything is healed.
    pub faults_end_ns: u64,
    /// A bug that must be found.
    pub plant: Option<Planted>,
}

#[derive(Clone)]
enum Event {
    Arrive { to: Host, sender: Host, from: SocketAddrV4, bytes: Vec<u8> },
    NodeTurn(usize),
    NodeStart(usize),
    DiskDone { node: usize, process: u64, busy: Box<Busy> },
    Frame { connection: u64, to_acceptor: bool, bytes: Vec<u8> },
    ClientTurn(usize),
    MetadataTurn(u64),
    MetadataStart,
    Persisted { process: u64, version: u64, bytes: Vec<u8> },
    AgentDial(usize),
    ToAgent(u64, Box<ControlRequest>),
    FromAgent(u64, Box<ControlReply>),
    Cut,
}

/// An event that is about to happen, for those who wait for one.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'a> {
    /// Where.
    pub host: Host,
    /// What.
    pub what: What<'a>,
}

/// See [`Seen`].
#[derive(Clone, Copy, Debug)]
pub enum What<'a> {
    /// A datagram arrives.
    Datagram {
        /// Who sent it.
        sender: Host,
        /// What it is.
        bytes: &'a [u8],
    },
    /// A frame of a copying stream arrives.
    Frame(&'a [u8]),
    /// A process takes what has arrived, or looks for what is overdue.
    Turn,
    /// A disk is done with something; or the metadata's store.
    Disk,
    /// Tables, or the acknowledgement of some, arrive.
    Tables,
    /// A process starts; a connection is tried; a fault.
    Other,
}

/// How often what happened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Events: a datagram or frame delivered, a timer, a disk completion.
    pub events: u64,
    /// Faults, by what happened.
    pub faults: BTreeMap<&'static str, u64>,
}

impl Tally {
    fn count(&mut self, fault: &'static str) {
        *self.faults.entry(fault).or_default() += 1;
    }

    /// Adds what a process has counted.
    fn add_counters(&mut self, counters: &Counters) {
        let counted = [
            ("prepares refused for space", counters.refused_for_space),
            ("values repaired", counters.repaired),
            ("differing entries put right", counters.differing),
        ];
        for (what, count) in counted.into_iter().filter(|(_, count)| *count > 0) {
            *self.faults.entry(what).or_default() += count;
        }
    }

    /// How often this fault happened.
    pub fn of(&self, fault: &str) -> u64 {
        self.faults.get(fault).copied().unwrap_or(0)
    }

    /// Adds what happened elsewhere.
    pub fn add(&mut self, other: &Self) {
        self.events += other.events;
        for (fault, count) in &other.faults {
            *self.faults.entry(fault).or_default() += count;
        }
    }
}

/// Where the lines of a transcript go.
#[derive(Clone, Debug)]
enum Record {
    Nowhere,
    Printed(fn(&str)),
    Lines(Vec<String>),
}

/// See the module.
#[derive(Clone)]
pub struct Cluster {
    scenario: Scenario,
    faults: Faults,
    random: Random,
    queue: Queue<Event>,
    network: Network,
    surroundings: Surroundings,
    rings: VringSet,
    nodes: Vec<Node>,
    clients: Vec<Client>,
    switches: Vec<Switch>,
    controllers: Controllers,
    /// Agents' connections to metadata services.
    links: BTreeMap<u64, Link>,
    links_made: u64,
    /// An agent does not try to connect before.
    agent_away_until_ns: Vec<u64>,
    /// A switch refuses tables before.
    full_until_ns: Vec<u64>,
    connections: BTreeMap<u64, Connection>,
    connections_made: u64,
    /// At this event the power is lost.
    power_loss_at: Option<u64>,
    /// Numbers calls and answers.
    tick: u64,
    tally: Tally,
    watch: Watch,
    names: Names,
    record: Record,
}

impl Cluster {
    /// A new cluster, all of whose processes start now.
    pub fn new(scenario: Scenario, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let surroundings = Surroundings {
            metadata: METADATA,
            switch: scenario.hides_sources.then_some(SWITCH),
            plant: scenario.plant.and_then(Planted::replica),
        };
        let nodes: Vec<Node> =
            (0..scenario.nodes).map(|index| draw_node(index, &scenario.faults, &mut random)).collect();
        let mut clients: Vec<Client> =
            (0..scenario.clients).map(|index| new_client(index, &scenario)).collect();
        if let Some(plant) = scenario.plant.and_then(Planted::client) {
            clients.iter_mut().for_each(|client| client.plant(plant));
        }
        let ring = |base: Ipv4Addr| Prefix::new(base.octets(), 16);
        let pairs = specs(&scenario.keyspaces)
            .into_iter()
            .map(|spec| VringConfig { unicast: ring(spec.unicast), multicast: ring(spec.multicast) });
        let rings = VringSet::new(pairs).expect("every keyspace has its own");
        let mut cluster = Self {
            faults: scenario.faults,
            network: Network::new(scenario.pace),
            random,
            queue: Queue::default(),
            surroundings,
            names: Names::new(&clients),
            nodes,
            clients,
            switches: (0..scenario.switches)
                .map(|_| Switch::new(rings.clone(), scenario.plant.and_then(Planted::switch)))
                .collect(),
            controllers: Controllers::default(),
            links: BTreeMap::new(),
            links_made: 0,
            agent_away_until_ns: vec![0; scenario.switches],
            full_until_ns: vec![0; scenario.switches],
            connections: BTreeMap::new(),
            connections_made: 0,
            power_loss_at: None,
            tick: 0,
            tally: Tally::default(),
            watch: Watch::default(),
            record: Record::Nowhere,
            rings,
            scenario,
        };
        cluster.begin();
        cluster
    }

    fn begin(&mut self) {
        (0..self.nodes.len()).for_each(|node| self.queue.at(0, Event::NodeStart(node)));
        (0..self.clients.len()).for_each(|client| self.wake_client(client, 0));
        self.queue.at(0, Event::MetadataStart);
        (0..self.switches.len()).for_each(|switch| self.queue.at(0, Event::AgentDial(switch)));
        if self.faults.cut_interval_ns > 0 {
            self.queue.at(self.faults.cut_interval_ns, Event::Cut);
        }
        self.draw_power_loss();
    }

    /// Gives each line of what happens from now on to `print`.
    pub fn trace(&mut self, print: fn(&str)) {
        self.record = Record::Printed(print);
    }

    /// Keeps what happens from now on as lines.
    pub fn keep_lines(&mut self) {
        self.record = Record::Lines(Vec::new());
    }

    /// What [`Self::keep_lines`] kept.
    pub fn take_lines(&mut self) -> Vec<String> {
        match std::mem::replace(&mut self.record, Record::Nowhere) {
            Record::Lines(lines) => lines,
            _ => Vec::new(),
        }
    }

    /// Adds a line to the transcript.
    pub fn note(&mut self, what: impl FnOnce(&Names) -> Option<String>) {
        if matches!(self.record, Record::Nowhere) {
            return;
        }
        let Some(text) = what(&self.names) else { return };
        let line = format!("{:9.3}ms {text}", self.queue.now_ns() as f64 / 1e6);
        match &mut self.record {
            Record::Lines(lines) => lines.push(line),
            Record::Printed(print) => print(&line),
            Record::Nowhere => unreachable!("nobody reads it"),
        }
    }

    /// The nodes.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// The clients.
    pub fn clients(&self) -> &[Client] {
        &self.clients
    }

    /// The metadata service that leads, if it runs.
    pub fn metadata(&self) -> Option<&Metadata> {
        self.controllers.newest().map(|controller| &controller.core)
    }

    /// The scenario.
    pub fn scenario(&self) -> &Scenario {
        &self.scenario
    }

    /// How often what happened.
    pub fn tally(&self) -> Tally {
        let mut tally = self.tally.clone();
        let cores = self.nodes.iter().filter_map(|node| node.core.as_ref());
        cores.for_each(|core| tally.add_counters(&core.status().counters));
        tally
    }

    /// What must never be seen, and was.
    pub fn violation(&self) -> Option<&str> {
        self.watch.violation().or_else(|| self.switches.iter().find_map(Switch::violation))
    }

    /// The simulated time.
    pub fn now_ns(&self) -> u64 {
        self.queue.now_ns()
    }

    /// Lets everything happen that happens before `end_ns`; stops earlier when `is_enough`, asked now and then.
    pub fn run_until(&mut self, end_ns: u64, mut is_enough: impl FnMut(&Self) -> bool) {
        const ASKED_EVERY: u64 = 64;
        while let Some(event) = self.queue.next_before(end_ns) {
            self.happen(event);
            if self.tally.events.is_multiple_of(ASKED_EVERY) && is_enough(self) {
                return;
            }
        }
    }

    /// Lets everything happen up to, and without, the first event before `end_ns` that `is_it`. False if there is none.
    pub fn run_before(&mut self, end_ns: u64, mut is_it: impl FnMut(&Self, Seen<'_>) -> bool) -> bool {
        while let Some(event) = self.queue.peek_before(end_ns) {
            if is_it(self, self.seen(event)) {
                return true;
            }
            let event = self.queue.next_before(end_ns).expect("peeked");
            self.happen(event);
        }
        false
    }

    /// The next event, if there is one before `end_ns`.
    pub fn next(&self, end_ns: u64) -> Option<Seen<'_>> {
        self.queue.peek_before(end_ns).map(|event| self.seen(event))
    }

    /// Lets the next event happen.
    pub fn step(&mut self) {
        if let Some(event) = self.queue.next_before(u64::MAX) {
            self.happen(event);
        }
    }

    fn seen<'a>(&self, event: &'a Event) -> Seen<'a> {
        let (host, what) = match event {
            Event::Arrive { to, sender, bytes, .. } => (*to, What::Datagram { sender: *sender, bytes }),
            Event::NodeTurn(node) => (Host::Node(*node), What::Turn),
            Event::NodeStart(node) => (Host::Node(*node), What::Other),
            Event::DiskDone { node, .. } => (Host::Node(*node), What::Disk),
            Event::Frame { connection, to_acceptor, bytes } => {
                let ends = self.connections.get(connection);
                let node = ends.map_or(0, |ends| if *to_acceptor { ends.acceptor.0 } else { ends.dialer.0 });
                (Host::Node(node), What::Frame(bytes))
            }
            Event::ClientTurn(client) => (Host::Client(*client), What::Turn),
            Event::MetadataTurn(_) => (Host::Metadata, What::Turn),
            Event::MetadataStart | Event::Cut => (Host::Metadata, What::Other),
            Event::Persisted { .. } => (Host::Metadata, What::Disk),
            Event::AgentDial(switch) => (Host::Switch(*switch), What::Other),
            Event::ToAgent(link, _) => {
                (Host::Switch(self.links.get(link).map_or(0, |link| link.switch)), What::Tables)
            }
            Event::FromAgent(..) => (Host::Metadata, What::Tables),
        };
        Seen { host, what }
    }

    /// A client reads a key, outside its workload.
    pub fn get(&mut self, client: usize, key: usize) {
        self.call(client, key, crate::checker::Action::Get);
    }

    /// A client does something, outside its workload.
    pub fn call(&mut self, client: usize, key: usize, action: crate::checker::Action) {
        let now_ns = self.queue.now_ns();
        self.clients[client].call(now_ns, key, action, &self.scenario.workload, &mut self.tick);
        self.wake_client(client, now_ns);
    }

    /// A client goes on under another id, as one does that is started again.
    pub fn rename_client(&mut self, client: usize) {
        self.clients[client].rename(self.queue.now_ns());
    }

    /// A datagram that was seen arrives once more, at every node.
    pub fn replay(&mut self, sender: Host, bytes: &[u8]) {
        let from = match sender {
            Host::Node(node) => self.nodes[node].address,
            _ => SWITCH,
        };
        for node in 0..self.nodes.len() {
            let to = Host::Node(node);
            self.queue.after(1, Event::Arrive { to, sender, from, bytes: bytes.to_vec() });
        }
    }

    /// Every client has so many more calls to make.
    pub fn add_calls(&mut self, calls: usize) {
        let now_ns = self.queue.now_ns();
        for client in 0..self.clients.len() {
            self.clients[client].add_calls(calls);
            self.wake_client(client, now_ns);
        }
    }

    /// From now on everything takes a node as much longer as the scenario's faults say, or not.
    pub fn set_slow(&mut self, node: usize, is_slow: bool) {
        self.nodes[node].is_slow = is_slow;
    }

    /// The keyspace of that number.
    pub fn shape(&self, keyspace: u16) -> Shape {
        self.scenario.keyspaces[usize::from(keyspace)]
    }

    /// The node that leads a partition in its newest epoch.
    pub fn primary(&self, partition: PartitionId) -> Option<usize> {
        let leads = |(index, node): (usize, &Node)| {
            let status = node.core.as_ref()?.status();
            let status = status.partition(partition)?;
            status.leads.then_some((status.epoch, index))
        };
        self.nodes.iter().enumerate().filter_map(leads).max().map(|(_, index)| index)
    }

    fn happen(&mut self, event: Event) {
        self.tally.events += 1;
        if self.power_loss_at == Some(self.tally.events) {
            self.lose_power();
        }
        match event {
            Event::Arrive { to, sender, from, bytes } => self.arrive(to, sender, from, bytes),
            Event::NodeTurn(node) => self.node_turn(node),
            Event::NodeStart(node) => self.start_node(node),
            Event::DiskDone { node, process, busy } => self.disk_done(node, process, busy),
            Event::Frame { connection, to_acceptor, bytes } => self.frame(connection, to_acceptor, &bytes),
            Event::ClientTurn(client) => self.client_turn(client),
            Event::MetadataTurn(process) => self.metadata_turn(process),
            Event::MetadataStart => self.start_metadata(),
            Event::Persisted { process, version, bytes } => self.persisted(process, version, bytes),
            Event::AgentDial(switch) => self.dial_metadata(switch),
            Event::ToAgent(link, request) => self.serve_agent(link, *request),
            Event::FromAgent(link, reply) => self.hear_agent(link, *reply),
            Event::Cut => self.cut_or_mend(),
        }
    }

    // --- Clients.

    fn wake_client(&mut self, client: usize, at_ns: u64) {
        if self.clients[client].turn_at_ns.is_none_or(|turn_ns| at_ns < turn_ns) {
            self.clients[client].turn_at_ns = Some(at_ns);
            self.queue.at(at_ns, Event::ClientTurn(client));
        }
    }

    fn client_turn(&mut self, index: usize) {
        let now_ns = self.queue.now_ns();
        if self.clients[index].turn_at_ns != Some(now_ns) {
            return;
        }
        self.clients[index].turn_at_ns = None;
        let mut outgoing = Vec::new();
        let client = &mut self.clients[index];
        client.turn(now_ns, &self.scenario.workload, &mut self.random, &mut self.tick, |to, bytes| {
            outgoing.push((to, bytes.to_vec()));
        });
        let (from, next_ns) = (client.address, client.next_turn_ns(&self.scenario.workload));
        for (to, bytes) in outgoing {
            self.send(Host::Client(index), from, to, &bytes);
        }
        if let Some(at_ns) = next_ns {
            self.wake_client(index, at_ns.max(now_ns + 1));
        }
    }
}

fn draw_node(index: usize, faults: &Faults, random: &mut Random) -> Node {
    let address = SocketAddrV4::new([10, 20, 1, index as u8 + 1].into(), PORT_DEFAULT);
    let mut node = Node::new(NodeId(index as u16 + 1), address, Clock::draw(faults, random));
    node.in_memory = random.chance(faults.memory);
    node.is_slow = random.chance(faults.slow);
    node.is_forgetful = faults.forgetful > 0 && random.chance(faults.forgetful);
    node
}

fn new_client(index: usize, scenario: &Scenario) -> Client {
    // Spread over the divisions of the client addresses.
    let host = (index * 256 / scenario.clients + 1) as u8;
    let address = SocketAddrV4::new([10, 20, 2, host].into(), CLIENT_PORT);
    let id = ClientId::new(crate::node::START_UNIX_MS, index as u64 + 1);
    Client::new(id, address, &scenario.keyspaces, &scenario.workload)
}
