//! What a joiner keeps: what it held before it joined, and the progress of its copy (R7, R8).

use super::contents::effects;
use super::history::History;
use super::locks::Op;
use super::sequence::{Decided, Sequence};
use crate::{Host, Map};
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use nicekv_proto::bytes::{Reader, put};
use nicekv_proto::recovery::{CopySection, Entry};
use nicekv_proto::{DecodeError, NodeId, Now, OpId};
use zerocopy::network_endian::U64;

/// What an incomplete replica held before it joined.
#[derive(Clone)]
pub(crate) struct Former {
    pub(crate) logged: u64,
    pub(crate) history: History,
    /// Logged, and not known to be held by all.
    pub(crate) decisions: VecDeque<Decided>,
    ops: Map<OpId, Op>,
    /// Whether a primary has confirmed that it has all of it.
    pub(crate) compared: bool,
}

impl Former {
    /// From the state of a replica that becomes a joiner.
    pub(crate) fn of(sequence: Sequence, ops: Map<OpId, Op>) -> Self {
        let (logged, history, decisions) = sequence.into_parts();
        Self { logged, history, decisions, ops, compared: false }
    }

    /// For a replica that may hold anything through `since`, and nothing after it that counts.
    pub(crate) fn through(host: &Host, since: u64, mut history: History) -> Self {
        history.truncate(since);
        Self { logged: since, history, decisions: VecDeque::new(), ops: host.map(), compared: true }
    }

    /// The effects of decisions through `since` that were not shown.
    pub(crate) fn effects_through(&self, since: u64) -> impl Iterator<Item = (&[u8], Entry<'_>)> {
        let known = self.decisions.iter().take_while(move |decided| decided.index <= since);
        known.filter(|decided| decided.contended).flat_map(move |decided| {
            let op = self.ops.get(&decided.op);
            op.map(|op| effects(decided, &op.stored)).into_iter().flatten()
        })
    }

    /// The joiner's first request to the primary.
    pub(crate) fn append(&self, out: &mut Vec<u8>) {
        put(out, &U64::from(self.logged));
        self.history.append(out);
    }

    /// Reads what [`Self::append`] wrote: the last decision, and the history through it.
    pub(crate) fn read(bytes: &[u8]) -> Result<(u64, History), DecodeError> {
        let mut reader = Reader::new(bytes);
        let logged: U64 = reader.layout("last decision of a joiner")?;
        Ok((logged.get(), History::read(&mut reader)?))
    }
}

#[derive(Clone)]
enum Stage {
    /// Waits for the primary to say what they have in common. Effects that arrive meanwhile are
    /// kept, encoded.
    Beginning {
        kept: Kept,
    },
    /// Asks for this part, after this cursor.
    Copying {
        section: CopySection,
        after: Vec<u8>,
    },
    /// Everything is logged and written; the log is being synced.
    Syncing,
    Done,
}

/// Entries, encoded, by key.
pub(crate) type Kept = BTreeMap<Box<[u8]>, Vec<u8>>;

/// What a sweep does for a copy.
pub(crate) enum Step {
    Ask,
    Report,
    Wait,
}

/// The joiner's side of a copy.
#[derive(Clone)]
pub(crate) struct Join {
    /// Keys that decisions of this epoch have written, with the decisions.
    written: Map<Box<[u8]>, u64>,
    stage: Stage,
    asked_ns: u64,
    /// The next part was put off to limit the rate.
    is_paused: bool,
    /// The member that sends entries.
    source: NodeId,
    /// Entries written after this decision are needed. Parts in decision order raise it.
    since: u64,
    /// Decisions through this one may have effects in the copy.
    covers: u64,
    /// Ops logged through this record were taken in without the client records.
    unchecked_through: u64,
}

impl Join {
    pub(crate) fn new(written: Map<Box<[u8]>, u64>, source: NodeId) -> Self {
        let stage = Stage::Beginning { kept: BTreeMap::new() };
        Self {
            written,
            stage,
            asked_ns: 0,
            is_paused: false,
            source,
            since: 0,
            covers: 0,
            unchecked_through: 0,
        }
    }

