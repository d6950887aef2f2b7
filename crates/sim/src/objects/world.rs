//! The world: who there is, what is going to happen, and its order.

use super::disk::{Disk, Doing};
use super::names::{Manifest, Names};
use super::planted::Planted;
use super::report::ObjectReport;
use super::shape::Shape;
use super::tasks::{Contents, Task};
use super::verdict::Judge;
use crate::queue::Queue;
use crate::random::Random;
use nicekv_chunks::{Group, Initiator, Map, Target};
use nicekv_wire::NodeId;
use nicekv_wire::chunk::{MapVersion, Round};
use std::net::SocketAddrV4;
use std::sync::Arc;

pub(super) const MS: u64 = 1_000_000;
/// After the faults, for what is under way.
const SETTLE_MS: u64 = 2_600;
/// After which nothing is left that no object needs.
const ROUNDS: u64 = 3;
/// For each of these rounds, and for reading everything.
const ROUND_MS: u64 = 300;
/// More events than a run has.
const EVENTS_MAX: u64 = 20_000_000;

/// Who has a core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Party {
    Target(usize),
    Initiator(usize),
}

/// What faults there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    Crash,
    Power,
    Initiator,
    Cut,
    Damage,
    Map,
}

#[derive(Clone, Debug)]
pub(super) enum Event {
    Arrive {
        party: Party,
        port: u16,
        from: SocketAddrV4,
        bytes: Vec<u8>,
    },
    Timer {
        party: Party,
        life: u64,
    },
    Disk {
        target: usize,
        life: u64,
        doing: Doing,
    },
    Start {
        target: usize,
    },
    /// The metadata service tells a target what there is.
    Tell {
        target: usize,
        life: u64,
    },
    TellInitiator {
        initiator: usize,
    },
    /// A user may begin something.
    User {
        initiator: usize,
    },
    /// An op on a name takes effect.
    Name {
        initiator: usize,
        task: u64,
        name: u64,
        manifest: Manifest,
    },
    NextRound,
    Adopt {
        partition: u64,
        round: Round,
    },
    /// A target reads the names behind this one.
    List {
        target: usize,
        life: u64,
        round: Round,
        after: Option<u64>,
    },
    Fault(Fault),
    Heal,
    /// What none needs is collected.
    Collect,
    ReadBack,
}

/// A target with its machine.
pub(super) struct TargetHost {
    pub(super) node: NodeId,
    pub(super) core: Option<Target>,
    pub(super) disk: Disk,
    pub(super) life: u64,
    pub(super) armed_ns: u64,
    pub(super) cut_until_ns: u64,
}

/// An initiator with its user.
pub(super) struct InitiatorHost {
    pub(super) core: Initiator,
    pub(super) life: u64,
    pub(super) armed_ns: u64,
    pub(super) task: Option<Task>,
    pub(super) tasks: u64,
}

pub(super) struct World {
    pub(super) shape: Shape,
    pub(super) random: Random,
    pub(super) queue: Queue<Event>,
    pub(super) targets: Vec<TargetHost>,
    pub(super) initiators: Vec<InitiatorHost>,
    pub(super) names: Names,
    pub(super) contents: Contents,
    pub(super) map: Arc<Map>,
    pub(super) round: Round,
    pub(super) judge: Judge,
    pub(super) is_healed: bool,
    pub(super) report: ObjectReport,
}

