//! What all requests under way have in common, whatever their protocol: slots, op ids, timers, retries, completions.
//!
//! ```text
//!            begin                 the exchange is done           poll_event
//!   Free ──▶ Waiting ──▶ InFlight ──────────────────────▶ Done ─────────────────▶ Free
//!               ▲ its turn  │   │ a large value's name      ▲ ▲
//!               │    Afresh │   └────▶ Reading ─────────────┘ │ deadline
//!               │           ▼             │ Anew              │
//!               └────── Pausing ◀─────────┘───────────────────┘
//!          pause over: new op id
//! ```
//!
//! Whose turn it is, `turns` knows; what is sent and read in chunks, `large`.
//!
//! A slot keeps its buffers for the next request. What is said in between, and what an answer means, is its [`Exchange`]'s business.
//!
//! **Client ids.** Sequences go on under a new client id, so that they alone tell ops apart, and the watermark, that of the oldest op
//! under whichever id, holds for all ids. An op keeps its id to its end: one that replicas have forgotten is not sent again under
//! another one, even if it was sent only once. An earlier copy of its datagram may have been executed before the client was forgotten,
//! and a replica that still remembers the client may have logged it and complete it in recovery (R3).

use crate::company::Parts;
use crate::config::{Keyspace, RetryPolicy};
use crate::coordination::Coordinator;
use crate::exchange::{Buffers, Exchange, Name, Round, Step};
use crate::large::{Due, Large, SharedBytes};
use crate::lengths::GetLength;
use crate::line::Links;
use crate::random::Jitter;
use crate::sequences::Sequences;
use crate::slot::{Slot, State, Turn};
use crate::summary::Summary;
use crate::turns::Lane;
use crate::wheel::Wheel;
use crate::{
    Answer, Completion, Config, Counters, OperationError, Request, SEQUENCE_SPAN_MAX, SubmitError, Ticket,
};
use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;
use core::net::SocketAddrV4;
use nicekv_proto::limits::DATAGRAM_BYTES_MAX;
use nicekv_proto::{ClientId, Datagram, OpId};

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct InFlight {
    client: ClientId,
    /// Replicas have forgotten `client`.
    pub(crate) is_expired: bool,
    limit: usize,
    retry: RetryPolicy,
    /// By the index of the keyspace, and [`Round`].
    pub(crate) lanes: Vec<[Lane; 2]>,
    /// By the index of the keyspace; none where each request is sent alone; and whether its hot keys are spread.
    pub(crate) parts: Vec<Option<Parts>>,
    pub(crate) hot: Vec<bool>,
    pub(crate) get_lengths: Vec<GetLength>,
    pub(crate) slots: Vec<Slot>,
    pub(crate) links: Links,
    /// Slots in the lines of all lanes.
    pub(crate) in_line: usize,
    /// Slots that were used before and are free.
    free: Vec<u32>,
    sequences: Sequences,
    wheel: Wheel,
    /// Slots whose datagram is to be sent.
    pub(crate) outgoing: VecDeque<u32>,
    done: VecDeque<u32>,
    pub(crate) due: Due,
    jitter: Jitter,
    pub(crate) coordinator: Coordinator,
    pub(crate) counters: Counters,
}

