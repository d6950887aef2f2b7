//! From readings of a switch to what a period had: differences of counters that are never reset.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use nicekv_dataplane::{HostId, HotCandidate, HotReading};
use nicekv_hotkeys::HotKey;
use nicekv_wire::{KeyDigest, KeyspaceId, NodeId};

use super::table::Table;
use crate::config::host_id;

/// What was read last. Bounded by what one reading may have.
#[derive(Clone, Debug, Default)]
pub(super) struct Counts {
    /// Whether there was a reading over this connection: the first one is what later ones are compared with.
    has_begun: bool,
    loads: BTreeMap<HostId, u64>,
    entries: BTreeMap<u64, u64>,
}

/// What a period had.
#[derive(Clone, Debug, Default)]
pub(super) struct Period {
    /// Requests that left for each server, by its place.
    pub(super) loads: Vec<u64>,
    /// Requests for keys that have an entry.
    pub(super) hot: Vec<(HotKey, u64)>,
    /// Requests for others.
    pub(super) candidates: Vec<(HotKey, u64)>,
    /// Requests for others again, which are not named.
    pub(super) dropped: u64,
}

impl Period {
    /// Requests for keys that have an entry, and for all.
    pub(super) fn requests(&self) -> (u64, u64) {
        let sum = |counts: &[(HotKey, u64)]| counts.iter().map(|(_, count)| count).sum::<u64>();
        let hot = sum(&self.hot);
        (hot, hot + sum(&self.candidates) + self.dropped)
    }
}

impl Counts {
    /// What was counted since the last reading; `None`: there was none. `table`: what the switch has.
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
        let hot = reading.entries.iter().filter_map(|count| {
            let key = keys.get(&count.instance)?;
            Some((*key, grown(Some(&count.requests), self.entries.get(&count.instance))))
        });
        let period = Period {
            loads: servers.iter().map(load).collect(),
            hot: hot.collect(),
            candidates: reading.candidates.iter().map(candidate).collect(),
            dropped: reading.dropped,
        };
        self.entries = reading.entries.iter().map(|count| (count.instance, count.requests)).collect();
        self.loads = loads;
        core::mem::replace(&mut self.has_begun, true).then_some(period)
    }
}

/// What a counter has grown by. One that is below what it was belongs to who has started anew.
fn grown(now: Option<&u64>, before: Option<&u64>) -> u64 {
    let (now, before) = (now.copied().unwrap_or(0), before.copied().unwrap_or(0));
    now.checked_sub(before).unwrap_or(now)
}

fn candidate(told: &HotCandidate) -> (HotKey, u64) {
    (HotKey { keyspace: KeyspaceId(told.keyspace), digest: KeyDigest(told.digest) }, told.count)
}
