//! A simulated cluster: time advances in steps of a millisecond, and one seed determines everything
//! random.
//!
//! It differs from the simulator (`crates/verify/sim`) in two ways. Nodes are models to which
//! copying takes no time, so that a test can say to the millisecond what the core must decide. And
//! every event is checked against the state that the core has persisted, which is not visible
//! outside of this crate.

use std::collections::{BTreeMap, BTreeSet};

use nicekv_proto::placement::{GroupRing, KeyspaceDefaults, KeyspaceSpec, RingsBase};
use nicekv_proto::{Datagram, Duration, KeyspaceId, NodeId, Now, PartitionId};
use nicekv_switch::Prefix;
use nicekv_switch::control::{ControlReply, ControlRequest};

use super::node::{Node, address};
use super::switch::Switch;
use crate::state::State;
use crate::{
    Balancing, Config, HotSettings, LINK_BITS_PER_SECOND, Metadata, NodeConfig, Persisted, Status,
    StorageRequest, SwitchId, Timing,
};

pub(super) const STEP_NS: u64 = 1_000_000;
/// Longest delay of a datagram or of a control message, in steps.
const DELAY_STEPS_MAX: u64 = 4;
/// Longest time to persist a state, in steps.
const PERSIST_STEPS_MAX: u64 = 12;
/// Interval at which clients send gets, in steps.
const ASKED_EVERY_STEPS: u64 = 50;
pub(super) const PARTITIONS: u32 = 4;

pub(super) struct Random(u64);

impl Random {
    /// A random number from 0 to `bound - 1` (splitmix64).
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound
    }
}

enum Event {
    ToMetadata(NodeId, Vec<u8>),
    ToNode(NodeId, Vec<u8>),
    Persisted(u64, Vec<u8>),
    ToSwitch(SwitchId, u64, ControlRequest),
    FromSwitch(SwitchId, u64, Box<ControlReply>),
}

pub(super) struct Cluster {
    pub(super) config: Config,
    pub(super) core: Option<Metadata>,
    /// The persisted state.
    pub(super) stored: Option<Vec<u8>>,
    pub(super) nodes: BTreeMap<NodeId, Node>,
    pub(super) switches: BTreeMap<SwitchId, Switch>,
    events: Vec<(u64, Event)>,
    pub(super) random: Random,
    pub(super) now_ns: u64,
    pub(super) loss_percent: u64,
    /// Nodes whose messages do not reach the metadata service (`mute`), and nodes that its messages
    /// do not reach (`deaf`).
    pub(super) mute: BTreeSet<NodeId>,
    pub(super) deaf: BTreeSet<NodeId>,
    /// Pairs of nodes that cannot communicate with each other.
    pub(super) apart: BTreeSet<(NodeId, NodeId)>,
    /// All present and former partitions of the default keyspace, with their parents.
    pub(super) lineage: BTreeMap<PartitionId, Vec<PartitionId>>,
    /// Whether nodes form children as assigned, and whether primaries drain.
    pub(super) forms: bool,
    pub(super) drains: bool,
    /// The last acknowledged put, by partition.
    pub(super) acknowledged: BTreeMap<PartitionId, u64>,
    pub(super) puts: u64,
    pub(super) checks: super::checks::Checks,
    /// Whether clients send gets of all partitions, from changing addresses.
    pub(super) is_asked: bool,
}

/// The default keyspace.
pub(super) fn keyspace(replicas: usize) -> KeyspaceSpec {
    let (id, rings) = (KeyspaceId::DEFAULT, RingsBase::Network);
    KeyspaceSpec::of(&KeyspaceDefaults { id, replicas, partitions: PARTITIONS, rings })
}

pub(super) fn config(nodes: u16, replicas: usize) -> Config {
    let node = |id| NodeConfig {
        id: NodeId(id),
        name: format!("node-{id}"),
        address: address(NodeId(id)),
        mac: [2, 0, 0, 0, 0, id as u8],
        switch_port: id,
        home: None,
    };
    Config {
        cluster: 7,
        nodes: (1..=nodes).map(node).collect(),
        keyspaces: vec![keyspace(replicas)],
        port: 7400,
        group_ring: Some(GroupRing::on_network(7400)),
        matching: Default::default(),
        link_bits_per_second: LINK_BITS_PER_SECOND,
        balancing: Balancing::Source { clients: Prefix::new([10, 20, 2, 0], 24) },
        switches: vec![SwitchId(0), SwitchId(1)],
        services: Vec::new(),
        topology: Default::default(),
        // Counts are not read from switches, so that the same seed gives the same run in all tests.
        timing: Timing { count_interval: Duration::ZERO, ..Timing::default() },
        hot: HotSettings::default(),
    }
}

