//! A whole cluster and its event loop.
//!
//! [`Cluster`] holds all state. An `Event` is taken from its queue and handled by one of these
//! files:
//!
//! ```text
//!   datagrams    through a switch or not; lost, delayed, duplicated
//!   trunks       links between switches
//!   nodes        turns of their loops, disks, crashes, restarts
//!   clients      their turns and calls
//!   streams      copying between nodes
//!   controllers  the metadata service, its store, the switches' agents
//!   keyspaces    created and dropped; partitions: split and merged; places: members that are replaced
//!   hot          entries of hot keys in switches, and messages about them to nodes
//!   faults       drawn at random, or injected by a script; disk_losses; damage
//! ```
//!
//! A cluster is a value: a clone continues exactly as the original does, unless other faults are
//! injected into it.

mod addresses;
mod clients;
mod controllers;
mod damage;
mod datagrams;
mod disk_losses;
mod event;
mod faults;
mod hot;
mod instances;
mod keyspaces;
mod membership;
mod migrations;
mod nodes;
mod partitions;
mod places;
mod scenario;
mod streams;
mod tally;
mod trace;
mod trunks;

pub use event::{Seen, What};
pub use faults::{Direction, Fault};
pub use scenario::Scenario;
pub use tally::Tally;

use crate::client::Client;
use crate::created_keyspaces::Created;
use crate::faults::Faults;
use crate::invariants::Watch;
use crate::kernel::Kernel;
use crate::keyspace::Shape;
use crate::network::{Host, Network};
use crate::node::{Clock, Node, Surroundings};
use crate::switch::Switch;
use crate::transcript::Names;
use addresses::INSTANCES;
pub(crate) use addresses::SWITCH;
use controllers::{Controllers, Link};
use event::Event;
use hot::HotEntries;
use instances::Instances;
use migrations::Migrations;
use nicekv_client::Coordination;
use nicekv_metadata::Metadata;
use nicekv_proto::limits::PORT_DEFAULT;
use nicekv_proto::{ClientId, NodeId, PartitionId};
use nicekv_switch::VringSet;
use nicekv_testkit::Queue;
use nicekv_testkit::Random;
use partitions::Reshapings;
use places::Places;
use std::collections::BTreeMap;
use std::net::SocketAddrV4;
use streams::Connection;
use trace::Record;

const CLIENT_PORT: u16 = 40_000;
const MILLISECOND_NS: u64 = 1_000_000;
/// Separates the random sequence of turns from all others.
const TURNS: u64 = 0x74_7572_6e73;
const HOT: u64 = 0x686f_7420;
const SLICES: u64 = 0x736c_6963_6573;

#[derive(Clone)]
pub struct Cluster {
    scenario: Scenario,
    faults: Faults,
    random: Random,
    /// Draws when loops run.
    turns: Random,
    queue: Queue<Event>,
    network: Network,
    surroundings: Surroundings,
    rings: VringSet,
    nodes: Vec<Node>,
    clients: Vec<Client>,
    switches: Vec<Switch>,
    controllers: Controllers,
    /// The instances of the metadata service, if there are several.
    instances: Instances,
    /// Connections of agents to the metadata service.
    links: BTreeMap<u64, Link>,
    /// Neighbours of each switch.
    trunks: Vec<Vec<usize>>,
    links_made: u64,
    /// An agent does not connect to the metadata service before this time.
    agent_away_until_ns: Vec<u64>,
    /// A switch refuses tables before this time.
    full_until_ns: Vec<u64>,
    /// A port that no switch has. Switches report their ports while there is such a port.
    missing_port: Option<u16>,
    created: Created,
    reshapings: Reshapings,
    places: Places,
    migrations: Migrations,
    hot: HotEntries,
    connections: BTreeMap<u64, Connection>,
    connections_made: u64,
    /// The drawn fault rates, while rates are reduced until lost data is restored.
    losses: Option<Faults>,
    /// The number of the event at which all power is lost.
    power_loss_at: Option<u64>,
    /// Numbers calls and answers.
    tick: u64,
    tally: Tally,
    watch: Watch,
    names: Names,
    record: Record,
}

fn surroundings_of(scenario: &Scenario, seed: u64) -> Surroundings {
    Surroundings {
        kernel_gets: scenario.kernel_gets.then_some(seed),
        metadata: &INSTANCES[..scenario.instances],
        switch: scenario.hides_sources.then_some(SWITCH),
        coordinates: scenario.coordination != Coordination::Switch,
        sources: scenario.sources(),
        heat: scenario.heat(),
        usage: scenario.usage(),
        copy_bytes_per_second: scenario.copy_bytes_per_second,
        discard_bytes_per_second: scenario.discard_bytes_per_second,
        deadly: scenario.faults.deadly,
    }
}

