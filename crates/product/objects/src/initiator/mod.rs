//! An initiator: who puts chunks, and gets them.
//!
//! ```text
//!   put ─▶ asking ──bids──▶ sending ──R say "stored"──▶ placed       get ─▶ asking ──held──▶ reading ──whole──▶ got
//!             ▲  none fit, or too few │ some do not say so                     ▲               │ silence, or not what it is
//!             └────── waiting ◀───────┘                                        └── the next one that holds it ◀┘
//! ```
//!
//! Each attempt of a put is a negotiation with an op id of its own; what was acknowledged in those before stays, as long as the map is the same (P2, P5).
//!
//! While a chunk's slot moves who finds nothing at the members of its group asks the former ones (P13). Targets that look after what they hold have an initiator of their own, which counts, too:
//! who holds a chunk is asked as a reader asks, which changes nothing, or as who puts asks, which has it confirmed.
//!
//! * `put`: attempts; `choice`: which bids are taken; `delivery`: how frames go; `get`: who is read; `windows`: what is asked of it; `count`: who holds a chunk; `told`: what initiators are told, and tell.

mod choice;
mod count;
mod delivery;
mod get;
mod put;
mod shared;
mod told;
mod windows;

use crate::map::Map;
use crate::reservation::ConfigError;
use crate::transmit::Transmit;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use count::Count;
use get::Get;
use nicekv_proto::chunk::{ChunkAnswer, ChunkId, Wanted};
use nicekv_proto::{Datagram, OpId};
use put::Put;
use shared::Shared;
pub use told::{
    Counted, Event, GetError, Handle, InitiatorConfig, InitiatorCounters, Placed, PutError, Timing,
};

#[derive(Clone, Debug)]
enum Job {
    Put(Put),
    Get(Get),
    Count(Count),
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Initiator {
    shared: Shared,
    jobs: BTreeMap<Handle, Job>,
    last: u64,
}

impl Initiator {
    /// One that has nothing to do.
    ///
    /// # Errors
    /// If the parameters of windows cannot be.
    pub fn new(config: InitiatorConfig, seed: u64) -> Result<Self, ConfigError> {
        config.reservation.check()?;
        Ok(Self { shared: Shared::new(config, seed), jobs: BTreeMap::new(), last: 0 })
    }

    /// Groups are as this map says from now on; an older one changes nothing. Whatever is under way begins anew: what was acknowledged by another map does not count.
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

    /// So many targets are to hold what is put from now on.
    pub(crate) fn set_copies(&mut self, copies: usize) {
        self.shared.config.copies = copies;
    }

    /// The map that it goes by.
    pub fn map(&self) -> Option<&Arc<Map>> {
        self.shared.map.as_ref()
    }

    /// Puts a chunk, of which the caller has made the id. Without a map it waits for one.
    pub fn put(&mut self, now_ns: u64, id: ChunkId, bytes: Arc<[u8]>) -> Handle {
        self.put_beside(now_ns, id, bytes, None)
    }

    /// The same, by a member of the chunk's group that holds it already, at this place: it counts as one of those who are to hold it, and is not asked.
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

    /// Asks these members of its group whether they hold a chunk. It changes nothing there.
    pub(crate) fn count(&mut self, now_ns: u64, id: ChunkId, of: u16) -> Handle {
        self.begin_count(now_ns, id, Wanted::Get, of)
    }

    /// Has these members, who are known to hold a chunk of so many bytes, confirm it.
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

    /// Nobody wants to know any more how what is under way ends.
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

    /// Puts, gets and counts under way.
    pub fn under_way(&self) -> usize {
        self.jobs.len()
    }

    /// A datagram has come.
    pub fn handle_datagram(&mut self, now_ns: u64, bytes: &[u8]) {
        let Ok((header, datagram)) = Datagram::decode(bytes) else {
            self.shared.counters.strangers += 1;
            return;
        };
        self.handle(now_ns, header.op, &datagram);
    }

    /// The same, decoded.
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
            _ => shared.counters.strangers += 1,
        }
        self.end_jobs();
    }

    /// The time that was named has come.
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

    /// What has happened.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.shared.events.pop_front()
    }

    /// For operators.
    pub fn counters(&self) -> InitiatorCounters {
        self.shared.counters
    }

    /// What has ended is forgotten, with the names of its negotiations.
    fn end_jobs(&mut self) {
        while let Some(handle) = self.shared.ended.pop() {
            self.jobs.remove(&handle);
            self.shared.ops.retain(|_, of| *of != handle);
        }
    }
}

impl Job {
    /// Former members of a group are asked by who reads, and by nobody else.
    fn on_answer(&mut self, now_ns: u64, answer: &ChunkAnswer, shared: &mut Shared) {
        match self {
            Self::Get(get) => get.on_answer(now_ns, answer, shared),
            _ if !shared.is_of_member(answer) => shared.counters.strangers += 1,
            Self::Put(put) => put.on_answer(now_ns, answer, shared),
            Self::Count(count) => count.on_answer(answer, shared),
        }
    }
}

#[cfg(test)]
mod tests;
