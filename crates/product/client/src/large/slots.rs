//! Large values and the slots of their requests.

use super::put::Sent;
use super::read::Taken;
use super::{Large, Polled};
use crate::exchange::{Buffers, Step};
use crate::in_flight::InFlight;
use crate::slot::State;
use crate::summary::Summary;
use alloc::vec::Vec;
use nicekv_proto::large::{Chunk, TransferReport};

const NEVER_NS: u64 = u64::MAX;
/// A transfer that has nothing to send now is not looked at sooner: what its pace lets go meanwhile leaves as a train.
const TRAIN_NS: u64 = 200_000;

impl Buffers {
    /// Whether chunks are under way to replicas.
    pub(crate) fn is_sending(&self) -> bool {
        matches!(self.large.as_deref(), Some(Large::Put(put)) if put.is_sending())
    }

    /// Whether there can be no answer before more of them have come.
    pub(crate) fn is_awaited(&self) -> bool {
        matches!(self.large.as_deref(), Some(Large::Put(put)) if put.is_awaited())
    }
}

impl InFlight {
    /// So many bytes of a large value are put, or have come: the request may take longer, but not for ever.
    pub(crate) fn give_time(&mut self, index: u32, bytes: usize) {
        let slot = &mut self.slots[index as usize];
        let more_ns = (bytes as u64 * self.due.extra_ns_per_byte).min(slot.patience_ns);
        slot.patience_ns -= more_ns;
        slot.deadline_ns = slot.deadline_ns.saturating_add(more_ns);
    }

    fn set_due(&mut self, index: u32, due_ns: u64) {
        let known_ns = core::mem::replace(&mut self.slots[index as usize].due_ns, due_ns);
        if known_ns == due_ns {
            return;
        }
        if known_ns != NEVER_NS {
            self.due.slots.remove(&(known_ns, index));
        }
        if due_ns != NEVER_NS {
            self.due.slots.insert((due_ns, index));
        }
    }

    /// It is to be looked after at the next poll.
    fn set_due_now(&mut self, index: u32, now_ns: u64) {
        if self.slots[index as usize].due_ns > now_ns {
            self.set_due(index, now_ns);
        }
    }

    /// The slot's datagram leaves for the first time in a round, and if it names a value that is put, so do chunks; in a second round they are under way.
    pub(crate) fn begin_sending(&mut self, index: u32, now_ns: u64) {
        if let Some(Large::Put(put)) = self.slots[index as usize].buffers.large.as_deref_mut()
            && put.begin(now_ns, &self.due.slow)
        {
            self.set_due(index, now_ns);
        }
    }

    /// Nothing was stored under this op id, nor will be.
    pub(crate) fn stop_sending(&mut self, index: u32) {
        if let Some(Large::Put(put)) = self.slots[index as usize].buffers.large.as_deref_mut() {
            put.stop();
            put.uncount_alone(&mut self.due.stragglers);
            self.set_due(index, NEVER_NS);
        }
    }

    /// The request ends. What it was to put is let go of, and so is what was read, unless that is its answer.
    pub(crate) fn end_large(&mut self, index: u32, is_answered: bool) {
        let Some(large) = self.slots[index as usize].buffers.large.take() else { return };
        self.set_due(index, NEVER_NS);
        match *large {
            Large::Put(mut put) => put.uncount_alone(&mut self.due.stragglers),
            Large::Read(read) => {
                let value = read.into_whole().filter(|_| is_answered);
                self.slots[index as usize].buffers.large = value.map(|value| Large::Whole(value).into());
            }
            Large::Whole(_) => {}
        }
    }

    /// A replica has told what it has of a value.
    pub(crate) fn on_report(&mut self, now_ns: u64, report: &TransferReport) {
        let found = self.find(report.op);
        let is_under_way = |index: &u32| {
            let slot = &self.slots[*index as usize];
            slot.state == State::InFlight || slot.state == State::Waiting && slot.buffers.is_sending()
        };
        let Some(index) = found.filter(is_under_way) else {
            self.counters.stray_reports += 1;
            return;
        };
        let slot = &mut self.slots[index as usize];
        let is_waiting = slot.state == State::Waiting;
        let Some(Large::Put(put)) = slot.buffers.large.as_deref_mut() else {
            self.counters.stray_reports += 1;
            return;
        };
        let was_awaited = put.is_awaited();
        let is_of_use = put.on_report(now_ns, report);
        put.count_alone(&mut self.due.stragglers);
        if !is_of_use {
            self.counters.stray_reports += 1;
            return;
        }
        if !is_waiting {
            self.heard(index, now_ns);
            self.stand_apart(index);
        }
        self.settle_sending(index, was_awaited, now_ns);
        if !is_waiting {
            self.give_turns(now_ns);
        }
    }

    /// Whether chunks are under way may have changed, and with it what the slot waits for.
    fn settle_sending(&mut self, index: u32, was_awaited: bool, now_ns: u64) {
        let slot = &mut self.slots[index as usize];
        let (is_sending, is_awaited) = (slot.buffers.is_sending(), slot.buffers.is_awaited());
        if let (Some(Large::Put(put)), true, false) = (slot.buffers.large.as_deref(), was_awaited, is_awaited)
        {
            self.due.slow.note(now_ns, put.slow());
        }
        // Who waits in line for the next round will wait for its answer then.
        if is_awaited != was_awaited && slot.state == State::InFlight {
            slot.attempts = 1;
            self.wait(index, now_ns);
        }
        match is_sending {
            true => self.set_due_now(index, now_ns),
            false => self.set_due(index, NEVER_NS),
        }
    }

