//! What all requests under way have in common, whatever their protocol: slots, op ids, timers, retries, completions.
//!
//! ```text
//!            begin                 the exchange is done           poll_event
//!   Free ─────────────▶ InFlight ─────────────────────▶ Done ─────────────────▶ Free
//!                        │    ▲                          ▲
//!                 Afresh │    │ pause over: new op id    │ deadline
//!                        ▼    │                          │
//!                        Pausing ────────────────────────┘
//! ```
//!
//! A slot keeps its buffers for the next request. What is said in between, and what an answer means, is its [`Exchange`]'s business.
//!
//! **Client ids.** Sequences go on under a new client id, so that they alone tell ops apart, and the watermark, that of the oldest op
//! under whichever id, holds for all ids. An op keeps its id to its end: one that replicas have forgotten is not sent again under
//! another one, even if it was sent only once. An earlier copy of its datagram may have been executed before the client was forgotten,
//! and a replica that still remembers the client may have logged it and complete it in recovery (R3).

use crate::bundler::Outgoing;
use crate::config::{Keyspace, RetryPolicy};
use crate::exchange::{Buffers, Exchange, Name, Round, Step, Summary};
use crate::plant::{Plant, Planted};
use crate::random::Jitter;
use crate::round_trip::RoundTrip;
use crate::sequences::Sequences;
use crate::wheel::Wheel;
use crate::{
    Answer, Completion, Config, Counters, OperationError, Request, SEQUENCE_SPAN_MAX, SubmitError, Ticket,
};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use nicekv_wire::{ClientId, Datagram, OpId};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Free,
    InFlight,
    /// Waits before it tries again as a new op.
    Pausing,
    Done,
}

#[derive(Clone, Debug)]
struct Slot {
    state: State,
    generation: u32,
    /// Its index is in `InFlight::outgoing`.
    queued: bool,
    /// Index of its keyspace.
    keyspace: usize,
    op: OpId,
    round: Round,
    /// Tries of this round so far, those under earlier op ids included.
    attempts: u32,
    /// When the only datagram of this round, and under this op id, was sent; `None` if there were several.
    sent_ns: Option<u64>,
    retry_ns: u64,
    deadline_ns: u64,
    exchange: Exchange,
    buffers: Buffers,
    result: Result<Summary, OperationError>,
}

impl Slot {
    fn new(exchange: Exchange) -> Self {
        Self {
            state: State::Free,
            generation: 0,
            queued: false,
            keyspace: 0,
            op: OpId::NONE,
            round: Round::Read,
            attempts: 0,
            sent_ns: None,
            retry_ns: 0,
            deadline_ns: 0,
            exchange,
            buffers: Buffers::new(),
            result: Err(OperationError::TimedOut),
        }
    }
}

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct InFlight {
    client: ClientId,
    /// Replicas have forgotten `client`.
    pub(crate) is_forgotten: bool,
    limit: usize,
    retry: RetryPolicy,
    /// By the index of the keyspace, and [`Round`].
    round_trips: Vec<[RoundTrip; 2]>,
    /// By the index of the keyspace.
    partition_bits: Vec<Option<u32>>,
    slots: Vec<Slot>,
    /// Slots that were used before and are free.
    free: Vec<u32>,
    sequences: Sequences,
    wheel: Wheel,
    /// Slots whose datagram is to be sent.
    outgoing: VecDeque<u32>,
    done: VecDeque<u32>,
    jitter: Jitter,
    pub(crate) counters: Counters,
    pub(crate) planted: Planted,
}