impl Cluster {
    pub(super) fn new(config: Config, seed: u64) -> Self {
        let mut random = Random(seed);
        let mut nodes = BTreeMap::new();
        for node in &config.nodes {
            nodes.insert(node.id, Node::new(node.id.0, random.below(200) as i64 - 100));
        }
        let mut cluster = Self {
            switches: config.switches.iter().map(|id| (*id, Switch::new(&config))).collect(),
            core: None,
            stored: None,
            nodes,
            events: Vec::new(),
            random,
            now_ns: 1_000_000_000,
            loss_percent: 0,
            mute: BTreeSet::new(),
            deaf: BTreeSet::new(),
            apart: BTreeSet::new(),
            lineage: partitions().map(|id| (id, Vec::new())).collect(),
            forms: true,
            drains: true,
            acknowledged: BTreeMap::new(),
            puts: 0,
            checks: Default::default(),
            is_asked: false,
            config,
        };
        for id in cluster.node_ids() {
            cluster.start(id);
        }
        cluster.start_metadata();
        cluster
    }

    pub(super) fn node_ids(&self) -> Vec<NodeId> {
        self.nodes.keys().copied().collect()
    }

    fn now(&self) -> Now {
        Now { boot_ns: self.now_ns, unix_ms: 0 }
    }

    pub(super) fn core(&mut self) -> &mut Metadata {
        self.core.as_mut().expect("the metadata service runs")
    }

    pub(super) fn status(&self) -> Status {
        self.core.as_ref().expect("the metadata service runs").status()
    }

    /// The persisted state.
    pub(super) fn state(&self) -> Option<State> {
        self.stored.as_ref().map(|bytes| State::resume(&self.config, bytes).expect("the core wrote it"))
    }

    pub(super) fn start_metadata(&mut self) {
        let core = Metadata::new(self.config.clone(), self.stored.as_deref(), self.now()).unwrap();
        self.core = Some(core);
        for id in self.config.switches.clone() {
            self.connect(id);
        }
    }

    pub(super) fn kill_metadata(&mut self) {
        self.core = None;
        for switch in self.switches.values_mut() {
            switch.connected = false;
            switch.connection += 1;
        }
        // A step that is being persisted may have reached the disk or not.
        let durable = self.random.below(2) == 0;
        for (_, event) in self.events.extract_if(.., |(_, event)| matches!(event, Event::Persisted(..))) {
            if let Event::Persisted(_, bytes) = event
                && durable
            {
                self.checks.persisted(self.stored.as_deref(), &bytes, &self.config);
                self.stored = Some(bytes);
            }
        }
        if self.stored.is_some() {
            self.note_lineage();
        }
    }

    fn note_lineage(&mut self) {
        let state = self.state().expect("persisted");
        for (id, partition) in state.partitions().filter(|(_, partition)| !partition.parents.is_empty()) {
            self.lineage.insert(id, partition.parents.iter().map(|parent| parent.partition).collect());
        }
    }

    /// All present and former partitions of the default keyspace.
    pub(super) fn ids(&self) -> Vec<PartitionId> {
        self.lineage.keys().copied().collect()
    }

    pub(super) fn start(&mut self, id: NodeId) {
        let now_ns = self.now_ns;
        self.nodes.get_mut(&id).unwrap().start(now_ns);
    }

    pub(super) fn kill(&mut self, id: NodeId) {
        self.nodes.get_mut(&id).unwrap().running = None;
    }

    pub(super) fn connect(&mut self, id: SwitchId) {
        let now = self.now();
        let switch = self.switches.get_mut(&id).unwrap();
        if let (Some(core), false) = (&mut self.core, switch.connected) {
            switch.connected = true;
            switch.connection += 1;
            core.handle_switch_connected(now, id);
            if let Some(present) = switch.ports.clone() {
                let reply = Box::new(ControlReply::Ports { present: Some(present), down: Vec::new() });
                self.events.push((now.boot_ns + STEP_NS, Event::FromSwitch(id, switch.connection, reply)));
            }
        }
    }

    pub(super) fn disconnect(&mut self, id: SwitchId) {
        let now = self.now();
        let switch = self.switches.get_mut(&id).unwrap();
        switch.connection += 1;
        if let (Some(core), true) = (&mut self.core, switch.connected) {
            switch.connected = false;
            core.handle_switch_disconnected(now, id);
        }
    }

    /// Restarts the switch's agent, without tables.
    pub(super) fn restart_switch(&mut self, id: SwitchId) {
        self.disconnect(id);
        let switch = self.switches.get_mut(&id).unwrap();
        switch.restart(&self.config);
        self.connect(id);
    }

    pub(super) fn run(&mut self, steps: u64) {
        for _ in 0..steps {
            self.step();
        }
    }

    /// Runs until `done`, and returns the number of steps. Panics after `steps` steps.
    #[track_caller]
    pub(super) fn run_until(&mut self, steps: u64, what: &str, done: impl Fn(&Cluster) -> bool) -> u64 {
        for step in 0..steps {
            if done(self) {
                return step;
            }
            self.step();
        }
        let why = self.core.as_ref().and_then(|core| core.status().why_not_ready);
        panic!("after {steps} ms still waiting for: {what}; {why:?}\n{:#?}", self.state());
    }

    #[track_caller]
    pub(super) fn run_until_ready(&mut self, steps: u64) -> u64 {
        self.run_until(steps, "ready", |cluster| cluster.status().ready)
    }