    /// Notes what a decision writes. Whether the effect is kept back for now.
    pub(crate) fn keeps_back(&mut self, key: &[u8], entry: &Entry<'_>) -> bool {
        if matches!(self.stage, Stage::Syncing | Stage::Done) {
            return false;
        }
        if self.is_newer(key, entry.index) {
            self.written.insert(key.into(), entry.index);
        }
        let Stage::Beginning { kept } = &mut self.stage else { return false };
        kept.insert(key.into(), stored(entry));
        true
    }

    /// Whether no later decision has written the key.
    pub(crate) fn is_newer(&self, key: &[u8], index: u64) -> bool {
        self.written.get(key).is_none_or(|newest| *newest < index)
    }

    /// Number of effects kept back.
    pub(crate) fn kept_back(&self) -> usize {
        if let Stage::Beginning { kept } = &self.stage { kept.len() } else { 0 }
    }

    /// The part to ask for next, and its cursor.
    pub(crate) fn next_part(&self) -> Option<(CopySection, &[u8])> {
        match &self.stage {
            Stage::Beginning { .. } => Some((CopySection::Begin, &[])),
            Stage::Copying { section, after } => Some((*section, after)),
            Stage::Syncing | Stage::Done => None,
        }
    }

    /// The member to ask for entries, and since which decision.
    pub(crate) fn source(&self) -> (NodeId, u64) {
        (self.source, self.since)
    }

    /// Something is being requested or reported.
    pub(crate) fn note_asked(&mut self, now: Now) {
        self.asked_ns = now.boot_ns;
    }

    /// The next sweep asks for the next part.
    pub(crate) fn pause(&mut self) {
        self.is_paused = true;
    }

    /// What a sweep does now.
    pub(crate) fn next_step(&mut self, now: Now, retry_ns: u64, primary: NodeId) -> Step {
        match self.stage {
            _ if core::mem::take(&mut self.is_paused) => Step::Ask,
            _ if now.boot_ns < self.asked_ns + retry_ns => Step::Wait,
            Stage::Beginning { .. } | Stage::Copying { .. } => {
                // A handoff that does not answer is not needed: the primary has everything.
                self.source = primary;
                Step::Ask
            }
            Stage::Syncing => Step::Wait,
            Stage::Done => Step::Report,
        }
    }

    /// The primary has said which member sends the entries, since which decision, and which
    /// decisions may have effects in them. Returns the effects that were kept back.
    pub(crate) fn begin(&mut self, source: NodeId, since: u64, covers: u64) -> Kept {
        (self.source, self.since, self.covers) = (source, since, covers);
        if let Stage::Beginning { kept } = &mut self.stage { core::mem::take(kept) } else { Kept::new() }
    }

    /// The next part is this one.
    pub(crate) fn go_on(&mut self, section: CopySection, after: Vec<u8>) {
        self.stage = Stage::Copying { section, after };
    }

    /// Decisions through `covers` may have effects in the copy, and everything decided through
    /// `through` is in it.
    pub(crate) fn cover(&mut self, covers: u64, through: u64) {
        (self.covers, self.since) = (self.covers.max(covers), self.since.max(through));
    }

    /// All client records are here; ops logged through this record were taken in without them.
    pub(crate) fn end_clients(&mut self, appended: u64) {
        self.unchecked_through = appended;
    }

    /// Everything is logged and written.
    pub(crate) fn end_copy(&mut self, written: Map<Box<[u8]>, u64>) {
        (self.stage, self.written) = (Stage::Syncing, written);
    }

    /// Everything copied is synced.
    pub(crate) fn end_syncing(&mut self) {
        (self.stage, self.asked_ns) = (Stage::Done, 0);
    }

    /// Whether this replica could go on alone: everything that the copy covers is synced, and no
    /// open op is unchecked.
    pub(crate) fn is_complete(&self, forced: u64, oldest_undecided: u64) -> bool {
        forced >= self.covers && oldest_undecided > self.unchecked_through
    }
}

