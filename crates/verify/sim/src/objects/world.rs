//! The world: targets, initiators, names, and the event loop.

use super::disk::{Chunks, Disk, Doing};
use super::names::{Manifest, Names};
use super::report::ObjectReport;
use super::shape::Shape;
use super::tasks::{Contents, Task};
use super::verdict::Judge;
use nicekv_objects::{Group, Initiator, Map, Target};
use nicekv_proto::NodeId;
use nicekv_proto::chunk::{MapVersion, Round};
use nicekv_testkit::Queue;
use nicekv_testkit::Random;
use std::net::SocketAddrV4;
use std::sync::Arc;

pub(super) const MS: u64 = 1_000_000;
/// Time after the faults, for open requests and a maintenance pass of all targets.
const SETTLE_MS: u64 = 3_000;
/// Number of rounds after which no unneeded chunk is left.
const ROUNDS: u64 = 3;
/// Time for each of these rounds, and for reading all objects.
const ROUND_MS: u64 = 300;
/// Bound on the events of a run.
const EVENTS_MAX: u64 = 20_000_000;

/// A host with a core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Party {
    Target(usize),
    Initiator(usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    Crash,
    Power,
    Initiator,
    Cut,
    Damage,
    Map,
    /// A target is lost for good.
    Loss,
    /// A disk is replaced by an older copy: [`ObjectFaults::older_ms`](super::shape::ObjectFaults).
    Older,
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
    /// The metadata service notifies a target of the map and the round.
    Tell {
        target: usize,
        life: u64,
    },
    TellInitiator {
        initiator: usize,
    },
    /// A user begins a request, unless one is under way.
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
    /// A target lists names from here on.
    List {
        target: usize,
        life: u64,
        round: Round,
        after: Option<u64>,
    },
    Fault(Fault),
    /// The metadata service collects progress reports of targets.
    Oversee,
    /// The metadata service has noticed that a target is lost for good.
    Remove {
        target: usize,
    },
    Heal,
    /// A round of garbage collection begins after the faults.
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
    /// Whether the target is lost for good.
    pub(super) is_gone: bool,
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
    /// Whether the targets have reported that all chunks have enough copies. Only then a target may
    /// be lost, or a copy damaged.
    pub(super) is_whole: bool,
    /// The snapshot of a target's disk, with the target's index.
    pub(super) older: Option<(usize, Chunks)>,
    /// Set when a copy was damaged or a target was lost: the map's version, and the number of
    /// passes of each target at that time. Reports of passes up to then do not count.
    pub(super) passed_before: Option<(MapVersion, Vec<u64>)>,
    /// Whether a damaged copy existed at the last progress reports. It may be deleted since.
    pub(super) has_damaged: bool,
    pub(super) is_reading_back: bool,
    pub(super) report: ObjectReport,
}

impl World {
    pub(super) fn new(shape: Shape, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let nodes: Vec<NodeId> = (0..shape.targets as u16).map(NodeId).collect();
        let map = map_of(&nodes, shape.groups);
        let slow = shape.faults.has_slow_disk.then(|| random.below(shape.targets as u64) as usize);
        let disk = |at| Disk::new(shape.faults.disk_bytes, if slow == Some(at) { 400 } else { 4 });
        let targets = nodes.iter().enumerate().map(|(at, node)| TargetHost::new(*node, disk(at)));
        let mut world = Self {
            targets: targets.collect(),
            initiators: Vec::new(),
            names: Names::default(),
            contents: Contents::default(),
            map: Arc::new(map),
            round: Round(1),
            judge: Judge::default(),
            is_healed: false,
            is_whole: true,
            older: None,
            passed_before: None,
            has_damaged: false,
            is_reading_back: false,
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
        world.queue.at(MS, Event::Oversee);
        world.queue.at(world.shape.busy_ms * MS, Event::Heal);
        world
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
            assert!(self.report.events < EVENTS_MAX, "the run does not end");
            self.happen(event);
            if !self.judge.violations.is_empty() || self.is_over() {
                break;
            }
        }
        if self.judge.violations.is_empty() {
            self.judge_end();
        }
        self.report.collected = self.judge.collected;
        for core in self.targets.iter().filter_map(|host| host.core.as_ref()) {
            self.report.put_again += core.counters.put_again;
            self.report.surplus += core.counters.surplus;
        }
        self.report.violations = core::mem::take(&mut self.judge.violations);
        self.report
    }

    /// Whether all objects were read back.
    fn is_over(&self) -> bool {
        self.is_reading_back && self.initiators.iter().all(|host| host.task.is_none())
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
            Event::Oversee => self.oversee(),
            Event::Remove { target } => self.remove(target),
            Event::Heal => self.heal(),
            Event::Collect => self.begin_round(),
            Event::ReadBack => {
                self.is_reading_back = true;
                self.read_back();
            }
        }
    }

    pub(super) fn tell_all(&mut self) {
        for target in 0..self.targets.len() {
            let at_ns = self.queue.now_ns() + self.random.below(3 * MS);
            let life = self.targets[target].life;
            self.queue.at(at_ns, Event::Tell { target, life });
        }
    }
}

impl TargetHost {
    /// A target whose process has not started.
    pub(super) fn new(node: NodeId, disk: Disk) -> Self {
        Self { node, core: None, disk, life: 0, armed_ns: u64::MAX, cut_until_ns: 0, is_gone: false }
    }
}

fn map_of(nodes: &[NodeId], groups: usize) -> Map {
    let groups = nodes.chunks(nodes.len() / groups).map(|nodes| Group::new(nodes).expect("few enough"));
    Map::new(MapVersion(1), groups.collect()).expect("each is in one")
}
