//! A target's book: promised windows, in the order of time, without overlap.
//!
//! ```text
//!                     bid                 accept
//!   (free time) ────────────▶ tentative ──────────▶ accepted ──finish, lapse──▶ (free time)
//!        ▲                     │     ▲
//!        └──unicast──cancel, lapse   │ bid
//!                  └──multicast──▶ cancelled ──no longer of use──▶ (free time)
//! ```
//!
//! *Multicast.* Bids follow each other, so that those of several targets are similar and have much in common. A cancelled
//! window is kept, merges with cancelled neighbours and with what accepted neighbours leave, and is promised again as a
//! whole. It is dropped if it is the last in the book or has become too short.
//!
//! *Unicast.* A bid takes the first gap at or after the time when the initiator is free. A cancelled bid leaves nothing.

use crate::reservation::bid::{Bid, BidError, BidId, Refused, Request};
use crate::reservation::config::{Config, ConfigError, Delivery, Widths};
use crate::reservation::window::{Offsets, Receipt, Window};
use alloc::vec::Vec;

/// The promised windows of one target.
#[derive(Clone, Debug)]
pub struct Book {
    config: Config,
    /// Ordered by start, and so by end.
    slots: Vec<Slot>,
    next: BidId,
    /// Bytes of all chunks with a bid.
    bytes: u64,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    window: Window,
    /// `None`: the window was cancelled.
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

    /// When it expires.
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
    /// An empty book, whose bids are numbered from `first`.
    ///
    /// # Errors
    /// A parameter is out of bounds.
    pub fn new(config: Config, first: BidId) -> Result<Self, ConfigError> {
        config.check()?;
        Ok(Self { config, slots: Vec::new(), next: first, bytes: 0 })
    }

    /// Promises the earliest possible window for a request that was just received.
    ///
    /// # Errors
    /// There is no time, memory or place in the book.
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
        // The part of the window that is already past is of no use, and offsets cannot express it.
        slot.window.left_ns = slot.window.left_ns.max(now_ns);
        let window =
            Receipt::at(now_ns).offsets(slot.window).expect("a window that is promised ends after now");
        let disk_ns = request.backlog.queued_ns.saturating_add(request.backlog.write_ns);
        Ok(Bid { id, window, disk_ns })
    }

    /// The initiator has chosen this target, and a part of the promised window. The rest becomes
    /// free.
    /// # Errors
    /// The bid is not open, or the chosen window is not within it.
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

    /// The initiator has chosen other targets.
    ///
    /// # Errors
    /// The bid is not open.
    pub fn cancel(&mut self, now_ns: u64, id: BidId) -> Result<(), BidError> {
        let at = self.find_tentative(now_ns, id)?;
        self.release(at);
        Ok(())
    }

    /// The whole chunk has arrived: its time and memory are free.
    ///
    /// # Errors
    /// The bid is not accepted.
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

    /// Frees bids that have expired; returns their number.
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

    /// Whether a bid is open or accepted.
    pub fn has(&self, id: BidId) -> bool {
        self.slots.iter().any(|slot| slot.held.is_some_and(|held| held.id == id))
    }

    /// When the next bid expires.
    pub fn next_lapse_ns(&self) -> Option<u64> {
        self.slots.iter().filter_map(|slot| slot.lapse_ns(&self.config)).min()
    }

    /// Open bids.
    pub fn tentative(&self) -> usize {
        self.slots.iter().filter(|slot| slot.is_tentative()).count()
    }

    /// Accepted windows, in the order of time.
    pub fn accepted(&self) -> impl Iterator<Item = (BidId, Window)> {
        self.slots.iter().filter_map(|slot| {
            let held = slot.held.filter(|held| held.is_accepted)?;
            Some((held.id, slot.window))
        })
    }

    /// All windows, including cancelled ones, in the order of time.
    pub fn windows(&self) -> impl Iterator<Item = Window> {
        self.slots.iter().map(|slot| slot.window)
    }

    /// Promised bytes of memory.
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

    /// Index of the latest cancelled window that can be promised again. Windows before one that is
    /// past are past, too.
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

    /// Adds a window in free time; returns its index.
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
            // A cancelled window is not promised to anyone, so it may be changed.
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

    /// Frees the resources of a bid, and its window unless it is kept as cancelled.
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

    /// Gives the time beside an accepted window to cancelled neighbours, unless it is very short.
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

    /// Drops cancelled windows that are last, or have too little time left for a bid.
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
