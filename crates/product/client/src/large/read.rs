//! A large value on its way to the client.
//!
//! ```text
//!   again ─┐
//!   next ──┴─▶ ask: first, count ─▶ under way, `window` chunks at most ── chunk ─▶ kept, and hashed as far as there is no hole
//!     ▲                                 │
//!     └──────────── again ◀─────────────┘ nothing comes for the time of a retry, or what was asked for later comes for REORDER_NS
//! ```
//!
//! The window grows with every answer that is whole: by what was asked for until something is lost, by an eighth of that from then on. It is halved when something is, once for all
//! that was asked for before.
//!
//! Only what was asked for is kept, and the buffer reaches no further than what has come, so that a length is nothing but a number until chunks come.

use super::About;
use super::asked::{Asked, From};
use crate::summary::Summary;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::ops::Range;
use nicekv_proto::large::{READ_CHUNKS_MAX, ReadChunks, Reference};
use nicekv_proto::limits::CHUNK_BYTES;
use nicekv_transport::{Checksum, Chunks};

/// Chunks under way at first, …
const WINDOW_FIRST: u32 = 128;
/// … at least, …
const WINDOW_MIN: u32 = 32;
/// … and at most.
const WINDOW_MAX: u32 = 1024;
/// What is overtaken for so long is lost.
const REORDER_NS: u64 = 1_000_000;
/// Bytes that are hashed at a time, at least, but at the end: so many at a time are cheaper.
const HASHED_BYTES: usize = 64 << 10;
/// Nothing has come for so many times as answers take of late, and for so long at least: what was asked for is lost. The retries of gets are not the measure: they wait for
/// answers that may be long in the making.
const PATIENCE_ROUND_TRIPS: u64 = 4;
const PATIENCE_NS_MIN: u64 = 2_000_000;
/// After so many silences the time does not double once more.
const DOUBLINGS_MAX: u32 = 6;
const NEVER_NS: u64 = u64::MAX;

/// What became of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Taken {
    /// It was not asked for, or is there.
    Stray,
    Kept,
    /// It was the last one, and the value is what was named.
    Whole(Summary),
    /// It was the last one, and the value is not.
    Wrong,
}

/// Chunks that were asked for together.
#[derive(Clone, Debug)]
struct Batch {
    range: Range<u32>,
    /// Those that have not come.
    left: u32,
    asked_ns: u64,
    /// When one that was asked for later came first.
    overtaken_ns: u64,
}

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct Read {
    about: About,
    reference: Reference,
    asked: Asked,
    /// The answer, less its value.
    summary: Summary,
    chunks: Chunks,
    value: Vec<u8>,
    checksum: Box<Checksum>,
    hashed: usize,
    window: u32,
    /// Something was lost.
    has_lost: bool,
    /// What was asked for before does not shrink the window again.
    shrunk_ns: u64,
    under_way: u32,
    /// By when they were asked for.
    batches: VecDeque<Batch>,
    /// Those that were lost, or may have been.
    again: VecDeque<Range<u32>>,
    /// From here on none was asked for.
    next: u32,
    heard_ns: u64,
    /// About the longest time that an answer has taken of late; 0: there was none.
    answer_ns: u64,
    /// How often in a row nothing came in time.
    silences: u32,
}

impl Read {
    pub(crate) fn new(about: About, reference: Reference, from: From, summary: Summary) -> Self {
        Self {
            about,
            reference,
            asked: Asked::new(from),
            summary,
            chunks: Chunks::default(),
            value: Vec::new(),
            checksum: Box::new(Checksum::new()),
            hashed: 0,
            window: WINDOW_FIRST,
            has_lost: false,
            shrunk_ns: 0,
            under_way: 0,
            batches: VecDeque::new(),
            again: VecDeque::new(),
            next: 0,
            heard_ns: 0,
            answer_ns: 0,
            silences: 0,
        }
    }

    pub(crate) fn reference(&self) -> Reference {
        self.reference
    }

