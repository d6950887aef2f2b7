//! How the reports of a period change the table of hot keys (KVSwitch §4.1).
//!
//! ```text
//!   entries' counts ┐                     ┌▶ the K highest ─▶ r = ⌈L ÷ T⌉ ─▶ holders on the ring ┐
//!   HashPipe's keys ┴▶ predicted loads L ─┘                    T ▲      └──▶ copies in the switch ├▶ changes
//!   servers' loads ─────────────────────────────▶ threshold ─────┘                  present table ┘
//! ```
//!
//! Each of the K highest keys has an entry, which counts it exactly. The paper drops entries at or
//! below T; but the HashPipe misses some requests, so a key near T would lose and regain its entry
//! every other period. An entry whose only holder is the owner redirects nothing and needs no
//! instance (H1).
//!
//! The highest keys above T also have a copy in the switch (H9), which answers gets while no update
//! is in progress. The servers' loads are what remains, and T follows these. Holders, however, are
//! planned by all requests for a key, since they answer while the copy in the switch is closed.
//!
//! *No flapping.* A change of holders creates a new instance, which is closed until copies have arrived (H1, H8), so it must be worth the cost. A key is copied as soon as its load is above T. After that, its holders change only if its load is beyond a border by a share of the load and by two standard deviations of a random count. An entry is lost only to a key that is ahead by as much.

use crate::config::{Config, HOLDERS_MAX, MILLION};
use crate::holders::{Ring, holder_count, place_holders};
use crate::key::HotKey;
use crate::predict::{MicroQueries, predict};
use crate::threshold::Threshold;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::cmp::{Ordering, Reverse};

/// An entry of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Places on the ring of the servers that hold the key, the owner first. If the key is only
    /// counted, the owner alone.
    pub holders: Vec<u16>,
    /// Whether the switch has a copy (H9).
    pub in_switch: bool,
}

impl Entry {
    /// Whether servers besides the owner hold the key.
    pub fn is_copied(&self) -> bool {
        self.holders.len() > 1
    }

    /// Whether the entry changes where gets go, and not only counts.
    pub fn spreads(&self) -> bool {
        self.is_copied() || self.in_switch
    }
}

/// The state between two periods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    /// The table of hot keys.
    pub table: BTreeMap<HotKey, Entry>,
    /// T.
    pub threshold: Threshold,
    /// Counts of the keys in the last report, at most 2K keys.
    previous: BTreeMap<HotKey, u64>,
}

impl State {
    /// An empty table.
    pub fn new(config: &Config) -> Self {
        Self { table: BTreeMap::new(), threshold: Threshold::new(config), previous: BTreeMap::new() }
    }
}

/// A switch's report for a period.
#[derive(Clone, Copy, Debug)]
pub struct PeriodReport<'a> {
    /// Requests sent to each server, indexed by its place on the ring.
    pub loads: &'a [u64],
    /// Requests for keys with an entry.
    pub hot: &'a [(HotKey, u64)],
    /// Requests for other keys ([`crate::Reading::counts`]).
    pub candidates: &'a [(HotKey, u64)],
}

/// How an entry changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ChangeKind {
    /// It is new, and only counts requests.
    Watched,
    /// From now on it redirects gets, or the switch answers them.
    Installed,
    /// It has more holders.
    Grown,
    /// It has fewer holders, but more than its owner.
    Shrunk,
    /// It has the same number of holders, but others: its owner has changed, or a holder is
    /// unavailable.
    Moved,
    /// Its holders are the same, but the switch gets a copy or drops it.
    Switched,
    /// From now on it only counts requests.
    Withdrawn,
    /// It is removed.
    Removed,
}

/// A change of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Key of the entry.
    pub key: HotKey,
    /// How the entry changes.
    pub kind: ChangeKind,
    /// Its new holders, the owner first; empty if it is removed.
    pub holders: Vec<u16>,
    /// Whether the switch has a copy.
    pub in_switch: bool,
}

