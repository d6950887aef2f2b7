//! A client with little memory for large values, such as a gateway with many connections: gets of
//! one key in the same turn share a request, and the client reads only a bounded number of large
//! values at a time.

use nicekv_client::{ClientCore, Ticket, Waiters};
use nicekv_proto::Now;
use nicekv_testkit::Random;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Values up to this length are read without waiting for memory.
const UNASKED_BYTES_MAX: usize = 1_500;
/// Maximum further gets of a key that are called together with the first.
const ALSO_MAX: u64 = 3;

#[derive(Clone, Debug, Default)]
pub(crate) struct Sharing {
    /// Maximum large values read at a time; 0: no bound.
    reads_at_once: usize,
    /// The gets of this turn, by key.
    gets: BTreeMap<usize, Ticket>,
    reading: BTreeSet<Ticket>,
    /// Reads that wait for memory, with their lengths.
    waiting: VecDeque<(Ticket, usize)>,
    /// Calls that shared a request and must now get a request each.
    separated: VecDeque<usize>,
}

impl Sharing {
    pub(crate) fn new(reads_at_once: usize) -> Self {
        Self { reads_at_once, ..Self::default() }
    }

    /// The client setting `auto_read_bytes_max` for this bound of reads.
    pub(crate) fn auto_read_bytes_max(reads_at_once: usize) -> usize {
        if reads_at_once == 0 { usize::MAX } else { UNASKED_BYTES_MAX }
    }

    /// Draws the number of further gets of a key in the same turn, at most `calls_left`.
    pub(crate) fn also(&self, calls_left: usize, random: &mut Random) -> usize {
        if self.reads_at_once == 0 { 0 } else { (random.below(ALSO_MAX + 1) as usize).min(calls_left) }
    }

    /// The request of an earlier get of this key in the same turn.
    pub(crate) fn of(&self, key: usize) -> Option<Ticket> {
        self.gets.get(&key).copied()
    }

    /// Records the request of a get, so that later gets of the turn can share it.
    pub(crate) fn begin(&mut self, key: usize, ticket: Ticket) {
        if self.reads_at_once > 0 {
            self.gets.insert(key, ticket);
        }
    }

    /// Ends the turn: later gets do not share its requests.
    pub(crate) fn end_turn(&mut self) {
        self.gets.clear();
    }

    /// Records that a request has ended.
    pub(crate) fn ended(&mut self, ticket: Ticket) {
        self.reading.remove(&ticket);
        self.waiting.retain(|(waiting, _)| *waiting != ticket);
    }

    /// Allows pending reads of large values up to the bound, and suspends the others. Gets that
    /// shared the request of a large value are separated.
    pub(crate) fn allow(&mut self, now: Now, core: &mut ClientCore, waiters: &mut Waiters<usize>) {
        while let Some((ticket, bytes)) = core.poll_pending_read() {
            self.ended(ticket);
            self.separated.extend(waiters.separate(ticket, |_| true).waiters);
            if self.reading.len() >= self.reads_at_once {
                core.suspend_read(ticket);
            }
            self.waiting.push_back((ticket, bytes));
        }
        while self.reading.len() < self.reads_at_once
            && let Some((ticket, bytes)) = self.waiting.pop_front()
        {
            self.reading.insert(ticket);
            core.allow_read(now, ticket, bytes);
        }
    }

    /// Takes a call that must get a request of its own.
    pub(crate) fn poll_separated(&mut self) -> Option<usize> {
        self.separated.pop_front()
    }
}
