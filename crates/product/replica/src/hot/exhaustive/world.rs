//! The state of the model, and the steps that may come next.

use super::super::holder::{Answer, Holder};
use super::super::leases::{NODE_LEASE_NS, SWITCH_LEASE_NS};
use super::super::owner::Owner;
use super::switch::Switch;
use crate::node::outbox::Outbox;
use crate::node::status::HotCounters;
use crate::node::visibility::{Shift, ShiftKind};
use core::hash::{BuildHasher, Hasher};
use foldhash::fast::FixedState;
use nicekv_proto::hot::{HotAssign, HotClosed, Stamp};
use nicekv_proto::recovery::Entry;
use nicekv_proto::{
    ClientId, Datagram, Form, Get, KeyDigest, KeyspaceId, NodeId, Now, OpId, Opcode, PartitionId, Term,
};
use std::format;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::vec::Vec;

const KEY: &[u8] = b"k";
const NAME: (KeyspaceId, KeyDigest) = (KeyspaceId(1), KeyDigest([7; 16]));
const PARTITION: PartitionId = PartitionId(3);
pub(super) const INSTANCE: u64 = 5;
const TICKS_MAX: u64 = 3;
const LOSSES_MAX: u32 = 1;
const GETS_MAX: u32 = 1;
/// The first owner's direct lease ends after this many ticks, so it grants copy leases only up to
/// then. Whoever removes the owner waits for that lease plus the eighth by which clocks may differ.
const DIRECT_TICKS: u64 = 2;

/// Where the copy is: at a node, or in the switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Holder,
    Switch,
}

/// Bugs planted in the model's switch.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Bugs {
    /// The switch shows its copy without comparing the label with its count.
    pub(super) stale_shown: bool,
    /// The switch does not check again after it has copied the value.
    pub(super) looks_once: bool,
    /// The switch does not check leases.
    pub(super) switch_lease_unchecked: bool,
}

fn address(host: u8) -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, host), 7400)
}

/// Which owner made a copy or lease: the first owner's serials start at 100, the second's at 200.
pub(super) fn owner_of(serial: u64) -> usize {
    (serial / 100) as usize - 1
}

const HOLDER: u8 = 9;
const VRING: u8 = 200;

/// Messages that the model drops. They only set registers that choose a holder for a get; here
/// every get may go to the holder anyway.
const UNHEARD: [u8; 2] = [Opcode::HotConfirm as u8, Opcode::HotDrop as u8];
const LATE: [u8; 3] = [Opcode::HotCopy as u8, Opcode::HotValue as u8, Opcode::HotClosed as u8];

/// A set of the key, and how far it has come.
#[derive(Clone, Copy, Debug, Default)]
struct Set {
    /// The stamp that the switch has written into it; `None` until the client sends it.
    stamp: Option<Stamp>,
    /// For each node: whether the message to it is still under way.
    under_way: [bool; 2],
    logged: [bool; 2],
    is_decided: bool,
}

#[derive(Clone, Copy, Debug)]
struct GetUnderWay {
    /// The get's stamp; for a copy in the switch, also the serial of the copy that was found.
    found: (Stamp, u64),
    /// Number of sets that were decided when the get passed the switch: the oldest value that is a
    /// correct answer.
    least: u32,
}

#[derive(Clone, Debug)]
pub(super) struct World {
    now_ns: u64,
    owners: [Owner; 2],
    holder: Holder,
    switch: Switch,
    place: Place,
    bugs: Bugs,
    leader: usize,
    sets: Vec<Set>,
    decided: u32,
    /// Datagrams under way, with their receivers.
    messages: Vec<(SocketAddrV4, Vec<u8>)>,
    gets: Vec<GetUnderWay>,
    gets_left: u32,
    losses_left: u32,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Step {
    Send(usize),
    Arrive(usize, usize),
    Lose(usize, usize),
    /// The leader fetches a set that it lacks from the other member (R15).
    Fetch(usize),
    Decide(usize),
    Deliver(usize),
    Ask,
    Answer(usize),
    Tick,
    /// The second node becomes the leader: the first has acknowledged the new epoch, or its lease
    /// has run out.
    Change,
}

impl World {
    /// One tick lasts as long as one copy lease.
    fn tick_ns(&self) -> u64 {
        if self.place == Place::Switch { SWITCH_LEASE_NS } else { NODE_LEASE_NS }
    }

    fn direct_ns(&self) -> u64 {
        DIRECT_TICKS * self.tick_ns()
    }

    pub(super) fn new(place: Place, sets: usize, bugs: Bugs) -> Self {
        let mut world = Self {
            now_ns: 1_000_000,
            owners: [Owner::new(100), Owner::new(200)],
            holder: Holder::new(300),
            switch: Switch::default(),
            place,
            bugs,
            leader: 0,
            sets: std::vec![Set::default(); sets],
            decided: 0,
            messages: Vec::new(),
            gets: Vec::new(),
            gets_left: GETS_MAX,
            losses_left: LOSSES_MAX,
        };
        world.lead(0);
        world
    }

