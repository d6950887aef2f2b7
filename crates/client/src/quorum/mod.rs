//! The client of a quorum keyspace (rule R14): what has no primary is put together here.
//!
//! ```text
//!            submit           R−k+1 answers               k answers          poll_event
//!   Free ────────────▶ Asking ──────────────▶ Storing ─────────────▶ Done ─────────────▶ Free
//!                        │                       ▲                    ▲
//!                        │ get: fewer than k hold the newest version  │
//!                        └───────── get: k hold it ───────────────────┘
//! ```
//!
//! A put asks for the newest timestamp, takes the next one and stores. A get asks for the newest version; if it is not shown to be held
//! by k replicas it is stored again before it is returned, since a later get might otherwise miss it. Both go to all replicas through
//! the multicast ring, so one that is slow, or gone, holds up nothing.
//!
//! Invariants:
//! * Answers of one epoch are counted, the newest that has been seen; each replica once.
//! * A timestamp, once chosen, is never changed: all stores of an op are the same.
//! * Rounds may belong to different epochs; `nicekv_replication`'s quorum module says why that is sound.
//! * What depends on the value from before (conditions, increments, expiry) is refused: it needs an order, thus a primary.
//!
//! A delete tells whether *its own question* found a value: a put at the same moment may make that untrue, not the deletion.

mod slot;

use crate::random::Jitter;
use crate::round_trip::RoundTrip;
use crate::sequences::Sequences;
use crate::wheel::Wheel;
use crate::{
    Answer, Completion, Config, Counters, OperationError, Outcome, Request, SEQUENCE_SPAN_MAX, SubmitError,
    Ticket,
};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::net::SocketAddrV4;
use nicekv_placement::key_digest;
use nicekv_wire::quorum::{Quorum, QuorumHeld};
use nicekv_wire::{Condition, Datagram, Expiry, Now, OpId, Operation, Status};
use slot::{Kind, Slot, State};

/// Bugs that tests plant, to see that they are found. Outside of tests there are none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(feature = "exploration"), allow(dead_code, unreachable_pub, reason = "only tests plant"))]
pub enum QuorumClientPlant {
    /// A get returns the newest version although fewer than k replicas hold it.
    NoWriteBack,
    /// Answers of different epochs are counted together.
    MixEpochs,
    /// One answer is enough to choose a timestamp.
    AskOne,
}

/// A client of one quorum keyspace, driven like [`ClientCore`](crate::ClientCore).
#[derive(Clone, Debug)]
pub struct QuorumCore {
    config: Config,
    quorum: Quorum,
    slots: Vec<Slot>,
    /// Slots that were used before and are free.
    free: Vec<u32>,
    sequences: Sequences,
    wheel: Wheel,
    /// Slots whose datagram is to be sent.
    outgoing: VecDeque<u32>,
    done: VecDeque<u32>,
    asking_round_trip: RoundTrip,
    storing_round_trip: RoundTrip,
    jitter: Jitter,
    counters: Counters,
    #[cfg(feature = "exploration")]
    plant: Option<QuorumClientPlant>,
}

impl QuorumCore {
    /// A client that has done nothing yet. `quorum` must be the keyspace's: replicas refuse another one.
    pub fn new(config: Config, quorum: Quorum) -> Self {
        assert!((1..=SEQUENCE_SPAN_MAX).contains(&config.in_flight_max));
        Self {
            config,
            quorum,
            slots: Vec::new(),
            free: Vec::new(),
            sequences: Sequences::new(),
            wheel: Wheel::new(config.in_flight_max),
            outgoing: VecDeque::new(),
            done: VecDeque::new(),
            asking_round_trip: RoundTrip::new(config.retry),
            storing_round_trip: RoundTrip::new(config.retry),
            jitter: Jitter(config.jitter_seed),
            counters: Counters::default(),
            #[cfg(feature = "exploration")]
            plant: None,
        }
    }

    /// Plants a bug.
    #[cfg(feature = "exploration")]
    pub fn plant(&mut self, plant: Option<QuorumClientPlant>) {
        self.plant = plant;
    }

    #[cfg(feature = "exploration")]
    fn has(&self, plant: QuorumClientPlant) -> bool {
        self.plant == Some(plant)
    }

    #[cfg(not(feature = "exploration"))]
    const fn has(&self, _: QuorumClientPlant) -> bool {
        false
    }

