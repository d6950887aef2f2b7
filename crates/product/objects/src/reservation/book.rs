//! A target's book: windows in the order of time, none of which overlap.
//!
//! ```text
//!                     bid                 accept
//!   (free time) ────────────▶ tentative ──────────▶ accepted ──finish, lapse──▶ (free time)
//!        ▲                     │     ▲
//!        └──unicast──cancel, lapse   │ bid
//!                  └──multicast──▶ cancelled ──no longer of use──▶ (free time)
//! ```
//!
//! *Multicast.* Bids are one behind the other, so that those of several targets are alike and have much in common. A window that is cancelled is kept, grows together with its
//! like and into what an accepted neighbour leaves, and is promised again as a whole; what is last in the book, or would be too short by now, is dropped.
//!
//! *Unicast.* A bid is in the first gap at or after the time that the initiator can, and leaves nothing behind when it is cancelled.

use crate::reservation::bid::{Bid, BidError, BidId, Refused, Request};
use crate::reservation::config::{Config, ConfigError, Delivery, Widths};
use crate::reservation::window::{Offsets, Receipt, Window};
use alloc::vec::Vec;

/// See the module.
#[derive(Clone, Debug)]
pub struct Book {
    config: Config,
    /// By their left ends, and so by their right ones.
    slots: Vec<Slot>,
    next: BidId,
    /// Of all chunks that have a bid.
    bytes: u64,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    window: Window,
    /// None: it was cancelled.
    held: Option<Held>,
}

#[derive(Clone, Copy, Debug)]
struct Held {
    id: BidId,
    bytes: u32,
    received_ns: u64,
    is_accepted: bool,
}

impl Slot {
    fn is_tentative(&self) -> bool {
        self.held.is_some_and(|held| !held.is_accepted)
    }

    /// When it lapses.
    fn lapse_ns(&self, config: &Config) -> Option<u64> {
        let held = self.held?;
        let (from_ns, after_ns) = if held.is_accepted {
            (self.window.right_ns, config.grace_ns)
        } else {
            (held.received_ns, config.tentative_ns)
        };
        Some(from_ns.saturating_add(after_ns))
    }
}

impl Book {
    /// An empty one, whose bids are numbered from `first` on.
    pub fn new(config: Config, first: BidId) -> Result<Self, ConfigError> {
        config.check()?;
        Ok(Self { config, slots: Vec::new(), next: first, bytes: 0 })
    }

    /// Promises a window for a request that has just been received, as early as can be.
    pub fn bid(&mut self, now_ns: u64, request: &Request) -> Result<Bid, Refused> {
        self.lapse(now_ns);
        let widths = self.config.widths(request.bytes);
        let delay_ns = self.config.disk_delay_ns(request.bytes, request.backlog);
        self.drop_spent(now_ns, widths.window_ns);
        let bytes_max = self.config.bytes_max;
        if self.bytes + u64::from(request.bytes) > bytes_max {
            return Err(Refused::Memory { bytes: request.bytes, bytes_max });
        }
        let at = match self.reusable(now_ns, &widths, delay_ns) {
            Some(at) => at,
            None => self.add(now_ns, request, &widths, delay_ns)?,
        };
        let id = self.next;
        self.next = BidId(id.0 + 1);
        self.bytes += u64::from(request.bytes);
        let held = Held { id, bytes: request.bytes, received_ns: now_ns, is_accepted: false };
        let slot = &mut self.slots[at];
        slot.held = Some(held);
        // What is over cannot be told, nor used.
        slot.window.left_ns = slot.window.left_ns.max(now_ns);
        let window =
            Receipt::at(now_ns).offsets(slot.window).expect("a window that is promised ends after now");
        let disk_ns = request.backlog.queued_ns.saturating_add(request.backlog.write_ns);
        Ok(Bid { id, window, disk_ns })
    }

    /// The initiator has chosen this target, and when. What it does not use of the bid is free.
    pub fn accept(&mut self, now_ns: u64, id: BidId, chosen: Offsets) -> Result<(), BidError> {
        let at = self.find_tentative(now_ns, id)?;
        let Slot { window, held: Some(held) } = &mut self.slots[at] else { return Err(BidError::Over(id)) };
        let trimmed = Receipt::at(held.received_ns).window(chosen);
        let Some(trimmed) = trimmed.filter(|trimmed| window.contains(trimmed)) else {
            return Err(BidError::Outside { id, chosen });
        };
        (*window, held.is_accepted) = (trimmed, true);
        self.give_to_neighbours(at);
        Ok(())
    }

