//! Large values that are not read before the driver allows it.

use crate::Ticket;
use crate::in_flight::InFlight;
use crate::large::Large;
use crate::slot::{Slot, State};

impl InFlight {
    /// The slot's request is answered by the name of a value that is longer than what is read unasked. Its deadline waits, too.
    pub(super) fn want(&mut self, index: u32, now_ns: u64) {
        self.disarm(index);
        let slot = &mut self.slots[index as usize];
        slot.wanted = Some(slot.deadline_ns.saturating_sub(now_ns));
        self.due.wanted.push_back(index);
    }

    /// A request whose value waits, and how long that is.
    pub(crate) fn poll_pending_read(&mut self) -> Option<(Ticket, usize)> {
        loop {
            let index = self.due.wanted.pop_front()?;
            let slot = &self.slots[index as usize];
            // It may have ended since.
            if let (Some(Large::Read(read)), Some(_)) = (slot.buffers.large.as_deref(), slot.wanted) {
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

    /// Lets the value be read, if it has no more than `bytes`.
    pub(crate) fn allow_read(&mut self, now_ns: u64, ticket: Ticket, bytes: usize) {
        let Some(slot) = self.open(ticket) else { return };
        let Some(left_ns) = slot.wanted.take() else { return };
        (slot.deadline_ns, slot.auto_read_bytes_max) = (now_ns.saturating_add(left_ns), bytes);
        match slot.state {
            State::Reading => self.begin_reading(ticket.index, now_ns),
            _ => self.begin_afresh(ticket.index, now_ns),
        }
    }

    /// What waits for long should not: a get lets go of its op and of what it has heard, and is sent anew when it is allowed. An update that has taken effect
    /// goes on waiting for the value from before.
    pub(crate) fn suspend_read(&mut self, ticket: Ticket) {
        let is_get = |slot: &Slot| slot.exchange.is_get() && slot.state == State::Reading;
        let Some(slot) = self.open(ticket).filter(|slot| slot.wanted.is_some() && is_get(slot)) else {
            return;
        };
        slot.state = State::Pausing;
        let (sequence, index) = (slot.op.sequence, ticket.index);
        self.release_op(sequence);
        self.end_large(index, false);
    }

    /// Ends a request that nobody waits for any more, or whose value is longer than `limit`.
    pub(crate) fn cancel(&mut self, ticket: Ticket, limit: Option<usize>) {
        if let Some(slot) = self.open(ticket) {
            let error = slot.exchange.unread(limit);
            self.finish(ticket.index, Err(error));
            self.give_turns(self.due.now_ns);
        }
    }
}
