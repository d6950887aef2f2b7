//! Converts a switch's readings to the counts of a period, which are differences of counters that
//! are never reset.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use nicekv_hotkeys::HotKey;
use nicekv_proto::{KeyDigest, KeyspaceId, NodeId};
use nicekv_switch::{HostId, HotCandidate, HotCount, HotReading};

use super::table::Table;
use crate::config::host_id;

/// The last reading. Its size is bounded by the size of a reading.
#[derive(Clone, Debug, Default)]
pub(super) struct Counts {
    /// Whether there was a reading over this connection. The first one is the baseline.
    has_begun: bool,
    loads: BTreeMap<HostId, u64>,
    /// For each instance, the number of requests, and of those that the switch has answered.
    entries: BTreeMap<u64, (u64, u64)>,
}

/// The counts of a period.
#[derive(Clone, Debug, Default)]
pub(super) struct Period {
    /// Number of requests that left for each server, by the server's position.
    pub(super) loads: Vec<u64>,
    /// Number of requests of each key that has an entry.
    pub(super) hot: Vec<(HotKey, u64)>,
    /// Number of these requests that the switch answered itself (H9), so that they left for no
    /// server.
    pub(super) answered: BTreeMap<HotKey, u64>,
    /// Number of requests of each candidate.
    pub(super) candidates: Vec<(HotKey, u64)>,
    /// Number of requests of all other keys.
    pub(super) dropped: u64,
}

/// Numbers of requests in a period.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Requests {
    pub(crate) all: u64,
    /// Requests of keys with an entry.
    pub(crate) hot: u64,
    /// Requests that the switch answered itself.
    pub(crate) answered: u64,
}

impl Period {
    pub(super) fn requests(&self) -> Requests {
        let sum = |counts: &[(HotKey, u64)]| counts.iter().map(|(_, count)| count).sum::<u64>();
        let hot = sum(&self.hot);
        let all = hot + sum(&self.candidates) + self.dropped;
        Requests { all, hot, answered: self.answered.values().sum() }
    }

    /// Number of a key's requests that left for servers.
    pub(super) fn left(&self, key: &HotKey, count: u64) -> u64 {
        count.saturating_sub(self.answered.get(key).copied().unwrap_or(0))
    }
}

impl Counts {
    /// The counts since the last reading; `None` if this is the first one. `table`: the installed
    /// entries.
    pub(super) fn period(
        &mut self,
        reading: &HotReading,
        table: &Table,
        servers: &[NodeId],
    ) -> Option<Period> {
        let keys: BTreeMap<u64, HotKey> = table.iter().map(|(key, placed)| (placed.instance, *key)).collect();
        let loads: BTreeMap<HostId, u64> = reading.loads.iter().copied().collect();
        let load = |server: &NodeId| {
            let host = host_id(*server);
            grown(loads.get(&host), self.loads.get(&host))
        };
        let (mut hot, mut answered) = (Vec::new(), BTreeMap::new());
        for count in &reading.entries {
            let Some(key) = keys.get(&count.instance) else { continue };
            let before = self.entries.get(&count.instance).copied().unwrap_or_default();
            hot.push((*key, grown(Some(&count.requests), Some(&before.0))));
            match grown(Some(&count.answered), Some(&before.1)) {
                0 => {}
                more => drop(answered.insert(*key, more)),
            }
        }
        let period = Period {
            loads: servers.iter().map(load).collect(),
            hot,
            answered,
            candidates: reading.candidates.iter().map(candidate).collect(),
            dropped: reading.dropped,
        };
        let entry = |count: &HotCount| (count.instance, (count.requests, count.answered));
        self.entries = reading.entries.iter().map(entry).collect();
        self.loads = loads;
        core::mem::replace(&mut self.has_begun, true).then_some(period)
    }
}

/// The increase of a counter. If the value is smaller than before, the counter was restarted.
fn grown(now: Option<&u64>, before: Option<&u64>) -> u64 {
    let (now, before) = (now.copied().unwrap_or(0), before.copied().unwrap_or(0));
    now.checked_sub(before).unwrap_or(now)
}

fn candidate(told: &HotCandidate) -> (HotKey, u64) {
    (HotKey { keyspace: KeyspaceId(told.keyspace), digest: KeyDigest(told.digest) }, told.count)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hot::table::{Placed, Wanted};
    use alloc::vec;

    fn reading(entries: &[(u64, u64, u64)]) -> HotReading {
        let entry = |&(instance, requests, answered)| HotCount { instance, requests, answered };
        let loads = vec![(host_id(NodeId(1)), 70)];
        HotReading {
            entries: entries.iter().map(entry).collect(),
            loads,
            dropped: 7,
            ..HotReading::default()
        }
    }

    #[test]
    fn switch_answers_are_counted_apart_from_loads() {
        let key = |byte| HotKey { keyspace: KeyspaceId(1), digest: KeyDigest([byte; 16]) };
        let entry = |instance| {
            let entry = Wanted { owner: NodeId(1), holders: vec![], in_switch: true, owner_turns: 1 };
            Placed { instance, entry }
        };
        let mut table: Table = [(key(1), entry(11)), (key(2), entry(12))].into_iter().collect();
        let (mut counts, servers) = (Counts::default(), [NodeId(1), NodeId(2)]);
        let mut period = |entries: &[_], table: &Table| counts.period(&reading(entries), table, &servers);
        assert!(period(&[(11, 100, 90), (12, 5, 0)], &table).is_none(), "nothing to compare with");
        let told = period(&[(11, 300, 250), (12, 8, 0)], &table).unwrap();
        assert_eq!((told.hot.clone(), told.loads.clone()), (vec![(key(1), 200), (key(2), 3)], vec![0, 0]));
        assert_eq!(told.requests(), Requests { all: 210, hot: 203, answered: 160 });
        assert_eq!((told.left(&key(1), 200), told.left(&key(2), 3)), (40, 3));
        // A new instance of the key has its own count.
        table.insert(key(1), entry(13));
        let told = period(&[(12, 8, 0), (13, 40, 30)], &table).unwrap();
        assert_eq!(told.requests(), Requests { all: 47, hot: 40, answered: 30 });
    }
}
