//! An initiator: puts chunks and gets them.
//!
//! ```text
//!   put ─▶ requesting ──bids──▶ sending ──R answer "stored"──▶ placed
//!             ▲  no common window │ some do not answer
//!             └───── waiting ◀────┘
//!
//!   get ─▶ requesting ──held──▶ reading ──id matches──▶ got
//!                                ▲   │ silence, or another id
//!                                └───┘ next holder
//! ```
//!
//! Each attempt of a put is a negotiation with an op id of its own. Acknowledgements of earlier attempts count as long as the
//! map stays the same (P2, P5).
//!
//! While a chunk's slot moves, a get that finds nothing in the chunk's group asks the former members (P13). Maintenance of a
//! target has an initiator too, which also counts holders: by a reader's request, which changes nothing, or by a put's
//! request, which confirms the chunk.
//!
//! Reading order: `interface` (settings, results), `put` with `bid_choice` and `delivery`, `get` with `frame_requests`,
//! `count`; `shared` is what all of them use.

mod bid_choice;
mod count;
mod delivery;
mod frame_requests;
mod get;
mod interface;
mod put;
mod shared;

use crate::map::Map;
use crate::reservation::ConfigError;
use crate::transmit::Transmit;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use count::Count;
use get::Get;
pub use interface::{
    Counted, Event, GetError, Handle, InitiatorConfig, InitiatorCounters, Placed, PutError, Timing,
};
use nicekv_proto::chunk::{ChunkAnswer, ChunkId, Wanted};
use nicekv_proto::{Datagram, OpId};
use put::Put;
use shared::Shared;

#[derive(Clone, Debug)]
enum Job {
    Put(Put),
    Get(Get),
    Count(Count),
}

/// An initiator without I/O: its driver owns the socket and the clock.
///
/// Start work with [`Self::put`] and [`Self::get`]; pass datagrams to [`Self::handle_datagram`]; after each input send what
/// [`Self::poll_transmit`] yields and take [`Self::poll_event`]; call [`Self::handle_deadline`] by [`Self::next_deadline`].
#[derive(Clone, Debug)]
pub struct Initiator {
    shared: Shared,
    jobs: BTreeMap<Handle, Job>,
    last: u64,
}

impl Initiator {
    /// An idle initiator.
    ///
    /// # Errors
    /// A parameter of [`InitiatorConfig::reservation`] is out of bounds.
    pub fn new(config: InitiatorConfig, seed: u64) -> Result<Self, ConfigError> {
        config.reservation.check()?;
        Ok(Self { shared: Shared::new(config, seed), jobs: BTreeMap::new(), last: 0 })
    }

    /// Sets the map; an older version changes nothing. Everything in progress starts over, because
    /// acknowledgements by another map do not count.
    pub fn set_map(&mut self, now_ns: u64, map: Arc<Map>) {
        if self.shared.map.as_ref().is_some_and(|known| known.version() >= map.version()) {
            return;
        }
        self.shared.map = Some(map);
        for job in self.jobs.values_mut() {
            match job {
                Job::Put(put) => put.begin_anew(now_ns, &mut self.shared),
                Job::Get(get) => get.begin_anew(now_ns, &mut self.shared),
                Job::Count(count) => count.end_unknown(&mut self.shared),
            }
        }
        self.end_jobs();
    }

    /// Sets how many targets must hold a chunk after a put.
    pub(crate) fn set_copies(&mut self, copies: usize) {
        self.shared.config.copies = copies;
    }

    /// The map in use, if one was set.
    pub fn map(&self) -> Option<&Arc<Map>> {
        self.shared.map.as_ref()
    }

    /// Puts a chunk; `id` is [`chunk_id`](crate::chunk_id) of `bytes`. Without a map it waits for one.
    pub fn put(&mut self, now_ns: u64, id: ChunkId, bytes: Arc<[u8]>) -> Handle {
        self.put_beside(now_ns, id, bytes, None)
    }

    /// Like [`Self::put`], for a member of the chunk's group (at place `own`) that already holds
    /// the chunk. It counts as a holder, and is not asked.
    pub(crate) fn put_beside(
        &mut self,
        now_ns: u64,
        id: ChunkId,
        bytes: Arc<[u8]>,
        own: Option<u8>,
    ) -> Handle {
        let handle = self.next_handle();
        let put = Put::new(now_ns, handle, (id, bytes), own, &mut self.shared);
        self.jobs.insert(handle, Job::Put(put));
        self.end_jobs();
        handle
    }

    /// Gets a chunk.
    pub fn get(&mut self, now_ns: u64, id: ChunkId) -> Handle {
        let handle = self.next_handle();
        let get = Get::new(now_ns, handle, id, &mut self.shared);
        self.jobs.insert(handle, Job::Get(get));
        handle
    }