    /// What replicas have said may be a token, so that there is something to ask for.
    pub(crate) fn look_after_read(&mut self, index: u32, now_ns: u64) {
        let slot = &self.slots[index as usize];
        if slot.state == State::Reading && slot.wanted.is_none() {
            self.set_due_now(index, now_ns);
        }
    }

    /// The slot's request is answered by the name of a value.
    pub(crate) fn begin_reading(&mut self, index: u32, now_ns: u64) {
        self.leave(index);
        self.set_due(index, NEVER_NS);
        let slot = &mut self.slots[index as usize];
        let Some(Large::Read(read)) = slot.buffers.large.as_deref_mut() else {
            unreachable!("it is named: {:?}", slot.op)
        };
        let (length, summary) = (read.reference().length as usize, read.summary());
        slot.state = State::Reading;
        if slot.wants_length {
            let summary = Summary { integer: length as i64, has_value: false, ..summary };
            return self.finish(index, Ok(summary));
        }
        if length > self.due.value_bytes_max {
            let error = slot.exchange.unread(Some(self.due.value_bytes_max));
            return self.finish(index, Err(error));
        }
        if length > slot.auto_read_bytes_max {
            return self.want(index, now_ns);
        }
        self.wait(index, now_ns);
        self.set_due(index, now_ns);
    }

    /// A part of a value that is read has come.
    pub(crate) fn on_chunk(&mut self, now_ns: u64, chunk: &Chunk<'_>) {
        let found = self.find(chunk.op);
        let large = found.and_then(|index| self.slots[index as usize].buffers.large.as_deref_mut());
        let (Some(index), Some(Large::Read(read))) = (found, large) else {
            self.counters.stray_chunks += 1;
            return;
        };
        let taken = read.on_chunk(now_ns, chunk.number, chunk.bytes);
        if taken == Taken::Kept {
            self.give_time(index, chunk.bytes.len());
        }
        self.counters.chunks_received += u64::from(taken != Taken::Stray);
        match taken {
            Taken::Stray => self.counters.stray_chunks += 1,
            Taken::Kept => self.set_due_now(index, now_ns),
            Taken::Whole(summary) => self.take(index, Step::Done(Ok(summary)), now_ns),
            Taken::Wrong => self.read_again(index, now_ns),
        }
    }

    /// What has come is not what was named. A get is begun again, after a pause. An update was answered, and must not be sent under another op id: the value from before is read
    /// once more.
    fn read_again(&mut self, index: u32, now_ns: u64) {
        self.counters.wrong_checksums += 1;
        let slot = &mut self.slots[index as usize];
        match (slot.exchange.is_asked_of_one(), slot.buffers.large.as_deref_mut()) {
            (false, Some(Large::Read(read))) => {
                read.begin_again();
                self.set_due_now(index, now_ns);
            }
            _ => {
                self.end_large(index, false);
                self.pause(index, now_ns);
            }
        }
    }

    /// Writes the next datagram about a large value to `out`, if it is time for one.
    pub(crate) fn poll_large(&mut self, out: &mut Vec<u8>) -> Option<Polled> {
        let now_ns = self.due.now_ns;
        while let Some(&(_, index)) = self.due.slots.first().filter(|(due_ns, _)| *due_ns <= now_ns) {
            let slot = &self.slots[index as usize];
            let polled = match slot.state {
                State::Reading => self.poll_read(index, now_ns, out),
                _ => self.poll_put(index, now_ns, out),
            };
            if polled.is_some() {
                return polled;
            }
        }
        None
    }

    fn poll_put(&mut self, index: u32, now_ns: u64, out: &mut Vec<u8>) -> Option<Polled> {
        let Buffers { large, to, .. } = &mut self.slots[index as usize].buffers;
        let Some(Large::Put(put)) = large.as_deref_mut() else { unreachable!("nothing else is due") };
        let was_awaited = put.is_awaited();
        let (sent, to) = (put.poll_transmit(now_ns, out), *to);
        let next_ns = put.next_deadline();
        match sent {
            Sent::Chunk => {
                self.counters.chunks_sent += 1;
                Some(Polled::Sent(to))
            }
            Sent::Question if self.slots[index as usize].state == State::InFlight => {
                self.queue(index, now_ns);
                Some(Polled::Queued)
            }
            // Who waits in line asks when its turn comes.
            Sent::Question | Sent::Nothing => {
                self.settle_sending(index, was_awaited, now_ns);
                self.set_due(index, next_ns.max(now_ns + TRAIN_NS));
                None
            }
        }
    }

    fn poll_read(&mut self, index: u32, now_ns: u64, out: &mut Vec<u8>) -> Option<Polled> {
        let slot = &mut self.slots[index as usize];
        let lane = &self.lanes[slot.keyspace][slot.round as usize];
        let Some(Large::Read(read)) = slot.buffers.large.as_deref_mut() else {
            unreachable!("nothing else is read")
        };
        let timeout_ns = lane.timeout_ns(read.silences(), slot.turn.destination);
        if read.poll_transmit(now_ns, timeout_ns, out) {
            return Some(Polled::Sent(slot.buffers.unicast));
        }
        let next_ns = read.next_deadline(timeout_ns);
        self.set_due(index, next_ns.max(now_ns + 1));
        None
    }
}
