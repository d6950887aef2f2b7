//! A whole cluster and its event loop.

use crate::client::{Client, Workload};
use crate::disk::Busy;
use crate::faults::Faults;
use crate::network::{Host, Network};
use crate::node::{Clock, Node, Surroundings};
use crate::queue::Queue;
use crate::random::Random;
use crate::switch::{Forward, Switch};
use nicekv_dataplane::control::{ControlReply, ControlRequest};
use nicekv_dataplane::{HostId, Prefix, VringConfig};
use nicekv_metadata::{Balancing, Config, Metadata, NodeConfig, Persisted, StorageRequest, SwitchId};
use nicekv_placement::{Partitioning, Vrings};
use nicekv_replication::StreamPeer;
use nicekv_wire::limits::PORT_DEFAULT;
use nicekv_wire::recovery::CopyFrame;
use nicekv_wire::{ClientId, Datagram, NodeId, Now, stamp_reply_to};
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddrV4};

const METADATA: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 20, 0, 2), PORT_DEFAULT);
const SWITCH: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 20, 0, 1), PORT_DEFAULT);
const CLIENT_PORT: u16 = 40_000;
const MILLISECOND_NS: u64 = 1_000_000;
/// Between two tries of the switch's agent to reach the metadata service.
const REDIAL_NS: u64 = 20 * MILLISECOND_NS;
/// Frames of copying streams, both directions, that may be under way at once.
const CONNECTIONS_MAX: usize = 1024;

/// Shape of a cluster and of what it goes through.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Storage nodes.
    pub nodes: usize,
    /// R.
    pub replicas: usize,
    /// `2^bits` partitions.
    pub partition_bits: u8,
    /// Whether gets are spread over the replicas by their source.
    pub balancing: bool,
    /// Whether the switch hides the source addresses, as the one in user space does.
    pub hides_sources: bool,
    /// Clients.
    pub clients: usize,
    /// What they do.
    pub workload: Workload,
    /// What goes wrong, for `faults_end_ns`.
    pub faults: Faults,
    /// When everything is healed.
    pub faults_end_ns: u64,
}

enum Event {
    Arrive { to: Host, from: SocketAddrV4, bytes: Vec<u8> },
    NodeTurn(usize),
    NodeStart(usize),
    DiskDone { node: usize, process: u64, busy: Busy },
    Frame { connection: u64, to_acceptor: bool, bytes: Vec<u8> },
    ClientTurn(usize),
    MetadataTurn(u64),
    MetadataStart,
    Persisted { process: u64, version: u64, bytes: Vec<u8> },
    AgentDial,
    ToAgent(u64, Box<ControlRequest>),
    FromAgent(u64, Box<ControlReply>),
    Cut,
}

/// A copying stream. It ends with either process.
struct Connection {
    dialer: (usize, u64),
    acceptor: (usize, u64),
    /// When the last frame arrives, by direction.
    busy_until_ns: [u64; 2],
}

/// How often what happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "each is named for what it counts")]
pub struct Tally {
    pub events: u64,
    pub crashes: u64,
    pub power_losses: u64,
    pub pauses: u64,
    pub cuts: u64,
    pub metadata_crashes: u64,
    pub switch_crashes: u64,
}

/// See the module.
pub struct Cluster {
    scenario: Scenario,
    faults: Faults,
    random: Random,
    queue: Queue<Event>,
    network: Network,
    surroundings: Surroundings,
    nodes: Vec<Node>,
    clients: Vec<Client>,
    switch: Switch,
    metadata: Option<Metadata>,
    metadata_process: u64,
    metadata_turn_ns: Option<u64>,
    stored: Option<Vec<u8>>,
    /// Number of the agent's connection to the metadata service.
    link: Option<u64>,
    links: u64,
    connections: BTreeMap<u64, Connection>,
    connections_made: u64,
    /// Numbers calls and answers.
    tick: u64,
    tally: Tally,
    traces: bool,
}