    /// Counts which of these members (a mask) of the chunk's group hold it, without changing
    /// anything.
    pub(crate) fn count(&mut self, now_ns: u64, id: ChunkId, of: u16) -> Handle {
        self.begin_count(now_ns, id, Wanted::Get, of)
    }

    /// Asks these members (a mask), which are known to hold a chunk of `bytes`, to confirm it.
    pub(crate) fn confirm(&mut self, now_ns: u64, id: ChunkId, bytes: u32, of: u16) -> Handle {
        self.begin_count(now_ns, id, Wanted::Put { bytes, earliest_ns: 0, except: !of }, of)
    }

    fn begin_count(&mut self, now_ns: u64, id: ChunkId, wanted: Wanted, of: u16) -> Handle {
        let handle = self.next_handle();
        let count = Count::new(now_ns, handle, id, wanted, of, &mut self.shared);
        self.jobs.insert(handle, Job::Count(count));
        self.end_jobs();
        handle
    }

    /// Drops everything in progress, without events.
    pub(crate) fn give_up(&mut self) {
        self.jobs.clear();
        self.shared.ops.clear();
        self.shared.events.clear();
        self.shared.sends.clear();
    }

    fn next_handle(&mut self) -> Handle {
        self.last += 1;
        Handle(self.last)
    }

    /// Number of puts, gets and counts in progress.
    pub fn under_way(&self) -> usize {
        self.jobs.len()
    }

    /// A datagram arrived.
    pub fn handle_datagram(&mut self, now_ns: u64, bytes: &[u8]) {
        let Ok((header, datagram)) = Datagram::decode(bytes) else {
            self.shared.counters.unexpected += 1;
            return;
        };
        self.handle(now_ns, header.op, &datagram);
    }

    /// A datagram arrived, decoded.
    pub(crate) fn handle(&mut self, now_ns: u64, op: OpId, datagram: &Datagram<'_>) {
        let shared = &mut self.shared;
        let job = shared.ops.get(&op).and_then(|handle| self.jobs.get_mut(handle));
        match (job, datagram) {
            (Some(job), Datagram::ChunkAnswer(answer)) => {
                if let Some(answer) = shared.check(answer) {
                    job.on_answer(now_ns, &answer, shared);
                }
            }
            (Some(Job::Put(put)), Datagram::TransferReport(report)) => put.on_report(now_ns, report, shared),
            (Some(Job::Get(get)), Datagram::Chunk(frame)) => get.on_frame(now_ns, frame, shared),
            _ => shared.counters.unexpected += 1,
        }
        self.end_jobs();
    }

    /// The time of [`Self::next_deadline`] has come.
    pub fn handle_deadline(&mut self, now_ns: u64) {
        for job in self.jobs.values_mut() {
            match job {
                Job::Put(put) => put.on_deadline(now_ns, &mut self.shared),
                Job::Get(get) => get.on_deadline(now_ns, &mut self.shared),
                Job::Count(count) => count.on_deadline(now_ns, &mut self.shared),
            }
        }
        self.end_jobs();
    }

    /// When to call [`Self::handle_deadline`] and [`Self::poll_transmit`] at the latest.
    pub fn next_deadline(&self) -> u64 {
        let of = |job: &Job| match job {
            Job::Put(put) => put.next_deadline(&self.shared),
            Job::Get(get) => get.next_deadline(),
            Job::Count(count) => count.next_deadline(),
        };
        self.jobs.values().map(of).min().unwrap_or(u64::MAX)
    }

    /// The next datagram that may leave now.
    pub fn poll_transmit(&mut self, now_ns: u64) -> Option<Transmit> {
        if let Some(send) = self.shared.sends.pop_front() {
            return Some(send);
        }
        let puts = self.jobs.values_mut().filter_map(|job| match job {
            Job::Put(put) => Some(put),
            Job::Get(_) | Job::Count(_) => None,
        });
        for put in puts {
            if let Some(send) = put.poll_transmit(now_ns, &mut self.shared) {
                return Some(send);
            }
        }
        None
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.shared.events.pop_front()
    }

    /// Counts for operators.
    pub fn counters(&self) -> InitiatorCounters {
        self.shared.counters
    }

    /// Removes jobs that have ended, and their op ids.
    fn end_jobs(&mut self) {
        while let Some(handle) = self.shared.ended.pop() {
            self.jobs.remove(&handle);
            self.shared.ops.retain(|_, of| *of != handle);
        }
    }
}

impl Job {
    /// Only gets ask former members of a group.
    fn on_answer(&mut self, now_ns: u64, answer: &ChunkAnswer, shared: &mut Shared) {
        match self {
            Self::Get(get) => get.on_answer(now_ns, answer, shared),
            _ if !shared.is_of_member(answer) => shared.counters.unexpected += 1,
            Self::Put(put) => put.on_answer(now_ns, answer, shared),
            Self::Count(count) => count.on_answer(answer, shared),
        }
    }
}

#[cfg(test)]
mod tests;