    fn now(&self) -> Now {
        Now { boot_ns: self.now_ns, unix_ms: 0 }
    }

    /// Makes a node the leader: it gets the assignment of copies, and reads the key.
    fn lead(&mut self, node: usize) {
        self.leader = node;
        let mut outbox = Outbox::new(NodeId(node as u16));
        let in_switch = self.place == Place::Switch;
        let holders = if in_switch { Vec::new() } else { std::vec![address(HOLDER)] };
        let (keyspace, digest) = NAME;
        let assign = HotAssign { keyspace, digest, term: Term(1), instance: INSTANCE, holders, in_switch };
        self.owners[node].assign(&assign, &mut outbox);
        if !self.is_locked(node) {
            self.tell(node, ShiftKind::Read(KEY.into(), self.entry()));
        }
        self.flush();
    }

    fn entry(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let value = [self.decided as u8];
        let version = OpId { client: ClientId(1), sequence: self.decided.into() };
        Entry { form: Form::Plain, index: 1, version, expiry_ms: 0, value: Some(&value) }.append(&mut bytes);
        bytes
    }

    fn is_locked(&self, node: usize) -> bool {
        self.sets.iter().any(|set| set.logged[node] && !set.is_decided)
    }

    fn tell(&mut self, node: usize, kind: ShiftKind) {
        self.owners[node].take(Shift { partition: PARTITION, kind }, Some(NAME));
    }

    /// Sends every message that is due at the leader.
    fn flush(&mut self) {
        let (now, node) = (self.now(), self.leader);
        let mut outbox = Outbox::new(NodeId(node as u16));
        let direct_until_ns = if node == 0 { self.direct_ns() } else { u64::MAX };
        let leads = |_| Some(address(VRING));
        let counters = &mut HotCounters::default();
        self.owners[node].flush(now, &leads, direct_until_ns, &mut outbox, counters);
        while self.owners[node].poll_woken().is_some() {}
        self.post(&mut outbox);
    }

    /// Messages between owner and switch, and requests for the time, are delivered at once:
    /// delaying them would only shorten leases. All others are queued and may be delayed for ever.
    fn post(&mut self, outbox: &mut Outbox) {
        let mut bytes = Vec::new();
        while let Some(to) = outbox.poll(&mut bytes) {
            match bytes[3] {
                unheard if UNHEARD.contains(&unheard) => {}
                late if LATE.contains(&late) => {
                    self.messages.push((to, bytes.clone()));
                }
                _ => self.deliver(to, &bytes),
            }
        }
        self.messages.sort_unstable();
        self.messages.dedup();
    }

    fn take_in(&mut self, set: usize, node: usize, stamp: Option<Stamp>) {
        self.sets[set].logged[node] = true;
        if node == self.leader {
            if let Some(stamp) = stamp {
                self.owners[node].note_stamp(PARTITION, KEY, stamp);
            }
            self.tell(node, ShiftKind::Locked(KEY.into()));
        }
    }

    fn may_decide(&mut self, set: usize) -> bool {
        let Set { logged, is_decided, .. } = self.sets[set];
        let node = self.leader;
        // In the first epoch both nodes are members, in the second only the leader.
        let all_have = if node == 0 { logged == [true; 2] } else { logged[1] };
        let now = self.now();
        all_have
            && !is_decided
            && self.owners[node].may_decide(now, PARTITION, KEY, &mut HotCounters::default())
    }

    fn deliver(&mut self, to: SocketAddrV4, bytes: &[u8]) {
        let (now, mut outbox) = (self.now(), Outbox::new(NodeId(0)));
        let leader = address(self.leader as u8);
        match Datagram::decode(bytes).expect("a valid datagram").1 {
            Datagram::HotClose(close) if close.stamp.instance == INSTANCE => {
                let is_open = self.switch.seen <= close.stamp.seen;
                let stamp = if is_open { self.count() } else { self.switch.stamp() };
                let closed = HotClosed { keyspace: NAME.0, digest: NAME.1, stamp };
                outbox.send(leader, |out| closed.encode(out));
            }
            Datagram::HotCopy(copy) => {
                self.holder.on_copy(address(owner_of(copy.serial) as u8), &copy, &mut outbox);
            }
            Datagram::HotPulse(pulse) => {
                self.holder.on_pulse(now, address(owner_of(pulse.serial) as u8), &pulse, &mut outbox);
            }
            Datagram::HotValue(value) => self.switch.keep(&value),
            Datagram::HotLease(lease) => {
                let answer = self.switch.on_lease(now, &lease);
                self.owners[owner_of(lease.serial)].on_leased(now, &answer);
            }
            Datagram::HotClosed(closed) => self.owners[self.leader].on_closed(NAME, closed.stamp),
            Datagram::HotPulsed(pulsed) => {
                let node = usize::from(to.ip().octets()[3]);
                self.owners[node].on_pulsed(now, address(HOLDER), &pulsed);
            }
            other => panic!("{other:?}"),
        }
        self.post(&mut outbox);
    }

