//! Large values of requests in flight: when their transfers start, end and have something to send.
//!
//! The transfers themselves ([`Put`](crate::large::Put), [`Read`](crate::large::Read)) know one value each and no
//! requests. While a slot's transfer may have something to send, the slot is scheduled in `InFlight::large`; it is polled
//! when no small request is to be sent.

use super::InFlight;
use super::slot::State;
use crate::exchange::{Buffers, Step};
use crate::large::{ChunkOutcome, Large, Polled, Sent};
use crate::request::Summary;
use alloc::vec::Vec;
use nicekv_proto::large::{Chunk, TransferReport};

const NEVER_NS: u64 = u64::MAX;
/// A put that has nothing to send is polled again no sooner than this, so that the chunks that
/// become due meanwhile leave in one GSO batch.
const BATCH_NS: u64 = 200_000;

impl InFlight {
    /// `bytes` of a large value are to be put, or have arrived: extends the request's deadline,
    /// within a bound.
    pub(super) fn extend_deadline(&mut self, index: u32, bytes: usize) {
        let slot = &mut self.slots[index as usize];
        let more_ns = (bytes as u64 * self.large.extra_ns_per_byte).min(slot.extension_ns);
        slot.extension_ns -= more_ns;
        slot.deadline_ns = slot.deadline_ns.saturating_add(more_ns);
    }

    /// Schedules the slot's transfer to be polled at `due_ns`.
    fn schedule(&mut self, index: u32, due_ns: u64) {
        let known_ns = core::mem::replace(&mut self.slots[index as usize].large_due_ns, due_ns);
        if known_ns == due_ns {
            return;
        }
        if known_ns != NEVER_NS {
            self.large.due.remove(&(known_ns, index));
        }
        if due_ns != NEVER_NS {
            self.large.due.insert((due_ns, index));
        }
    }

    fn schedule_now(&mut self, index: u32, now_ns: u64) {
        if self.slots[index as usize].large_due_ns > now_ns {
            self.schedule(index, now_ns);
        }
    }

    /// Called when the slot's datagram is sent for the first time in its round. Chunks of the value
    /// that it puts are sent from the first round on.
    pub(super) fn begin_sending(&mut self, index: u32, now_ns: u64) {
        if let Some(Large::Put(put)) = self.slots[index as usize].buffers.large.as_deref_mut()
            && put.begin(now_ns, &self.large.slow)
        {
            self.schedule(index, now_ns);
        }
    }

    /// Stops the transfer: nothing was stored under this op id, or will be.
    pub(super) fn stop_sending(&mut self, index: u32) {
        if let Some(Large::Put(put)) = self.slots[index as usize].buffers.large.as_deref_mut() {
            put.stop();
            put.uncount_alone(&mut self.large.stragglers);
            self.schedule(index, NEVER_NS);
        }
    }

    /// The request ends. Frees the value that it puts, and the one that it reads unless that is the answer.
    pub(super) fn end_large(&mut self, index: u32, is_answered: bool) {
        let Some(large) = self.slots[index as usize].buffers.large.take() else { return };
        self.schedule(index, NEVER_NS);
        match *large {
            Large::Put(mut put) => put.uncount_alone(&mut self.large.stragglers),
            Large::Read(read) => {
                let value = read.into_whole().filter(|_| is_answered);
                self.slots[index as usize].buffers.large = value.map(|value| Large::Whole(value).into());
            }
            Large::Whole(_) => {}
        }
    }

