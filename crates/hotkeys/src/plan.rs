//! What a period's reports change in the table of hot keys (KVSwitch §4.1).
//!
//! ```text
//!   entries' counts ┐                     ┌▶ the K highest ─▶ r = ⌈L ÷ T⌉ ─▶ holders on the ring ┐
//!   HashPipe's keys ┴▶ predicted loads L ─┘                    T ▲                               ├▶ changes
//!   servers' loads ─────────────────────────────▶ threshold ─────┘                 current table ┘
//! ```
//!
//! Every key among the K highest has an entry, which counts it exactly. The paper drops those at or below T, and then a key near T is counted by the HashPipe in every other period,
//! which sees less of it than there was. An entry whose only holder is its owner redirects nothing, and needs no instance (H1).
//!
//! *Nothing flaps.* A change of holders is a new instance, closed until copies have come (H1, H8), so it must be worth it. A key is copied as soon as it is above T. From there it
//! takes a load that is beyond the border by a share of itself, and by two standard deviations of what chance does to a count. And who has an entry loses it
//! only to a key that is ahead by as much.

use crate::config::{Config, MILLION};
use crate::holders::{Ring, copies, place};
use crate::key::HotKey;
use crate::predict::{MicroQueries, predict};
use crate::threshold::Threshold;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::cmp::Reverse;

/// An entry of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Servers that hold the key, by their places on the ring: its owner first, and alone while the key is only counted.
    pub holders: Vec<u16>,
}

impl Entry {
    /// Whether somebody else than the owner holds it.
    pub fn is_copied(&self) -> bool {
        self.holders.len() > 1
    }
}

/// What there is between two periods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    /// The table of hot keys.
    pub table: BTreeMap<HotKey, Entry>,
    /// T.
    pub threshold: Threshold,
    /// Counts of the last period: of keys that were reported, at most 2K.
    previous: BTreeMap<HotKey, u64>,
}

impl State {
    /// An empty table.
    pub fn new(config: &Config) -> Self {
        Self { table: BTreeMap::new(), threshold: Threshold::new(config), previous: BTreeMap::new() }
    }
}

/// What the switch says of a period.
#[derive(Clone, Copy, Debug)]
pub struct Report<'a> {
    /// Requests that left for each server, by its place on the ring.
    pub loads: &'a [u64],
    /// Requests for keys that have an entry.
    pub hot: &'a [(HotKey, u64)],
    /// Requests for others ([`crate::Reading::counts`]).
    pub candidates: &'a [(HotKey, u64)],
}

/// What is done to an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// It is new, and only counts.
    Watched,
    /// It redirects from now on.
    Installed,
    /// It has more holders.
    Grown,
    /// It has fewer holders, but more than its owner.
    Shrunk,
    /// It has as many other ones: its owner has changed, or a holder is away.
    Moved,
    /// It redirects no longer, but counts.
    Withdrawn,
    /// It is gone.
    Removed,
}

/// A change of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Whose.
    pub key: HotKey,
    /// What is done to it.
    pub kind: Kind,
    /// The holders from now on, the owner first; none if it is removed.
    pub holders: Vec<u16>,
}

/// What comes of a period.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// What there is afterwards.
    pub state: State,
    /// How the table gets there, by keys.
    pub changes: Vec<Change>,
    /// Reported keys that nobody owns: of a keyspace that is gone, or made up.
    pub refused: u32,
}

/// A key that may have an entry.
struct Candidate {
    key: HotKey,
    owner: u16,
    load: MicroQueries,
}

/// The plan of a period. `owner` says which place of the ring a key belongs to, if any.
pub fn plan(
    config: &Config,
    state: &State,
    report: &Report<'_>,
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
    let border = threshold.of(report.loads);
    let entry = |candidate: Candidate| {
        let old = state.table.get(&candidate.key);
        (candidate.key, Entry { holders: holders(config, old, &candidate, border, ring) })
    };
    let table = highest(config, state, candidates).into_iter().map(entry).collect();
    let changes = changes(&state.table, &table);
    Plan { changes, refused, state: State { table, threshold, previous: counts } }
}

