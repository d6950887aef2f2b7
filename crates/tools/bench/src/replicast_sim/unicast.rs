//! uch-ccp: unicast to targets by hash, which divide their bandwidth among their senders (Replicast
//! §IV-B).
//!
//! ```text
//!   initiator ──PUT-REQ──▶ target            a replica at a time
//!             ◀─RATE-INIT─ bandwidth ÷ flows, when its disk has room
//!             ══frames════▶                  ◀─RATE-SET─ to all others, when a flow comes or goes
//!             ◀─ACK─────── written           the next replica begins with the last frame of this one
//! ```
//!
//! A frame leaves when the one before it has left at the flow's rate, and three token buckets have
//! room: that of the initiator's link, that of the flow, and that of the target's link, which the
//! initiator knows without delay.

use super::disk::Disk;
use super::egress::Egress;
use super::event_queue::EventQueue;
use super::metrics::{Metrics, Outcome};
use super::placement::Placement;
use super::run::{Simulated, run_to};
use super::setup::{LINK_BPS, REPLICAS, SECOND_NS, Setup, TARGETS};
use super::token_bucket::TokenBucket;
use crate::splitmix::Random;
use nicekv_objects::reservation::Config;

const CONTROL_BITS: u64 = 800;
const FRAME_BYTES: u32 = Config::MULTICAST.frame_bytes;
const TRIP_NS: u64 = Config::MULTICAST.trip_ns;
/// Time from sending a control message to its arrival.
const HOP_NS: u64 = CONTROL_BITS * SECOND_NS / LINK_BPS + TRIP_NS;
/// With losses, a replica without an acknowledgement is sent again after this time plus this number
/// of disk writes: longer than any that was not lost takes.
const MISSED_NS: u64 = 2_000_000;
const MISSED_WRITES: u64 = 8;
/// Retry time while another replica of the chunk has the link.
const LATER_NS: u64 = 100_000;

#[derive(Clone, Copy, Debug)]
enum Event {
    PutRequest(Replica),
    RateInit(Replica, u64),
    RateSet(Replica, u64),
    /// A frame may leave, unless the ticket is outdated.
    Send {
        who: u16,
        ticket: u32,
    },
    Frame(Replica, u32),
    Ack(Replica),
    Missed(Replica),
    Get {
        who: u16,
        chunk: u32,
    },
    /// A frame of a get; `left_bytes` are still to come, this frame included.
    Part {
        who: u16,
        chunk: u32,
        left_bytes: u32,
        is_whole: bool,
    },
    GetMissed {
        who: u16,
        chunk: u32,
    },
}

/// An attempt to send a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Replica {
    who: u16,
    chunk: u32,
    number: u8,
    attempt: u16,
}

struct Initiator {
    chunk: u32,
    begun_ns: u64,
    targets: [u16; REPLICAS],
    /// Replicas begun so far.
    begun: u8,
    is_acked: [bool; REPLICAS],
    link: TokenBucket,
    flow: Option<Flow>,
    attempts: u16,
    ticket: u32,
}

/// The replica that an initiator sends.
struct Flow {
    replica: Replica,
    /// `None` before RATE-INIT.
    rate_bps: Option<u64>,
    /// A RATE-SET that arrived before RATE-INIT.
    held_bps: Option<u64>,
    bucket: TokenBucket,
    sent_bytes: u32,
    /// When the last frame has left.
    free_ns: u64,
}

struct Target {
    /// In order of arrival.
    flows: Vec<Incoming>,
    link: TokenBucket,
    disk: Disk,
    egress: Egress,
}

struct Incoming {
    replica: Replica,
    received_bytes: u32,
    rate_bps: u64,
}

struct Simulation<'a> {
    setup: &'a Setup,
    events: EventQueue<Event>,
    random: Random,
    placement: Placement,
    initiators: Vec<Initiator>,
    targets: Vec<Target>,
    metrics: Metrics,
}

pub(crate) fn run(setup: &Setup, seed: u64) -> Outcome {
    let mut simulation = Simulation::new(setup, seed);
    (0..setup.initiators).for_each(|who| simulation.begin(who));
    run_to(setup.run_ns(), simulation)
}

