//! Reads of large values that wait until the driver allows them: it may have no room for the value yet.

use super::InFlight;
use super::slot::{Slot, State};
use crate::Ticket;
use crate::large::Large;

impl InFlight {
    /// The slot's request was answered with a reference to a value that is too long to be read
    /// without permission. Suspends its deadline.
    pub(super) fn await_permission(&mut self, index: u32, now_ns: u64) {
        self.timers.clear(index);
        let slot = &mut self.slots[index as usize];
        slot.pending_read_ns = Some(slot.deadline_ns.saturating_sub(now_ns));
        self.large.pending_reads.push_back(index);
    }

    /// The next request whose read is pending, and the length of its value.
    pub(crate) fn poll_pending_read(&mut self) -> Option<(Ticket, usize)> {
        loop {
            let index = self.large.pending_reads.pop_front()?;
            let slot = &self.slots[index as usize];
            // The request may have ended in the meantime.
            if let (Some(Large::Read(read)), Some(_)) = (slot.buffers.large.as_deref(), slot.pending_read_ns)
            {
                let ticket = Ticket { index, generation: slot.generation };
                return Some((ticket, read.reference().length as usize));
            }
        }
    }

    /// The slot of a request that has not ended.
    fn open(&mut self, ticket: Ticket) -> Option<&mut Slot> {
        let slot = self.slots.get_mut(ticket.index as usize)?;
        let is_open =
            slot.generation == ticket.generation && !matches!(slot.state, State::Free | State::Done);
        is_open.then_some(slot)
    }

    /// Allows the value to be read, if it has at most `bytes`.
    pub(crate) fn allow_read(&mut self, now_ns: u64, ticket: Ticket, bytes: usize) {
        let Some(slot) = self.open(ticket) else { return };
        let Some(left_ns) = slot.pending_read_ns.take() else { return };
        (slot.deadline_ns, slot.auto_read_bytes_max) = (now_ns.saturating_add(left_ns), bytes);
        match slot.state {
            State::Reading => self.begin_reading(ticket.index, now_ns),
            _ => self.begin_afresh(ticket.index, now_ns),
        }
    }

    /// A pending read will not be allowed soon. A get gives up its op and its answer, and is sent
    /// again when the read is allowed. An update has taken effect, and keeps waiting for the
    /// previous value.
    pub(crate) fn suspend_read(&mut self, ticket: Ticket) {
        let is_get = |slot: &Slot| slot.exchange.is_get() && slot.state == State::Reading;
        let Some(slot) = self.open(ticket).filter(|slot| slot.pending_read_ns.is_some() && is_get(slot))
        else {
            return;
        };
        slot.state = State::Pausing;
        let sequence = slot.op.sequence;
        self.sequences.finish(sequence);
        self.end_large(ticket.index, false);
    }

    /// Ends a request whose answer is no longer wanted, or whose value is longer than `limit`.
    pub(crate) fn cancel(&mut self, ticket: Ticket, limit: Option<usize>) {
        if let Some(slot) = self.open(ticket) {
            let error = slot.exchange.unread(limit);
            self.finish(ticket.index, Err(error));
            self.send_ready(self.large.now_ns);
        }
    }
}