/// The plan for the next period.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The new state.
    pub state: State,
    /// How the table changes, by key.
    pub changes: Vec<Change>,
    /// T: keys with a higher load are copied.
    pub border: MicroQueries,
    /// Number of reported keys without an owner: their keyspace was dropped, or they are forged.
    pub refused: u32,
}

/// A key that may have an entry.
struct Candidate {
    key: HotKey,
    owner: u16,
    load: MicroQueries,
}

/// Makes the plan. `owner` returns the place of a key's owner on the ring, if the key has an owner.
pub fn plan(
    config: &Config,
    state: &State,
    report: &PeriodReport<'_>,
    ring: &Ring<'_>,
    owner: impl Fn(&HotKey) -> Option<u16>,
) -> Plan {
    let counts = counted(config, state, report);
    let owned = |(key, count): (&HotKey, &u64)| {
        let load = predict(config.history_ppm, state.previous.get(key).copied().unwrap_or(0), *count);
        let owner = owner(key).filter(|owner| *owner < ring.servers())?;
        Some(Candidate { key: *key, owner, load })
    };
    let candidates: Vec<Candidate> = counts.iter().filter_map(owned).collect();
    let refused = (counts.len() - candidates.len()) as u32;
    let threshold = state.threshold.next(config, report.loads);
    let border = threshold.of(config, report.loads);
    let highest = highest(config, state, candidates);
    let in_switch = in_switch(config, state, &highest, border);
    let entry = |candidate: Candidate| {
        let old = state.table.get(&candidate.key);
        let holders = holders(config, old, &candidate, border, ring);
        (candidate.key, Entry { holders, in_switch: in_switch.contains(&candidate.key) })
    };
    let table = highest.into_iter().map(entry).collect();
    let changes = changes(&state.table, &table);
    Plan { changes, border, refused, state: State { table, threshold, previous: counts } }
}

/// Counts of all keys with an entry, and of the K other keys with the most requests.
fn counted(config: &Config, state: &State, report: &PeriodReport<'_>) -> BTreeMap<HotKey, u64> {
    let mut counts: BTreeMap<HotKey, u64> = state.table.keys().map(|key| (*key, 0)).collect();
    let mut candidates: Vec<_> = report.candidates.to_vec();
    candidates.sort_unstable_by_key(|(key, count)| (Reverse(*count), *key));
    candidates.truncate(config.keys_max as usize);
    // Ignores counts of entries that were removed. A new entry's key may have been a candidate earlier in
    // the period: then both counts are added.
    let hot = report.hot.iter().filter(|(key, _)| state.table.contains_key(key));
    for (key, count) in hot.chain(&candidates) {
        let sum = counts.entry(*key).or_default();
        *sum = sum.saturating_add(*count);
    }
    counts
}

/// The K candidates with the highest loads. A key with an entry ranks before one whose load is
/// higher by no more than chance.
fn highest(config: &Config, state: &State, mut candidates: Vec<Candidate>) -> Vec<Candidate> {
    let least = u64::from(config.requests_min) * u64::from(MILLION);
    candidates.retain(|candidate| {
        // A key keeps its entry with half of the requests that a new entry needs.
        let has_entry = state.table.contains_key(&candidate.key);
        candidate.load.0 >= if has_entry { least.div_ceil(2) } else { least }
    });
    candidates.sort_by_cached_key(|candidate| {
        let Candidate { key, load, .. } = *candidate;
        (Reverse(ahead(config, load, state.table.contains_key(&key))), key)
    });
    candidates.truncate(config.keys_max as usize);
    candidates
}

/// A key's load for ranking. That of a key with an entry is increased by what chance explains.
fn ahead(config: &Config, load: MicroQueries, is_there: bool) -> u64 {
    let ahead = if is_there { slack(config, load) } else { 0 };
    load.0.saturating_add(ahead)
}