    pub(super) fn summary(&self) -> Summary {
        self.summary
    }

    pub(super) fn silences(&self) -> u32 {
        self.silences
    }

    /// The value, if all of it is there.
    pub(super) fn into_whole(self) -> Option<Vec<u8>> {
        (self.chunks.prefix() == self.reference.chunks()).then_some(self.value)
    }

    /// From the beginning, and of another replica where there is a choice.
    pub(super) fn begin_again(&mut self) {
        let mut asked = core::mem::take(&mut self.asked);
        asked.next();
        *self = Self { asked, ..Self::new(self.about, self.reference, From::Any(0), self.summary) };
    }

    /// The one that is asked has it not, or not any more. Whether there are others, of whom everything is asked that has not come.
    pub(crate) fn lose_holder(&mut self) -> bool {
        self.ask_all_again();
        self.asked.lose()
    }

    /// A replica asks for this token. What is under way was refused, too; but if nothing comes of the new one either, time decides when to ask again.
    pub(crate) fn take_token(&mut self, token: u64) {
        if self.asked.take_token(token) {
            self.ask_all_again();
        }
    }

    fn ask_all_again(&mut self) {
        while let Some(batch) = self.batches.pop_front() {
            self.ask_again(&batch);
        }
    }

    fn ask_again(&mut self, batch: &Batch) {
        self.under_way -= batch.left;
        self.again.push_back(batch.range.clone());
    }

    /// A chunk has come.
    pub(super) fn on_chunk(&mut self, now_ns: u64, number: u32, bytes: &[u8]) -> Taken {
        let place = self.reference.chunk(number).filter(|(_, length)| *length == bytes.len());
        let Some((start, _)) = place.filter(|_| number < self.next) else { return Taken::Stray };
        if !self.chunks.insert(number) {
            return Taken::Stray;
        }
        self.keep(start as usize, bytes);
        self.answered(now_ns, number);
        if self.chunks.prefix() < self.reference.chunks() {
            return Taken::Kept;
        }
        match self.checksum.finish() == self.reference.checksum {
            true => Taken::Whole(self.summary),
            false => Taken::Wrong,
        }
    }

    fn keep(&mut self, start: usize, bytes: &[u8]) {
        let (end, length) = (start + bytes.len(), self.reference.length as usize);
        if end > self.value.capacity() {
            let capacity = end.max(2 * self.value.capacity()).min(length);
            self.value.reserve_exact(capacity - self.value.len());
        }
        if end > self.value.len() {
            self.value.resize(end, 0);
        }
        self.value[start..end].copy_from_slice(bytes);
        let whole = (self.chunks.prefix() as usize * CHUNK_BYTES).min(length);
        if whole >= self.hashed + HASHED_BYTES || whole == length {
            self.checksum.update(&self.value[self.hashed..whole]);
            self.hashed = whole;
        }
    }

    fn answered(&mut self, now_ns: u64, number: u32) {
        (self.heard_ns, self.silences) = (now_ns, 0);
        self.asked.has_answered();
        let Some(at) = self.batches.iter().position(|batch| batch.range.contains(&number)) else { return };
        self.under_way -= 1;
        self.batches.range_mut(..at).for_each(|batch| batch.overtaken_ns = batch.overtaken_ns.min(now_ns));
        let batch = &mut self.batches[at];
        let took_ns = now_ns.saturating_sub(batch.asked_ns);
        self.answer_ns = took_ns.max(self.answer_ns - self.answer_ns / 16);
        batch.left -= 1;
        if batch.left == 0 {
            let count = batch.range.len() as u32;
            self.batches.remove(at);
            let growth = if self.has_lost { count.div_ceil(8) } else { count };
            self.window = (self.window + growth).min(WINDOW_MAX);
        }
    }