/// Counts of keys with an entry, which are all there though nobody asked for them, and of the K candidates that were asked most.
fn counted(config: &Config, state: &State, report: &Report<'_>) -> BTreeMap<HotKey, u64> {
    let mut counts: BTreeMap<HotKey, u64> = state.table.keys().map(|key| (*key, 0)).collect();
    let mut candidates: Vec<_> = report.candidates.to_vec();
    candidates.sort_unstable_by_key(|(key, count)| (Reverse(*count), *key));
    candidates.truncate(config.keys_max as usize);
    // An entry that has gone may have counted until then, and one that is new was a candidate until then.
    let hot = report.hot.iter().filter(|(key, _)| state.table.contains_key(key));
    for (key, count) in hot.chain(&candidates) {
        let sum = counts.entry(*key).or_default();
        *sum = sum.saturating_add(*count);
    }
    counts
}

/// The K candidates of the highest loads; who has an entry is put ahead of who is higher by no more than chance.
fn highest(config: &Config, state: &State, mut candidates: Vec<Candidate>) -> Vec<Candidate> {
    let least = u64::from(config.requests_min) * u64::from(MILLION);
    candidates.retain(|candidate| {
        // Who is in stays at half of what it takes to come in.
        let has_entry = state.table.contains_key(&candidate.key);
        candidate.load.0 >= if has_entry { least.div_ceil(2) } else { least }
    });
    candidates.sort_by_cached_key(|candidate| {
        let load = candidate.load;
        let ahead = if state.table.contains_key(&candidate.key) { slack(config, load) } else { 0 };
        (Reverse(load.0.saturating_add(ahead)), candidate.key)
    });
    candidates.truncate(config.keys_max as usize);
    candidates
}

/// Who holds a key from now on.
fn holders(
    config: &Config,
    old: Option<&Entry>,
    candidate: &Candidate,
    border: MicroQueries,
    ring: &Ring<'_>,
) -> Vec<u16> {
    let Candidate { owner, load, .. } = *candidate;
    let wanted = copies(load, border, ring);
    let Some(old) = old.filter(|old| old.is_copied()) else { return place(owner, wanted, ring) };
    let slack = slack(config, load);
    let [least, most] = [load.0.saturating_sub(slack), load.0.saturating_add(slack)]
        .map(|load| copies(MicroQueries(load), border, ring));
    // As many as the key would have with less load are too few only if even then there were more, and the other way round.
    let held = old.holders.len() as u16;
    let copies = if (least..=most).contains(&held) { held } else { wanted };
    let stays = copies == held && old.holders[0] == owner;
    match stays && old.holders[1..].iter().all(|holder| ring.is_available(*holder)) {
        true => old.holders.clone(),
        false => place(owner, copies, ring),
    }
}

/// What load may change by without consequence: a share of it, and two standard deviations of a count.
fn slack(config: &Config, load: MicroQueries) -> u64 {
    let micro = u64::from(MILLION);
    // The square root of millionths has the root of a million in it.
    let deviation = load.0.isqrt().saturating_mul(micro.isqrt());
    let share = u128::from(load.0) * u128::from(config.slack_ppm) / u128::from(micro);
    (share as u64).saturating_add(deviation.saturating_mul(2))
}

/// From one table to the other, by keys.
fn changes(old: &BTreeMap<HotKey, Entry>, new: &BTreeMap<HotKey, Entry>) -> Vec<Change> {
    let removed = old.keys().filter(|key| !new.contains_key(key));
    let mut changes: Vec<Change> =
        removed.map(|key| Change { key: *key, kind: Kind::Removed, holders: Vec::new() }).collect();
    for (key, entry) in new {
        let kind = match (old.get(key), entry) {
            (Some(old), new) if old == new => continue,
            (None, new) if !new.is_copied() => Kind::Watched,
            (None, _) => Kind::Installed,
            (Some(old), new) if old.holders.len() == new.holders.len() => Kind::Moved,
            (Some(_), new) if !new.is_copied() => Kind::Withdrawn,
            (Some(old), _) if !old.is_copied() => Kind::Installed,
            (Some(old), new) if new.holders.len() > old.holders.len() => Kind::Grown,
            _ => Kind::Shrunk,
        };
        changes.push(Change { key: *key, kind, holders: entry.holders.clone() });
    }
    changes.sort_unstable_by_key(|change| change.key);
    changes
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