impl World {
    pub(super) fn new(shape: Shape, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let nodes: Vec<NodeId> = (0..shape.targets as u16).map(NodeId).collect();
        let map = map_of(1, &nodes, shape.groups);
        let slow = shape.faults.has_slow_disk.then(|| random.below(shape.targets as u64) as usize);
        let targets = nodes.iter().enumerate().map(|(at, node)| TargetHost {
            node: *node,
            core: None,
            disk: Disk::new(shape.faults.disk_bytes, if slow == Some(at) { 400 } else { 4 }),
            life: 0,
            armed_ns: u64::MAX,
            cut_until_ns: 0,
        });
        let mut world = Self {
            targets: targets.collect(),
            initiators: Vec::new(),
            names: Names::default(),
            contents: Contents::default(),
            map: Arc::new(map),
            round: Round(1),
            judge: Judge::default(),
            is_healed: false,
            report: ObjectReport::default(),
            queue: Queue::default(),
            random,
            shape,
        };
        (0..world.shape.targets).for_each(|target| world.start_target(target));
        for initiator in 0..world.shape.initiators {
            let core = world.new_initiator(initiator, 0);
            world.initiators.push(InitiatorHost { core, life: 0, armed_ns: u64::MAX, task: None, tasks: 0 });
            world.queue.at(world.random.below(MS), Event::TellInitiator { initiator });
            world.queue.at(2 * MS, Event::User { initiator });
        }
        world.schedule_faults();
        world.queue.at(world.shape.busy_ms * MS, Event::Heal);
        world
    }

    /// Whether a bug was planted.
    pub(super) fn has(&self, planted: Planted) -> bool {
        self.shape.planted == Some(planted)
    }

    pub(super) fn run(mut self) -> ObjectReport {
        let settled_ms = self.shape.busy_ms + SETTLE_MS;
        let first_ns = settled_ms * MS;
        let round_ns = |number: u64| first_ns + number * ROUND_MS * MS;
        (0..ROUNDS).for_each(|number| self.queue.at(round_ns(number), Event::Collect));
        self.queue.at(round_ns(ROUNDS), Event::ReadBack);
        let end_ns = round_ns(ROUNDS + 1) + 2_000 * MS;
        while let Some(event) = self.queue.next_before(end_ns) {
            self.report.events += 1;
            assert!(self.report.events < EVENTS_MAX, "it does not end");
            self.happen(event);
            if !self.judge.violations.is_empty() {
                break;
            }
        }
        if self.judge.violations.is_empty() {
            self.judge_end();
        }
        self.report.collected = self.judge.collected;
        self.report.violations = core::mem::take(&mut self.judge.violations);
        self.report
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Arrive { party, port, from, bytes } => self.arrive(party, port, from, &bytes),
            Event::Timer { party, life } => self.on_timer(party, life),
            Event::Disk { target, life, doing } => self.on_disk(target, life, doing),
            Event::Start { target } => self.start_target(target),
            Event::Tell { target, life } => self.tell(target, life),
            Event::TellInitiator { initiator } => self.tell_initiator(initiator),
            Event::User { initiator } => self.begin_task(initiator),
            Event::Name { initiator, task, name, manifest } => self.on_name(initiator, task, name, manifest),
            Event::NextRound => self.next_round(),
            Event::Adopt { partition, round } => self.adopt(partition, round),
            Event::List { target, life, round, after } => self.list((target, life), round, after),
            Event::Fault(fault) => self.fail(fault),
            Event::Heal => self.heal(),
            Event::Collect => self.begin_round(),
            Event::ReadBack => self.read_back(),
        }
    }

    /// Another number for a map whose targets are the same, at other places.
    pub(super) fn change_map(&mut self) {
        let mut nodes: Vec<NodeId> = self.targets.iter().map(|host| host.node).collect();
        let size = nodes.len() / self.shape.groups;
        for group in nodes.chunks_mut(size) {
            let by = self.random.between(1, group.len() as u64 - 1) as usize;
            group.rotate_left(by);
        }
        self.map = Arc::new(map_of(self.map.version().0 + 1, &nodes, self.shape.groups));
        self.tell_all();
    }

    pub(super) fn tell_all(&mut self) {
        for target in 0..self.targets.len() {
            let at_ns = self.queue.now_ns() + self.random.below(3 * MS);
            let life = self.targets[target].life;
            self.queue.at(at_ns, Event::Tell { target, life });
        }
    }
}

fn map_of(version: u32, nodes: &[NodeId], groups: usize) -> Map {
    let groups = nodes.chunks(nodes.len() / groups).map(|nodes| Group::new(nodes).expect("few enough"));
    Map::new(MapVersion(version), groups.collect()).expect("each is in one")
}
