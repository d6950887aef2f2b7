//! Which chunk is checked next.
//!
//! ```text
//!   pass ──▶ all chunks, in the order of ids ──▶ pause ──▶ next pass
//!             │ a finding
//!             ▼
//!   open ──when due──▶ checked again ──▶ … ──▶ settled
//! ```
//!
//! Open chunks that are due come first. A new map begins a new pass, and makes urgent chunks open and due.
//!
//! The first pass, and those that begin by time, also read all chunks, open ones included. A pass that a later map begins
//! does not, unless it is time: after a loss targets have enough to do.

use super::finding::Finding;
use crate::target::interface::Held;
use alloc::collections::{BTreeMap, BTreeSet};
use core::ops::Bound;
use nicekv_proto::chunk::ChunkId;

#[derive(Clone, Copy, Debug)]
struct Open {
    finding: Finding,
    /// How many times in a row it was found.
    times: u32,
    due_ns: u64,
}

/// The chunks to check, and when.
#[derive(Clone, Debug)]
pub(super) struct Agenda {
    pass_ns: u64,
    begun_ns: u64,
    /// Where the pass continues; `None`: it is over, or its last chunks are being checked.
    next: Option<Bound<ChunkId>>,
    is_ending: bool,
    /// Whether this pass reads chunks.
    reads: bool,
    /// When the last reading pass began.
    reads_since_ns: Option<u64>,
    /// Passes since the map changed.
    passes: u64,
    open: BTreeMap<ChunkId, Open>,
    due: BTreeSet<(u64, ChunkId)>,
}

impl Agenda {
    /// `pass_ns`: least time between the starts of two passes.
    pub(super) fn new(pass_ns: u64) -> Self {
        Self {
            pass_ns,
            begun_ns: 0,
            next: None,
            is_ending: false,
            reads: false,
            reads_since_ns: None,
            passes: 0,
            open: BTreeMap::new(),
            due: BTreeSet::new(),
        }
    }

    /// Starts a new pass, with these chunks first.
    pub(super) fn begin_anew(&mut self, now_ns: u64, first: impl Iterator<Item = (ChunkId, Finding)>) {
        // An interrupted reading pass is repeated.
        let is_broken_off = self.reads && (self.next.is_some() || self.is_ending);
        self.reads = is_broken_off;
        if self.reads_since_ns.is_none_or(|since_ns| since_ns.saturating_add(self.pass_ns) <= now_ns) {
            self.read_from(now_ns);
        }
        (self.passes, self.is_ending) = (0, false);
        (self.next, self.begun_ns) = (Some(Bound::Unbounded), now_ns);
        self.open.clear();
        self.due.clear();
        first.for_each(|(id, finding)| {
            self.note(&id, finding, now_ns);
        });
    }

    /// The chunk to check now, and whether it is part of the pass.
    pub(super) fn next(&mut self, now_ns: u64, held: &BTreeMap<ChunkId, Held>) -> Option<(ChunkId, bool)> {
        if self.due.first().is_some_and(|(due_ns, _)| *due_ns <= now_ns) {
            return self.due.pop_first().map(|(_, id)| (id, false));
        }
        if self.next.is_none() && !self.is_ending && self.begins_ns() <= now_ns {
            (self.next, self.begun_ns) = (Some(Bound::Unbounded), now_ns);
            self.read_from(now_ns);
        }
        let from = self.next?;
        let mut ids = held.range((from, Bound::Unbounded)).map(|(id, _)| *id);
        // Open chunks are checked when they are due. A reading pass reads them, too, because they
        // may stay open for long, and become damaged meanwhile.
        let id = ids.find(|id| self.reads || !self.open.contains_key(id));
        self.next = id.map(Bound::Excluded);
        self.is_ending = id.is_none();
        id.map(|id| (id, true))
    }

    fn read_from(&mut self, now_ns: u64) {
        (self.reads, self.reads_since_ns) = (true, Some(now_ns));
    }

    /// Whether this pass reads chunks.
    pub(super) fn reads(&self) -> bool {
        self.reads
    }

    /// When the next chunk is to be checked.
    pub(super) fn next_ns(&self) -> u64 {
        let of_pass = match self.next {
            Some(_) => 0,
            None if self.is_ending => u64::MAX,
            None => self.begins_ns(),
        };
        self.due.first().map_or(u64::MAX, |(due_ns, _)| *due_ns).min(of_pass)
    }

    fn begins_ns(&self) -> u64 {
        self.begun_ns.saturating_add(self.pass_ns)
    }

    /// Called when no chunk of the pass is being checked: the pass is over if it has reached its
    /// end.
    pub(super) fn end_pass(&mut self) {
        self.passes += u64::from(core::mem::take(&mut self.is_ending));
    }

    pub(super) fn passes(&self) -> u64 {
        self.passes
    }

    /// Records a finding: the chunk will be checked again at `due_ns`. Returns how many times in a
    /// row it was found.
    pub(super) fn note(&mut self, id: &ChunkId, finding: Finding, due_ns: u64) -> u32 {
        let known = self.open.get(id).copied();
        if let Some(known) = known {
            self.due.remove(&(known.due_ns, *id));
        }
        let times = known.filter(|known| known.finding == finding).map_or(0, |known| known.times) + 1;
        self.open.insert(*id, Open { finding, times, due_ns });
        self.due.insert((due_ns, *id));
        times
    }