impl Cluster {
    /// A new cluster, all of whose processes start now.
    pub fn new(scenario: Scenario, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let surroundings = Surroundings {
            metadata: METADATA,
            partitioning: Partitioning::new(scenario.partition_bits).expect("few bits"),
            vrings: Vrings::on_network(PORT_DEFAULT),
        };
        let node_address =
            |index: usize| SocketAddrV4::new([10, 20, 1, index as u8 + 1].into(), PORT_DEFAULT);
        let nodes: Vec<Node> = (0..scenario.nodes)
            .map(|index| {
                let clock = Clock::draw(&scenario.faults, &mut random);
                Node::new(NodeId(index as u16 + 1), node_address(index), clock)
            })
            .collect();
        let clients = (0..scenario.clients)
            .map(|index| {
                // Spread over the divisions of the client addresses.
                let host = (index * 256 / scenario.clients + 1) as u8;
                let address = SocketAddrV4::new([10, 20, 2, host].into(), CLIENT_PORT);
                let id = ClientId::new(crate::node::START_UNIX_MS, index as u64 + 1);
                Client::new(id, address, surroundings.vrings, &scenario.workload)
            })
            .collect();
        let vrings = VringConfig {
            unicast: Prefix::new(surroundings.vrings.unicast.octets(), 16),
            multicast: Prefix::new(surroundings.vrings.multicast.octets(), 16),
        };
        let mut cluster = Self {
            faults: scenario.faults,
            scenario,
            random,
            queue: Queue::default(),
            network: Network::default(),
            surroundings,
            nodes,
            clients,
            switch: Switch::new(vrings),
            metadata: None,
            metadata_process: 0,
            metadata_turn_ns: None,
            stored: None,
            link: None,
            links: 0,
            connections: BTreeMap::new(),
            connections_made: 0,
            tick: 0,
            tally: Tally::default(),
            traces: false,
        };
        for node in 0..cluster.nodes.len() {
            cluster.queue.at(0, Event::NodeStart(node));
        }
        for client in 0..cluster.clients.len() {
            cluster.wake_client(client, 0);
        }
        cluster.queue.at(0, Event::MetadataStart);
        cluster.queue.at(0, Event::AgentDial);
        if cluster.faults.cut_interval_ns > 0 {
            cluster.queue.at(cluster.faults.cut_interval_ns, Event::Cut);
        }
        cluster
    }

    /// Writes what happens to standard output from now on.
    pub fn trace(&mut self) {
        self.traces = true;
    }