impl Cluster {
    /// Creates a cluster and starts all its processes.
    pub fn new(scenario: Scenario, seed: u64) -> Self {
        let scenario = crate::features::headers_only::where_possible(scenario);
        assert!(scenario.workload.has_distinct_keys(), "each key has one history");
        let mut random = Random::new(seed);
        let surroundings = surroundings_of(&scenario, seed);
        let mut nodes: Vec<Node> =
            (0..scenario.node_count()).map(|index| draw_node(index, &scenario.faults, &mut random)).collect();
        if scenario.faults.late_disk_ns > 0 {
            for (node, salt) in nodes.iter_mut().zip(0..) {
                node.slices = Some(Random::new(seed ^ SLICES ^ salt));
            }
        }
        let clients: Vec<Client> = (0..scenario.clients).map(|index| new_client(index, &scenario)).collect();
        let rings = scenario.rings();
        let mut cluster = Self {
            faults: scenario.faults,
            network: Network::new(scenario.pace),
            random,
            turns: Random::new(seed ^ TURNS),
            queue: Queue::default(),
            surroundings,
            names: Names::new(&clients),
            nodes,
            clients,
            switches: (0..scenario.switch_count())
                .map(|index| Switch::new(rings.clone(), &scenario, seed, index))
                .collect(),
            controllers: Controllers::default(),
            instances: Instances::default(),
            links: BTreeMap::new(),
            trunks: scenario.neighbours(),
            links_made: 0,
            agent_away_until_ns: vec![0; scenario.switch_count()],
            full_until_ns: vec![0; scenario.switch_count()],
            missing_port: None,
            created: Created::default(),
            reshapings: Reshapings::default(),
            places: Places::default(),
            migrations: Migrations::default(),
            hot: HotEntries::new(seed ^ HOT),
            connections: BTreeMap::new(),
            connections_made: 0,
            losses: None,
            power_loss_at: None,
            tick: 0,
            tally: Tally::default(),
            watch: Watch::default(),
            record: Record::Nowhere,
            rings,
            scenario,
        };
        // Migration by load may also split and merge partitions.
        cluster.reshapings.are_asked = cluster.scenario.migrates();
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
        if self.faults.change_interval_ns > 0 {
            self.queue.at(self.faults.change_interval_ns, Event::Change);
        }
        if self.faults.keyspace_interval_ns > 0 {
            self.queue.at(self.faults.keyspace_interval_ns, Event::Keyspace);
        }
        if self.faults.reshape_interval_ns > 0 {
            self.queue.at(self.faults.reshape_interval_ns, Event::Reshape);
        }
        if self.scenario.hot_interval_ns > 0 {
            self.queue.at(self.scenario.hot_interval_ns, Event::Hot(None));
        }
        self.draw_power_loss();
    }

    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    pub fn clients(&self) -> &[Client] {
        &self.clients
    }

    /// The newest metadata process, if it is running.
    pub fn metadata(&self) -> Option<&Metadata> {
        self.controllers.newest().map(|controller| &controller.core)
    }

    pub fn scenario(&self) -> &Scenario {
        &self.scenario
    }

    /// Counts of events and faults.
    pub fn tally(&self) -> Tally {
        let mut tally = self.tally.clone();
        let cores = self.nodes.iter().filter_map(|node| node.core.as_ref());
        for status in cores.map(nicekv_replica::Replica::status) {
            tally.add_counters(&status);
            tally.count_many("gets answered by holders of copies", status.hot.answered);
            tally.count_many("copies of hot keys sent to switches", status.hot.values);
            tally.count_many("gets passed on by holders", status.hot.passed);
            tally.count_many("ops that waited until copies were closed", status.hot.waits);
            tally.count_many("times that copies were taken back", status.hot.revocations);
        }
        let balancing = self.metadata().and_then(|metadata| metadata.status().balancing);
        tally
            .count_many("partitions divided otherwise by load", balancing.map_or(0, |it| it.divided_by_load));
        for migration in self.metadata().into_iter().flat_map(|metadata| metadata.status().migrations) {
            tally.count_many("partitions split by load or size", migration.splits);
            tally.count_many("partitions split as they were full", migration.full);
            tally.count_many("partitions merged as they were cold", migration.merges);
        }
        let most = self.switches.iter().map(Switch::records).max().unwrap_or(0);
        let coarse = self.switches.iter().filter(|switch| (1..most).contains(&switch.records())).count();
        tally.count_many("switches with coarse records at the end", coarse as u64);
        tally.compared = self.nodes.iter().map(|node| node.shown.compared).sum();
        tally
    }

