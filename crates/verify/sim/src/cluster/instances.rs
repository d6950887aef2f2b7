//! Several instances of the metadata service, and their shared store (R12, R13).
//!
//! ```text
//!   instance: Election ── LeaseAsked, late or never ──▶ store: leader lease, state
//!      │  ▲                                               │
//!      │  └──────────── LeaseAnswered, late or never ──────┘
//!      └─ elected ─▶ a `Controller` (its core) ─ persists through the election ─ deposed ─▶ gone
//! ```
//!
//! The store still executes requests of an instance that was killed or paused meanwhile. Nodes know
//! all addresses; agents have a connection to each running core.

use super::addresses::INSTANCES;
use super::controllers::Controller;
use super::event::Event;
use super::{Cluster, MILLISECOND_NS};
use crate::faults::StoreFaults;
use crate::network::Host;
use crate::node::Clock;
use nicekv_metadata::{
    Election, ElectionEvent, LeaderLease, LeaseAnswer, LeaseRequest, LeaseTiming, Metadata, Persisted,
};

/// Timeout of a request to the store.
const TIMEOUT_NS: u64 = 50 * MILLISECOND_NS;
/// Maximum latency of a request, and of an answer, without faults.
const WAY_NS: u64 = MILLISECOND_NS;

#[derive(Clone)]
pub(super) struct Instance {
    /// `None` while the process is down.
    pub(super) election: Option<Election>,
    pub(super) clock: Clock,
    /// Counts the processes of this instance.
    pub(super) life: u64,
    /// The number of the last request of this process.
    pub(super) asked: u64,
    pub(super) answered: u64,
    /// The number of the metadata core, from the election until the instance learns that it was
    /// deposed.
    pub(super) process: Option<u64>,
    pub(super) has_step: bool,
    pub(super) turn_at_ns: Option<u64>,
    pub(super) paused_until_ns: u64,
    pub(super) storeless_until_ns: u64,
}

#[derive(Clone, Default)]
pub(super) struct Instances {
    pub(super) members: Vec<Instance>,
    pub(super) leader_lease: LeaderLease,
}

impl Instances {
    /// The instance that runs this core.
    pub(super) fn of(&self, process: u64) -> Option<usize> {
        self.members.iter().position(|member| member.process == Some(process))
    }
}

impl Cluster {
    /// Starts every instance that is down.
    pub(super) fn start_instances(&mut self) {
        while self.instances.members.len() < self.scenario.instances {
            let clock = Clock::draw(&self.faults, &mut self.random);
            self.instances.members.push(Instance {
                election: None,
                clock,
                life: 0,
                asked: 0,
                answered: 0,
                process: None,
                has_step: false,
                turn_at_ns: None,
                paused_until_ns: 0,
                storeless_until_ns: 0,
            });
        }
        for index in 0..self.instances.members.len() {
            self.start_instance(index);
        }
    }

    pub(super) fn start_instance(&mut self, index: usize) {
        let timing = LeaseTiming { lease: self.scenario.store_lease, ..LeaseTiming::default() };
        let election = Election::new(timing, self.random.below(u64::MAX));
        let member = &mut self.instances.members[index];
        if member.election.is_some() {
            return;
        }
        member.election = Some(election);
        member.life += 1;
        (member.asked, member.answered, member.turn_at_ns, member.paused_until_ns) = (0, 0, None, 0);
        self.note(|names| Some(format!("{} starts", names.host(Host::instance(index)))));
        self.drive_instance(index);
    }

    pub(super) fn instance_turn(&mut self, index: usize, life: u64) {
        let now_ns = self.queue.now_ns();
        let member = &mut self.instances.members[index];
        if member.life == life && member.turn_at_ns == Some(now_ns) {
            member.turn_at_ns = None;
            self.drive_instance(index);
        }
    }

    /// Sends due requests to the store, and passes events of the election to the core.
    fn drive_instance(&mut self, index: usize) {
        let now_ns = self.queue.now_ns();
        let member = &mut self.instances.members[index];
        let Some(election) = &mut member.election else { return };
        if now_ns < member.paused_until_ns {
            let at_ns = member.paused_until_ns;
            return self.wake_instance(index, at_ns);
        }
        let request = election.poll_request(member.clock.now(now_ns));
        let events: Vec<_> = std::iter::from_fn(|| election.poll_event()).collect();
        if let Some(request) = request {
            member.asked += 1;
            self.ask_store(index, request);
        }
        for event in events {
            self.elected(index, event);
        }
        let member = &self.instances.members[index];
        let deadline_ns = member.election.as_ref().and_then(Election::next_deadline);
        if let Some(boot_ns) = deadline_ns {
            let at_ns = member.clock.when(boot_ns).max(now_ns + 1);
            self.wake_instance(index, at_ns);
        }
    }