impl InFlight {
    pub(crate) fn new(config: &Config) -> Self {
        assert!((1..=SEQUENCE_SPAN_MAX).contains(&config.in_flight_max));
        let round_trips = |_: &Keyspace| [RoundTrip::new(config.retry), RoundTrip::new(config.retry)];
        Self {
            client: config.client,
            is_forgotten: false,
            limit: config.in_flight_max,
            retry: config.retry,
            round_trips: config.keyspaces.iter().map(round_trips).collect(),
            partition_bits: config.keyspaces.iter().map(|keyspace| keyspace.partition_bits).collect(),
            slots: Vec::new(),
            free: Vec::new(),
            sequences: Sequences::new(),
            wheel: Wheel::new(config.in_flight_max),
            outgoing: VecDeque::new(),
            done: VecDeque::new(),
            jitter: Jitter(config.jitter_seed),
            counters: Counters::default(),
            planted: Planted::default(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    pub(crate) fn room(&self) -> usize {
        (self.limit - self.len()).min(self.sequences.room())
    }

    pub(crate) fn check_room(&self) -> Result<(), SubmitError> {
        match self.sequences.is_full() {
            true => Err(SubmitError::WindowFull { limit: SEQUENCE_SPAN_MAX }),
            false if self.room() == 0 => Err(SubmitError::WindowFull { limit: self.limit }),
            false => Ok(()),
        }
    }

    /// The op id of the next request.
    pub(crate) fn next_op(&self) -> OpId {
        OpId { client: self.client, sequence: self.sequences.next() }
    }

    /// Requests from here on are this client's.
    pub(crate) fn rename(&mut self, client: ClientId) {
        // One that was drawn twice would be refused again, and drawn again.
        (self.client, self.is_forgotten) = (client, self.is_forgotten && client == self.client);
    }

    /// The slot of an op that may be answered.
    pub(crate) fn find(&self, op: OpId) -> Option<u32> {
        if self.planted.has(Plant::AnyReplyAnswers) {
            return self.sequences.slot(self.sequences.watermark());
        }
        self.sequences.slot(op.sequence).filter(|index| self.slots[*index as usize].op == op)
    }

    /// Starts a request to the keyspace of this index. There must be room.
    pub(crate) fn begin(
        &mut self,
        now_ns: u64,
        (index, keyspace): (usize, &Keyspace),
        request: &Request<'_>,
        exchange: Exchange,
        deadline_ns: u64,
    ) -> Ticket {
        let place = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::new(exchange));
            self.slots.len() as u32 - 1
        });
        let name = self.name(place);
        let slot = &mut self.slots[place as usize];
        (slot.op, slot.keyspace, slot.exchange, slot.deadline_ns) = (name.op, index, exchange, deadline_ns);
        let round = slot.exchange.begin(name, keyspace, request, &mut slot.buffers);
        let ticket = Ticket { index: place, generation: slot.generation };
        self.counters.submitted += 1;
        self.send(place, round, now_ns);
        ticket
    }

    fn name(&mut self, index: u32) -> Name {
        let op = self.next_op();
        self.sequences.begin(index);
        Name { op, watermark: self.sequences.watermark() }
    }

    /// An answer to the op in this slot has arrived.
    pub(crate) fn on_datagram(&mut self, index: u32, now_ns: u64, datagram: &Datagram<'_>) {
        let slot = &mut self.slots[index as usize];
        let step = slot.exchange.on_datagram(datagram, &mut slot.buffers);
        if let (false, Some(sent_ns)) = (matches!(step, Step::Wait | Step::Stray), slot.sent_ns) {
            self.round_trip(index).measured(now_ns.saturating_sub(sent_ns));
        }
        self.take(index, step, now_ns);
    }

    /// Retries and gives up what is due.
    pub(crate) fn on_deadline(&mut self, now_ns: u64) {
        while let Some(index) = self.wheel.pop_due(now_ns) {
            let slot = &mut self.slots[index as usize];
            if now_ns >= slot.deadline_ns {
                let error = slot.exchange.given_up();
                self.finish(index, Err(error));
            } else if now_ns < slot.retry_ns {
                self.set_timer(index, now_ns);
            } else if slot.state == State::Pausing {
                self.begin_afresh(index, now_ns);
            } else {
                let step = slot.exchange.on_timeout(&mut slot.buffers);
                self.take(index, step, now_ns);
            }
        }
    }

    pub(crate) fn next_deadline(&self) -> Option<u64> {
        self.wheel.next_due_ns()
    }

    pub(crate) fn poll_transmit(&mut self, out: &mut Vec<u8>) -> Option<Outgoing> {
        while let Some(index) = self.outgoing.pop_front() {
            let slot = &mut self.slots[index as usize];
            slot.queued = false;
            if slot.state == State::InFlight {
                out.clear();
                out.extend_from_slice(&slot.buffers.datagram);
                // What was lost may have been lost for its company.
                let bits = self.partition_bits[slot.keyspace].filter(|_| slot.attempts == 1);
                return Some(Outgoing { to: slot.buffers.to, partition_bits: bits });
            }
        }
        None
    }

