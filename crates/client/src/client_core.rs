//! The state machine: from a request to its completion.
//!
//! ```text
//!            submit                    handle_datagram            poll_event
//!   Free ─────────────▶ InFlight ─────────────────────▶ Done ─────────────────▶ Free
//!                        │    ▲                          ▲
//!                   Busy │    │ pause over: new op id    │ deadline
//!                        ▼    │                          │
//!                        Pausing ────────────────────────┘
//! ```
//!
//! A slot keeps its buffer for the next request: it holds the encoded datagram while in flight, and the reply's value when done.

use crate::random::Jitter;
use crate::round_trip::RoundTrip;
use crate::sequences::Sequences;
use crate::wheel::Wheel;
use crate::{Answer, Completion, Config, OperationError, Outcome, Request, SEQUENCE_SPAN_MAX};
use crate::{SubmitError, Ticket};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::net::SocketAddrV4;
use nicekv_placement::key_digest;
use nicekv_wire::limits::DATAGRAM_BYTES_MAX;
use nicekv_wire::{Datagram, Get, KeyspaceId, Now, OpId, Reply, Status, Update};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Free,
    InFlight,
    /// Replicas said "busy, nothing stored": waits before it tries again as a new op.
    Pausing,
    Done,
}

/// A reply without its value.
#[derive(Clone, Copy, Debug)]
struct Summary {
    outcome: Outcome,
    version: OpId,
    expiry_ms: u64,
    integer: i64,
    has_value: bool,
}

#[derive(Clone, Debug)]
struct Slot {
    state: State,
    generation: u32,
    is_get: bool,
    /// Its index is in `ClientCore::outgoing`.
    queued: bool,
    sequence: u64,
    /// Tries of this request so far, those under earlier op ids included.
    attempts: u32,
    /// When the only datagram under the present op id was sent; `None` if there were several.
    sent_ns: Option<u64>,
    retry_ns: u64,
    deadline_ns: u64,
    destination: SocketAddrV4,
    bytes: Vec<u8>,
    result: Result<Summary, OperationError>,
}

impl Slot {
    fn new() -> Self {
        Self {
            state: State::Free,
            generation: 0,
            is_get: false,
            queued: false,
            sequence: 0,
            attempts: 0,
            sent_ns: None,
            retry_ns: 0,
            deadline_ns: 0,
            destination: SocketAddrV4::new(core::net::Ipv4Addr::UNSPECIFIED, 0),
            bytes: Vec::new(),
            result: Err(OperationError::TimedOut),
        }
    }
}

/// What a client has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Requests taken.
    pub submitted: u64,
    /// Requests finished.
    pub completed: u64,
    /// Datagrams sent again because no answer came in time.
    pub retries: u64,
    /// "Busy" answers.
    pub busy: u64,
    /// Replies to ops that are not in flight any more (duplicates, or too late).
    pub stray_replies: u64,
    /// Datagrams that are not well-formed replies.
    pub malformed: u64,
}

/// A client of a keyspace whose puts are ordered by a primary. See [`ClientCore`](crate::ClientCore).
#[derive(Clone, Debug)]
pub(crate) struct PrimaryCore {
    config: Config,
    slots: Vec<Slot>,
    /// Slots that were used before and are free.
    free: Vec<u32>,
    sequences: Sequences,
    wheel: Wheel,
    /// Slots whose datagram is to be sent.
    outgoing: VecDeque<u32>,
    done: VecDeque<u32>,
    get_round_trip: RoundTrip,
    update_round_trip: RoundTrip,
    jitter: Jitter,
    scratch: Vec<u8>,
    counters: Counters,
}

impl PrimaryCore {
    /// A client that has done nothing yet.
    pub(crate) fn new(config: Config) -> Self {
        assert!((1..=SEQUENCE_SPAN_MAX).contains(&config.in_flight_max));
        Self {
            config,
            slots: Vec::new(),
            free: Vec::new(),
            sequences: Sequences::new(),
            wheel: Wheel::new(config.in_flight_max),
            outgoing: VecDeque::new(),
            done: VecDeque::new(),
            get_round_trip: RoundTrip::new(config.retry),
            update_round_trip: RoundTrip::new(config.retry),
            jitter: Jitter(config.jitter_seed),
            scratch: Vec::new(),
            counters: Counters::default(),
        }
    }

    /// Its settings.
    pub(crate) fn config(&self) -> &Config {
        &self.config
    }

