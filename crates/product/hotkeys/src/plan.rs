//! What a period's reports change in the table of hot keys (KVSwitch §4.1).
//!
//! ```text
//!   entries' counts ┐                     ┌▶ the K highest ─▶ r = ⌈L ÷ T⌉ ─▶ holders on the ring ┐
//!   HashPipe's keys ┴▶ predicted loads L ─┘                    T ▲      └──▶ who is in the switch ├▶ changes
//!   servers' loads ─────────────────────────────▶ threshold ─────┘                  current table ┘
//! ```
//!
//! Every key among the K highest has an entry, which counts it exactly. The paper drops those at or below T, and then a key near T is counted by the HashPipe in every other period,
//! which sees less of it than there was. An entry whose only holder is its owner redirects nothing, and needs no instance (H1).
//!
//! Of keys above T the highest have a copy in the switch besides (H9), which answers while nobody updates them. Loads of servers are what is left then, and T follows them; who
//! holds a key is planned by all that it is asked, as holders answer while the copy in the switch is closed.
//!
//! *Nothing flaps.* A change of holders is a new instance, closed until copies have come (H1, H8), so it must be worth it. A key is copied as soon as it is above T. From there it
//! takes a load that is beyond the border by a share of itself, and by two standard deviations of what chance does to a count. And who has an entry loses it
//! only to a key that is ahead by as much.

use crate::config::{Config, MILLION};
use crate::holders::{HOLDERS_MAX, Ring, copies, place};
use crate::key::HotKey;
use crate::predict::{MicroQueries, predict};
use crate::threshold::Threshold;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::cmp::{Ordering, Reverse};

/// An entry of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Servers that hold the key, by their places on the ring: its owner first, and alone while the key is only counted.
    pub holders: Vec<u16>,
    /// Whether the switch has a copy, too (H9).
    pub in_switch: bool,
}

impl Entry {
    /// Whether some server besides the owner holds it.
    pub fn is_copied(&self) -> bool {
        self.holders.len() > 1
    }

    /// Whether it does anything but count.
    pub fn spreads(&self) -> bool {
        self.is_copied() || self.in_switch
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
    /// It redirects, or is answered, from now on.
    Installed,
    /// It has more holders.
    Grown,
    /// It has fewer holders, but more than its owner.
    Shrunk,
    /// It has as many other ones: its owner has changed, or a holder is away.
    Moved,
    /// Its holders are the same, but the switch is to have a copy, or none any more.
    Switched,
    /// It only counts from now on.
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
    /// Whether the switch has a copy from now on.
    pub in_switch: bool,
}

/// What comes of a period.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// What there is afterwards.
    pub state: State,
    /// How the table gets there, by keys.
    pub changes: Vec<Change>,
    /// T, above which keys are copied.
    pub border: MicroQueries,
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
        let Candidate { key, load, .. } = *candidate;
        (Reverse(ahead(config, load, state.table.contains_key(&key))), key)
    });
    candidates.truncate(config.keys_max as usize);
    candidates
}

/// A load as it is compared with others': who is there already is put ahead of who is higher by no more than chance.
fn ahead(config: &Config, load: MicroQueries, is_there: bool) -> u64 {
    let ahead = if is_there { slack(config, load) } else { 0 };
    load.0.saturating_add(ahead)
}

/// Keys with a copy in the switch (H9): the highest of those above T. Where servers get no copies T means nothing, and they are the highest of all.
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

/// Who holds a key from now on.
fn holders(
    config: &Config,
    old: Option<&Entry>,
    candidate: &Candidate,
    border: MicroQueries,
    ring: &Ring<'_>,
) -> Vec<u16> {
    let Candidate { owner, load, .. } = *candidate;
    let most = config.holders_max.saturating_add(1).min(u32::from(HOLDERS_MAX)) as u16;
    let copies = |load| copies(load, border, ring).min(most);
    let wanted = copies(load);
    let Some(old) = old.filter(|old| old.is_copied()) else { return place(owner, wanted, ring) };
    let slack = slack(config, load);
    let [least, most] =
        [load.0.saturating_sub(slack), load.0.saturating_add(slack)].map(|load| copies(MicroQueries(load)));
    // As many as the key would have with less load are too few only if even then there were more, and the other way round.
    let held = old.holders.len() as u16;
    let count = if (least..=most).contains(&held) { held } else { wanted };
    let stays = count == held && old.holders[0] == owner;
    match stays && old.holders[1..].iter().all(|holder| ring.is_available(*holder)) {
        true => old.holders.clone(),
        false => place(owner, count, ring),
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
    let removed =
        |key: &HotKey| Change { key: *key, kind: Kind::Removed, holders: Vec::new(), in_switch: false };
    let mut changes: Vec<Change> = old.keys().filter(|key| !new.contains_key(key)).map(removed).collect();
    for (key, entry) in new {
        let Some(kind) = kind(old.get(key), entry) else { continue };
        changes.push(Change { key: *key, kind, holders: entry.holders.clone(), in_switch: entry.in_switch });
    }
    changes.sort_unstable_by_key(|change| change.key);
    changes
}

/// What is done to an entry that is to be there; `None`: nothing.
fn kind(old: Option<&Entry>, new: &Entry) -> Option<Kind> {
    let Some(old) = old else { return Some(if new.spreads() { Kind::Installed } else { Kind::Watched }) };
    Some(match (old.spreads(), new.spreads(), new.holders.len().cmp(&old.holders.len())) {
        _ if old == new => return None,
        (false, true, _) => Kind::Installed,
        (true, false, _) => Kind::Withdrawn,
        (_, _, Ordering::Greater) => Kind::Grown,
        (_, _, Ordering::Less) => Kind::Shrunk,
        (_, _, Ordering::Equal) if old.holders == new.holders => Kind::Switched,
        (_, _, Ordering::Equal) => Kind::Moved,
    })
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