    fn wake_instance(&mut self, instance: usize, at_ns: u64) {
        let member = &mut self.instances.members[instance];
        if member.turn_at_ns.is_none_or(|before_ns| at_ns < before_ns) {
            member.turn_at_ns = Some(at_ns);
            self.queue.at(at_ns, Event::InstanceTurn { instance, life: member.life });
        }
    }

    fn ask_store(&mut self, instance: usize, request: LeaseRequest) {
        let now_ns = self.queue.now_ns();
        let faults = self.scenario.store_faults;
        let mut delay_ns = self.random.below(WAY_NS);
        if self.random.chance(faults.late) {
            self.tally.count("late requests to the store");
            delay_ns += self.random.below(faults.late_max_ns);
        }
        let has_outage = self.random.chance(faults.outage);
        let (outage_ns, is_lost) = (self.random.below(faults.outage_max_ns), self.random.chance(faults.lost));
        if has_outage {
            self.tally.count("instances without the store");
            self.instances.members[instance].storeless_until_ns = now_ns + outage_ns;
        }
        let member = &self.instances.members[instance];
        let (life, number) = (member.life, member.asked);
        if !is_lost && now_ns >= member.storeless_until_ns {
            self.queue
                .after(delay_ns, Event::LeaseAsked { instance, life, number, request: Box::new(request) });
        }
        self.queue.after(
            TIMEOUT_NS,
            Event::LeaseAnswered { instance, life, number, answer: Box::new(LeaseAnswer::Silence) },
        );
    }

    /// A request arrives at the store. Its process may have been killed meanwhile.
    pub(super) fn lease_asked(&mut self, instance: usize, life: u64, number: u64, request: &LeaseRequest) {
        let answer = Box::new(self.carry_out(request));
        let member = &self.instances.members[instance];
        let is_heard = self.queue.now_ns() >= member.storeless_until_ns;
        let delay_ns = self.random.below(WAY_NS);
        if is_heard && !self.random.chance(self.scenario.store_faults.lost) {
            self.queue.after(delay_ns, Event::LeaseAnswered { instance, life, number, answer });
        }
    }

    fn carry_out(&mut self, request: &LeaseRequest) -> LeaseAnswer {
        let (leader_lease, stored) = (&mut self.instances.leader_lease, &mut self.controllers.stored);
        let persisted = |bytes: &Vec<u8>| nicekv_metadata::persisted_version(bytes).expect("our own");
        let version = stored.as_ref().map_or(0, persisted);
        let is_allowed = match request {
            LeaseRequest::Observe => return LeaseAnswer::Seen(*leader_lease),
            LeaseRequest::Take { seen, .. } => *seen == *leader_lease,
            LeaseRequest::Renew { holder } | LeaseRequest::Release { holder } => {
                *holder == leader_lease.holder
            }
            LeaseRequest::Persist { holder, version: next, .. } => {
                *holder == leader_lease.holder && version + 1 == *next
            }
        };
        if !is_allowed {
            self.tally.count("requests that the store refused");
            return LeaseAnswer::Refused { holder: leader_lease.holder, version };
        }
        leader_lease.renewal += 1;
        match request {
            LeaseRequest::Take { holder, .. } => {
                leader_lease.holder = *holder;
                return LeaseAnswer::Taken { state: stored.clone() };
            }
            LeaseRequest::Persist { bytes, .. } => *stored = Some(bytes.clone()),
            LeaseRequest::Release { .. } => leader_lease.holder = 0,
            LeaseRequest::Renew { .. } | LeaseRequest::Observe => {}
        }
        LeaseAnswer::Done
    }

    /// An answer, or the timeout, reaches the instance that sent the request.
    pub(super) fn lease_answered(
        &mut self,
        instance: usize,
        life: u64,
        number: u64,
        answer: Box<LeaseAnswer>,
    ) {
        let now_ns = self.queue.now_ns();
        let member = &mut self.instances.members[instance];
        let is_awaited = (member.life, member.asked) == (life, number) && member.answered < number;
        let (Some(election), true) = (&mut member.election, is_awaited) else { return };
        if now_ns < member.paused_until_ns {
            let at_ns = member.paused_until_ns;
            return self.queue.at(at_ns, Event::LeaseAnswered { instance, life, number, answer });
        }
        member.answered = number;
        election.handle_answer(member.clock.now(now_ns), *answer);
        self.drive_instance(instance);
    }

