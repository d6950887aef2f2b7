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
use nicekv_transport::{Checksum, Chunks};
use nicekv_wire::large::{READ_CHUNKS_MAX, ReadChunks, Reference};
use nicekv_wire::limits::CHUNK_BYTES;

/// Chunks under way at first, …
const WINDOW_FIRST: u32 = 128;
/// … at least, …
const WINDOW_MIN: u32 = 16;
/// … and at most.
const WINDOW_MAX: u32 = 1024;
/// What is overtaken for so long is lost.
const REORDER_NS: u64 = 1_000_000;
/// Bytes that are hashed at a time, at least, but at the end: so many at a time are cheaper.
const HASHED_BYTES: usize = 64 << 10;
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
        batch.left -= 1;
        if batch.left == 0 {
            let count = batch.range.len() as u32;
            self.batches.remove(at);
            let growth = if self.has_lost { count.div_ceil(8) } else { count };
            self.window = (self.window + growth).min(WINDOW_MAX);
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
        self.give_up(now_ns, timeout_ns);
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
mod tests {
    use super::*;
    use crate::Outcome;
    use nicekv_transport::checksum;
    use nicekv_wire::{ClientId, Datagram, KeyDigest, KeyspaceId, OpId};

    const MS: u64 = 1_000_000;
    const TIMEOUT_NS: u64 = 5 * MS;
    const OP: OpId = OpId { client: ClientId(5), sequence: 7 };
    const FOUND: Summary =
        Summary { outcome: Outcome::Done, version: OP, expiry_ms: 0, integer: 0, has_value: true };

    fn read(length: u32, checksum: u128) -> Read {
        let about = About { keyspace: KeyspaceId::DEFAULT, op: OP, digest: KeyDigest([3; 16]) };
        let name = OpId { sequence: 99, ..OP };
        Read::new(about, Reference { name, length, checksum }, From::Any(1), FOUND)
    }

    /// What it asks for now: first, count, token.
    fn asked(read: &mut Read, now_ns: u64) -> Vec<(u32, u16, u64)> {
        let (mut all, mut out) = (Vec::new(), Vec::new());
        while read.poll_transmit(now_ns, TIMEOUT_NS, &mut out) {
            let Ok((_, Datagram::ReadChunks(asks))) = Datagram::decode(&out) else { panic!("{out:?}") };
            all.push((asks.first, asks.count, asks.token));
        }
        assert!(read.next_deadline(TIMEOUT_NS) > now_ns, "there is nothing to do before something comes");
        all
    }

    #[test]
    fn a_length_is_a_number_until_chunks_come() {
        let mut read = read(512 << 20, 0);
        for turn in 0..50 {
            asked(&mut read, turn * 10 * MS);
        }
        assert_eq!(read.value.capacity(), 0);
        assert!(read.again.len() + read.batches.len() < 64, "and what is asked for does not grow");
        let last = read.reference.chunks() - 1;
        assert_eq!(read.on_chunk(0, last, &[0; CHUNK_BYTES]), Taken::Stray, "nobody has asked for it");
        assert_eq!(read.on_chunk(0, 7, &[0; CHUNK_BYTES]), Taken::Kept);
        assert!(read.value.capacity() <= 8 * CHUNK_BYTES);
    }

    #[test]
    fn what_is_not_what_was_asked_for_is_no_chunk() {
        let mut read = read(10 * CHUNK_BYTES as u32 + 5, 0);
        assert_eq!(read.on_chunk(0, 0, &[0; CHUNK_BYTES]), Taken::Stray, "before anything was asked for");
        assert_eq!(asked(&mut read, 0), [(0, 11, 1)]);
        let lies: [(u32, usize); 5] =
            [(0, 5), (0, CHUNK_BYTES - 1), (10, CHUNK_BYTES), (11, 5), (u32::MAX, 5)];
        for (number, length) in lies {
            assert_eq!(read.on_chunk(0, number, &vec![0; length]), Taken::Stray, "{number} {length}");
        }
        assert_eq!(read.on_chunk(0, 10, &[0; 5]), Taken::Kept);
        assert_eq!(read.on_chunk(0, 10, &[0; 5]), Taken::Stray, "it is there");
    }

    #[test]
    fn a_value_is_whole_if_its_checksum_is_right() {
        let value: Vec<u8> = (0..300_007_u32).map(|at| (at * 7 % 251) as u8).collect();
        for (named, is_right) in [(checksum(&value), true), (1, false)] {
            let mut read = read(value.len() as u32, named);
            let mut taken = Vec::new();
            while read.chunks.prefix() < read.reference.chunks() {
                let mut came: Vec<u32> = asked(&mut read, 0)
                    .iter()
                    .flat_map(|(first, count, _)| *first..first + u32::from(*count))
                    .collect();
                came.reverse();
                for number in came {
                    let bytes = value.chunks(CHUNK_BYTES).nth(number as usize).unwrap();
                    taken.push(read.on_chunk(0, number, bytes));
                }
            }
            let last = if is_right { Taken::Whole(FOUND) } else { Taken::Wrong };
            assert_eq!(taken.pop(), Some(last));
            assert!(taken.iter().all(|taken| *taken == Taken::Kept));
            assert_eq!(read.value.capacity(), value.len(), "no byte more");
            assert_eq!(read.into_whole(), Some(value.clone()));
        }
    }

    #[test]
    fn the_window_grows_with_answers_and_is_halved_by_a_loss_once() {
        let mut read = read(64 << 20, 0);
        let mut waiting: VecDeque<u32> = VecDeque::new();
        for turn in 0..40 {
            for (first, count, _) in asked(&mut read, turn) {
                waiting.extend(first..first + u32::from(count));
            }
            assert!(waiting.len() as u32 <= read.window && read.window <= WINDOW_MAX);
            waiting.drain(..).for_each(|number| {
                read.on_chunk(turn, number, &[0; CHUNK_BYTES]);
            });
        }
        assert_eq!(read.window, WINDOW_MAX);
        let lost = asked(&mut read, MS);
        assert_eq!(lost.len(), 16);
        assert_eq!(read.next_deadline(TIMEOUT_NS), MS + TIMEOUT_NS);
        let again = asked(&mut read, MS + TIMEOUT_NS);
        assert_eq!((read.window, read.silences), (WINDOW_MAX / 2, 1));
        assert_eq!(again, lost[..8]);
        (0..20).for_each(|turn| drop(asked(&mut read, (7 + 5 * turn) * MS)));
        assert_eq!(read.window, WINDOW_MIN);
    }

    #[test]
    fn what_is_overtaken_is_asked_for_again_without_what_has_come() {
        let mut read = Read { window: 32, ..read(1 << 20, 0) };
        assert_eq!(asked(&mut read, 0), [(0, 8, 1), (8, 8, 1), (16, 8, 1), (24, 8, 1)]);
        [0, 1, 2, 4, 5, 7, 8].iter().for_each(|number| {
            read.on_chunk(MS, *number, &[0; CHUNK_BYTES]);
        });
        assert_eq!(read.next_deadline(TIMEOUT_NS), 2 * MS);
        assert_eq!(asked(&mut read, 2 * MS), [], "more is under way than the window has room for by now");
        assert_eq!(read.window, 16);
        for number in 9..24 {
            read.on_chunk(2 * MS, number, &[0; CHUNK_BYTES]);
        }
        assert_eq!(asked(&mut read, 2 * MS)[..2], [(3, 1, 1), (6, 1, 1)]);
        assert_eq!((read.window, read.silences), (16 + 2, 0), "two were answered as a whole");
    }

    #[test]
    fn what_comes_slowly_is_waited_for_as_long_as_it_comes() {
        let mut read = read(1 << 20, 0);
        let asks = asked(&mut read, 0).len();
        for number in 0..32 {
            let now_ns = u64::from(number + 1) * (TIMEOUT_NS - 1);
            read.give_up(now_ns, TIMEOUT_NS);
            assert_eq!(read.on_chunk(now_ns, number, &[0; CHUNK_BYTES]), Taken::Kept);
        }
        assert_eq!((asks, read.has_lost, read.again.len()), (4, false, 0));
    }

    #[test]
    fn another_token_is_tried_at_once_but_only_once_until_something_comes() {
        let mut read = Read { window: 32, ..read(1 << 20, 0) };
        let first = asked(&mut read, 0);
        read.take_token(1);
        assert_eq!(asked(&mut read, 0), [], "this one was used");
        read.take_token(2);
        let again: Vec<_> = first.iter().map(|(first, count, _)| (*first, *count, 2)).collect();
        assert_eq!(asked(&mut read, 0), again);
        read.take_token(3);
        assert_eq!(asked(&mut read, 0), []);
        read.on_chunk(0, 0, &[0; CHUNK_BYTES]);
        read.take_token(4);
        assert_eq!(asked(&mut read, 0)[0], (1, 7, 4));
    }
}