    /// A chunk could not be checked when it was due: it is checked at `due_ns` instead.
    pub(super) fn postpone(&mut self, id: &ChunkId, due_ns: u64) {
        let Some(open) = self.open.get_mut(id) else {
            self.note(id, Finding::Unseen, due_ns);
            return;
        };
        self.due.remove(&(open.due_ns, *id));
        open.due_ns = due_ns;
        self.due.insert((due_ns, *id));
    }

    /// The chunk needs no further check: nothing is wrong with it, or it is no longer held.
    pub(super) fn settle(&mut self, id: &ChunkId) {
        if let Some(known) = self.open.remove(id) {
            self.due.remove(&(known.due_ns, *id));
        }
    }

    pub(super) fn finding(&self, id: &ChunkId) -> Option<Finding> {
        self.open.get(id).map(|open| open.finding)
    }

    /// The findings of all open chunks.
    pub(super) fn findings(&self) -> impl Iterator<Item = Finding> {
        self.open.values().map(|open| open.finding)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use alloc::vec::Vec;
    use nicekv_proto::chunk::Round;

    fn id(first: u8) -> ChunkId {
        ChunkId([first; 32])
    }

    fn held(ids: &[u8]) -> BTreeMap<ChunkId, Held> {
        let held = Held { bytes: 1, stamp: Round(1), marked: Round(0), holders: vec![] };
        ids.iter().map(|first| (id(*first), held.clone())).collect()
    }

    #[test]
    fn pass_visits_all_chunks_in_order_and_the_next_begins_later() {
        let (mut agenda, held) = (Agenda::new(100), held(&[7, 3, 9]));
        agenda.begin_anew(10, [].into_iter());
        let all: Vec<_> = core::iter::from_fn(|| agenda.next(10, &held)).collect();
        assert_eq!(all, [(id(3), true), (id(7), true), (id(9), true)]);
        assert_eq!(
            (agenda.next_ns(), agenda.passes()),
            (u64::MAX, 0),
            "its last chunks are still being checked"
        );
        agenda.end_pass();
        assert_eq!((agenda.next_ns(), agenda.passes()), (110, 1));
        assert_eq!((agenda.next(109, &held), agenda.next(110, &held)), (None, Some((id(3), true))));
        agenda.end_pass();
        assert_eq!(agenda.passes(), 1, "the next pass has just begun");
    }

    #[test]
    fn pass_reads_by_time_and_not_because_of_a_new_map() {
        let (mut agenda, held) = (Agenda::new(100), held(&[7, 3]));
        let all = |agenda: &mut Agenda, now_ns| {
            while agenda.next(now_ns, &held).is_some() {}
            agenda.end_pass();
            agenda.reads()
        };
        agenda.begin_anew(10, [].into_iter());
        assert!(all(&mut agenda, 10), "the first pass reads, because damage before the start is unknown");
        agenda.begin_anew(60, [].into_iter());
        assert!(!all(&mut agenda, 60));
        agenda.begin_anew(110, [].into_iter());
        assert!(agenda.reads(), "reading is due, however often the map changes");
        agenda.next(110, &held);
        agenda.begin_anew(120, [].into_iter());
        assert!(all(&mut agenda, 120), "the interrupted reading pass is repeated");
        agenda.begin_anew(130, [].into_iter());
        assert!(!all(&mut agenda, 130));
        assert!(all(&mut agenda, 230), "a reading pass is due again");
    }

    #[test]
    fn open_chunks_come_when_due_and_not_with_the_pass() {
        let (mut agenda, held) = (Agenda::new(100), held(&[1, 2, 3]));
        agenda.begin_anew(0, [(id(2), Finding::Unseen)].into_iter());
        assert_eq!(agenda.next(0, &held), Some((id(2), false)));
        assert_eq!(agenda.note(&id(2), Finding::Unsure, 50), 1);
        agenda.reads = false;
        let rest: Vec<_> = core::iter::from_fn(|| agenda.next(0, &held)).collect();
        assert_eq!(rest, [(id(1), true), (id(3), true)]);
        assert_eq!((agenda.next(49, &held), agenda.next(50, &held)), (None, Some((id(2), false))));
        assert_eq!(agenda.note(&id(2), Finding::Unsure, 60), 2);
        assert_eq!(agenda.note(&id(2), Finding::Lacking { is_first: true }, 70), 1);
        assert_eq!(agenda.findings().count(), 1);
        agenda.settle(&id(2));
        assert_eq!((agenda.findings().count(), agenda.next_ns()), (0, u64::MAX));
    }

    #[test]
    fn reading_pass_does_not_skip_open_chunks() {
        let (mut agenda, held) = (Agenda::new(100), held(&[1, 2, 3]));
        agenda.begin_anew(0, [].into_iter());
        agenda.note(&id(2), Finding::Undecided, 1_000);
        let all: Vec<_> = core::iter::from_fn(|| agenda.next(0, &held)).collect();
        assert_eq!(all, [(id(1), true), (id(2), true), (id(3), true)]);
    }
}
