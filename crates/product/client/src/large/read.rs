//! One large value that is read.
//!
//! ```text
//!   again ─┐
//!   next ──┴─▶ request: first, count ─▶ under way, at most `window` chunks ── chunk ─▶ kept, and hashed up to the first hole
//!     ▲                                    │
//!     └────────────── again ◀──────────────┘ silence for a timeout, or overtaken by later chunks for REORDER_NS
//! ```
//!
//! The window grows with every request that is answered in full: by its chunks until the first loss, by an eighth of them
//! after it. A loss halves it, once for all that was requested before.
//!
//! Only chunks that were requested are kept, and the buffer grows with the chunks that come: a length alone takes no
//! memory.

use super::read_source::{About, ReadSource, Replica};
use crate::request::Summary;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::ops::Range;
use nicekv_proto::large::{READ_CHUNKS_MAX, ReadChunks, Reference};
use nicekv_proto::limits::CHUNK_BYTES;
use nicekv_transport::{Checksum, ChunkSet};

/// Chunks under way: at first, at least and at most.
const WINDOW_FIRST: u32 = 128;
const WINDOW_MIN: u32 = 32;
const WINDOW_MAX: u32 = 1024;
/// A request that later ones have overtaken for this long is lost.
const REORDER_NS: u64 = 1_000_000;
/// Bytes that are hashed at a time, except at the end: hashing many at once is cheaper.
const HASHED_BYTES: usize = 64 << 10;
/// Requests are lost after a silence of this many round trips, and at least this long. The timeout of gets is no measure:
/// it covers answers that take long to make.
const TIMEOUT_ROUND_TRIPS: u64 = 4;
const TIMEOUT_NS_MIN: u64 = 2_000_000;
/// The timeout doubles with each silence, so many times at most.
const DOUBLINGS_MAX: u32 = 6;
const NEVER_NS: u64 = u64::MAX;

/// The result of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChunkOutcome {
    /// It was not requested, or had arrived before.
    Stray,
    Kept,
    /// It was the last chunk, and the value matches its checksum.
    Whole(Summary),
    /// It was the last chunk, and the value does not match its checksum.
    Wrong,
}

/// Chunks that were requested together.
#[derive(Clone, Debug)]
struct Batch {
    range: Range<u32>,
    /// How many of them have not arrived.
    left: u32,
    asked_ns: u64,
    /// When a chunk of a later request arrived before these.
    overtaken_ns: u64,
}

/// The read of one large value.
#[derive(Clone, Debug)]
pub(crate) struct Read {
    about: About,
    reference: Reference,
    replica: Replica,
    /// The answer, without its value.
    summary: Summary,
    chunks: ChunkSet,
    value: Vec<u8>,
    checksum: Box<Checksum>,
    hashed: usize,
    window: u32,
    /// A chunk was lost.
    has_lost: bool,
    /// When the window last shrank: losses of earlier requests do not shrink it again.
    shrunk_ns: u64,
    under_way: u32,
    /// Requests in flight, in the order in which they were sent.
    batches: VecDeque<Batch>,
    /// Chunks to request again.
    again: VecDeque<Range<u32>>,
    /// The first chunk that was never requested.
    next: u32,
    heard_ns: u64,
    /// Approximately the longest recent time of an answer; 0 before the first.
    answer_ns: u64,
    /// Timeouts in a row.
    silences: u32,
}