/// The stored form of an entry.
pub(crate) fn stored(entry: &Entry<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    entry.append(&mut bytes);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use nicekv_proto::{ClientId, Epoch, Form};

    const PRIMARY: NodeId = NodeId(1);

    fn at(boot_ns: u64) -> Now {
        Now { boot_ns, unix_ms: 0 }
    }

    fn entry(index: u64, value: &[u8]) -> Entry<'_> {
        let version = OpId { client: ClientId(1), sequence: index };
        Entry { index, version, expiry_ms: 0, form: Form::Plain, value: Some(value) }
    }

    #[test]
    fn early_effects_are_kept_back_and_later_ones_noted() {
        let mut join = Join::new(Map::default(), PRIMARY);
        assert!(join.is_newer(b"k", 1));
        assert!(join.keeps_back(b"k", &entry(5, b"five")) && join.keeps_back(b"k", &entry(6, b"six")));
        assert_eq!((join.kept_back(), join.is_newer(b"k", 6), join.is_newer(b"k", 7)), (1, false, true));
        let kept = join.begin(NodeId(3), 4, 6);
        assert_eq!(
            kept.into_iter().collect::<Vec<_>>(),
            [(b"k".as_slice().into(), stored(&entry(6, b"six")))]
        );
        assert_eq!(join.source(), (NodeId(3), 4));
        join.go_on(CopySection::Entries, b"k".to_vec());
        assert_eq!(join.kept_back(), 0);
        assert!(!join.keeps_back(b"l", &entry(9, b"nine")) && !join.keeps_back(b"l", &entry(8, b"eight")));
        assert!(!join.is_newer(b"l", 9) && join.is_newer(b"l", 10));
        join.end_copy(Map::default());
        assert!(!join.keeps_back(b"m", &entry(9, b"nine")) && join.is_newer(b"m", 1));
    }

    #[test]
    fn parts_follow_each_other_until_all_is_synced() {
        let mut join = Join::new(Map::default(), NodeId(3));
        let steps = |join: &mut Join, boot_ns| match join.next_step(at(boot_ns), 10, PRIMARY) {
            Step::Ask => "ask",
            Step::Report => "report",
            Step::Wait => "wait",
        };
        assert_eq!(join.next_part(), Some((CopySection::Begin, &[][..])));
        join.note_asked(at(100));
        assert_eq!((steps(&mut join, 109), join.source()), ("wait", (NodeId(3), 0)));
        assert_eq!((steps(&mut join, 110), join.source()), ("ask", (PRIMARY, 0)));
        join.go_on(CopySection::Clients, b"c".to_vec());
        assert_eq!(join.next_part(), Some((CopySection::Clients, &b"c"[..])));
        assert_eq!(steps(&mut join, 110), "ask");
        join.end_copy(Map::default());
        assert_eq!((join.next_part().is_none(), steps(&mut join, 110)), (true, "wait"));
        join.end_syncing();
        assert_eq!((join.next_part().is_none(), steps(&mut join, 10)), (true, "report"));
    }

    #[test]
    fn joiner_is_complete_when_it_could_go_on_alone() {
        let mut join = Join::new(Map::default(), PRIMARY);
        join.begin(PRIMARY, 4, 6);
        join.cover(9, 5);
        join.cover(8, 0);
        assert_eq!(join.source(), (PRIMARY, 5));
        join.end_clients(20);
        assert!(join.is_complete(9, 21));
        assert!(!join.is_complete(8, 21) && !join.is_complete(9, 20));
    }

    #[test]
    fn former_state_round_trips() {
        let mut history = History::default();
        history.note(1, Epoch(1));
        history.note(7, Epoch(3));
        let former =
            Former { logged: 9, history: history.clone(), ..Former::of(Sequence::default(), Map::default()) };
        assert!(!former.compared);
        let mut bytes = Vec::new();
        former.append(&mut bytes);
        assert_eq!(Former::read(&bytes).unwrap(), (9, history));
        assert!(Former::read(&bytes[..7]).is_err());
    }
}