    fn note(&self, what: impl FnOnce() -> String) {
        if self.traces {
            println!("{:12.6} {:6} {}", self.queue.now_ns() as f64 / 1e6, self.tick, what());
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

    /// The metadata service, if it runs.
    pub fn metadata(&self) -> Option<&Metadata> {
        self.metadata.as_ref()
    }

    /// The scenario.
    pub fn scenario(&self) -> &Scenario {
        &self.scenario
    }

    /// How often what happened.
    pub fn tally(&self) -> Tally {
        self.tally
    }

    /// The simulated time.
    pub fn now_ns(&self) -> u64 {
        self.queue.now_ns()
    }

    /// Lets everything happen that happens before `end_ns`; stops earlier when `is_enough`, asked now and then.
    pub fn run_until(&mut self, end_ns: u64, mut is_enough: impl FnMut(&Self) -> bool) {
        const ASKED_EVERY: u64 = 64;
        while let Some(event) = self.queue.next_before(end_ns) {
            self.tally.events += 1;
            self.happen(event);
            if self.tally.events.is_multiple_of(ASKED_EVERY) && is_enough(self) {
                return;
            }
        }
    }

    /// No fault happens any more; what is down comes back.
    pub fn heal(&mut self) {
        self.faults = Faults { disk_ns_max: self.faults.disk_ns_max, ..Faults::NONE };
        self.network.heal();
    }

    /// A client reads a key, outside its workload.
    pub fn get(&mut self, client: usize, key: usize) {
        let now_ns = self.queue.now_ns();
        self.clients[client].get(now_ns, key, &self.scenario.workload, &mut self.tick);
        self.wake_client(client, now_ns);
    }

    fn happen(&mut self, event: Event) {
        let now_ns = self.queue.now_ns();
        match event {
            Event::Arrive { to, from, bytes } => self.arrive(to, from, bytes),
            Event::NodeTurn(node) => self.node_turn(node),
            Event::NodeStart(node) => {
                if self.nodes[node].core.is_none() {
                    self.note(|| format!("{} starts", self.nodes[node].id));
                    self.nodes[node].start(now_ns, &self.surroundings, &mut self.random);
                    self.wake_node(node, now_ns);
                }
            }
            Event::DiskDone { node, process, busy } => self.disk_done(node, process, busy),
            Event::Frame { connection, to_acceptor, bytes } => self.frame(connection, to_acceptor, &bytes),
            Event::ClientTurn(client) => self.client_turn(client),
            Event::MetadataTurn(process) => self.metadata_turn(process),
            Event::MetadataStart => self.start_metadata(),
            Event::Persisted { process, version, bytes } => self.persisted(process, version, bytes),
            Event::AgentDial => self.dial_metadata(),
            Event::ToAgent(link, request) => self.serve_agent(link, *request),
            Event::FromAgent(link, reply) => {
                let now = self.metadata_now();
                if self.link == Some(link)
                    && let Some(metadata) = &mut self.metadata
                {
                    metadata.handle_switch(now, SwitchId(0), *reply);
                    self.drive_metadata();
                }
            }
            Event::Cut => self.cut_or_mend(),
        }
    }

    // --- Datagrams.

    fn host_of(&self, address: SocketAddrV4) -> Option<Host> {
        if address == METADATA {
            return Some(Host::Metadata);
        }
        let node = self.nodes.iter().position(|node| node.address == address).map(Host::Node);
        node.or_else(|| self.clients.iter().position(|client| client.address == address).map(Host::Client))
    }

    fn send(&mut self, sender: Host, from: SocketAddrV4, to: SocketAddrV4, bytes: &[u8]) {
        let ingress = match sender {
            Host::Node(index) => Some(HostId(self.nodes[index].id.0)),
            _ => None,
        };
        match self.switch.forward(from, to, ingress) {
            Forward::Plain => {
                if let Some(host) = self.host_of(to) {
                    self.deliver(sender, host, from, bytes);
                }
            }
            Forward::Hosts(hosts) => {
                let mut bytes = bytes.to_vec();
                if self.scenario.hides_sources && ingress.is_none() {
                    stamp_reply_to(&mut bytes, from);
                }
                let from = if self.scenario.hides_sources { SWITCH } else { from };
                for host in hosts {
                    self.deliver(sender, Host::Node(usize::from(host.0) - 1), from, &bytes);
                }
            }
        }
    }

    fn deliver(&mut self, sender: Host, to: Host, from: SocketAddrV4, bytes: &[u8]) {
        for delay_ns in self.network.delays(sender, to, &self.faults, &mut self.random) {
            self.queue.after(delay_ns, Event::Arrive { to, from, bytes: bytes.to_vec() });
        }
    }

    fn arrive(&mut self, to: Host, from: SocketAddrV4, bytes: Vec<u8>) {
        let now_ns = self.queue.now_ns();
        self.note(|| format!("{from} -> {to:?}: {}", describe(&bytes)));
        match to {
            Host::Node(node) => {
                self.nodes[node].receive(from, bytes);
                // A socket is drained a little later, so that batches form.
                let at_ns = now_ns + self.random.below(20_000);
                self.wake_node(node, at_ns);
            }
            Host::Client(client) => {
                self.clients[client].receive(now_ns, &bytes);
                self.wake_client(client, now_ns);
            }
            Host::Metadata => {
                let now = self.metadata_now();
                if let Some(metadata) = &mut self.metadata {
                    metadata.handle_datagram(now, from, &bytes);
                    self.drive_metadata();
                }
            }
            Host::Switch => {}
        }
    }

    // --- Nodes.

    fn wake_node(&mut self, node: usize, at_ns: u64) {
        let at_ns = at_ns.max(self.nodes[node].paused_until_ns);
        if self.nodes[node].core.is_some()
            && self.nodes[node].turn_at_ns.is_none_or(|turn_ns| at_ns < turn_ns)
        {
            self.nodes[node].turn_at_ns = Some(at_ns);
            self.queue.at(at_ns, Event::NodeTurn(node));
        }
    }

    fn node_turn(&mut self, index: usize) {
        let now_ns = self.queue.now_ns();
        if self.nodes[index].turn_at_ns != Some(now_ns) || self.nodes[index].core.is_none() {
            return;
        }
        if now_ns < self.nodes[index].paused_until_ns {
            self.nodes[index].turn_at_ns = None;
            return self.wake_node(index, now_ns);
        }
        self.nodes[index].turn_at_ns = None;
        if self.node_fails(index) {
            return;
        }
        let busy = self.nodes[index].turn(now_ns, &mut self.random);
        self.start_disk(index, busy);
        self.flush_node(index);
    }

    /// Whether something befalls the node before it does anything.
    fn node_fails(&mut self, index: usize) -> bool {
        let now_ns = self.queue.now_ns();
        if self.random.chance(self.faults.power_loss_per_million) {
            self.tally.power_losses += 1;
            (0..self.nodes.len()).for_each(|node| self.crash_node(node));
            return true;
        }
        if self.random.chance(self.faults.crash_per_million) {
            self.tally.crashes += 1;
            self.crash_node(index);
            return true;
        }
        if self.random.chance(self.faults.pause_per_million) {
            self.tally.pauses += 1;
            self.nodes[index].paused_until_ns = now_ns + self.random.below(self.faults.pause_ns_max);
            self.wake_node(index, now_ns);
            return true;
        }
        false
    }

    fn crash_node(&mut self, index: usize) {
        if self.nodes[index].core.is_none() {
            return;
        }
        self.note(|| format!("{} is killed", self.nodes[index].id));
        self.nodes[index].crash(&mut self.random);
        let process = (index, self.nodes[index].process);
        self.connections
            .retain(|_, connection| connection.dialer != process && connection.acceptor != process);
        let downtime_ns = self.random.below(self.faults.downtime_ns_max);
        self.queue.after(downtime_ns, Event::NodeStart(index));
    }

    fn start_disk(&mut self, index: usize, busy: Vec<Busy>) {
        let now_ns = self.queue.now_ns();
        for busy in busy {
            let node = &mut self.nodes[index];
            let takes_ns = 20_000 + self.random.below(self.faults.disk_ns_max);
            node.disk_free_ns = node.disk_free_ns.max(now_ns + takes_ns);
            let (at_ns, process) = (node.disk_free_ns, node.process);
            self.queue.at(at_ns, Event::DiskDone { node: index, process, busy });
        }
    }

    fn disk_done(&mut self, index: usize, process: u64, busy: Busy) {
        let now_ns = self.queue.now_ns();
        self.note(|| format!("{} forced {:?}", self.nodes[index].id, matches!(busy, Busy::Force { .. })));
        let node = &mut self.nodes[index];
        if node.process != process || node.core.is_none() {
            return;
        }
        if now_ns < node.paused_until_ns {
            let at_ns = node.paused_until_ns;
            return self.queue.at(at_ns, Event::DiskDone { node: index, process, busy });
        }
        let now = node.clock.now(now_ns);
        node.disk.finish(now, node.core.as_mut().expect("checked"), busy);
        let more = self.nodes[index].turn(now_ns, &mut self.random);
        self.start_disk(index, more);
        self.flush_node(index);
    }

    /// Sends what the core has to send, and sets the time of its next turn.
    fn flush_node(&mut self, index: usize) {
        let from = self.nodes[index].address;
        let mut bytes = Vec::new();
        while let Some(to) = self.nodes[index].core.as_mut().and_then(|core| core.poll_transmit(&mut bytes)) {
            self.send(Host::Node(index), from, to, &bytes);
        }
        while let Some((peer, frame)) = self.nodes[index].core.as_mut().and_then(|core| core.poll_stream()) {
            self.send_frame(index, peer, frame);
        }
        if let Some(core) = &self.nodes[index].core {
            let at_ns = self.nodes[index].clock.when(core.next_deadline());
            self.wake_node(index, at_ns);
        }
    }

    // --- Copying streams.

    fn send_frame(&mut self, index: usize, peer: StreamPeer, bytes: Vec<u8>) {
        let process = (index, self.nodes[index].process);
        let number = match peer {
            StreamPeer::Accepted(number) => number,
            StreamPeer::Dialed(address) => match self.dial(process, address) {
                Some(number) => number,
                None => return,
            },
        };
        let Some(connection) = self.connections.get_mut(&number) else { return };
        let to_acceptor = connection.dialer == process;
        let (from, to) = match to_acceptor {
            true => (connection.dialer.0, connection.acceptor.0),
            false => (connection.acceptor.0, connection.dialer.0),
        };
        let is_cut = self.network.is_cut(Host::Node(from), Host::Node(to));
        if is_cut || self.random.chance(self.faults.stream_break_per_million) {
            self.connections.remove(&number);
            return;
        }
        let delay_ns = self.network.reliable_delay(&mut self.random);
        let free_ns = &mut connection.busy_until_ns[usize::from(to_acceptor)];
        *free_ns = (*free_ns).max(self.queue.now_ns() + delay_ns);
        self.queue.at(*free_ns, Event::Frame { connection: number, to_acceptor, bytes });
    }

    /// The connection of this process to that address; a new one if there is none.
    fn dial(&mut self, dialer: (usize, u64), address: SocketAddrV4) -> Option<u64> {
        let acceptor = self.nodes.iter().position(|node| node.address == address && node.core.is_some())?;
        let acceptor = (acceptor, self.nodes[acceptor].process);
        let known =
            self.connections.iter().find(|(_, known)| (known.dialer, known.acceptor) == (dialer, acceptor));
        if let Some((number, _)) = known {
            return Some(*number);
        }
        assert!(self.connections.len() < CONNECTIONS_MAX);
        self.connections_made += 1;
        let connection = Connection { dialer, acceptor, busy_until_ns: [0; 2] };
        self.connections.insert(self.connections_made, connection);
        Some(self.connections_made)
    }

    fn frame(&mut self, number: u64, to_acceptor: bool, bytes: &[u8]) {
        let now_ns = self.queue.now_ns();
        let Some(connection) = self.connections.get(&number) else { return };
        let ((index, _), peer) = match to_acceptor {
            true => (connection.acceptor, StreamPeer::Accepted(number)),
            false => (connection.dialer, StreamPeer::Dialed(self.nodes[connection.acceptor.0].address)),
        };
        let node = &mut self.nodes[index];
        if now_ns < node.paused_until_ns {
            let event = Event::Frame { connection: number, to_acceptor, bytes: bytes.to_vec() };
            return self.queue.at(node.paused_until_ns, event);
        }
        let now = node.clock.now(now_ns);
        let Some(core) = &mut node.core else { return };
        if self.traces {
            println!("{:12.6} frame to {}: {:?}", now_ns as f64 / 1e6, node.id, CopyFrame::decode(bytes));
        }
        core.handle_stream(now, peer, bytes);
        let busy = node.turn(now_ns, &mut self.random);
        self.start_disk(index, busy);
        self.flush_node(index);
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

    // --- The metadata service and the switch's agent.

    fn metadata_now(&self) -> Now {
        Clock::default().now(self.queue.now_ns())
    }

    fn start_metadata(&mut self) {
        if self.metadata.is_some() {
            return;
        }
        let nodes = self.nodes.iter().map(|node| NodeConfig {
            id: node.id,
            name: node.id.to_string(),
            address: node.address,
            mac: [2, 0, 0, 0, 0, node.id.0 as u8],
            switch_port: node.id.0,
        });
        let clients = Prefix::new([10, 20, 2, 0], 24);
        let config = Config {
            cluster: 1,
            nodes: nodes.collect(),
            replicas: self.scenario.replicas,
            partition_bits: Some(self.scenario.partition_bits),
            balancing: if self.scenario.balancing { Balancing::Source { clients } } else { Balancing::None },
            vrings: self.surroundings.vrings,
            switches: vec![SwitchId(0)],
            timing: nicekv_metadata::Timing::default(),
        };
        let now = self.metadata_now();
        let metadata = Metadata::new(config, self.stored.as_deref(), now).expect("the state is our own");
        self.metadata = Some(metadata);
        self.metadata_process += 1;
        self.metadata_turn_ns = None;
        self.drive_metadata();
    }

    fn metadata_turn(&mut self, process: u64) {
        let now = self.metadata_now();
        if process != self.metadata_process || self.metadata_turn_ns != Some(self.queue.now_ns()) {
            return;
        }
        self.metadata_turn_ns = None;
        let Some(metadata) = &mut self.metadata else { return };
        if self.random.chance(self.faults.metadata_crash_per_million) {
            self.tally.metadata_crashes += 1;
            (self.metadata, self.link) = (None, None);
            let downtime_ns = self.random.below(self.faults.downtime_ns_max);
            return self.queue.after(downtime_ns, Event::MetadataStart);
        }
        metadata.handle_deadline(now);
        self.drive_metadata();
    }

    fn drive_metadata(&mut self) {
        let now = self.metadata_now();
        let process = self.metadata_process;
        let Some(mut metadata) = self.metadata.take() else { return };
        metadata.handle_batch_end(now);
        while let Some(StorageRequest::Persist { version, bytes }) = metadata.poll_storage() {
            let takes_ns = self.random.below(self.faults.disk_ns_max) + 1;
            self.queue.after(takes_ns, Event::Persisted { process, version, bytes });
        }
        let mut bytes = Vec::new();
        while let Some(to) = metadata.poll_transmit(&mut bytes) {
            self.send(Host::Metadata, METADATA, to, &bytes);
        }
        if let Some(link) = self.link {
            while let Some((_, request)) = metadata.poll_switch() {
                let delay_ns = self.network.reliable_delay(&mut self.random);
                self.queue.after(delay_ns, Event::ToAgent(link, Box::new(request)));
            }
        }
        if let Some(at_ns) = metadata.next_deadline() {
            let at_ns = at_ns.max(self.queue.now_ns() + 1);
            if self.metadata_turn_ns != Some(at_ns) {
                self.metadata_turn_ns = Some(at_ns);
                self.queue.at(at_ns, Event::MetadataTurn(process));
            }
        }
        self.metadata = Some(metadata);
    }

    fn persisted(&mut self, process: u64, version: u64, bytes: Vec<u8>) {
        // A write that outlives its process is either done or not.
        let is_current = process == self.metadata_process && self.metadata.is_some();
        let follows =
            |stored: &[u8]| nicekv_metadata::persisted_version(stored).expect("ours") + 1 == version;
        if !is_current && (self.metadata.is_some() || self.random.below(2) == 0) {
            return;
        }
        assert!(self.stored.as_deref().is_none_or(follows) || !is_current, "one leader at a time");
        if self.stored.as_deref().is_none_or(follows) {
            self.stored = Some(bytes);
        }
        let now = self.metadata_now();
        if is_current && let Some(metadata) = &mut self.metadata {
            metadata.handle_storage(now, Persisted { version });
            self.drive_metadata();
        }
    }

    fn dial_metadata(&mut self) {
        let is_cut = self.network.is_cut(Host::Switch, Host::Metadata)
            || self.network.is_cut(Host::Metadata, Host::Switch);
        let now = self.metadata_now();
        if self.link.is_some() && is_cut {
            self.link = None;
            if let Some(metadata) = &mut self.metadata {
                metadata.handle_switch_disconnected(now, SwitchId(0));
            }
        } else if self.link.is_none()
            && !is_cut
            && let Some(metadata) = &mut self.metadata
        {
            self.links += 1;
            self.link = Some(self.links);
            metadata.handle_switch_connected(now, SwitchId(0));
            self.drive_metadata();
        }
        self.queue.after(REDIAL_NS, Event::AgentDial);
    }

    fn serve_agent(&mut self, link: u64, request: ControlRequest) {
        if self.link != Some(link) {
            return;
        }
        if self.random.chance(self.faults.switch_crash_per_million) {
            self.tally.switch_crashes += 1;
            self.switch.restart();
            self.link = None;
            let now = self.metadata_now();
            if let Some(metadata) = &mut self.metadata {
                metadata.handle_switch_disconnected(now, SwitchId(0));
            }
            return;
        }
        let reply = self.switch.agent.handle(request);
        let delay_ns = self.network.reliable_delay(&mut self.random);
        self.queue.after(delay_ns, Event::FromAgent(link, Box::new(reply)));
    }

    // --- Cuts.

    fn cut_or_mend(&mut self) {
        if self.faults.cut_interval_ns == 0 {
            return;
        }
        if self.random.below(2) == 0 {
            self.network.heal();
        } else {
            self.tally.cuts += 1;
            let hosts: Vec<Host> = (0..self.nodes.len())
                .map(Host::Node)
                .chain((0..self.clients.len()).map(Host::Client))
                .chain([Host::Metadata, Host::Switch])
                .collect();
            let (one, other) = (self.random.pick(&hosts), self.random.pick(&hosts));
            let others: Vec<Host> = if self.random.below(3) == 0 { hosts } else { vec![other] };
            let both = self.random.below(2) == 0;
            for other in others {
                self.network.cut(one, other);
                if both {
                    self.network.cut(other, one);
                }
            }
        }
        let interval_ns = self.faults.cut_interval_ns;
        let pause_ns = self.random.between(interval_ns / 4, interval_ns);
        self.queue.after(pause_ns, Event::Cut);
    }
}

/// A datagram, for a transcript.
pub(crate) fn describe(bytes: &[u8]) -> String {
    match Datagram::decode(bytes) {
        Ok((_, Datagram::Decisions(decisions))) => {
            let (watermarks, list) = (decisions.watermarks(), decisions.decisions());
            format!("Decisions {:?} {:?}", watermarks.collect::<Vec<_>>(), list.collect::<Vec<_>>())
        }
        Ok((_, datagram)) => format!("{datagram:?}"),
        Err(error) => error.to_string(),
    }
}