impl InFlight {
    pub(crate) fn new(config: &Config) -> Self {
        assert!((1..=SEQUENCE_SPAN_MAX).contains(&config.in_flight_max));
        let lanes = |_: &Keyspace| [Lane::new(config), Lane::new(config)];
        Self {
            client: config.client,
            is_expired: false,
            limit: config.in_flight_max,
            retry: config.retry,
            lanes: config.keyspaces.iter().map(lanes).collect(),
            parts: config.keyspaces.iter().map(Parts::of).collect(),
            hot: config.keyspaces.iter().map(|keyspace| keyspace.is_hot).collect(),
            get_lengths: vec![GetLength::default(); config.keyspaces.len()],
            slots: Vec::new(),
            links: Links::default(),
            in_line: 0,
            free: Vec::new(),
            sequences: Sequences::new(),
            wheel: Wheel::new(config.in_flight_max),
            outgoing: VecDeque::new(),
            done: VecDeque::new(),
            due: Due::new(config),
            jitter: Jitter(config.jitter_seed),
            // A stream of its own.
            coordinator: Coordinator::new(config.coordination, &config.nodes, !config.jitter_seed),
            counters: Counters::default(),
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
        (self.client, self.is_expired) = (client, self.is_expired && client == self.client);
    }

    /// The slot of an op that may be answered.
    pub(crate) fn find(&self, op: OpId) -> Option<u32> {
        self.sequences.slot(op.sequence).filter(|index| self.slots[*index as usize].op == op)
    }

    /// Starts a request to the keyspace of this index. There must be room.
    pub(crate) fn begin(
        &mut self,
        now_ns: u64,
        (index, keyspace): (usize, &Keyspace),
        (request, kept): (&Request<'_>, Option<&SharedBytes>),
        exchange: Exchange,
        deadline_ns: u64,
    ) -> Ticket {
        let place = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::new(exchange, Buffers::new(self.due.message_value_bytes_max)));
            self.slots.len() as u32 - 1
        });
        let name = self.name(place);
        let slot = &mut self.slots[place as usize];
        (slot.op, slot.keyspace, slot.exchange, slot.deadline_ns) = (name.op, index, exchange, deadline_ns);
        (slot.was_sent, slot.wants_length) = (false, matches!(request, Request::Length { .. }));
        (slot.auto_read_bytes_max, slot.wanted) = (self.due.auto_read_bytes_max, None);
        slot.buffers.kept = kept.cloned();
        let round = slot.exchange.begin(name, keyspace, request, &mut slot.buffers);
        slot.buffers.kept = None;
        slot.patience_ns = self.due.patience_ns();
        let (generation, put) = (slot.generation, slot.buffers.large.as_deref());
        let bytes = if let Some(Large::Put(put)) = put { put.reference().length as usize } else { 0 };
        self.give_time(place, bytes);
        let ticket = Ticket { index: place, generation };
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
    pub(crate) fn on_datagram(
        &mut self,
        index: u32,
        now_ns: u64,
        from: SocketAddrV4,
        datagram: &Datagram<'_>,
    ) {
        let slot = &mut self.slots[index as usize];
        let step = slot.exchange.on_datagram(datagram, &mut slot.buffers);
        if !matches!(step, Step::Wait | Step::Stray) && slot.state == State::InFlight {
            self.note_node(index, from, now_ns);
            self.answered(index, now_ns, datagram);
        }
        self.look_after_read(index, now_ns);
        self.take(index, step, now_ns);
    }

    /// What an answer tells of the replicas' haste, and of answers to come.
    fn answered(&mut self, index: u32, now_ns: u64, datagram: &Datagram<'_>) {
        let &Slot { sent_ns, copies, first_sent_ns, turn, .. } = &self.slots[index as usize];
        let copies = if self.stands_apart(index) { 0 } else { copies };
        let lane = self.lane(index);
        let took_ns = now_ns.saturating_sub(sent_ns);
        match copies {
            1 => {
                let value = if let Datagram::Reply(reply) = datagram { reply.value } else { None };
                lane.answered(now_ns, sent_ns, turn, value.map_or(0, <[u8]>::len));
            }
            // Sooner than any answer ever was: it is to the first datagram.
            2 if took_ns < lane.window.base_ns() => {
                lane.measured(now_ns.saturating_sub(first_sent_ns), turn.destination);
            }
            _ => {}
        }
        self.heard(index, now_ns);
    }

