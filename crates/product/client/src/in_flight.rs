//! Requests in flight, whatever their protocol: slots, op ids, timers, retries, completions.
//!
//! ```text
//!            begin                 the exchange is done           poll_event
//!   Free ──▶ Waiting ──▶ InFlight ──────────────────────▶ Done ─────────────────▶ Free
//!               ▲ admitted  │   │ answered by a reference     ▲ ▲
//!               │           │   └────▶ Reading ─────────────┘ │ deadline
//!               │  busy     ▼             │ value is gone     │
//!               └────── Pausing ◀─────────┘───────────────────┘
//!          pause over: new op id
//! ```
//!
//! The table decides none of this alone. [`FlowControl`] says when a request may be sent, its [`Exchange`] what is sent
//! and what an answer means, [`Batcher`] which requests share a datagram, and `large` moves the chunks of large values.
//! None of these knows the table; the table calls them and does what they say.
//!
//! A slot keeps its buffers for the next request.
//!
//! **Client ids.** Sequence numbers continue under a new client id. So they alone tell ops apart, and one watermark, that
//! of the oldest op under any id, holds for all ids. An op keeps its id to its end: if replicas have forgotten the id, the
//! op is not sent again under another one, even if it was sent only once. An earlier copy of its datagram may have been
//! executed before the client was forgotten, and a replica that still remembers the client may have logged it and complete
//! it in recovery (R3).

mod large;
#[cfg(test)]
mod large_tests;
mod pending_reads;
mod sequences;
mod slot;

use crate::batching::{AnsweringNodes, BatchKey, Batcher, GetLength, LOOKAHEAD_MAX};
use crate::config::{Keyspace, RetryPolicy};
use crate::coordination::Coordinator;
use crate::exchange::{Attempt, Buffers, Exchange, Round, Step};
use crate::flow_control::{Admission, FlowControl, Sent};
use crate::large::{Large, LargeValues, SharedBytes};
use crate::random::Jitter;
use crate::request::Summary;
use crate::timer_wheel::TimerWheel;
use crate::{
    Answer, Completion, Config, Counters, OperationError, Request, SEQUENCE_SPAN_MAX, SubmitError, Ticket,
};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::net::SocketAddrV4;
use nicekv_proto::bundle::Common;
use nicekv_proto::directory::DirectoryPage;
use nicekv_proto::limits::DATAGRAM_BYTES_MAX;
use nicekv_proto::route::leave_room_for_stamp;
use nicekv_proto::{ClientId, Datagram, Form, HeaderLayout, OpId, Opcode, lengthen};
use sequences::Sequences;
use slot::{Slot, State};

/// The table of requests in flight.
#[derive(Clone, Debug)]
pub(crate) struct InFlight {
    client: ClientId,
    /// Replicas have forgotten `client` (R10).
    is_expired: bool,
    limit: usize,
    retry: RetryPolicy,
    /// By keyspace index.
    keyspaces: Vec<KeyspaceState>,
    flow: FlowControl,
    slots: Vec<Slot>,
    /// Slots that were used before and are free.
    free: Vec<u32>,
    sequences: Sequences,
    timers: TimerWheel,
    /// Slots whose datagram is to be sent.
    outgoing: VecDeque<u32>,
    batcher: Batcher,
    done: VecDeque<u32>,
    large: LargeValues,
    jitter: Jitter,
    coordinator: Coordinator,
    pub(crate) counters: Counters,
}

/// The client's state of a keyspace.
#[derive(Clone, Debug)]
struct KeyspaceState {
    /// `None`: each request is sent in its own datagram.
    nodes: Option<AnsweringNodes>,
    /// Switches spread its hot keys.
    is_hot: bool,
    get_length: GetLength,
}

impl KeyspaceState {
    fn new(keyspace: &Keyspace) -> Self {
        let nodes = AnsweringNodes::of(keyspace);
        Self { nodes, is_hot: keyspace.is_hot, get_length: GetLength::default() }
    }
}

/// A request that is about to be sent.
#[derive(Clone, Copy, Debug)]
struct Outgoing {
    to: SocketAddrV4,
    slot: u32,
    /// `None`: it is sent in its own datagram.
    batch_key: Option<BatchKey>,
}

