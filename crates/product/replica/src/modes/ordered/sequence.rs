//! The sequence of a partition's decisions, as this replica knows it.
//!
//! ```text
//!          released            synced       logged
//!  ───────────┼───────────────────┼────────────┼──▶ decision index
//!   shown and │ synced here, and  │ in the log │
//!   forgotten │ perhaps by all    │            │
//! ```
//!
//! Invariants:
//! * decisions are logged in index order without gaps, so the decisions of two members of an epoch
//!   are prefixes of one sequence;
//! * `released <= synced <= logged`, and a contended decision takes effect exactly when it is
//!   released.

use super::history::History;
use crate::modes::bounds::EARLY_DECISIONS_MAX;
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use core::cmp::Ordering;
use nicekv_proto::replication::{Decision, Effect};
use nicekv_proto::{Epoch, Form, OpId, PartitionId, Status};

/// A logged decision that some member may still lack.
#[derive(Clone, Debug)]
pub(crate) struct Decided {
    pub(crate) index: u64,
    pub(crate) origin: Epoch,
    pub(crate) op: OpId,
    pub(crate) contended: bool,
    pub(crate) effect: Effect,
    pub(crate) status: Status,
    pub(crate) version: OpId,
    pub(crate) expiry_ms: u64,
    pub(crate) integer: i64,
    pub(crate) value: Box<[u8]>,
    pub(crate) form: Form,
    pub(crate) value_is_result: bool,
}

impl Decided {
    pub(crate) fn from_wire(decision: &Decision<'_>) -> Self {
        Self {
            index: decision.index,
            origin: decision.origin,
            op: decision.op,
            contended: decision.contended,
            effect: decision.effect,
            status: decision.status,
            version: decision.version,
            expiry_ms: decision.expiry_ms,
            integer: decision.integer,
            value: decision.value.into(),
            form: decision.form,
            value_is_result: decision.value_is_result,
        }
    }

    pub(crate) fn wire(&self, partition: PartitionId, epoch: Epoch) -> Decision<'_> {
        Decision {
            partition,
            epoch,
            index: self.index,
            origin: self.origin,
            op: self.op,
            contended: self.contended,
            effect: self.effect,
            status: self.status,
            version: self.version,
            expiry_ms: self.expiry_ms,
            integer: self.integer,
            value: &self.value,
            form: self.form,
            value_is_result: self.value_is_result,
        }
    }
}

#[derive(Clone, Default)]
pub(crate) struct Sequence {
    /// The decisions from `released + 1` to `logged`.
    decisions: VecDeque<Decided>,
    logged: u64,
    synced: u64,
    released: u64,
    /// The last decision from before this epoch; `None` until it is known.
    base: Option<u64>,
    /// The epochs in which the decisions were made.
    history: History,
    /// Decisions of this epoch that arrived before earlier ones, by index.
    early: BTreeMap<u64, Decided>,
}

impl Sequence {
    /// The last decision in the log.
    pub(crate) fn logged(&self) -> u64 {
        self.logged
    }

    /// The last decision that is synced here.
    pub(crate) fn synced(&self) -> u64 {
        self.synced
    }

    /// The last decision that all members are known to have synced.
    pub(crate) fn released(&self) -> u64 {
        self.released
    }

    /// The last decision from before this epoch; `None` until it is known.
    pub(crate) fn base(&self) -> Option<u64> {
        self.base
    }

    pub(crate) fn history(&self) -> &History {
        &self.history
    }

    /// Decisions that some member may lack, oldest first.
    pub(crate) fn unreleased(&self) -> impl DoubleEndedIterator<Item = &Decided> + ExactSizeIterator {
        self.decisions.iter()
    }

    /// Whether an unreleased decision is about this op.
    pub(crate) fn has(&self, op: OpId) -> bool {
        self.decisions.iter().any(|decided| decided.op == op)
    }

    /// The unreleased decisions after decision `index`.
    pub(crate) fn after(&self, index: u64) -> impl Iterator<Item = &Decided> {
        self.decisions.iter().skip(index.saturating_sub(self.released) as usize)
    }

    /// Whether this decision is unreleased and contended.
    pub(crate) fn is_contended(&self, index: u64) -> bool {
        let place = index.checked_sub(self.released + 1);
        place.is_some_and(|place| self.decisions.get(place as usize).is_some_and(|decided| decided.contended))
    }

    /// The next decision is being logged. The caller then calls [`Self::keep`].
    ///
    /// # Panics
    /// If `index` is not `logged` + 1.
    pub(crate) fn log(&mut self, index: u64, origin: Epoch) {
        assert_eq!(index, self.logged + 1, "decisions are logged without gaps");
        self.logged = index;
        self.history.note(index, origin);
    }