impl Read {
    pub(crate) fn new(about: About, reference: Reference, source: ReadSource, summary: Summary) -> Self {
        Self {
            about,
            reference,
            replica: Replica::new(source),
            summary,
            chunks: ChunkSet::default(),
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

    pub(crate) fn summary(&self) -> Summary {
        self.summary
    }

    pub(crate) fn silences(&self) -> u32 {
        self.silences
    }

    /// The value, if it has arrived completely.
    pub(crate) fn into_whole(self) -> Option<Vec<u8>> {
        (self.chunks.prefix() == self.reference.chunks()).then_some(self.value)
    }

    /// Starts over, from another replica if there is one.
    pub(crate) fn begin_again(&mut self) {
        let mut replica = core::mem::take(&mut self.replica);
        replica.next();
        *self = Self { replica, ..Self::new(self.about, self.reference, ReadSource::Any(0), self.summary) };
    }

    /// The replica does not, or no longer, hold the value. Requests all missing chunks from the
    /// next replica; returns false if there is none.
    pub(crate) fn lose_holder(&mut self) -> bool {
        self.ask_all_again();
        self.replica.lose()
    }

    /// A replica expects this token, so it has refused the requests in flight: they are sent again.
    /// If the new token fails, too, the timeout decides.
    pub(crate) fn take_token(&mut self, token: u64) {
        if self.replica.take_token(token) {
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
    pub(crate) fn on_chunk(&mut self, now_ns: u64, number: u32, bytes: &[u8]) -> ChunkOutcome {
        let place = self.reference.chunk(number).filter(|(_, length)| *length == bytes.len());
        let Some((start, _)) = place.filter(|_| number < self.next) else { return ChunkOutcome::Stray };
        if !self.chunks.insert(number) {
            return ChunkOutcome::Stray;
        }
        self.keep(start as usize, bytes);
        self.answered(now_ns, number);
        if self.chunks.prefix() < self.reference.chunks() {
            return ChunkOutcome::Kept;
        }
        match self.checksum.finish() == self.reference.checksum {
            true => ChunkOutcome::Whole(self.summary),
            false => ChunkOutcome::Wrong,
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
        self.replica.on_chunk();
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

    /// How long to wait for chunks; `timeout_ns` is the timeout of a get.
    fn chunk_timeout_ns(&self, timeout_ns: u64) -> u64 {
        match self.answer_ns {
            0 => timeout_ns,
            answer_ns => {
                let chunk_timeout_ns = (TIMEOUT_ROUND_TRIPS * answer_ns).max(TIMEOUT_NS_MIN);
                timeout_ns.min(chunk_timeout_ns << self.silences.min(DOUBLINGS_MAX))
            }
        }
    }

    /// Marks late requests as lost.
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
            self.replica.next();
        }
        if lost_ns.is_some_and(|lost_ns| lost_ns >= self.shrunk_ns) {
            self.window = (self.window / 2).max(WINDOW_MIN);
            (self.has_lost, self.shrunk_ns) = (true, now_ns);
        }
    }

    /// Writes the next request for chunks to `out`, if the window has room; `timeout_ns` is the timeout of a get.
    pub(crate) fn poll_transmit(&mut self, now_ns: u64, timeout_ns: u64, out: &mut Vec<u8>) -> bool {
        self.give_up(now_ns, self.chunk_timeout_ns(timeout_ns));
        let Some(range) = self.next_range() else { return false };
        let (first, count) = (range.start, range.len() as u16);
        self.under_way += u32::from(count);
        let (left, overtaken_ns) = (count.into(), NEVER_NS);
        self.batches.push_back(Batch { range, left, asked_ns: now_ns, overtaken_ns });
        let (About { keyspace, op, digest }, reference, token) =
            (self.about, self.reference, self.replica.token());
        let (replica, mask) = self.replica.address();
        ReadChunks { keyspace, op, digest, reply_to: None, first, mask, replica, reference, token, count }
            .encode(out);
        true
    }

    /// The next chunks to request, all of them missing.
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
        // Requests a part of the window at a time, so that not every arriving chunk triggers a
        // request.
        let rest = self.reference.chunks() - self.next;
        let count = (self.window / 4).clamp(1, READ_CHUNKS_MAX.into()).min(rest);
        if rest == 0 || room < count {
            return None;
        }
        self.next += count;
        Some(self.next - count..self.next)
    }

    /// When to call [`Self::poll_transmit`] at the latest, once it has written nothing.
    pub(crate) fn next_deadline(&self, timeout_ns: u64) -> u64 {
        let timeout_ns = self.chunk_timeout_ns(timeout_ns);
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