    /// The initiator has chosen others.
    pub fn cancel(&mut self, now_ns: u64, id: BidId) -> Result<(), BidError> {
        let at = self.find_tentative(now_ns, id)?;
        self.release(at);
        Ok(())
    }

    /// All of the chunk has come: its time and memory are free.
    pub fn finish(&mut self, id: BidId) -> Result<(), BidError> {
        let at = self.find(id)?;
        let held = self.slots[at].held.ok_or(BidError::Over(id))?;
        if !held.is_accepted {
            return Err(BidError::Tentative(id));
        }
        self.bytes -= u64::from(held.bytes);
        self.slots.remove(at);
        Ok(())
    }

    /// Frees what nobody has spoken for in time. Returns how many bids that were.
    pub fn lapse(&mut self, now_ns: u64) -> usize {
        let mut lapsed = 0;
        while let Some(at) = self
            .slots
            .iter()
            .position(|slot| slot.lapse_ns(&self.config).is_some_and(|lapse_ns| lapse_ns <= now_ns))
        {
            lapsed += 1;
            self.release(at);
        }
        lapsed
    }

    /// Whether a bid is neither cancelled nor over.
    pub fn has(&self, id: BidId) -> bool {
        self.slots.iter().any(|slot| slot.held.is_some_and(|held| held.id == id))
    }

    /// When the next bid lapses, if nothing else comes.
    pub fn next_lapse_ns(&self) -> Option<u64> {
        self.slots.iter().filter_map(|slot| slot.lapse_ns(&self.config)).min()
    }

    /// Bids that are neither accepted nor cancelled.
    pub fn tentative(&self) -> usize {
        self.slots.iter().filter(|slot| slot.is_tentative()).count()
    }

    /// Windows that are accepted, in the order of time.
    pub fn accepted(&self) -> impl Iterator<Item = (BidId, Window)> {
        self.slots.iter().filter_map(|slot| {
            let held = slot.held.filter(|held| held.is_accepted)?;
            Some((held.id, slot.window))
        })
    }

    /// All windows, cancelled ones among them, in the order of time.
    pub fn windows(&self) -> impl Iterator<Item = Window> {
        self.slots.iter().map(|slot| slot.window)
    }