    fn step(&mut self) {
        self.now_ns += STEP_NS;
        self.nodes_tick();
        let now_ns = self.now_ns;
        let due = self.events.extract_if(.., |(at_ns, _)| *at_ns <= now_ns).map(|(_, event)| event);
        let (streamed, mut datagrams): (Vec<_>, Vec<_>) =
            due.partition(|event| matches!(event, Event::ToSwitch(..) | Event::FromSwitch(..)));
        // A stream delivers in order, datagrams may be reordered.
        for event in streamed {
            self.deliver(event);
            self.look();
        }
        while !datagrams.is_empty() {
            let next = self.random.below(datagrams.len() as u64) as usize;
            self.deliver(datagrams.swap_remove(next));
            self.look();
        }
        let now = self.now();
        if let Some(core) = &mut self.core
            && core.next_deadline().is_some_and(|deadline_ns| now.boot_ns >= deadline_ns)
        {
            core.handle_deadline(now);
        }
        self.poll_core();
        self.copy();
        self.form();
        self.put();
        if self.is_asked && self.now_ns.is_multiple_of(ASKED_EVERY_STEPS * STEP_NS) {
            super::divisions::ask_everything(self);
        }
        self.look();
    }

    fn look(&mut self) {
        let mut checks = std::mem::take(&mut self.checks);
        checks.after_event(self);
        self.checks = checks;
    }

    fn nodes_tick(&mut self) {
        for id in self.node_ids() {
            let apart = self.apart.clone();
            let now_ns = self.now_ns;
            let node = self.nodes.get_mut(&id).unwrap();
            for bytes in node.tick(now_ns, |other| apart.contains(&pair(id, other))) {
                self.send(Event::ToMetadata(id, bytes));
            }
        }
    }

    fn send(&mut self, event: Event) {
        if self.random.below(100) >= self.loss_percent {
            self.later(DELAY_STEPS_MAX, event);
        }
    }

    fn later(&mut self, steps_max: u64, event: Event) {
        let at_ns = self.now_ns + STEP_NS * (1 + self.random.below(steps_max));
        self.events.push((at_ns, event));
    }

    fn deliver(&mut self, event: Event) {
        let now = self.now();
        match event {
            Event::ToMetadata(from, bytes) => {
                if let Some(core) = self.core.as_mut().filter(|_| !self.mute.contains(&from)) {
                    core.handle_datagram(now, address(from), &bytes);
                }
            }
            Event::ToNode(to, bytes) => {
                if self.deaf.contains(&to) {
                    return;
                }
                if let Some(reply) = self.nodes.get_mut(&to).unwrap().handle(&bytes) {
                    self.send(Event::ToMetadata(to, reply));
                }
            }
            Event::Persisted(version, bytes) => {
                self.checks.persisted(self.stored.as_deref(), &bytes, &self.config);
                self.stored = Some(bytes);
                self.note_lineage();
                self.core().handle_storage(now, Persisted { version });
            }
            Event::ToSwitch(id, connection, request) => {
                let switch = self.switches.get_mut(&id).unwrap();
                if switch.connection == connection {
                    let reply = switch.handle(request);
                    self.events
                        .push((now.boot_ns + STEP_NS, Event::FromSwitch(id, connection, Box::new(reply))));
                }
            }
            Event::FromSwitch(id, connection, reply) => {
                if let Some(core) = self.core.as_mut().filter(|_| self.switches[&id].connection == connection)
                {
                    core.handle_switch(now, id, *reply);
                }
            }
        }
        // Batches of input end at random times.
        if self.random.below(2) == 0 {
            self.poll_core();
        }
    }

    fn poll_core(&mut self) {
        let now = self.now();
        let Some(mut core) = self.core.take() else { return };
        core.handle_batch_end(now);
        while let Some(StorageRequest::Persist { version, bytes }) = core.poll_storage() {
            self.later(PERSIST_STEPS_MAX, Event::Persisted(version, bytes));
        }
        let mut bytes = Vec::new();
        while let Some(to) = core.poll_transmit(&mut bytes) {
            let node = *self.nodes.keys().find(|node| address(**node) == to).expect("a node's address");
            let (_, datagram) = Datagram::decode(&bytes).unwrap();
            self.checks.sent(&datagram, self.stored.as_deref(), &self.config);
            self.send(Event::ToNode(node, bytes.clone()));
        }
        while let Some((id, request)) = core.poll_switch() {
            self.checks.sent_to_switch(&request, self.stored.as_deref(), &self.config);
            let switch = &self.switches[&id];
            assert!(switch.connected, "requests go to connected switches only");
            self.events.push((now.boot_ns + 2 * STEP_NS, Event::ToSwitch(id, switch.connection, request)));
        }
        self.core = Some(core);
    }

    /// Whether a switch routes any get of the partition to the node.
    pub(super) fn is_routed(&self, partition: PartitionId, node: NodeId) -> bool {
        self.switches.values().any(|switch| switch.routes(partition, node))
    }
}

pub(super) fn partitions() -> impl Iterator<Item = PartitionId> {
    (0..PARTITIONS).map(PartitionId)
}

pub(super) fn pair(one: NodeId, other: NodeId) -> (NodeId, NodeId) {
    (one.min(other), one.max(other))
}