    pub(crate) fn poll_event(&mut self) -> Option<Completion<'_>> {
        let index = self.done.pop_front()?;
        self.free.push(index);
        self.counters.completed += 1;
        let slot = &mut self.slots[index as usize];
        assert_eq!(slot.state, State::Done);
        let ticket = Ticket { index, generation: slot.generation };
        slot.state = State::Free;
        slot.generation = slot.generation.wrapping_add(1);
        let value = slot.buffers.value.as_slice();
        let result = slot.result.map(|Summary { outcome, version, expiry_ms, integer, has_value }| Answer {
            outcome,
            version,
            expiry_ms,
            integer,
            value: has_value.then_some(value),
        });
        Some(Completion { ticket, result })
    }

    /// Does what an exchange asks for.
    fn take(&mut self, index: u32, step: Step, now_ns: u64) {
        match step {
            Step::Wait => {}
            Step::Stray => self.counters.stray_replies += 1,
            Step::Again => self.retry(index, now_ns),
            Step::Send(round) => self.send(index, round, now_ns),
            Step::Afresh => self.pause(index, now_ns),
            Step::Forgotten => {
                self.is_forgotten |= self.slots[index as usize].op.client == self.client;
                self.finish(index, Err(OperationError::OutcomeUnknown));
            }
            Step::Done(result) => self.finish(index, result),
        }
    }

    /// Begins a round with the slot's datagram.
    fn send(&mut self, index: u32, round: Round, now_ns: u64) {
        let slot = &mut self.slots[index as usize];
        (slot.round, slot.attempts, slot.sent_ns) = (round, 0, Some(now_ns));
        self.transmit(index, now_ns);
    }

    fn retry(&mut self, index: u32, now_ns: u64) {
        self.counters.retries += 1;
        self.slots[index as usize].sent_ns = None;
        self.round_trip(index).timed_out(now_ns);
        self.transmit(index, now_ns);
    }

    /// Queues the slot's datagram and sets the time of its retry.
    fn transmit(&mut self, index: u32, now_ns: u64) {
        let slot = &mut self.slots[index as usize];
        slot.state = State::InFlight;
        if !slot.queued {
            slot.queued = true;
            self.outgoing.push_back(index);
        }
        self.wait(index, now_ns);
        self.slots[index as usize].attempts += 1;
    }

    fn pause(&mut self, index: u32, now_ns: u64) {
        self.counters.busy += 1;
        let slot = &mut self.slots[index as usize];
        self.sequences.finish(slot.op.sequence);
        slot.state = State::Pausing;
        self.wait(index, now_ns);
    }

    /// Gives a paused request a new op id and sends it.
    fn begin_afresh(&mut self, index: u32, now_ns: u64) {
        if self.sequences.is_full() {
            self.slots[index as usize].retry_ns = now_ns + self.retry.max.as_nanos() as u64;
            return self.set_timer(index, now_ns);
        }
        let name = self.name(index);
        let slot = &mut self.slots[index as usize];
        (slot.op, slot.sent_ns) = (name.op, Some(now_ns));
        slot.exchange.begin_afresh(name, &mut slot.buffers);
        self.transmit(index, now_ns);
    }

    /// Nothing happens to the slot until it is answered, or a try's time has passed.
    fn wait(&mut self, index: u32, now_ns: u64) {
        let attempts = self.slots[index as usize].attempts;
        let timeout_ns = self.round_trip(index).timeout_ns(attempts);
        self.slots[index as usize].retry_ns = now_ns + self.jitter.spread(timeout_ns);
        self.set_timer(index, now_ns);
    }

    fn set_timer(&mut self, index: u32, now_ns: u64) {
        let slot = &self.slots[index as usize];
        self.wheel.clear(index);
        self.wheel.set(index, now_ns, slot.retry_ns.min(slot.deadline_ns));
    }

    /// Of the slot's keyspace and round.
    fn round_trip(&mut self, index: u32) -> &mut RoundTrip {
        let slot = &self.slots[index as usize];
        &mut self.round_trips[slot.keyspace][slot.round as usize]
    }

    fn finish(&mut self, index: u32, result: Result<Summary, OperationError>) {
        self.wheel.clear(index);
        let slot = &mut self.slots[index as usize];
        if slot.state == State::InFlight {
            self.sequences.finish(slot.op.sequence);
        }
        (slot.state, slot.result) = (State::Done, result);
        self.done.push_back(index);
    }
}
