//! This leader's record of balancing by migration. A new leader starts an empty record, and does
//! not move partitions that may have been moved recently.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::string::String;

use nicekv_proto::{KeyspaceId, PartitionId};

use crate::decide::migration::{Because, Step, Verdict};
use crate::state::State;

/// Upper bound of events that are kept for status.
const EVENTS_MAX: usize = 32;
/// Minimum number of periods between two moves of a partition.
pub(crate) const REST_PERIODS: u64 = 10;

/// The record of all keyspaces that are balanced by migration.
#[derive(Clone, Debug, Default)]
pub(crate) struct Balance {
    /// When this leader began.
    begun_ns: u64,
    /// Steps that are still to be taken, in order.
    pub(crate) steps: VecDeque<Step>,
    moved_ns: BTreeMap<PartitionId, u64>,
    born_ns: BTreeMap<PartitionId, u64>,
    /// Number of completed counting periods.
    pub(crate) periods: u64,
    /// The verdict on the last period, by keyspace.
    pub(crate) verdicts: BTreeMap<KeyspaceId, Verdict>,
    /// Why load is not being counted; `None` while it is.
    pub(crate) waits_for: Option<String>,
    /// Number of steps that have begun, by keyspace.
    pub(crate) begun: BTreeMap<KeyspaceId, Begun>,
    /// Descriptions of recent events, numbered from 1.
    pub(crate) events: VecDeque<(u64, KeyspaceId, String)>,
    told: u64,
}

/// Number of moves, splits and merges that have begun in a keyspace.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Begun {
    pub(crate) moves: u64,
    pub(crate) splits: u64,
    /// Number of splits of partitions that were too large.
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

    /// Handles a change of the state from `before` to `after`.
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

    /// Whether the partition was moved less than `rest_ns` ago, or may have been before this leader
    /// began.
    pub(crate) fn rests(&self, id: PartitionId, is_placed: bool, now_ns: u64, rest_ns: u64) -> bool {
        let unknown = is_placed && !self.born_ns.contains_key(&id);
        let moved_ns = self.moved_ns.get(&id).copied().or(unknown.then_some(self.begun_ns));
        moved_ns.is_some_and(|moved_ns| now_ns < moved_ns + rest_ns)
    }

    /// Whether the partition was created less than `rest_ns` ago.
    pub(crate) fn is_young(&self, id: PartitionId, now_ns: u64, rest_ns: u64) -> bool {
        self.born_ns.get(&id).is_some_and(|born_ns| now_ns < born_ns + rest_ns)
    }

    /// Counts a step that has begun.
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