    /// What it has done so far.
    pub(crate) fn counters(&self) -> Counters {
        self.counters
    }

    /// Requests that were submitted and whose completion has not been taken.
    pub(crate) fn in_flight(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Requests that may be submitted now before one is refused with [`SubmitError::WindowFull`].
    pub(crate) fn room(&self) -> usize {
        (self.config.in_flight_max - self.in_flight()).min(self.sequences.room())
    }

    /// Starts a request. It is answered, or fails, at about `deadline_ns` of the boot-time clock at the latest.
    pub(crate) fn submit(
        &mut self,
        now: Now,
        request: Request<'_>,
        deadline_ns: u64,
    ) -> Result<Ticket, SubmitError> {
        request.check()?;
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
        let sequence = self.sequences.begin(index);
        let op = OpId { client: self.config.client, sequence };
        let watermark = self.sequences.watermark();
        let digest = key_digest(request.key());
        let slot = &mut self.slots[index as usize];
        match request {
            Request::Get { key } => {
                Get { keyspace: KeyspaceId::DEFAULT, op, digest, reply_to: None, forwarded: None, key }
                    .encode(&mut slot.bytes);
                slot.destination = self.config.vrings.unicast_address(&digest);
                slot.is_get = true;
            }
            Request::Update { key, condition, return_old, operation } => {
                Update {
                    keyspace: KeyspaceId::DEFAULT,
                    op,
                    digest,
                    reply_to: None,
                    watermark,
                    condition,
                    return_old,
                    operation,
                    key,
                }
                .encode(&mut slot.bytes);
                slot.destination = self.config.vrings.multicast_address(&digest);
                slot.is_get = false;
            }
        }
        slot.sequence = sequence;
        slot.deadline_ns = deadline_ns;
        slot.attempts = 0;
        slot.sent_ns = Some(now.boot_ns);
        let ticket = Ticket { index, generation: slot.generation };
        self.counters.submitted += 1;
        self.transmit(index, now.boot_ns);
        Ok(ticket)
    }

    /// A datagram arrived at the client's socket.
    pub(crate) fn handle_datagram(&mut self, now: Now, bytes: &[u8]) {
        let Ok((_, Datagram::Reply(reply))) = Datagram::decode(bytes) else {
            self.counters.malformed += 1;
            return;
        };
        let slot = match reply.op.client == self.config.client {
            true => self.sequences.slot(reply.op.sequence),
            false => None,
        };
        let Some(index) = slot else {
            self.counters.stray_replies += 1;
            return;
        };
        self.measure(index, now.boot_ns);
        if reply.status == Status::Busy {
            self.pause(index, now.boot_ns);
        } else {
            self.finish(index, Ok(reply));
        }
    }

    /// Retries and gives up what is due.
    pub(crate) fn handle_deadline(&mut self, now: Now) {
        while let Some(index) = self.wheel.pop_due(now.boot_ns) {
            let slot = &self.slots[index as usize];
            if now.boot_ns >= slot.deadline_ns {
                self.give_up(index);
            } else if now.boot_ns < slot.retry_ns {
                self.set_timer(index, now.boot_ns);
            } else if slot.state == State::Pausing {
                self.try_afresh(index, now.boot_ns);
            } else {
                self.retry(index, now.boot_ns);
            }
        }
    }

    /// When to call [`Self::handle_deadline`], in nanoseconds of the boot-time clock.
    pub(crate) fn next_deadline(&self) -> Option<u64> {
        self.wheel.next_due_ns()
    }

    /// Writes the next datagram to `out`, which is cleared, and says where it goes.
    pub(crate) fn poll_transmit(&mut self, out: &mut Vec<u8>) -> Option<SocketAddrV4> {
        while let Some(index) = self.outgoing.pop_front() {
            let slot = &mut self.slots[index as usize];
            slot.queued = false;
            if slot.state == State::InFlight {
                out.clear();
                out.extend_from_slice(&slot.bytes);
                return Some(slot.destination);
            }
        }
        None
    }

    /// Takes the next completion. Its ticket's index may be used again from here on.
    pub(crate) fn poll_event(&mut self) -> Option<Completion<'_>> {
        let index = self.done.pop_front()?;
        self.free.push(index);
        self.counters.completed += 1;
        let slot = &mut self.slots[index as usize];
        assert_eq!(slot.state, State::Done);
        let ticket = Ticket { index, generation: slot.generation };
        slot.state = State::Free;
        slot.generation = slot.generation.wrapping_add(1);
        let slot = &self.slots[index as usize];
        let result = slot.result.map(|summary| Answer {
            outcome: summary.outcome,
            version: summary.version,
            expiry_ms: summary.expiry_ms,
            integer: summary.integer,
            value: summary.has_value.then_some(slot.bytes.as_slice()),
        });
        Some(Completion { ticket, result })
    }

