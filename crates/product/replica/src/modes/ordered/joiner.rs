//! State of a joiner: what it held before it joined, and the progress of its copy (R7, R8).

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

/// The content of a replica before it joined.
#[derive(Clone)]
pub(crate) struct Former {
    pub(crate) logged: u64,
    pub(crate) history: History,
    /// Decisions that were logged, but were not known to be synced by all members.
    pub(crate) decisions: VecDeque<Decided>,
    ops: Map<OpId, Op>,
    /// Whether a primary has compared it with its own history, so that all of it counts.
    pub(crate) compared: bool,
}

impl Former {
    /// From the state of a replica that becomes a joiner.
    pub(crate) fn of(sequence: Sequence, ops: Map<OpId, Op>) -> Self {
        let (logged, history, decisions) = sequence.into_parts();
        Self { logged, history, decisions, ops, compared: false }
    }

    /// For a replica that agrees with the primary up to `since`, and whose later decisions do not
    /// count.
    pub(crate) fn through(host: &Host, since: u64, mut history: History) -> Self {
        history.truncate(since);
        Self { logged: since, history, decisions: VecDeque::new(), ops: host.map(), compared: true }
    }

    /// The effects of contended decisions up to `since`, which were not shown yet.
    pub(crate) fn effects_through(&self, since: u64) -> impl Iterator<Item = (&[u8], Entry<'_>)> {
        let known = self.decisions.iter().take_while(move |decided| decided.index <= since);
        known.filter(|decided| decided.contended).flat_map(move |decided| {
            let op = self.ops.get(&decided.op);
            op.map(|op| effects(decided, &op.stored)).into_iter().flatten()
        })
    }

    /// Encodes the joiner's first request to the primary.
    pub(crate) fn append(&self, out: &mut Vec<u8>) {
        put(out, &U64::from(self.logged));
        self.history.append(out);
    }

    /// Decodes what [`Self::append`] has encoded: the last decision, and the history up to it.
    pub(crate) fn read(bytes: &[u8]) -> Result<(u64, History), DecodeError> {
        let mut reader = Reader::new(bytes);
        let logged: U64 = reader.layout("last decision of a joiner")?;
        Ok((logged.get(), History::read(&mut reader)?))
    }
}

#[derive(Clone)]
enum Stage {
    /// Waits for the primary's answer that says what they have in common. Effects that arrive
    /// meanwhile are kept, encoded.
    Beginning {
        kept: Kept,
    },
    /// Requests parts of this section, the next one after this cursor.
    Copying {
        section: CopySection,
        after: Vec<u8>,
    },
    /// Everything copied is logged and written; the log is being synced.
    Syncing,
    Done,
}

/// Encoded entries by key.
pub(crate) type Kept = BTreeMap<Box<[u8]>, Vec<u8>>;

/// The task of the joiner's sweep.
pub(crate) enum Step {
    Ask,
    Report,
    Wait,
}

/// The joiner's side of a copy.
#[derive(Clone)]
pub(crate) struct Join {
    /// Keys that decisions of this epoch have written, with the index of the latest of these
    /// decisions.
    written: Map<Box<[u8]>, u64>,
    stage: Stage,
    asked_ns: u64,
    /// The next request was put off to stay within the copy rate.
    is_paused: bool,
    /// The member that sends the entries.
    source: NodeId,
    /// Entries written after this decision are still needed. Parts that come in decision order
    /// raise it.
    since: u64,
    /// Decisions up to this one may have effects in the copy.
    covers: u64,
    /// Ops logged up to this record were accepted before the client records were here.
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

    /// Notes that a decision writes this entry. Returns whether the effect is kept back for now.
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

    /// Whether an entry written by decision `index` is newer than what decisions here have written
    /// to the key.
    pub(crate) fn is_newer(&self, key: &[u8], index: u64) -> bool {
        self.written.get(key).is_none_or(|newest| *newest < index)
    }

    /// How many effects are kept back.
    pub(crate) fn kept_back(&self) -> usize {
        if let Stage::Beginning { kept } = &self.stage { kept.len() } else { 0 }
    }

    /// The section to request next, and the cursor after which to start.
    pub(crate) fn next_part(&self) -> Option<(CopySection, &[u8])> {
        match &self.stage {
            Stage::Beginning { .. } => Some((CopySection::Begin, &[])),
            Stage::Copying { section, after } => Some((*section, after)),
            Stage::Syncing | Stage::Done => None,
        }
    }

    /// The member from which to request entries, and the decision after which they were written.
    pub(crate) fn source(&self) -> (NodeId, u64) {
        (self.source, self.since)
    }

    /// Restarts the retry timer: a request or report is being sent.
    pub(crate) fn note_asked(&mut self, now: Now) {
        self.asked_ns = now.boot_ns;
    }

    /// Puts the next request off to the next sweep.
    pub(crate) fn pause(&mut self) {
        self.is_paused = true;
    }

    /// The task of this sweep.
    pub(crate) fn next_step(&mut self, now: Now, retry_ns: u64, primary: NodeId) -> Step {
        match self.stage {
            _ if core::mem::take(&mut self.is_paused) => Step::Ask,
            _ if now.boot_ns < self.asked_ns + retry_ns => Step::Wait,
            Stage::Beginning { .. } | Stage::Copying { .. } => {
                // The source, perhaps a handoff, is silent: ask the primary instead, which has
                // everything.
                self.source = primary;
                Step::Ask
            }
            Stage::Syncing => Step::Wait,
            Stage::Done => Step::Report,
        }
    }

    /// The primary's first answer: which member sends the entries, since which decision, and up to
    /// which decision effects may be in them. Returns the effects that were kept back.
    pub(crate) fn begin(&mut self, source: NodeId, since: u64, covers: u64) -> Kept {
        (self.source, self.since, self.covers) = (source, since, covers);
        if let Stage::Beginning { kept } = &mut self.stage { core::mem::take(kept) } else { Kept::new() }
    }

    /// Continues with this section, after this cursor.
    pub(crate) fn go_on(&mut self, section: CopySection, after: Vec<u8>) {
        self.stage = Stage::Copying { section, after };
    }

    /// A part of the copy has arrived: decisions up to `covers` may have effects in it, and with it
    /// everything decided up to `through` is here.
    pub(crate) fn cover(&mut self, covers: u64, through: u64) {
        (self.covers, self.since) = (self.covers.max(covers), self.since.max(through));
    }

    /// All client records are here. Ops logged up to record `appended` were accepted without them.
    pub(crate) fn end_clients(&mut self, appended: u64) {
        self.unchecked_through = appended;
    }

    /// All copied entries are logged and written.
    pub(crate) fn end_copy(&mut self, written: Map<Box<[u8]>, u64>) {
        (self.stage, self.written) = (Stage::Syncing, written);
    }

    /// All copied entries are synced.
    pub(crate) fn end_syncing(&mut self) {
        (self.stage, self.asked_ns) = (Stage::Done, 0);
    }

    /// Whether this replica could continue alone: every decision that the copy may contain is
    /// synced here, and no op is open that was accepted without the client records.
    pub(crate) fn is_complete(&self, synced: u64, oldest_undecided: u64) -> bool {
        synced >= self.covers && oldest_undecided > self.unchecked_through
    }
}

/// An entry as the engine stores it.
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