    /// How long a silence says nothing, if a retry of a get would wait for so long.
    fn patience_ns(&self, timeout_ns: u64) -> u64 {
        match self.answer_ns {
            0 => timeout_ns,
            answer_ns => {
                let patience_ns = (PATIENCE_ROUND_TRIPS * answer_ns).max(PATIENCE_NS_MIN);
                timeout_ns.min(patience_ns << self.silences.min(DOUBLINGS_MAX))
            }
        }
    }

    /// What is late is lost.
    fn give_up(&mut self, now_ns: u64, timeout_ns: u64) {
        let (heard_ns, mut lost_ns, mut is_silent) = (self.heard_ns, None, false);
        let mut at = 0;
        while let Some(batch) = self.batches.get(at) {
            if now_ns < batch.late_ns(heard_ns, timeout_ns) {
                at += 1;
                continue;
            }
            is_silent |= batch.overtaken_ns == NEVER_NS;
            lost_ns = lost_ns.max(Some(batch.asked_ns));
            let batch = self.batches.remove(at).expect("just seen");
            self.ask_again(&batch);
        }
        if is_silent {
            self.silences += 1;
            self.asked.next();
        }
        if lost_ns.is_some_and(|lost_ns| lost_ns >= self.shrunk_ns) {
            self.window = (self.window / 2).max(WINDOW_MIN);
            (self.has_lost, self.shrunk_ns) = (true, now_ns);
        }
    }

    /// Writes the next question to `out`, if there is room for what it asks for. A retry of a get would wait for `timeout_ns`.
    pub(super) fn poll_transmit(&mut self, now_ns: u64, timeout_ns: u64, out: &mut Vec<u8>) -> bool {
        self.give_up(now_ns, self.patience_ns(timeout_ns));
        let Some(range) = self.next_range() else { return false };
        let (first, count) = (range.start, range.len() as u16);
        self.under_way += u32::from(count);
        let (left, overtaken_ns) = (count.into(), NEVER_NS);
        self.batches.push_back(Batch { range, left, asked_ns: now_ns, overtaken_ns });
        let (About { keyspace, op, digest }, reference, token) =
            (self.about, self.reference, self.asked.token());
        let (replica, mask) = self.asked.replica();
        ReadChunks { keyspace, op, digest, reply_to: None, first, mask, replica, reference, token, count }
            .encode(out);
        true
    }

    /// What to ask for, none of which is there.
    fn next_range(&mut self) -> Option<Range<u32>> {
        let room = self.window.saturating_sub(self.under_way).min(READ_CHUNKS_MAX.into());
        while let Some(range) = self.again.front_mut().filter(|_| room > 0) {
            let start = range.clone().find(|number| !self.chunks.has(*number));
            let Some(start) = start else {
                self.again.pop_front();
                continue;
            };
            let most = range.end.min(start + room);
            let end = (start..most).find(|number| self.chunks.has(*number)).unwrap_or(most);
            range.start = end;
            return Some(start..end);
        }
        // A part of the window at a time, so that not every chunk that comes is a question.
        let rest = self.reference.chunks() - self.next;
        let count = (self.window / 4).clamp(1, READ_CHUNKS_MAX.into()).min(rest);
        if rest == 0 || room < count {
            return None;
        }
        self.next += count;
        Some(self.next - count..self.next)
    }

    /// When [`Self::poll_transmit`] is to be called at the latest, if it has written nothing.
    pub(super) fn next_deadline(&self, timeout_ns: u64) -> u64 {
        let timeout_ns = self.patience_ns(timeout_ns);
        let late_ns = self.batches.iter().map(|batch| batch.late_ns(self.heard_ns, timeout_ns));
        late_ns.min().unwrap_or(NEVER_NS)
    }
}

impl Batch {
    fn late_ns(&self, heard_ns: u64, timeout_ns: u64) -> u64 {
        let silent_ns = self.asked_ns.max(heard_ns).saturating_add(timeout_ns);
        self.overtaken_ns.saturating_add(REORDER_NS).min(silent_ns)
    }
}

#[cfg(test)]
mod tests;