    fn elected(&mut self, index: usize, event: ElectionEvent) {
        let now_ns = self.queue.now_ns();
        let member = &mut self.instances.members[index];
        match event {
            ElectionEvent::Elected { state } => {
                self.tally.count("metadata leaders elected");
                let process = self.controllers.begin();
                let (clock, paused_until_ns) = (member.clock, member.paused_until_ns);
                member.process = Some(process);
                let core = Metadata::new(self.metadata_config(), state.as_deref(), clock.now(now_ns))
                    .expect("the state is our own");
                self.controllers.add(Controller::new(core, process, clock, paused_until_ns));
                self.note(|names| Some(format!("{} leads", names.host(Host::instance(index)))));
                self.drive_metadata(process);
            }
            ElectionEvent::Persisted { version } => {
                member.has_step = false;
                let now = member.clock.now(now_ns);
                let Some(process) = member.process else { return };
                self.tell_hold(process);
                if let Some(controller) = self.controllers.find(process) {
                    controller.core.handle_storage(now, Persisted { version });
                }
                self.drive_metadata(process);
            }
            ElectionEvent::Deposed => {
                self.tally.count("old leaders stopped");
                self.note(|names| Some(format!("{} leads no more", names.host(Host::instance(index)))));
                self.end_core(index);
            }
        }
    }

    fn end_core(&mut self, index: usize) {
        let member = &mut self.instances.members[index];
        member.has_step = false;
        if let Some(process) = member.process.take() {
            self.stop_metadata(process);
        }
    }

    /// Reports to the core until when it certainly holds the leader lease.
    pub(super) fn tell_hold(&mut self, process: u64) {
        let Some(index) = self.instances.of(process) else { return };
        let now_ns = self.queue.now_ns();
        let member = &self.instances.members[index];
        let until_ns = member.election.as_ref().map_or(0, Election::exclusive_until_ns);
        let now = member.clock.now(now_ns);
        if let Some(controller) = self.controllers.find(process) {
            controller.core.handle_leadership(now, until_ns);
        }
    }

    /// Persists a state of a core that shares the store with other instances.
    pub(super) fn persist_shared(&mut self, index: usize, version: u64, bytes: Vec<u8>) {
        let member = &mut self.instances.members[index];
        member.has_step = true;
        if let Some(election) = &mut member.election {
            election.persist(version, bytes);
        }
        let at_ns = self.queue.now_ns() + 1;
        self.wake_instance(index, at_ns);
    }

    /// Whether any instance has a write in flight.
    pub(super) fn has_shared_step(&self) -> bool {
        self.instances.members.iter().any(|member| member.has_step)
    }

    /// The instance that leads, or believes it does.
    pub fn leading_instance(&self) -> Option<usize> {
        self.instances.members.iter().position(|member| member.process.is_some())
    }

    /// The leading instance cannot reach the store for some time.
    pub(super) fn lose_store(&mut self, away_ns: u64) {
        let until_ns = self.queue.now_ns() + away_ns;
        let Some(leader) = self.leading_instance() else { return };
        self.tally.count("instances without the store");
        self.note(|names| Some(format!("{} loses the store", names.host(Host::instance(leader)))));
        self.instances.members[leader].storeless_until_ns = until_ns;
    }

    /// Draws the instance that a fault hits: mostly the leading one.
    fn victim(&mut self) -> usize {
        match self.leading_instance() {
            Some(leader) if self.random.below(4) > 0 => leader,
            _ => self.random.below(self.instances.members.len() as u64) as usize,
        }
    }

    /// Kills one instance, or all of them after a power loss.
    pub(super) fn crash_instances(&mut self, downtime_ns: u64, all: bool) {
        let victim = self.victim();
        for index in (0..self.instances.members.len()).filter(|index| all || *index == victim) {
            self.note(|names| Some(format!("{} is killed", names.host(Host::instance(index)))));
            self.end_core(index);
            self.instances.members[index].election = None;
            self.queue.after(downtime_ns, Event::InstanceStart(index));
        }
    }

    pub(super) fn pause_instance(&mut self, pause_ns: u64) {
        let (index, until_ns) = (self.victim(), self.queue.now_ns() + pause_ns);
        let member = &mut self.instances.members[index];
        member.paused_until_ns = until_ns;
        let process = member.process;
        if let Some(controller) = process.and_then(|process| self.controllers.find(process)) {
            controller.pause(until_ns);
        }
        self.note(|names| {
            Some(format!(
                "{} is paused until {:.3}ms",
                names.host(Host::instance(index)),
                until_ns as f64 / 1e6
            ))
        });
        self.wake_instance(index, until_ns);
    }

    /// Ends all faults of the store, and starts all instances.
    pub(super) fn heal_instances(&mut self) {
        self.scenario.store_faults = StoreFaults::NONE;
        for index in 0..self.instances.members.len() {
            self.instances.members[index].storeless_until_ns = 0;
            self.queue.after(0, Event::InstanceStart(index));
        }
    }

    /// The address that this core's instance sends from.
    pub(super) fn place_of(&self, process: u64) -> (Host, std::net::SocketAddrV4) {
        let index = self.instances.of(process).unwrap_or(0);
        (Host::instance(index), INSTANCES[index])
    }
}