    /// Keeps the decision that was logged last. An uncontended one must have taken effect before.
    pub(crate) fn keep(&mut self, decided: Decided) {
        self.decisions.push_back(decided);
    }

    /// Keeps a decision that arrived before earlier ones. Beyond [`EARLY_DECISIONS_MAX`] it is
    /// dropped, and will be sent again.
    pub(crate) fn keep_early(&mut self, decided: Decided) {
        if self.early.len() < EARLY_DECISIONS_MAX {
            self.early.insert(decided.index, decided);
        }
    }

    /// Takes the next decision, if it has arrived early.
    pub(crate) fn take_early(&mut self) -> Option<Decided> {
        while let Some((index, decided)) = self.early.pop_first() {
            match index.cmp(&(self.logged + 1)) {
                Ordering::Less => {}
                Ordering::Equal => return Some(decided),
                Ordering::Greater => {
                    self.early.insert(index, decided);
                    break;
                }
            }
        }
        None
    }

    /// The log is synced up to decision `index`.
    pub(crate) fn sync(&mut self, index: u64) {
        self.synced = self.synced.max(index);
    }

    /// Marks everything that was replayed from the log as synced.
    pub(crate) fn sync_all(&mut self) {
        self.synced = self.logged;
    }

    /// Releases the next decision, if there is one up to `through`.
    pub(crate) fn release_next(&mut self, through: u64) -> Option<Decided> {
        if self.released >= through.min(self.logged) {
            return None;
        }
        let decided = self.decisions.pop_front().expect("decisions after `released` are kept");
        debug_assert_eq!(decided.index, self.released + 1);
        self.released = decided.index;
        Some(decided)
    }

    /// It is now known that the epoch begins after decision `base`.
    pub(crate) fn begin_at(&mut self, base: u64) {
        self.base = Some(base);
    }

    /// A new epoch begins: its base is not known yet, and decisions that were kept early may be
    /// made differently.
    pub(crate) fn enter_epoch(&mut self) {
        self.base = None;
        self.early.clear();
    }

    /// Continues after decision `index`, without having the earlier ones.
    pub(crate) fn skip_to(&mut self, index: u64) {
        (self.logged, self.synced, self.released) = (index, index, index);
    }

    /// Replays [`Self::skip_to`], unless the log has later decisions.
    pub(crate) fn replay_released(&mut self, through: u64) {
        if through > self.logged {
            (self.logged, self.released) = (through, through);
        }
    }

    /// Adds the history of the decisions before the first known one.
    pub(crate) fn prepend_history(&mut self, before: History) {
        self.history.prepend(before);
    }

    pub(crate) fn set_history(&mut self, history: History) {
        self.history = history;
    }

    /// Starts over, and returns the previous state.
    pub(crate) fn take(&mut self) -> Self {
        core::mem::replace(self, Self { base: self.base, ..Self::default() })
    }

    pub(crate) fn into_parts(self) -> (u64, History, VecDeque<Decided>) {
        (self.logged, self.history, self.decisions)
    }
}

mod fingerprint {
    use super::Sequence;
    use core::hash::{Hash, Hasher};

    impl Sequence {
        pub(crate) fn fingerprint(&self, state: &mut impl Hasher) {
            for decided in self.decisions.iter().chain(self.early.values()) {
                (decided.index, decided.origin, decided.op, decided.contended, decided.effect as u8)
                    .hash(state);
                (decided.status, decided.version, decided.integer, &decided.value).hash(state);
            }
            (self.logged, self.synced, self.released, self.base).hash(state);
        }

        pub(crate) fn check_invariants(&self) -> Result<(), &'static str> {
            let holds = |condition: bool, what| if condition { Ok(()) } else { Err(what) };
            holds(self.released <= self.synced, "released <= synced")?;
            holds(self.synced <= self.logged, "synced <= logged")?;
            holds(self.decisions.len() as u64 == self.logged - self.released, "no decision is missing")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nicekv_proto::ClientId;

    fn decided(index: u64, contended: bool) -> Decided {
        Decided {
            form: Form::Plain,
            index,
            origin: Epoch(1),
            op: OpId { client: ClientId(1), sequence: index },
            contended,
            effect: Effect::Remove,
            status: Status::Ok,
            version: OpId { client: ClientId(2), sequence: 3 },
            expiry_ms: 4,
            integer: 5,
            value: b"six".as_slice().into(),
            value_is_result: true,
        }
    }

    /// Decisions 1 to 4; 2 and 4 are contended.
    fn four() -> Sequence {
        let mut sequence = Sequence::default();
        for index in 1..=4 {
            sequence.log(index, Epoch(1));
            sequence.keep(decided(index, index % 2 == 0));
        }
        sequence
    }

