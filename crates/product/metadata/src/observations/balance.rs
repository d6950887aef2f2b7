//! What this leader remembers of balancing by migration. A new one begins anew, and lets rest what was moved before it.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::string::String;

use nicekv_proto::{KeyspaceId, PartitionId};

use crate::decide::migration::{Because, Step, Verdict};
use crate::state::State;

/// Most events that are told of.
const EVENTS_MAX: usize = 32;
/// A partition moves at most once in so many periods.
pub(crate) const REST_PERIODS: u64 = 10;

/// See the module.
#[derive(Clone, Debug, Default)]
pub(crate) struct Balance {
    /// When this leader began.
    begun_ns: u64,
    /// What is to be done, one after the other.
    pub(crate) steps: VecDeque<Step>,
    moved_ns: BTreeMap<PartitionId, u64>,
    born_ns: BTreeMap<PartitionId, u64>,
    /// Periods that were counted to their end.
    pub(crate) periods: u64,
    /// What followed from the last period.
    pub(crate) verdicts: BTreeMap<KeyspaceId, Verdict>,
    /// Why nothing is counted.
    pub(crate) waits_for: Option<String>,
    /// What was begun.
    pub(crate) begun: BTreeMap<KeyspaceId, Begun>,
    /// The same in words, numbered from 1.
    pub(crate) events: VecDeque<(u64, KeyspaceId, String)>,
    told: u64,
}

/// How many partitions of a keyspace were moved and split, and pairs of them merged.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Begun {
    pub(crate) moves: u64,
    pub(crate) splits: u64,
    /// Of these, those that were full.
    pub(crate) full: u64,
    pub(crate) merges: u64,
}

impl Begun {
    fn count(&mut self, step: &Step) {
        self.full += u64::from(matches!(step, Step::Split { because: Because::Full, .. }));
        let kind = match step {
            Step::Move { .. } => &mut self.moves,
            Step::Split { .. } => &mut self.splits,
            Step::Merge { .. } => &mut self.merges,
        };
        *kind += 1;
    }
}

impl Balance {
    pub(crate) fn new(now_ns: u64) -> Self {
        Self { begun_ns: now_ns, ..Self::default() }
    }

    /// The state went from `before` to `after`.
    pub(crate) fn handle_change(&mut self, before: &State, after: &State, now_ns: u64) {
        for (id, _) in after.partitions().filter(|(id, _)| before.partition(*id).is_none()) {
            self.born_ns.insert(id, now_ns);
        }
        for (id, placed) in after.placements() {
            let was = before.placement(id).or_else(|| before.partition(id).map(|it| it.originals.as_slice()));
            if was.is_some_and(|was| was != placed) {
                self.moved_ns.insert(id, now_ns);
            }
        }
        let is_there = |id: &PartitionId| after.partition(*id).is_some();
        self.moved_ns.retain(|id, _| is_there(id));
        self.born_ns.retain(|id, _| is_there(id));
        let is_keyspace = |id: &KeyspaceId| after.keyspaces.iter().any(|spec| spec.id == *id);
        self.verdicts.retain(|id, _| is_keyspace(id));
        self.begun.retain(|id, _| is_keyspace(id));
    }

    /// Whether it was moved within so many nanoseconds, as far as this leader can know.
    pub(crate) fn rests(&self, id: PartitionId, is_placed: bool, now_ns: u64, rest_ns: u64) -> bool {
        let unknown = is_placed && !self.born_ns.contains_key(&id);
        let moved_ns = self.moved_ns.get(&id).copied().or(unknown.then_some(self.begun_ns));
        moved_ns.is_some_and(|moved_ns| now_ns < moved_ns + rest_ns)
    }

    /// Whether it came into being within so many nanoseconds.
    pub(crate) fn is_young(&self, id: PartitionId, now_ns: u64, rest_ns: u64) -> bool {
        self.born_ns.get(&id).is_some_and(|born_ns| now_ns < born_ns + rest_ns)
    }

    /// This step of a keyspace has begun.
    pub(crate) fn count(&mut self, keyspace: KeyspaceId, step: &Step) {
        self.begun.entry(keyspace).or_default().count(step);
    }

    pub(crate) fn tell(&mut self, keyspace: KeyspaceId, what: String) {
        self.told += 1;
        self.events.push_back((self.told, keyspace, what));
        if self.events.len() > EVENTS_MAX {
            self.events.pop_front();
        }
    }
}