    pub(super) fn steps(&mut self) -> Vec<Step> {
        let mut steps = Vec::new();
        for set in 0..self.sets.len() {
            let Set { stamp, under_way, logged, .. } = self.sets[set];
            if stamp.is_none() && (set == 0 || self.sets[0].stamp.is_some()) {
                steps.push(Step::Send(set));
            }
            for (node, _) in under_way.iter().enumerate().filter(|(_, is_under_way)| **is_under_way) {
                steps.push(Step::Arrive(set, node));
                steps.extend((self.losses_left > 0).then_some(Step::Lose(set, node)));
            }
            if !logged[self.leader] && logged[1 - self.leader] && !under_way[self.leader] {
                steps.push(Step::Fetch(set));
            }
            if self.clone().may_decide(set) {
                steps.push(Step::Decide(set));
            }
        }
        steps.extend((0..self.messages.len()).map(Step::Deliver));
        steps.extend((self.gets_left > 0 && self.look().is_some()).then_some(Step::Ask));
        steps.extend((0..self.gets.len()).map(Step::Answer));
        steps.extend((self.now_ns < TICKS_MAX * self.tick_ns()).then_some(Step::Tick));
        if self.leader == 0 {
            let now = self.now();
            let mut owner = self.owners[0].clone();
            let has_left = !owner.holds_back(now, PARTITION, &mut HotCounters::default());
            steps.extend((has_left || self.now_ns > self.direct_ns() * 9 / 8).then_some(Step::Change));
        }
        steps
    }

    /// Returns whether the property still holds, and whether a get was answered from a copy.
    pub(super) fn take(&mut self, step: Step) -> (bool, bool) {
        match step {
            Step::Send(set) => {
                let stamp = self.count();
                self.sets[set] = Set { stamp: Some(stamp), under_way: [true; 2], ..Set::default() };
            }
            Step::Arrive(set, node) => {
                self.sets[set].under_way[node] = false;
                self.take_in(set, node, self.sets[set].stamp);
            }
            Step::Lose(set, node) => {
                self.sets[set].under_way[node] = false;
                self.losses_left -= 1;
            }
            Step::Fetch(set) => self.take_in(set, self.leader, None),
            Step::Decide(set) => {
                self.sets[set].is_decided = true;
                self.decided += 1;
                let (node, entry) = (self.leader, self.entry());
                self.tell(node, ShiftKind::Changed(KEY.into(), Some(entry)));
                if !self.is_locked(node) {
                    self.tell(node, ShiftKind::Unlocked(KEY.into()));
                }
                self.flush();
            }
            Step::Deliver(message) => {
                let (to, bytes) = self.messages.remove(message);
                self.deliver(to, &bytes);
                self.flush();
            }
            Step::Ask => {
                let found = self.look().expect("a get is sent only when it can be answered from a copy");
                self.gets_left -= 1;
                self.gets.push(GetUnderWay { found, least: self.decided });
            }
            Step::Answer(get) => return self.answer(get),
            Step::Tick => {
                self.now_ns += self.tick_ns();
                self.flush();
            }
            Step::Change => {
                for set in &mut self.sets {
                    // A set that only the first node has logged was acknowledged to no client, so
                    // it may vanish.
                    set.under_way[0] = false;
                    set.logged[0] = set.logged[1];
                }
                self.messages.retain(|(to, _)| *to != address(0));
                self.lead(1);
            }
        }
        (true, false)
    }

    /// What the switch does with a get that passes: stamps it for the holder, or looks up its own
    /// copy.
    fn look(&self) -> Option<(Stamp, u64)> {
        match self.place {
            Place::Holder => Some((self.switch.stamp(), 0)),
            Place::Switch => self.switch.look(self.now(), self.bugs),
        }
    }

    /// Returns whether the answer was correct, and whether there was an answer.
    fn answer(&mut self, get: usize) -> (bool, bool) {
        let GetUnderWay { found, least } = self.gets.swap_remove(get);
        if self.place == Place::Switch {
            let value = self.switch.answer(found, self.bugs);
            return (value.is_none_or(|value| value >= least), value.is_some());
        }
        let (keyspace, digest) = NAME;
        let asked =
            Get { keyspace, op: OpId::NONE, digest, reply_to: None, forwarded: None, key: KEY, padding: 0 };
        match self.holder.answer(self.now(), &asked, found.0) {
            Answer::Reply(reply) => {
                let value = reply.value.map_or(0, |value| u32::from(value[0]));
                (value >= least, true)
            }
            Answer::Pass(_) | Answer::Unknown => (true, false),
        }
    }

    /// The switch counts one more update.
    fn count(&mut self) -> Stamp {
        self.switch.seen += 1;
        self.switch.stamp()
    }

    pub(super) fn fingerprint(&self) -> u64 {
        let mut hasher = FixedState::with_seed(9).build_hasher();
        hasher.write(format!("{self:?}").as_bytes());
        hasher.finish()
    }
}