    /// Its settings.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// What it has done so far.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Requests that were submitted and whose completion has not been taken.
    pub fn in_flight(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Requests that may be submitted now before one is refused with [`SubmitError::WindowFull`].
    pub fn room(&self) -> usize {
        (self.config.in_flight_max - self.in_flight()).min(self.sequences.room())
    }

    /// Starts a request. It is answered, or fails, at about `deadline_ns` of the boot-time clock at the latest.
    ///
    /// # Errors
    /// [`SubmitError::NeedsPrimary`] for all but gets, sets and deletes without conditions; limits as everywhere.
    pub fn submit(
        &mut self,
        now: Now,
        request: Request<'_>,
        deadline_ns: u64,
    ) -> Result<Ticket, SubmitError> {
        request.check()?;
        let (kind, value) = understood(&request)?;
        if self.sequences.is_full() {
            return Err(SubmitError::WindowFull { limit: SEQUENCE_SPAN_MAX });
        }
        if self.in_flight() >= self.config.in_flight_max {
            return Err(SubmitError::WindowFull { limit: self.config.in_flight_max });
        }
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::new());
            self.slots.len() as u32 - 1
        });
        let op = OpId { client: self.config.client, sequence: self.sequences.begin(index) };
        let digest = key_digest(request.key());
        let slot = &mut self.slots[index as usize];
        slot.destination = self.config.vrings.multicast_address(&digest);
        slot.deadline_ns = deadline_ns;
        slot.ask(self.quorum, kind, op, digest, request.key(), value);
        let ticket = Ticket { index, generation: slot.generation };
        self.counters.submitted += 1;
        self.begin_round(index, now.boot_ns);
        Ok(ticket)
    }

    /// A datagram arrived at the client's socket.
    pub fn handle_datagram(&mut self, now: Now, bytes: &[u8]) {
        let (op, held) = match Datagram::decode(bytes) {
            Ok((_, Datagram::QuorumHeld(held))) => (held.op, Some(held)),
            Ok((_, Datagram::Reply(reply))) if reply.status == Status::NoSuchKeyspace => (reply.op, None),
            _ => {
                self.counters.malformed += 1;
                return;
            }
        };
        let slot = match op.client == self.config.client {
            true => self.sequences.slot(op.sequence),
            false => None,
        };
        match (slot, held) {
            (None, _) => self.counters.stray_replies += 1,
            (Some(index), Some(held)) => self.on_held(index, now.boot_ns, &held),
            (Some(index), None) if self.slots[index as usize].state == State::Asking => {
                self.finish(index, Err(OperationError::NoSuchKeyspace));
            }
            (Some(_), None) => {}
        }
    }

    /// Retries and gives up what is due.
    pub fn handle_deadline(&mut self, now: Now) {
        while let Some(index) = self.wheel.pop_due(now.boot_ns) {
            let slot = &self.slots[index as usize];
            if now.boot_ns >= slot.deadline_ns {
                let error = match (slot.state, slot.kind) {
                    // Nothing was sent that could be stored, or all that was stored had been put before.
                    (State::Asking, _) | (_, Kind::Get) => OperationError::TimedOut,
                    _ => OperationError::OutcomeUnknown,
                };
                self.finish(index, Err(error));
            } else if now.boot_ns < slot.retry_ns {
                self.set_timer(index, now.boot_ns);
            } else if slot.state == State::Asking
                && slot.kind == Kind::Get
                && slot.held.len() >= self.quorum.read_set()
            {
                // It has waited long enough for those that would show that k hold it. How long says nothing of the round trip.
                self.slots[index as usize].sent_ns = None;
                self.store(index, now.boot_ns);
            } else {
                self.retry(index, now.boot_ns);
            }
        }
    }

    /// When to call [`Self::handle_deadline`], in nanoseconds of the boot-time clock.
    pub fn next_deadline(&self) -> Option<u64> {
        self.wheel.next_due_ns()
    }

    /// Writes the next datagram to `out`, which is cleared, and says where it goes.
    pub fn poll_transmit(&mut self, out: &mut Vec<u8>) -> Option<SocketAddrV4> {
        while let Some(index) = self.outgoing.pop_front() {
            let slot = &mut self.slots[index as usize];
            slot.queued = false;
            if matches!(slot.state, State::Asking | State::Storing) {
                out.clear();
                out.extend_from_slice(&slot.bytes);
                return Some(slot.destination);
            }
        }
        None
    }

    /// Takes the next completion. Its ticket's index may be used again from here on.
    pub fn poll_event(&mut self) -> Option<Completion<'_>> {
        let index = self.done.pop_front()?;
        self.free.push(index);
        self.counters.completed += 1;
        let slot = &mut self.slots[index as usize];
        assert_eq!(slot.state, State::Done);
        let ticket = Ticket { index, generation: slot.generation };
        slot.state = State::Free;
        slot.generation = slot.generation.wrapping_add(1);
        let slot = &self.slots[index as usize];
        let has_value = slot.kind == Kind::Get && slot.result == Ok(Outcome::Done);
        let result = slot.result.map(|outcome| Answer {
            outcome,
            version: slot.version(),
            expiry_ms: 0,
            integer: 0,
            value: has_value.then_some(slot.value.as_slice()),
        });
        Some(Completion { ticket, result })
    }

    /// A replica says what it holds.
    fn on_held(&mut self, index: u32, now_ns: u64, held: &QuorumHeld<'_>) {
        let mixes = self.has(QuorumClientPlant::MixEpochs);
        let slot = &mut self.slots[index as usize];
        if !slot.count(held, mixes) {
            self.counters.stray_replies += 1;
            return;
        }
        match (slot.state, slot.kind) {
            (State::Asking, Kind::Get) => self.judge_get(index, now_ns),
            (State::Asking, _) => {
                let enough = if self.has(QuorumClientPlant::AskOne) { 1 } else { self.quorum.read_set() };
                if self.slots[index as usize].held.len() >= enough {
                    self.store(index, now_ns);
                }
            }
            _ if slot.holders() >= self.quorum.write_set() => self.succeed(index, now_ns),
            _ => {}
        }
    }

    /// Whether the newest version is known, and held by enough.
    fn judge_get(&mut self, index: u32, now_ns: u64) {
        let (read_set, write_set) = (self.quorum.read_set(), self.quorum.write_set());
        let slot = &self.slots[index as usize];
        let answered = slot.held.len();
        let is_held = slot.holders() >= write_set || self.has(QuorumClientPlant::NoWriteBack);
        if answered >= read_set && (is_held || slot.was_never_put()) {
            self.succeed(index, now_ns);
        } else if answered >= read_set.max(write_set) {
            // Fewer answers could not show k holders; more would, at the cost of waiting for the slow ones.
            self.store(index, now_ns);
        }
    }

    /// Chooses the timestamp, unless it is that of a version to be written back, and stores.
    fn store(&mut self, index: u32, now_ns: u64) {
        self.measure(index, now_ns);
        self.wheel.clear(index);
        if self.slots[index as usize].store(self.quorum) {
            self.begin_round(index, now_ns);
        } else {
            self.finish(index, Err(OperationError::Overflow));
        }
    }

    fn succeed(&mut self, index: u32, now_ns: u64) {
        self.measure(index, now_ns);
        let slot = &self.slots[index as usize];
        let found = slot.kind == Kind::Set || slot.present;
        self.finish(index, Ok(if found { Outcome::Done } else { Outcome::NotFound }));
    }

    fn measure(&mut self, index: u32, now_ns: u64) {
        let slot = &self.slots[index as usize];
        let round_trip = match slot.state {
            State::Asking => &mut self.asking_round_trip,
            _ => &mut self.storing_round_trip,
        };
        if let Some(sent_ns) = slot.sent_ns {
            round_trip.measured(now_ns.saturating_sub(sent_ns));
        }
    }

    fn begin_round(&mut self, index: u32, now_ns: u64) {
        let slot = &mut self.slots[index as usize];
        (slot.attempts, slot.sent_ns) = (0, Some(now_ns));
        self.transmit(index, now_ns);
    }

    fn retry(&mut self, index: u32, now_ns: u64) {
        self.counters.retries += 1;
        let slot = &mut self.slots[index as usize];
        slot.sent_ns = None;
        let round_trip = match slot.state {
            State::Asking => &mut self.asking_round_trip,
            _ => &mut self.storing_round_trip,
        };
        round_trip.timed_out(now_ns);
        self.transmit(index, now_ns);
    }

    /// Queues the slot's datagram and sets the time of its retry.
    fn transmit(&mut self, index: u32, now_ns: u64) {
        let slot = &mut self.slots[index as usize];
        let round_trip = match slot.state {
            State::Asking => &self.asking_round_trip,
            _ => &self.storing_round_trip,
        };
        slot.retry_ns = now_ns + self.jitter.spread(round_trip.timeout_ns(slot.attempts));
        slot.attempts += 1;
        if !slot.queued {
            slot.queued = true;
            self.outgoing.push_back(index);
        }
        self.set_timer(index, now_ns);
    }

    fn set_timer(&mut self, index: u32, now_ns: u64) {
        let slot = &self.slots[index as usize];
        self.wheel.set(index, now_ns, slot.retry_ns.min(slot.deadline_ns));
    }

    fn finish(&mut self, index: u32, result: Result<Outcome, OperationError>) {
        self.wheel.clear(index);
        let slot = &mut self.slots[index as usize];
        self.sequences.finish(slot.op.sequence);
        slot.state = State::Done;
        slot.result = result;
        self.done.push_back(index);
    }
}

/// What a request asks for, and the value that it carries, if no primary is needed for it.
fn understood<'a>(request: &Request<'a>) -> Result<(Kind, &'a [u8]), SubmitError> {
    let Request::Update { condition, return_old, operation, .. } = *request else {
        return Ok((Kind::Get, &[]));
    };
    let needs = |what| Err(SubmitError::NeedsPrimary { what });
    if condition != Condition::Always {
        return needs("a condition");
    }
    if return_old {
        return needs("returning the old value");
    }
    match operation {
        Operation::Set { value, expiry: Expiry::Never } => Ok((Kind::Set, value)),
        Operation::Delete => Ok((Kind::Delete, &[])),
        Operation::Set { .. } | Operation::Expire { .. } | Operation::Persist => needs("an expiry time"),
        Operation::Increment(_) | Operation::IncrementFloat(_) => needs("an increment"),
        Operation::Append(_) => needs("an append"),
    }
}