    /// Bytes of memory that are promised.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    fn find(&self, id: BidId) -> Result<usize, BidError> {
        if id >= self.next {
            return Err(BidError::NeverMade(id));
        }
        let at = self.slots.iter().position(|slot| slot.held.is_some_and(|held| held.id == id));
        at.ok_or(BidError::Over(id))
    }

    fn find_tentative(&mut self, now_ns: u64, id: BidId) -> Result<usize, BidError> {
        self.lapse(now_ns);
        let at = self.find(id)?;
        let held = self.slots[at].held.ok_or(BidError::Over(id))?;
        if held.is_accepted {
            return Err(BidError::Accepted(id));
        }
        self.drop_spent(now_ns, self.config.widths(held.bytes).window_ns);
        self.find(id)
    }

    /// Where a window is that was cancelled and may be promised as it is: the latest one. An earlier one than one that is over would be over, too.
    fn reusable(&self, now_ns: u64, widths: &Widths, delay_ns: u64) -> Option<usize> {
        if delay_ns > 0 || self.slots.len() > self.config.reuse_windows_max {
            return None;
        }
        let earliest_ns = now_ns + self.config.earliest_ns();
        let mut cancelled = self.slots.iter().enumerate().rev().filter(|(_, slot)| slot.held.is_none());
        let (at, slot) = cancelled.find(|(_, slot)| {
            slot.window.left_ns < earliest_ns || slot.window.width_ns() >= widths.window_ns
        })?;
        let left_ns = slot.window.left_ns.max(earliest_ns);
        (slot.window.right_ns >= left_ns + widths.window_ns).then_some(at)
    }

    /// Adds a window in free time. Returns where it is.
    fn add(
        &mut self,
        now_ns: u64,
        request: &Request,
        widths: &Widths,
        delay_ns: u64,
    ) -> Result<usize, Refused> {
        let Config { bids_max, horizon_ns, .. } = self.config;
        let after_ns = self.config.earliest_ns().max(delay_ns).max(request.earliest_ns);
        if after_ns > horizon_ns {
            return Err(Refused::TooLate { after_ns, horizon_ns });
        }
        let from_ns = now_ns + after_ns;
        let left_ns = match self.config.delivery {
            Delivery::Multicast => self.behind_all(from_ns),
            Delivery::Unicast => self.first_gap(from_ns, widths.window_ns),
        };
        if left_ns - now_ns > horizon_ns {
            return Err(Refused::TooLate { after_ns: left_ns - now_ns, horizon_ns });
        }
        let is_idle = self.slots.is_empty() && delay_ns < widths.chunk_ns;
        if self.slots.len() >= bids_max {
            // Nobody has been promised what was cancelled.
            let cancelled = self.slots.iter().rposition(|slot| slot.held.is_none());
            self.slots.remove(cancelled.ok_or(Refused::Full { bids_max })?);
        }
        let is_longer = is_idle && request.random.is_multiple_of(self.config.idle_one_in.into());
        let idle_ns = widths.chunk_ns * u64::from(self.config.idle_percent) / 100;
        let right_ns = left_ns + widths.window_ns + if is_longer { idle_ns } else { 0 };
        let at = self.slots.partition_point(|slot| slot.window.left_ns < left_ns);
        self.slots.insert(at, Slot { window: Window { left_ns, right_ns }, held: None });
        Ok(at)
    }

    fn behind_all(&self, from_ns: u64) -> u64 {
        let last = self.slots.last();
        last.map_or(from_ns, |last| from_ns.max(last.window.right_ns + self.config.trip_ns))
    }

    fn first_gap(&self, from_ns: u64, window_ns: u64) -> u64 {
        let mut left_ns = from_ns;
        for Slot { window, .. } in &self.slots {
            if left_ns + window_ns <= window.left_ns {
                break;
            }
            left_ns = left_ns.max(window.right_ns + self.config.trip_ns);
        }
        left_ns
    }

    /// What a bid holds is free, and its window too, unless it is kept as cancelled.
    fn release(&mut self, at: usize) {
        let Some(held) = self.slots[at].held.take() else { return };
        self.bytes -= u64::from(held.bytes);
        if self.config.delivery == Delivery::Unicast || held.is_accepted {
            self.slots.remove(at);
            return;
        }
        let is_cancelled = |slot: Option<&Slot>| slot.is_some_and(|slot| slot.held.is_none());
        if is_cancelled(self.slots.get(at + 1)) {
            self.slots[at].window.right_ns = self.slots.remove(at + 1).window.right_ns;
        }
        if at > 0 && is_cancelled(self.slots.get(at - 1)) {
            self.slots[at - 1].window.right_ns = self.slots.remove(at).window.right_ns;
        }
    }

    /// Cancelled neighbours get what an accepted window has left beside them, unless it is next to nothing.
    fn give_to_neighbours(&mut self, at: usize) {
        let (control_ns, window) = (self.config.control_ns(), self.slots[at].window);
        let next = self.slots.get_mut(at + 1).filter(|next| next.held.is_none());
        if let Some(next) = next.filter(|next| next.window.left_ns > window.right_ns + control_ns) {
            next.window.left_ns = window.right_ns;
        }
        let last = at.checked_sub(1).and_then(|last| self.slots.get_mut(last));
        let last = last.filter(|last| last.held.is_none());
        if let Some(last) = last.filter(|last| last.window.right_ns + control_ns < window.left_ns) {
            last.window.right_ns = window.left_ns;
        }
    }

    /// Cancelled windows behind which there is nothing, and those of which too little is left for a bid.
    fn drop_spent(&mut self, now_ns: u64, window_ns: u64) {
        while self.slots.last().is_some_and(|slot| slot.held.is_none()) {
            self.slots.pop();
        }
        let soon_ns = now_ns + self.config.hop_ns();
        self.slots.retain(|Slot { window, held }| {
            held.is_some() || window.left_ns >= soon_ns || window.right_ns >= soon_ns + window_ns
        });
    }
}

#[cfg(test)]
#[path = "book_tests.rs"]
mod tests;