impl InFlight {
    pub(crate) fn new(config: &Config) -> Self {
        assert!((1..=SEQUENCE_SPAN_MAX).contains(&config.in_flight_max));
        Self {
            client: config.client,
            is_expired: false,
            limit: config.in_flight_max,
            retry: config.retry,
            keyspaces: config.keyspaces.iter().map(KeyspaceState::new).collect(),
            flow: FlowControl::new(config),
            slots: Vec::new(),
            free: Vec::new(),
            sequences: Sequences::new(),
            timers: TimerWheel::new(config.in_flight_max),
            outgoing: VecDeque::new(),
            batcher: Batcher::default(),
            done: VecDeque::new(),
            large: LargeValues::new(config),
            jitter: Jitter(config.jitter_seed),
            // The inverted seed gives a separate stream of random numbers.
            coordinator: Coordinator::new(config.coordination, &config.nodes, !config.jitter_seed),
            counters: Counters::default(),
        }
    }

    /// Sets the time of the following input, in nanoseconds of the boot-time clock.
    pub(crate) fn set_now(&mut self, now_ns: u64) {
        self.large.now_ns = now_ns;
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

    /// The counters, including those of its parts.
    pub(crate) fn counters(&self) -> Counters {
        Counters { stragglers_refused: self.large.stragglers.refused, ..self.counters }
    }

    /// The op id of the next request.
    pub(crate) fn next_op(&self) -> OpId {
        OpId { client: self.client, sequence: self.sequences.next() }
    }

    pub(crate) fn is_expired(&self) -> bool {
        self.is_expired
    }

    /// Uses this client id for later requests.
    pub(crate) fn rename(&mut self, client: ClientId) {
        // If the driver draws the expired id again, the client stays expired, so that another one
        // is drawn.
        (self.client, self.is_expired) = (client, self.is_expired && client == self.client);
    }

    /// Sets the keyspace at an index to which no request is in flight, or at the next new index.
    pub(crate) fn set_keyspace(&mut self, index: usize, keyspace: &Keyspace, config: &Config) {
        self.flow.reset_keyspace(index, config);
        if index == self.keyspaces.len() {
            self.keyspaces.push(KeyspaceState::new(keyspace));
        } else {
            self.update_keyspace(index, keyspace);
        }
    }

    /// Updates how the keyspace is partitioned, and whether its hot keys are spread.
    pub(crate) fn update_keyspace(&mut self, index: usize, keyspace: &Keyspace) {
        let state = &mut self.keyspaces[index];
        (state.nodes, state.is_hot) = (AnsweringNodes::of(keyspace), keyspace.is_hot);
    }

    pub(crate) fn has_requests_to(&self, keyspace: usize) -> bool {
        self.slots.iter().any(|slot| slot.keyspace == keyspace && slot.state != State::Free)
    }

    /// Whether the switch finds the nodes for requests.
    pub(crate) fn is_coordinated_by_switch(&self) -> bool {
        self.coordinator.is_switch()
    }

    /// The slot of an op that is waiting for an answer.
    fn find(&self, op: OpId) -> Option<u32> {
        self.sequences.slot(op.sequence).filter(|index| self.slots[*index as usize].op == op)
    }

    /// Starts a request to the keyspace of this index. There must be room.
    pub(crate) fn begin(
        &mut self,
        now_ns: u64,
        (index, keyspace): (usize, &Keyspace),
        (request, shared): (&Request<'_>, Option<&SharedBytes>),
        exchange: Exchange,
        deadline_ns: u64,
    ) -> Ticket {
        let place = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::new(exchange, Buffers::new(self.large.message_value_bytes_max)));
            self.flow.add_slot();
            self.slots.len() as u32 - 1
        });
        let attempt = self.next_attempt(place);
        let slot = &mut self.slots[place as usize];
        (slot.op, slot.keyspace, slot.exchange, slot.deadline_ns) =
            (attempt.op, index, exchange, deadline_ns);
        (slot.was_sent, slot.wants_length) = (false, matches!(request, Request::Length { .. }));
        (slot.auto_read_bytes_max, slot.pending_read_ns) = (self.large.auto_read_bytes_max, None);
        slot.buffers.shared = shared.cloned();
        let round = slot.exchange.begin(attempt, keyspace, request, &mut slot.buffers);
        slot.buffers.shared = None;
        slot.extension_ns = self.large.extension_ns_max();
        let (generation, put) = (slot.generation, slot.buffers.large.as_deref());
        let bytes = if let Some(Large::Put(put)) = put { put.reference().length as usize } else { 0 };
        self.extend_deadline(place, bytes);
        let ticket = Ticket { index: place, generation };
        self.counters.submitted += 1;
        self.send(place, round, now_ns);
        ticket
    }

    fn next_attempt(&mut self, index: u32) -> Attempt {
        let op = self.next_op();
        self.sequences.begin(index);
        Attempt { op, watermark: self.sequences.watermark() }
    }

    /// An answer to an op has arrived.
    pub(crate) fn on_answer(&mut self, now_ns: u64, from: SocketAddrV4, op: OpId, datagram: &Datagram<'_>) {
        let Some(index) = self.find(op) else {
            self.counters.stray_replies += 1;
            return;
        };
        self.note_get_length(index, datagram);
        let slot = &mut self.slots[index as usize];
        let step = slot.exchange.on_datagram(datagram, &mut slot.buffers);
        if !matches!(step, Step::Wait | Step::Stray) && slot.state == State::InFlight {
            self.note_answering_node(index, from, now_ns);
            let slot = &self.slots[index as usize];
            let value = if let Datagram::Reply(reply) = datagram { reply.value } else { None };
            let sent = Sent { first_ns: slot.first_sent_ns, last_ns: slot.sent_ns, copies: slot.copies };
            self.flow.on_answer(index, now_ns, sent, value.map_or(0, <[u8]>::len));
        }
        self.schedule_read(index, now_ns);
        self.take(index, step, now_ns);
    }

    /// A node has refused the datagram, because it is not the key's node.
    pub(crate) fn on_misdirected(&mut self, now_ns: u64, op: OpId) {
        let Some(index) = self.find(op) else {
            self.counters.stray_replies += 1;
            return;
        };
        self.counters.misdirected += 1;
        self.coordinator.refused(index, op, self.slots.len());
        self.coordinator.doubt(now_ns);
    }

    /// A node has sent a page of its directory. Requests that were refused by an older version are sent again.
    pub(crate) fn on_directory(&mut self, now_ns: u64, from: SocketAddrV4, page: &DirectoryPage<'_>) {
        for (index, op) in self.coordinator.on_page(from, page) {
            let slot = &self.slots[index as usize];
            if slot.op == op && slot.state == State::InFlight {
                self.counters.retries += 1;
                self.transmit(index, now_ns);
            }
        }
    }

    /// Retries or ends the requests that are due.
    pub(crate) fn on_deadline(&mut self, now_ns: u64) {
        self.coordinator.on_deadline(now_ns);
        while let Some(index) = self.timers.pop_due(now_ns) {
            let slot = &mut self.slots[index as usize];
            if now_ns >= slot.deadline_ns {
                let error = if slot.was_sent { slot.exchange.given_up() } else { OperationError::Busy };
                self.finish(index, Err(error));
                self.send_ready(now_ns);
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
        let parts = [self.timers.next_due_ns(), self.large.next_due_ns(), self.coordinator.next_deadline()];
        parts.into_iter().flatten().min()
    }

    pub(crate) fn poll_event(&mut self) -> Option<Completion<'_>> {
        self.large.drop_delivered();
        let index = self.done.pop_front()?;
        self.free.push(index);
        self.counters.completed += 1;
        let slot = &mut self.slots[index as usize];
        assert_eq!(slot.state, State::Done);
        let (ticket, op) = (Ticket { index, generation: slot.generation }, slot.op);
        slot.state = State::Free;
        slot.generation = slot.generation.wrapping_add(1);
        if slot.buffers.datagram.len() > DATAGRAM_BYTES_MAX {
            slot.buffers.shrink();
        }
        let value = match slot.buffers.large.take() {
            Some(large) => self.large.deliver(*large),
            None if slot.buffers.value.len() > DATAGRAM_BYTES_MAX => {
                self.large.deliver(Large::Whole(core::mem::take(&mut slot.buffers.value)))
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

    /// The value of the last completion, if it was longer than a datagram.
    pub(crate) fn take_delivered(&mut self) -> Option<Vec<u8>> {
        self.large.take_delivered()
    }

    /// Does what an exchange has asked for.
    fn take(&mut self, index: u32, step: Step, now_ns: u64) {
        match step {
            Step::Wait => {}
            Step::Stray => self.counters.stray_replies += 1,
            Step::Resend => self.retry(index, now_ns),
            Step::Send(round) => self.send(index, round, now_ns),
            Step::RestartLater => {
                self.counters.busy += 1;
                self.pause(index, now_ns);
            }
            Step::ReadLarge => self.begin_reading(index, now_ns),
            Step::RestartNow => self.restart(index, now_ns),
            Step::ClientExpired => {
                self.is_expired |= self.slots[index as usize].op.client == self.client;
                self.finish(index, Err(OperationError::OutcomeUnknown));
            }
            Step::Done(result) => self.finish(index, result),
        }
        self.send_ready(now_ns);
    }

    /// Begins a round with the slot's datagram.
    fn send(&mut self, index: u32, round: Round, now_ns: u64) {
        self.flow.release(index);
        let slot = &mut self.slots[index as usize];
        (slot.round, slot.attempts, slot.copies) = (round, 0, 0);
        self.enqueue(index, now_ns);
    }

    /// Passes the slot's datagram, which is written, to flow control; it is sent once that admits
    /// it.
    fn enqueue(&mut self, index: u32, now_ns: u64) {
        let slot = &self.slots[index as usize];
        let (lane, bytes) = ((slot.keyspace, slot.round), slot.buffers.datagram.len());
        let admission = self.flow.enqueue(index, lane, slot.buffers.vnode, bytes);
        self.counters.waited += u64::from(admission == Admission::Wait);
        self.follow(index, admission, now_ns);
    }

    fn follow(&mut self, index: u32, admission: Admission, now_ns: u64) {
        match admission {
            Admission::Send => self.transmit(index, now_ns),
            Admission::Wait => {
                let slot = &mut self.slots[index as usize];
                (slot.state, slot.retry_ns) = (State::Waiting, slot.deadline_ns);
                self.set_timer(index, now_ns);
            }
        }
    }

    /// Sends waiting requests that flow control admits now.
    fn send_ready(&mut self, now_ns: u64) {
        for lane in 0..self.flow.lanes_to_serve() {
            while let Some(index) = self.flow.next_ready(lane) {
                let slot = &self.slots[index as usize];
                let too_late_ns = now_ns + self.flow.smoothed_ns(lane);
                let is_too_late = !slot.was_sent && slot.deadline_ns < too_late_ns;
                self.flow.release(index);
                if is_too_late {
                    self.finish(index, Err(OperationError::Busy));
                } else {
                    let admission = self.flow.admit(index);
                    self.follow(index, admission, now_ns);
                }
            }
        }
    }

    fn retry(&mut self, index: u32, now_ns: u64) {
        let slot = &mut self.slots[index as usize];
        if slot.state != State::InFlight {
            return self.set_timer(index, now_ns);
        }
        let wait_until_ns = self.flow.wait_until_ns(index, slot.sent_ns);
        // After the datagram was sent, another request of the same outage may have lengthened the
        // timeout.
        if slot.attempts == 1 && now_ns < wait_until_ns {
            slot.retry_ns = now_ns + self.jitter.spread(wait_until_ns - now_ns);
            return self.set_timer(index, now_ns);
        }
        let sent_ns = slot.sent_ns;
        self.counters.retries += 1;
        self.coordinator.doubt(now_ns);
        self.flow.on_timeout(index, now_ns, sent_ns);
        self.note_unanswered_batch(index, now_ns);
        self.transmit(index, now_ns);
    }

    /// Queues the slot's datagram and sets the time of its retry.
    fn transmit(&mut self, index: u32, now_ns: u64) {
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
    fn queue(&mut self, index: u32, now_ns: u64) {
        let slot = &mut self.slots[index as usize];
        (slot.state, slot.was_sent, slot.sent_ns, slot.copies) =
            (State::InFlight, true, now_ns, slot.copies + 1);
        if !slot.queued {
            slot.queued = true;
            self.outgoing.push_back(index);
        }
    }

    /// Waits before the request is tried again as a new op.
    fn pause(&mut self, index: u32, now_ns: u64) {
        self.stop_sending(index);
        self.flow.release(index);
        let slot = &mut self.slots[index as usize];
        self.sequences.finish(slot.op.sequence);
        slot.state = State::Pausing;
        self.wait(index, now_ns);
    }

    /// The large value that was being read is gone: sends the get again at once.
    fn restart(&mut self, index: u32, now_ns: u64) {
        self.end_large(index, false);
        let slot = &mut self.slots[index as usize];
        self.sequences.finish(slot.op.sequence);
        (slot.state, slot.attempts) = (State::Pausing, 0);
        if let Some(left_ns) = slot.pending_read_ns.take() {
            slot.deadline_ns = now_ns.saturating_add(left_ns);
        }
        self.begin_afresh(index, now_ns);
    }

    /// Gives a paused request a new op id and sends it.
    fn begin_afresh(&mut self, index: u32, now_ns: u64) {
        if self.sequences.is_full() {
            self.slots[index as usize].retry_ns = now_ns + self.retry.max.as_nanos() as u64;
            return self.set_timer(index, now_ns);
        }
        let attempt = self.next_attempt(index);
        let slot = &mut self.slots[index as usize];
        (slot.op, slot.copies) = (attempt.op, 0);
        slot.round = slot.exchange.begin_afresh(attempt, &mut slot.buffers);
        self.enqueue(index, now_ns);
    }

    /// Sets the slot's timer to the time of its next try. While its chunks are in flight, the
    /// transfer decides instead.
    fn wait(&mut self, index: u32, now_ns: u64) {
        let slot = &mut self.slots[index as usize];
        slot.retry_ns = match slot.state == State::Reading || slot.buffers.is_awaited() {
            // The deadline may still be extended.
            true => u64::MAX,
            false => now_ns + self.jitter.spread(self.flow.timeout_ns(index, slot.attempts)),
        };
        self.set_timer(index, now_ns);
    }

    fn set_timer(&mut self, index: u32, now_ns: u64) {
        let slot = &self.slots[index as usize];
        self.timers.clear(index);
        self.timers.set(index, now_ns, slot.retry_ns.min(slot.deadline_ns));
    }

    fn finish(&mut self, index: u32, result: Result<Summary, OperationError>) {
        self.timers.clear(index);
        self.flow.release(index);
        self.end_large(index, result.is_ok());
        let slot = &mut self.slots[index as usize];
        if matches!(slot.state, State::InFlight | State::Waiting | State::Reading) {
            self.sequences.finish(slot.op.sequence);
        }
        (slot.state, slot.result, slot.pending_read_ns) = (State::Done, result, None);
        self.done.push_back(index);
    }
}

/// Sending of datagrams.
impl InFlight {
    /// Writes a query for the directory to `out`, if one is due.
    pub(crate) fn poll_query(&mut self, out: &mut Vec<u8>) -> Option<SocketAddrV4> {
        self.coordinator.poll_query(out)
    }

    /// Writes the next datagram of requests to `out`, and returns its address.
    pub(crate) fn poll_transmit(&mut self, out: &mut Vec<u8>) -> Option<SocketAddrV4> {
        if self.batcher.is_empty() {
            for _ in 0..LOOKAHEAD_MAX {
                let Some(Outgoing { to, slot, batch_key }) = self.next_outgoing(out) else { break };
                let Some((batch_key, common)) = batch_key.zip(Common::of(out)) else {
                    self.set_leader(slot, slot);
                    self.pad_get(slot, out);
                    return Some(to);
                };
                let leader = self.batcher.add((to, batch_key, common), slot, out);
                self.set_leader(slot, leader);
            }
        }
        let (to, alone) = self.batcher.poll(out)?;
        if let Some(slot) = alone {
            self.pad_get(slot, out);
        }
        Some(to)
    }

    /// Writes the next request to `out`.
    fn next_outgoing(&mut self, out: &mut Vec<u8>) -> Option<Outgoing> {
        while let Some(index) = self.outgoing.pop_front() {
            let slot = &mut self.slots[index as usize];
            slot.queued = false;
            if slot.state != State::InFlight {
                continue;
            }
            let keyspace = &self.keyspaces[slot.keyspace];
            out.clear();
            out.extend_from_slice(&slot.buffers.datagram);
            let is_directed = slot.buffers.is_for_chain
                && !self.coordinator.is_switch()
                && !slot.exchange.is_about_channels();
            if is_directed {
                slot.buffers.to = self.coordinator.direct(out);
            }
            let (is_first, is_get) = (slot.attempts == 1, slot.exchange.is_asked_of_one());
            // A retried get is sent to the owner: a holder may have lost the copy that the switch
            // believes it has.
            let may_go_to_holder = is_first || !is_get;
            if keyspace.is_hot && may_go_to_holder && !is_directed {
                leave_room_for_stamp(out);
            }
            // A retry is sent in its own datagram, because the first one may have been lost by
            // sharing one.
            let is_large = slot.buffers.large.is_some();
            let may_share = is_first && slot.exchange.may_share() && !is_directed && !is_large;
            let nodes = keyspace.nodes.as_ref().filter(|_| may_share);
            let batch_key = nodes.map(|nodes| nodes.batch_key(slot.buffers.vnode, is_get, slot.sent_ns));
            return Some(Outgoing { to: slot.buffers.to, slot: index, batch_key });
        }
        None
    }

    /// Records that the slot's request is sent in the datagram that `leader` leads, which may be
    /// the slot itself.
    fn set_leader(&mut self, index: u32, leader: u32) {
        let vnode = self.slots[leader as usize].buffers.vnode;
        self.slots[index as usize].leader = (vnode, index == leader);
    }

    /// Pads the datagram of a get that is sent alone to the length of its reply (G8). A get that is
    /// sent directly to a node is not padded, because the node's process answers it, not its
    /// kernel.
    fn pad_get(&self, index: u32, datagram: &mut Vec<u8>) {
        let slot = &self.slots[index as usize];
        let bytes = self.keyspaces[slot.keyspace].get_length.bytes();
        let is_get = || HeaderLayout::peek(datagram).and_then(HeaderLayout::opcode) == Some(Opcode::Get);
        if datagram.len() < bytes && slot.exchange.may_be_padded() && is_get() {
            lengthen(datagram, bytes);
        }
    }

    /// Takes the padded length for the next gets from the answer to a get.
    fn note_get_length(&mut self, index: u32, datagram: &Datagram<'_>) {
        let slot = &self.slots[index as usize];
        if let Datagram::Reply(reply) = datagram
            && slot.exchange.may_be_padded()
            && reply.form != Form::Large
            && slot.state != State::Reading
        {
            self.keyspaces[slot.keyspace].get_length.answered(reply.integer);
        }
    }

    /// The slot's request is answered by the node at `from`.
    fn note_answering_node(&mut self, index: u32, from: SocketAddrV4, now_ns: u64) {
        let slot = &self.slots[index as usize];
        let nodes = self.keyspaces[slot.keyspace].nodes.as_mut();
        if let (Some(nodes), (_, true)) = (nodes, slot.leader)
            && slot.exchange.is_asked_of_one()
        {
            nodes.answered(slot.buffers.vnode, from, now_ns);
        }
    }

    /// The slot's request may have been dropped because it shared a datagram.
    fn note_unanswered_batch(&mut self, index: u32, now_ns: u64) {
        let slot = &self.slots[index as usize];
        if let (Some(nodes), (leader, false)) = (&mut self.keyspaces[slot.keyspace].nodes, slot.leader) {
            nodes.unanswered(slot.buffers.vnode, now_ns);
            nodes.unanswered(leader, now_ns);
        }
    }
}