    /// The first violation that was found during the run.
    pub fn violation(&self) -> Option<&str> {
        let kernels =
            || self.nodes.iter().filter_map(|node| node.kernel.as_ref()).find_map(Kernel::violation);
        let shown = || self.nodes.iter().find_map(|node| node.shown.violation.as_deref());
        self.watch
            .violation()
            .or_else(|| self.switches.iter().find_map(Switch::violation))
            .or_else(shown)
            .or_else(kernels)
    }

    pub fn now_ns(&self) -> u64 {
        self.queue.now_ns()
    }

    /// Runs all events before `end_ns`; stops earlier if `is_enough`, which is checked now and
    /// then.
    pub fn run_until(&mut self, end_ns: u64, mut is_enough: impl FnMut(&Self) -> bool) {
        const ASKED_EVERY: u64 = 64;
        while let Some(event) = self.queue.next_before(end_ns) {
            self.happen(event);
            if self.tally.events.is_multiple_of(ASKED_EVERY) && is_enough(self) {
                return;
            }
        }
    }

    /// Runs all events before the first one that `is_it` accepts. False if there is none before
    /// `end_ns`.
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

    /// Runs the next event.
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
            Event::MetadataStart
            | Event::Cut
            | Event::Change
            | Event::Keyspace
            | Event::Reshape
            | Event::Hot(_) => (Host::Metadata, What::Other),
            Event::Persisted { .. } => (Host::Metadata, What::Disk),
            Event::InstanceTurn { instance, .. } => (Host::instance(*instance), What::Turn),
            Event::InstanceStart(instance) => (Host::instance(*instance), What::Other),
            Event::LeaseAsked { instance, .. } | Event::LeaseAnswered { instance, .. } => {
                (Host::instance(*instance), What::Disk)
            }
            Event::AgentDial(switch) => (Host::Switch(*switch), What::Other),
            Event::ToAgent(link, _) => {
                (Host::Switch(self.links.get(link).map_or(0, |link| link.switch)), What::Tables)
            }
            Event::FromAgent(..) => (Host::Metadata, What::Tables),
        };
        Seen { host, what }
    }

    /// Delivers an earlier datagram again, to every node.
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

    /// Makes a node slow by the scenario's factor, or normal again.
    pub fn set_slow(&mut self, node: usize, is_slow: bool) {
        self.nodes[node].is_slow = is_slow;
    }

    /// The shape of the keyspace with this number.
    pub fn shape(&self, keyspace: u16) -> Shape {
        let begun_with = self.scenario.keyspaces.get(usize::from(keyspace)).copied();
        begun_with.or_else(|| self.created.shape(keyspace)).expect("a keyspace that was there")
    }

    /// The primary of a partition in its newest epoch.
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
            Event::InstanceTurn { instance, life } => self.instance_turn(instance, life),
            Event::InstanceStart(instance) => self.start_instance(instance),
            Event::LeaseAsked { instance, life, number, request } => {
                self.lease_asked(instance, life, number, &request);
            }
            Event::LeaseAnswered { instance, life, number, answer } => {
                self.lease_answered(instance, life, number, answer);
            }
            Event::Cut => self.cut_or_mend(),
            Event::Change => self.draw_change(),
            Event::Keyspace => self.draw_keyspace(),
            Event::Reshape => self.draw_reshaping(),
            Event::Hot(late) => self.pass_late_or_draw_hot(late),
        }
    }
}

fn draw_node(index: usize, faults: &Faults, random: &mut Random) -> Node {
    let mut node = Node::new(NodeId(index as u16 + 1), node_address(index), Clock::draw(faults, random));
    node.in_memory = random.chance(faults.memory);
    node.is_slow = random.chance(faults.slow);
    node.is_forgetful = faults.forgetful > 0 && random.chance(faults.forgetful);
    node
}

fn node_address(index: usize) -> SocketAddrV4 {
    SocketAddrV4::new([10, 20, 1, index as u8 + 1].into(), PORT_DEFAULT)
}

fn new_client(index: usize, scenario: &Scenario) -> Client {
    // Clients are spread evenly over the address ranges by which gets are divided.
    let host = (index * 256 / scenario.clients + 1) as u8;
    let address = SocketAddrV4::new([10, 20, 2, host].into(), CLIENT_PORT);
    let id = ClientId::new(crate::node::START_UNIX_MS, index as u64 + 1);
    let nodes = (0..scenario.nodes).map(node_address).collect();
    Client::new(id, address, scenario, nodes)
}