    fn bounds(sequence: &Sequence) -> [u64; 3] {
        [sequence.released(), sequence.synced(), sequence.logged()]
    }

    #[test]
    fn decision_is_logged_synced_and_released_in_order() {
        let mut sequence = four();
        sequence.sync(3);
        sequence.sync(2);
        assert_eq!(bounds(&sequence), [0, 3, 4]);
        assert_eq!(sequence.release_next(2).map(|decided| decided.index), Some(1));
        assert_eq!(sequence.release_next(2).map(|decided| decided.index), Some(2));
        assert!(sequence.release_next(2).is_none());
        assert_eq!(bounds(&sequence), [2, 3, 4]);
        // Decisions that are not logged here cannot be released.
        assert_eq!(core::iter::from_fn(|| sequence.release_next(9)).count(), 2);
        assert_eq!((bounds(&sequence), sequence.unreleased().len()), ([4, 3, 4], 0));
        sequence.sync_all();
        assert_eq!(bounds(&sequence), [4, 4, 4]);
    }

    #[test]
    #[should_panic(expected = "without gaps")]
    fn decisions_are_logged_without_gaps() {
        four().log(6, Epoch(1));
    }

    #[test]
    fn early_decisions_wait_for_their_turn_in_their_epoch() {
        let mut sequence = four();
        for index in [3, 7, 6, 9] {
            sequence.keep_early(decided(index, false));
        }
        assert!(sequence.take_early().is_none(), "5 is missing, and 3 was logged before");
        sequence.log(5, Epoch(1));
        for index in [6, 7] {
            assert_eq!(sequence.take_early().map(|early| early.index), Some(index));
            sequence.log(index, Epoch(1));
        }
        assert!(sequence.take_early().is_none());
        sequence.enter_epoch();
        sequence.log(8, Epoch(2));
        assert!(sequence.take_early().is_none(), "9 belonged to another epoch");
        for index in 10.. {
            if sequence.early.len() == EARLY_DECISIONS_MAX {
                break;
            }
            sequence.keep_early(decided(index, false));
        }
        sequence.keep_early(decided(9, false));
        assert!(sequence.take_early().is_none(), "there was no room to keep it");
    }

    #[test]
    fn decisions_after_an_index_are_found() {
        let mut sequence = four();
        sequence.release_next(1);
        let after = |sequence: &Sequence, index| sequence.after(index).map(|d| d.index).collect::<Vec<_>>();
        assert_eq!(after(&sequence, 0), [2, 3, 4]);
        assert_eq!(after(&sequence, 1), [2, 3, 4]);
        assert_eq!(after(&sequence, 3), [4]);
        assert_eq!(after(&sequence, 5), []);
        let contended = (0..6).map(|index| sequence.is_contended(index)).collect::<Vec<_>>();
        assert_eq!(contended, [false, false, true, false, true, false]);
    }

    #[test]
    fn sequence_skips_and_starts_over() {
        let mut sequence = four();
        sequence.begin_at(2);
        assert_eq!(sequence.base(), Some(2));
        let (logged, history, decisions) = sequence.take().into_parts();
        assert_eq!((logged, decisions.len()), (4, 4));
        assert_eq!(history.common(4, four().history(), 4), 4);
        assert_eq!((bounds(&sequence), sequence.base()), ([0, 0, 0], Some(2)));
        assert_eq!(*sequence.history(), History::default());
        sequence.skip_to(7);
        assert_eq!(bounds(&sequence), [7, 7, 7]);
        sequence.prepend_history(history.clone());
        assert_eq!(*sequence.history(), history);
        sequence.enter_epoch();
        assert_eq!(sequence.base(), None);
        sequence.set_history(History::default());
        assert_eq!(*sequence.history(), History::default());
    }

    #[test]
    fn replayed_sequence_continues_after_released_decisions() {
        let mut sequence = four();
        sequence.replay_released(3);
        assert_eq!(bounds(&sequence), [0, 0, 4], "the log has later decisions");
        let mut sequence = Sequence::default();
        sequence.replay_released(3);
        assert_eq!(bounds(&sequence), [3, 0, 3]);
    }

    #[test]
    fn decision_round_trips_on_the_wire() {
        let decided = decided(3, true);
        let wire = decided.wire(PartitionId(7), Epoch(9));
        assert_eq!(
            (wire.partition, wire.epoch, wire.index, wire.contended),
            (PartitionId(7), Epoch(9), 3, true)
        );
        assert_eq!(Decided::from_wire(&wire).wire(PartitionId(7), Epoch(9)), wire);
    }
}