impl Simulated for Simulation<'_> {
    type Event = Event;

    fn events(&mut self) -> &mut EventQueue<Event> {
        &mut self.events
    }

    fn metrics_and_disks(&mut self) -> (&mut Metrics, impl ExactSizeIterator<Item = &Disk>) {
        (&mut self.metrics, self.targets.iter().map(|target| &target.disk))
    }

    fn into_metrics(self) -> Metrics {
        self.metrics
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::PutRequest(replica) => self.put_request(replica),
            Event::RateInit(replica, rate_bps) => self.rate_init(replica, rate_bps),
            Event::RateSet(replica, rate_bps) => self.rate_set(replica, rate_bps),
            Event::Send { who, ticket } if self.initiators[usize::from(who)].ticket == ticket => {
                self.send(who);
            }
            Event::Send { .. } => {}
            Event::Frame(replica, bytes) => self.frame(replica, bytes),
            Event::Ack(replica) => self.ack(replica),
            Event::Missed(replica) => self.missed(replica),
            Event::Get { who, chunk } => self.get(who, chunk),
            Event::Part { who, chunk, left_bytes, is_whole } => self.part(who, chunk, left_bytes, is_whole),
            Event::GetMissed { who, chunk } if self.initiators[usize::from(who)].chunk == chunk => {
                self.metrics.missed += 1;
                self.initiators[usize::from(who)].chunk += 1;
                self.ask_for(who);
            }
            Event::GetMissed { .. } => {}
        }
    }
}

impl<'a> Simulation<'a> {
    fn new(setup: &'a Setup, seed: u64) -> Self {
        let initiator = |_| Initiator {
            chunk: 0,
            begun_ns: 0,
            targets: [TARGETS; REPLICAS],
            begun: 0,
            is_acked: [false; REPLICAS],
            link: TokenBucket::new(LINK_BPS),
            flow: None,
            attempts: 0,
            ticket: 0,
        };
        let target = |_| Target {
            flows: Vec::new(),
            link: TokenBucket::new(LINK_BPS),
            disk: Disk::new(setup.write_ns()),
            egress: Egress::default(),
        };
        Self {
            setup,
            events: EventQueue::new(),
            random: Random(seed),
            placement: Placement::new(setup.extensions.is_hashed),
            initiators: (0..setup.initiators).map(initiator).collect(),
            targets: (0..TARGETS).map(target).collect(),
            metrics: Metrics::new(setup),
        }
    }

    /// Draws whether this datagram is lost.
    fn loses(&mut self) -> bool {
        let is_lost = self.setup.extensions.is_lost(&mut self.random);
        self.metrics.lost += u64::from(is_lost);
        is_lost
    }

    /// Sends a message that arrives at `at_ns`, unless it is lost.
    fn post(&mut self, at_ns: u64, event: Event) {
        if !self.loses() {
            self.events.enter(at_ns, event);
        }
    }

    /// Begins the next chunk of an initiator.
    fn begin(&mut self, who: u16) {
        let now_ns = self.events.now_ns();
        let is_get = self.setup.extensions.is_get(&mut self.random);
        let initiator = &mut self.initiators[usize::from(who)];
        initiator.chunk += 1;
        (initiator.begun_ns, initiator.begun) = (now_ns, 0);
        initiator.is_acked = [false; REPLICAS];
        initiator.targets = self.placement.targets(&mut self.random, &initiator.targets);
        if is_get { self.ask_for(who) } else { self.begin_replica(who, 0) }
    }

    fn begin_replica(&mut self, who: u16, number: u8) {
        let now_ns = self.events.now_ns();
        let initiator = &mut self.initiators[usize::from(who)];
        initiator.begun = initiator.begun.max(number + 1);
        initiator.attempts = initiator.attempts.wrapping_add(1);
        initiator.link.take(now_ns, CONTROL_BITS);
        let replica = Replica { who, chunk: initiator.chunk, number, attempt: initiator.attempts };
        let mut bucket = TokenBucket::new(0);
        bucket.take(now_ns, CONTROL_BITS);
        let free_ns = now_ns + HOP_NS - TRIP_NS;
        initiator.flow =
            Some(Flow { replica, rate_bps: None, held_bps: None, bucket, sent_bytes: 0, free_ns });
        self.post(now_ns + HOP_NS, Event::PutRequest(replica));
        if self.setup.extensions.loss_ppm > 0 {
            self.events.enter(now_ns + missed_ns(self.setup), Event::Missed(replica));
        }
    }

    fn target_of(&self, replica: Replica) -> usize {
        self.initiators[usize::from(replica.who)].targets[usize::from(replica.number)].into()
    }

    fn is_over(&self, replica: Replica) -> bool {
        self.initiators[usize::from(replica.who)].chunk != replica.chunk
    }

