//! A client with little memory for large values, such as a gateway of many connections: gets of one key in the same turn share a request,
//! and only a bounded number of large values is read at a time.

use nicekv_client::{ClientCore, Ticket, Waiters};
use nicekv_proto::Now;
use nicekv_testkit::Random;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Longer values are not read before there is room.
const UNASKED_BYTES_MAX: usize = 1_500;
/// Gets of one key that are called at once, at most, beside the first.
const ALSO_MAX: u64 = 3;

/// See the module.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sharing {
    /// 0: there is room for all.
    reads_at_once: usize,
    /// Of this turn, by key.
    gets: BTreeMap<usize, Ticket>,
    reading: BTreeSet<Ticket>,
    /// Reads that wait, with their lengths.
    waiting: VecDeque<(Ticket, usize)>,
    /// Calls that shared a request, and are to have one each.
    separated: VecDeque<usize>,
}

impl Sharing {
    pub(crate) fn new(reads_at_once: usize) -> Self {
        Self { reads_at_once, ..Self::default() }
    }

    /// What a client's settings say of it.
    pub(crate) fn auto_read_bytes_max(reads_at_once: usize) -> usize {
        if reads_at_once == 0 { usize::MAX } else { UNASKED_BYTES_MAX }
    }

    /// The number of further gets of a key in the same turn, at most `calls_left`.
    pub(crate) fn also(&self, calls_left: usize, random: &mut Random) -> usize {
        if self.reads_at_once == 0 { 0 } else { (random.below(ALSO_MAX + 1) as usize).min(calls_left) }
    }

    /// The request that another get of this key shares.
    pub(crate) fn of(&self, key: usize) -> Option<Ticket> {
        self.gets.get(&key).copied()
    }

    /// A get begins.
    pub(crate) fn begin(&mut self, key: usize, ticket: Ticket) {
        if self.reads_at_once > 0 {
            self.gets.insert(key, ticket);
        }
    }

    /// What was called leaves.
    pub(crate) fn end_turn(&mut self) {
        self.gets.clear();
    }

    /// A request has ended.
    pub(crate) fn ended(&mut self, ticket: Ticket) {
        self.reading.remove(&ticket);
        self.waiting.retain(|(waiting, _)| *waiting != ticket);
    }

    /// Lets values be read for which there is room. The others wait, and those that share a request are separated.
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

    /// Takes a call that is to have a request of its own.
    pub(crate) fn poll_separated(&mut self) -> Option<usize> {
        self.separated.pop_front()
    }
}