    fn retry(&mut self, index: u32, now_ns: u64) {
        self.counters.retries += 1;
        let slot = &mut self.slots[index as usize];
        slot.sent_ns = None;
        let round_trip = if slot.is_get { &mut self.get_round_trip } else { &mut self.update_round_trip };
        round_trip.timed_out(now_ns);
        self.transmit(index, now_ns);
    }

    /// Queues the slot's datagram and sets the time of its retry.
    fn transmit(&mut self, index: u32, now_ns: u64) {
        let slot = &mut self.slots[index as usize];
        let round_trip = if slot.is_get { &self.get_round_trip } else { &self.update_round_trip };
        slot.state = State::InFlight;
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

    fn measure(&mut self, index: u32, now_ns: u64) {
        let slot = &self.slots[index as usize];
        let round_trip = if slot.is_get { &mut self.get_round_trip } else { &mut self.update_round_trip };
        if let Some(sent_ns) = slot.sent_ns {
            round_trip.measured(now_ns.saturating_sub(sent_ns));
        }
    }

    /// Nothing was stored under this op id, and that is decided: the next try is a new op.
    fn pause(&mut self, index: u32, now_ns: u64) {
        self.counters.busy += 1;
        self.wheel.clear(index);
        let slot = &mut self.slots[index as usize];
        self.sequences.finish(slot.sequence);
        slot.state = State::Pausing;
        let pause_ns = self.update_round_trip.timeout_ns(slot.attempts);
        slot.retry_ns = now_ns + self.jitter.spread(pause_ns);
        self.set_timer(index, now_ns);
    }

    /// Gives a paused request a new op id and sends it.
    fn try_afresh(&mut self, index: u32, now_ns: u64) {
        let slot = &mut self.slots[index as usize];
        if self.sequences.is_full() {
            slot.retry_ns = now_ns + self.config.retry.max.as_nanos() as u64;
            return self.set_timer(index, now_ns);
        }
        slot.sequence = self.sequences.begin(index);
        slot.sent_ns = Some(now_ns);
        let op = OpId { client: self.config.client, sequence: slot.sequence };
        match Datagram::decode(&slot.bytes).expect("encoded here").1 {
            Datagram::Get(get) => Get { op, ..get }.encode(&mut self.scratch),
            Datagram::Update(update) => {
                Update { op, watermark: self.sequences.watermark(), ..update }.encode(&mut self.scratch);
            }
            other => unreachable!("not a request: {other:?}"),
        }
        core::mem::swap(&mut slot.bytes, &mut self.scratch);
        self.transmit(index, now_ns);
    }

    fn give_up(&mut self, index: u32) {
        let slot = &self.slots[index as usize];
        let error = match (slot.state, slot.is_get) {
            (State::Pausing, _) => OperationError::Busy,
            (_, true) => OperationError::TimedOut,
            (_, false) => OperationError::OutcomeUnknown,
        };
        self.finish(index, Err(error));
    }

    fn finish(&mut self, index: u32, result: Result<Reply<'_>, OperationError>) {
        self.wheel.clear(index);
        let slot = &mut self.slots[index as usize];
        if slot.state == State::InFlight {
            self.sequences.finish(slot.sequence);
        }
        slot.state = State::Done;
        slot.result = result.and_then(|reply| {
            slot.bytes.clear();
            slot.bytes.extend_from_slice(reply.value.unwrap_or_default());
            summary(&reply)
        });
        debug_assert!(slot.bytes.capacity() <= 2 * DATAGRAM_BYTES_MAX);
        self.done.push_back(index);
    }
}

fn summary(reply: &Reply<'_>) -> Result<Summary, OperationError> {
    let outcome = match reply.status {
        Status::NotFound => Outcome::NotFound,
        Status::ConditionFailed => Outcome::ConditionFailed,
        status => OperationError::from_status(status).map_or(Ok(Outcome::Done), Err)?,
    };
    Ok(Summary {
        outcome,
        version: reply.version,
        expiry_ms: reply.expiry_ms,
        integer: reply.integer,
        has_value: reply.value.is_some(),
    })
}