    /// A replica has reported which chunks of a value it has.
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
        put.count_alone(&mut self.large.stragglers);
        if !is_of_use {
            self.counters.stray_reports += 1;
            return;
        }
        if !is_waiting {
            self.flow.on_contact(index, now_ns);
            self.flow.exempt(index);
        }
        self.settle_sending(index, was_awaited, now_ns);
        if !is_waiting {
            self.send_ready(now_ns);
        }
    }

    /// Sets the slot's timer again after its transfer has ended or resumed.
    fn settle_sending(&mut self, index: u32, was_awaited: bool, now_ns: u64) {
        let slot = &mut self.slots[index as usize];
        let (is_sending, is_awaited) = (slot.buffers.is_sending(), slot.buffers.is_awaited());
        if let (Some(Large::Put(put)), true, false) = (slot.buffers.large.as_deref(), was_awaited, is_awaited)
        {
            self.large.slow.note(now_ns, put.slow());
        }
        // A slot that still waits for admission sets its timer when it is admitted.
        if is_awaited != was_awaited && slot.state == State::InFlight {
            slot.attempts = 1;
            self.wait(index, now_ns);
        }
        match is_sending {
            true => self.schedule_now(index, now_ns),
            false => self.schedule(index, NEVER_NS),
        }
    }

    /// The answer may carry a token with which chunks can be requested now.
    pub(super) fn schedule_read(&mut self, index: u32, now_ns: u64) {
        let slot = &self.slots[index as usize];
        if slot.state == State::Reading && slot.pending_read_ns.is_none() {
            self.schedule_now(index, now_ns);
        }
    }

    /// The slot's request is answered by a reference to a large value.
    pub(super) fn begin_reading(&mut self, index: u32, now_ns: u64) {
        self.flow.release(index);
        self.schedule(index, NEVER_NS);
        let slot = &mut self.slots[index as usize];
        let Some(Large::Read(read)) = slot.buffers.large.as_deref_mut() else {
            unreachable!("no reference: {:?}", slot.op)
        };
        let (length, summary) = (read.reference().length as usize, read.summary());
        slot.state = State::Reading;
        if slot.wants_length {
            let summary = Summary { integer: length as i64, has_value: false, ..summary };
            return self.finish(index, Ok(summary));
        }
        if length > self.large.value_bytes_max {
            let error = slot.exchange.unread(Some(self.large.value_bytes_max));
            return self.finish(index, Err(error));
        }
        if length > slot.auto_read_bytes_max {
            return self.await_permission(index, now_ns);
        }
        self.wait(index, now_ns);
        self.schedule(index, now_ns);
    }

    /// A chunk of a value that is being read has arrived.
    pub(crate) fn on_chunk(&mut self, now_ns: u64, chunk: &Chunk<'_>) {
        let found = self.find(chunk.op);
        let large = found.and_then(|index| self.slots[index as usize].buffers.large.as_deref_mut());
        let (Some(index), Some(Large::Read(read))) = (found, large) else {
            self.counters.stray_chunks += 1;
            return;
        };
        let outcome = read.on_chunk(now_ns, chunk.number, chunk.bytes);
        if outcome == ChunkOutcome::Kept {
            self.extend_deadline(index, chunk.bytes.len());
        }
        self.counters.chunks_received += u64::from(outcome != ChunkOutcome::Stray);
        match outcome {
            ChunkOutcome::Stray => self.counters.stray_chunks += 1,
            ChunkOutcome::Kept => self.schedule_now(index, now_ns),
            ChunkOutcome::Whole(summary) => self.take(index, Step::Done(Ok(summary)), now_ns),
            ChunkOutcome::Wrong => self.read_again(index, now_ns),
        }
    }

    /// The value does not match the checksum of its reference. A get starts over after a pause. An
    /// update was answered and must not be sent under another op id: its previous value is read
    /// once more.
    fn read_again(&mut self, index: u32, now_ns: u64) {
        self.counters.wrong_checksums += 1;
        let slot = &mut self.slots[index as usize];
        match (slot.exchange.is_asked_of_one(), slot.buffers.large.as_deref_mut()) {
            (false, Some(Large::Read(read))) => {
                read.begin_again();
                self.schedule_now(index, now_ns);
            }
            _ => {
                self.end_large(index, false);
                self.pause(index, now_ns);
            }
        }
    }

    /// Writes the next datagram of a transfer to `out`, if one is due.
    pub(crate) fn poll_large(&mut self, out: &mut Vec<u8>) -> Option<Polled> {
        let now_ns = self.large.now_ns;
        while let Some(&(_, index)) = self.large.due.first().filter(|(due_ns, _)| *due_ns <= now_ns) {
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
            // A slot that waits for admission will send its update when it is admitted.
            Sent::Question | Sent::Nothing => {
                self.settle_sending(index, was_awaited, now_ns);
                self.schedule(index, next_ns.max(now_ns + BATCH_NS));
                None
            }
        }
    }

    fn poll_read(&mut self, index: u32, now_ns: u64, out: &mut Vec<u8>) -> Option<Polled> {
        let slot = &mut self.slots[index as usize];
        let Some(Large::Read(read)) = slot.buffers.large.as_deref_mut() else {
            unreachable!("nothing else is read")
        };
        let timeout_ns = self.flow.timeout_ns(index, read.silences());
        if read.poll_transmit(now_ns, timeout_ns, out) {
            return Some(Polled::Sent(slot.buffers.unicast));
        }
        let next_ns = read.next_deadline(timeout_ns);
        self.schedule(index, next_ns.max(now_ns + 1));
        None
    }
}