/// Keys with a copy in the switch (H9): the highest above T. If servers get no copies, T has no
/// meaning, and the highest of all keys are taken.
fn in_switch(
    config: &Config,
    state: &State,
    highest: &[Candidate],
    border: MicroQueries,
) -> BTreeSet<HotKey> {
    let least = if config.holders_max == 0 { 0 } else { border.0 };
    let compared = |candidate: &Candidate| {
        let old = state.table.get(&candidate.key);
        (ahead(config, candidate.load, old.is_some_and(|old| old.in_switch)), candidate.key)
    };
    let mut above: Vec<(u64, HotKey)> =
        highest.iter().map(compared).filter(|(load, _)| *load > least).collect();
    above.sort_unstable_by_key(|(load, key)| (Reverse(*load), *key));
    above.into_iter().take(config.values_max as usize).map(|(_, key)| key).collect()
}

/// The holders of a key for the next period.
fn holders(
    config: &Config,
    old: Option<&Entry>,
    candidate: &Candidate,
    border: MicroQueries,
    ring: &Ring<'_>,
) -> Vec<u16> {
    let Candidate { owner, load, .. } = *candidate;
    let most = config.holders_max.saturating_add(1).min(u32::from(HOLDERS_MAX)) as u16;
    let holder_count = |load| holder_count(load, border, ring).min(most);
    let wanted = holder_count(load);
    let Some(old) = old.filter(|old| old.is_copied()) else { return place_holders(owner, wanted, ring) };
    let slack = slack(config, load);
    let [least, most] = [load.0.saturating_sub(slack), load.0.saturating_add(slack)]
        .map(|load| holder_count(MicroQueries(load)));
    // The number of holders changes only if it would be wrong for every load within the slack.
    let held = old.holders.len() as u16;
    let count = if (least..=most).contains(&held) { held } else { wanted };
    let stays = count == held && old.holders[0] == owner;
    match stays && old.holders[1..].iter().all(|holder| ring.is_available(*holder)) {
        true => old.holders.clone(),
        false => place_holders(owner, count, ring),
    }
}

/// By how much a load may change without consequence: a share of the load, plus two standard
/// deviations of a random count.
fn slack(config: &Config, load: MicroQueries) -> u64 {
    let micro = u64::from(MILLION);
    // √(load in millionths) = √load · √1,000,000.
    let deviation = load.0.isqrt().saturating_mul(micro.isqrt());
    let share = u128::from(load.0) * u128::from(config.slack_ppm) / u128::from(micro);
    (share as u64).saturating_add(deviation.saturating_mul(2))
}

/// The changes from one table to the other, by key.
fn changes(old: &BTreeMap<HotKey, Entry>, new: &BTreeMap<HotKey, Entry>) -> Vec<Change> {
    let removed =
        |key: &HotKey| Change { key: *key, kind: ChangeKind::Removed, holders: Vec::new(), in_switch: false };
    let mut changes: Vec<Change> = old.keys().filter(|key| !new.contains_key(key)).map(removed).collect();
    for (key, entry) in new {
        let Some(kind) = kind(old.get(key), entry) else { continue };
        changes.push(Change { key: *key, kind, holders: entry.holders.clone(), in_switch: entry.in_switch });
    }
    changes.sort_unstable_by_key(|change| change.key);
    changes
}

/// How an entry of the new table has changed; `None` if it has not.
fn kind(old: Option<&Entry>, new: &Entry) -> Option<ChangeKind> {
    let Some(old) = old else {
        return Some(if new.spreads() { ChangeKind::Installed } else { ChangeKind::Watched });
    };
    Some(match (old.spreads(), new.spreads(), new.holders.len().cmp(&old.holders.len())) {
        _ if old == new => return None,
        (false, true, _) => ChangeKind::Installed,
        (true, false, _) => ChangeKind::Withdrawn,
        (_, _, Ordering::Greater) => ChangeKind::Grown,
        (_, _, Ordering::Less) => ChangeKind::Shrunk,
        (_, _, Ordering::Equal) if old.holders == new.holders => ChangeKind::Switched,
        (_, _, Ordering::Equal) => ChangeKind::Moved,
    })
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