    /// Retries and gives up what is due.
    pub(crate) fn on_deadline(&mut self, now_ns: u64) {
        while let Some(index) = self.wheel.pop_due(now_ns) {
            let slot = &mut self.slots[index as usize];
            if now_ns >= slot.deadline_ns {
                let error = if slot.was_sent { slot.exchange.given_up() } else { OperationError::Busy };
                self.finish(index, Err(error));
                self.give_turns(now_ns);
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
        self.wheel.next_due_ns().into_iter().chain(self.due.next_ns()).min()
    }

    pub(crate) fn poll_event(&mut self) -> Option<Completion<'_>> {
        self.due.delivered();
        let index = self.done.pop_front()?;
        self.free.push(index);
        self.counters.completed += 1;
        let slot = &mut self.slots[index as usize];
        assert_eq!(slot.state, State::Done);
        let (ticket, op) = (Ticket { index, generation: slot.generation }, slot.op);
        slot.state = State::Free;
        slot.generation = slot.generation.wrapping_add(1);
        if slot.turn.datagrams > 1 {
            slot.buffers.let_go_of_long();
        }
        let value = match slot.buffers.large.take() {
            Some(large) => self.due.deliver(*large),
            None if slot.buffers.value.len() > DATAGRAM_BYTES_MAX => {
                self.due.deliver(Large::Whole(core::mem::take(&mut slot.buffers.value)))
            }
            None => slot.buffers.value.as_slice(),
        };
        let length = slot.wants_length.then_some(value.len());
        let result =
            slot.result.map(|Summary { outcome, version, expiry_ms, integer, has_value, form }| Answer {
                outcome,
                version,
                expiry_ms,
                integer: length.filter(|_| has_value).map_or(integer, |length| length as i64),
                value: (has_value && length.is_none()).then_some(value),
                form,
            });
        Some(Completion { ticket, op, result })
    }

    /// Does what an exchange asks for.
    pub(crate) fn take(&mut self, index: u32, step: Step, now_ns: u64) {
        match step {
            Step::Wait => {}
            Step::Stray => self.counters.stray_replies += 1,
            Step::Again => self.retry(index, now_ns),
            Step::Send(round) => self.send(index, round, now_ns),
            Step::Afresh => {
                self.counters.busy += 1;
                self.pause(index, now_ns);
            }
            Step::Read => self.begin_reading(index, now_ns),
            Step::Anew => self.begin_anew(index, now_ns),
            Step::Forgotten => {
                self.is_expired |= self.slots[index as usize].op.client == self.client;
                self.finish(index, Err(OperationError::OutcomeUnknown));
            }
            Step::Done(result) => self.finish(index, result),
        }
        self.give_turns(now_ns);
    }

    /// Begins a round with the slot's datagram.
    fn send(&mut self, index: u32, round: Round, now_ns: u64) {
        self.leave(index);
        let slot = &mut self.slots[index as usize];
        (slot.round, slot.attempts, slot.copies) = (round, 0, 0);
        self.line_up(index, now_ns);
    }

    fn retry(&mut self, index: u32, now_ns: u64) {
        if self.slots[index as usize].state != State::InFlight {
            return self.set_timer(index, now_ns);
        }
        let &Slot { sent_ns, attempts, turn: Turn { destination, .. }, .. } = &self.slots[index as usize];
        let patient_until_ns = self.lane(index).patient_until_ns(sent_ns, destination);
        // It may only be later than was thought when it was sent. One of all that wait for the same silence to end has asked again.
        if attempts == 1 && now_ns < patient_until_ns {
            self.slots[index as usize].retry_ns = now_ns + self.jitter.spread(patient_until_ns - now_ns);
            return self.set_timer(index, now_ns);
        }
        self.counters.retries += 1;
        self.coordinator.doubt(now_ns);
        self.unanswered(index, now_ns);
        self.keep_apart(index, now_ns);
        self.transmit(index, now_ns);
    }

    /// Queues the slot's datagram and sets the time of its retry.
    pub(crate) fn transmit(&mut self, index: u32, now_ns: u64) {
        let slot = &mut self.slots[index as usize];
        if slot.copies == 0 {
            slot.first_sent_ns = now_ns;
            self.begin_sending(index, now_ns);
        }
        self.queue(index, now_ns);
        self.wait(index, now_ns);
        self.slots[index as usize].attempts += 1;
    }

    /// Queues the slot's datagram.
    pub(crate) fn queue(&mut self, index: u32, now_ns: u64) {
        let slot = &mut self.slots[index as usize];
        (slot.state, slot.was_sent, slot.sent_ns, slot.copies) =
            (State::InFlight, true, now_ns, slot.copies + 1);
        if !slot.queued {
            slot.queued = true;
            self.outgoing.push_back(index);
        }
    }

    /// Nothing happens to the slot until its turn or its deadline comes.
    pub(crate) fn wait_for_turn(&mut self, index: u32, now_ns: u64) {
        let slot = &mut self.slots[index as usize];
        (slot.state, slot.retry_ns) = (State::Waiting, slot.deadline_ns);
        self.set_timer(index, now_ns);
    }

    pub(crate) fn pause(&mut self, index: u32, now_ns: u64) {
        self.stop_sending(index);
        self.leave(index);
        let slot = &mut self.slots[index as usize];
        self.sequences.finish(slot.op.sequence);
        slot.state = State::Pausing;
        self.wait(index, now_ns);
    }

    /// What was read is of no use: the get is begun again at once.
    fn begin_anew(&mut self, index: u32, now_ns: u64) {
        self.end_large(index, false);
        let slot = &mut self.slots[index as usize];
        self.sequences.finish(slot.op.sequence);
        (slot.state, slot.attempts) = (State::Pausing, 0);
        if let Some(left_ns) = slot.wanted.take() {
            slot.deadline_ns = now_ns.saturating_add(left_ns);
        }
        self.begin_afresh(index, now_ns);
    }

    /// An op of its own is not needed any more.
    pub(crate) fn release_op(&mut self, sequence: u64) {
        self.sequences.finish(sequence);
    }

    /// Gives a paused request a new op id and sends it.
    pub(crate) fn begin_afresh(&mut self, index: u32, now_ns: u64) {
        if self.sequences.is_full() {
            self.slots[index as usize].retry_ns = now_ns + self.retry.max.as_nanos() as u64;
            return self.set_timer(index, now_ns);
        }
        let name = self.name(index);
        let slot = &mut self.slots[index as usize];
        (slot.op, slot.copies) = (name.op, 0);
        slot.round = slot.exchange.begin_afresh(name, &mut slot.buffers);
        self.line_up(index, now_ns);
    }

    /// Nothing happens to the slot until it is answered, or a try's time has passed; while chunks of it are under way, what becomes of them decides.
    pub(crate) fn wait(&mut self, index: u32, now_ns: u64) {
        let slot = &mut self.slots[index as usize];
        let (attempts, destination) = (slot.attempts, slot.turn.destination);
        if slot.state == State::Reading || slot.buffers.is_awaited() {
            // The deadline may move.
            slot.retry_ns = u64::MAX;
            return self.set_timer(index, now_ns);
        }
        let timeout_ns = self.lane(index).timeout_ns(attempts, destination);
        self.slots[index as usize].retry_ns = now_ns + self.jitter.spread(timeout_ns);
        self.set_timer(index, now_ns);
    }

    /// Nothing happens to the slot by time.
    pub(crate) fn disarm(&mut self, index: u32) {
        self.wheel.clear(index);
    }

    pub(crate) fn set_timer(&mut self, index: u32, now_ns: u64) {
        let slot = &self.slots[index as usize];
        self.wheel.clear(index);
        self.wheel.set(index, now_ns, slot.retry_ns.min(slot.deadline_ns));
    }

    /// Of the slot's keyspace and round.
    pub(crate) fn lane(&mut self, index: u32) -> &mut Lane {
        let slot = &self.slots[index as usize];
        &mut self.lanes[slot.keyspace][slot.round as usize]
    }

    /// The same lane, what links the slots that wait in it, and how many do in all.
    pub(crate) fn lane_and_links(&mut self, index: u32) -> (&mut Lane, &mut Links, &mut usize) {
        let slot = &self.slots[index as usize];
        let lane = &mut self.lanes[slot.keyspace][slot.round as usize];
        (lane, &mut self.links, &mut self.in_line)
    }

    pub(crate) fn finish(&mut self, index: u32, result: Result<Summary, OperationError>) {
        self.wheel.clear(index);
        self.leave(index);
        self.end_large(index, result.is_ok());
        let slot = &mut self.slots[index as usize];
        if matches!(slot.state, State::InFlight | State::Waiting | State::Reading) {
            self.sequences.finish(slot.op.sequence);
        }
        (slot.state, slot.result, slot.wanted) = (State::Done, result, None);
        self.done.push_back(index);
    }
}