    /// Delay of a flow by a long disk queue: until the queue has room, less the time in which the
    /// chunk arrives.
    fn disk_delay_ns(&self, target: usize) -> u64 {
        let backlog = self.targets[target].disk.backlog(self.events.now_ns());
        let bytes = u64::from(self.setup.chunk_bytes());
        let chunk_ns = bytes * 8 * SECOND_NS / LINK_BPS;
        let queued = (backlog.queued_ns + backlog.write_ns / 2) / backlog.write_ns;
        let Config { disk_queue_bytes, disk_queue_chunks_min, .. } = Config::MULTICAST;
        let is_long = queued >= (disk_queue_bytes / bytes).max(disk_queue_chunks_min);
        if is_long { backlog.queued_ns.saturating_sub(chunk_ns) } else { 0 }
    }

    fn put_request(&mut self, replica: Replica) {
        if self.is_over(replica) {
            return;
        }
        let (now_ns, target) = (self.events.now_ns(), self.target_of(replica));
        let delay_ns = self.disk_delay_ns(target);
        let flows = &mut self.targets[target].flows;
        // A repeated replica starts again.
        flows.retain(|flow| flow.replica.who != replica.who);
        flows.push(Incoming { replica, received_bytes: 0, rate_bps: 0 });
        let rate_bps = LINK_BPS / flows.len() as u64;
        self.post(now_ns + HOP_NS + delay_ns, Event::RateInit(replica, rate_bps));
        self.set_rates(target);
    }

    /// After a flow has started or ended: all flows get their new share, except those whose last
    /// frames are in flight.
    fn set_rates(&mut self, target: usize) {
        let now_ns = self.events.now_ns();
        let bytes = self.setup.chunk_bytes();
        let rate_bps = LINK_BPS / self.targets[target].flows.len().max(1) as u64;
        for at in 0..self.targets[target].flows.len() {
            let flow = &mut self.targets[target].flows[at];
            let on_the_way = flow.rate_bps * TRIP_NS / SECOND_NS / 8;
            if u64::from(bytes - flow.received_bytes) <= u64::from(FRAME_BYTES) + on_the_way {
                continue;
            }
            flow.rate_bps = rate_bps;
            let replica = flow.replica;
            self.post(now_ns + HOP_NS, Event::RateSet(replica, rate_bps));
        }
    }

    fn flow_of(&mut self, replica: Replica) -> Option<&mut Flow> {
        let flow = self.initiators[usize::from(replica.who)].flow.as_mut();
        flow.filter(|flow| flow.replica == replica)
    }

    fn rate_init(&mut self, replica: Replica, rate_bps: u64) {
        let now_ns = self.events.now_ns();
        let Some(flow) = self.flow_of(replica) else { return };
        let rate_bps = flow.held_bps.unwrap_or(rate_bps);
        flow.rate_bps = Some(rate_bps);
        flow.bucket.set_rate(now_ns, rate_bps);
        self.send(replica.who);
    }

    fn rate_set(&mut self, replica: Replica, rate_bps: u64) {
        let now_ns = self.events.now_ns();
        let Some(flow) = self.flow_of(replica) else { return };
        if flow.rate_bps.is_none() {
            flow.held_bps = Some(rate_bps);
            return;
        }
        flow.rate_bps = Some(rate_bps);
        flow.bucket.set_rate(now_ns, rate_bps);
        self.send(replica.who);
    }

    /// Sends a frame if one may leave now, and schedules the next one.
    fn send(&mut self, who: u16) {
        let (now_ns, bytes) = (self.events.now_ns(), self.setup.chunk_bytes());
        let initiator = &mut self.initiators[usize::from(who)];
        initiator.ticket = initiator.ticket.wrapping_add(1);
        let Some(Flow { rate_bps: Some(rate_bps), .. }) = initiator.flow else { return };
        let (Some(flow), link) = (&mut initiator.flow, &mut initiator.link) else { return };
        let (replica, frame_bytes) = (flow.replica, FRAME_BYTES.min(bytes - flow.sent_bytes));
        let bits = u64::from(frame_bytes) * 8;
        let target = usize::from(initiator.targets[usize::from(replica.number)]);
        let own_ns = flow.free_ns.max(link.ready_ns(now_ns, bits)).max(flow.bucket.ready_ns(now_ns, bits));
        let ingress = &mut self.targets[target].link;
        // If the initiator itself must wait, the target's link is checked again then.
        let at_ns = if own_ns > now_ns { own_ns } else { ingress.ready_ns(now_ns, bits) };
        if at_ns > now_ns {
            self.events.enter(at_ns, Event::Send { who, ticket: initiator.ticket });
            return;
        }
        ingress.take(now_ns, bits);
        flow.sent_bytes += frame_bytes;
        flow.free_ns = now_ns + bits * SECOND_NS / rate_bps;
        let (free_ns, is_last) = (flow.free_ns, flow.sent_bytes == bytes);
        if !is_last {
            flow.bucket.take(now_ns, bits);
            link.take(now_ns, bits);
            self.events.enter(free_ns, Event::Send { who, ticket: initiator.ticket });
        }
        self.post(free_ns + TRIP_NS, Event::Frame(replica, frame_bytes));
        if is_last {
            self.after_last_frame(who);
        }
    }

    fn after_last_frame(&mut self, who: u16) {
        let initiator = &mut self.initiators[usize::from(who)];
        initiator.flow = None;
        let next = initiator.begun;
        if usize::from(next) < REPLICAS {
            self.begin_replica(who, next);
        }
    }

    fn frame(&mut self, replica: Replica, bytes: u32) {
        if self.is_over(replica) {
            return;
        }
        let (now_ns, target, chunk_bytes) =
            (self.events.now_ns(), self.target_of(replica), self.setup.chunk_bytes());
        let Target { flows, disk, .. } = &mut self.targets[target];
        let Some(at) = flows.iter().position(|flow| flow.replica == replica) else { return };
        flows[at].received_bytes += bytes;
        if flows[at].received_bytes == chunk_bytes {
            flows.remove(at);
            let written_ns = disk.queue(now_ns);
            self.post(written_ns + HOP_NS, Event::Ack(replica));
            self.set_rates(target);
        }
    }

    fn ack(&mut self, replica: Replica) {
        let (now_ns, is_over) = (self.events.now_ns(), self.is_over(replica));
        let initiator = &mut self.initiators[usize::from(replica.who)];
        if is_over {
            return;
        }
        initiator.is_acked[usize::from(replica.number)] = true;
        if initiator.is_acked == [true; REPLICAS] {
            initiator.flow = None;
            self.metrics.done(now_ns, initiator.begun_ns);
            self.begin(replica.who);
        }
    }

    fn missed(&mut self, replica: Replica) {
        let initiator = &self.initiators[usize::from(replica.who)];
        if self.is_over(replica) || initiator.is_acked[usize::from(replica.number)] {
            return;
        }
        if initiator.flow.as_ref().is_some_and(|flow| flow.replica != replica) {
            let at_ns = self.events.now_ns() + LATER_NS;
            self.events.enter(at_ns, Event::Missed(replica));
            return;
        }
        self.metrics.missed += 1;
        self.begin_replica(replica.who, replica.number);
    }

    /// Requests a chunk from one of its holders.
    fn ask_for(&mut self, who: u16) {
        let (now_ns, chunk) = (self.events.now_ns(), self.initiators[usize::from(who)].chunk);
        self.post(now_ns + HOP_NS, Event::Get { who, chunk });
        if self.setup.extensions.loss_ppm > 0 {
            self.events.enter(now_ns + missed_ns(self.setup), Event::GetMissed { who, chunk });
        }
    }

    fn get(&mut self, who: u16, chunk: u32) {
        let (now_ns, left_bytes) = (self.events.now_ns(), self.setup.chunk_bytes());
        let Initiator { targets, .. } = &self.initiators[usize::from(who)];
        let Target { disk, egress, .. } = &mut self.targets[usize::from(targets[0])];
        let begins_ns = egress.send(now_ns, disk, u64::from(left_bytes) * 8 * SECOND_NS / LINK_BPS);
        let first_ns = begins_ns + frame_ns(left_bytes) + TRIP_NS;
        self.events.enter(first_ns, Event::Part { who, chunk, left_bytes, is_whole: true });
    }

    fn part(&mut self, who: u16, chunk: u32, left_bytes: u32, is_whole: bool) {
        let (now_ns, is_lost) = (self.events.now_ns(), self.loses());
        let (is_whole, left_bytes) = (is_whole && !is_lost, left_bytes.saturating_sub(FRAME_BYTES));
        let initiator = &self.initiators[usize::from(who)];
        if left_bytes > 0 {
            self.events
                .enter(now_ns + frame_ns(left_bytes), Event::Part { who, chunk, left_bytes, is_whole });
        } else if is_whole && initiator.chunk == chunk {
            self.metrics.done(now_ns, initiator.begun_ns);
            self.begin(who);
        }
    }
}

fn missed_ns(setup: &Setup) -> u64 {
    MISSED_NS + MISSED_WRITES * setup.write_ns()
}

/// Time of the next frame of `left_bytes`, on the whole link.
fn frame_ns(left_bytes: u32) -> u64 {
    u64::from(left_bytes.min(FRAME_BYTES)) * 8 * SECOND_NS / LINK_BPS
}
