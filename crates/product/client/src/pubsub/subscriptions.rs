//! Announces this client's channels and patterns to the nodes, and again before the nodes forget them.
//!
//! ```text
//!   set ─▶ due ─▶ requested ─ answered by the last partition ─▶ confirmed ─ an interval later ─▶ due
//!            ▲       │      └ answered by another partition (of a pattern): the next one ─▶ due
//!            └───────┴── set again meanwhile: from the first partition, with the new count
//! ```
//!
//! A channel is announced to the members of its partition; a pattern to those of every partition, one after the other: each
//! answer says how far its partition goes, as in a scan. A round always comes to its end, however often the count is set
//! meanwhile, and is then confirmed. The end of a subscription is announced once and forgotten.
//!
//! At most [`ANNOUNCED_PER_S`] announcements are made a second. With more subscriptions the interval grows, and so does the
//! time for which nodes remember them.

use crate::{Answer, OperationError, Request};
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use nicekv_proto::publish::ListenKind;

/// Channels and patterns of one client, at most.
pub const SUBSCRIPTIONS_MAX: usize = 65_536;
/// Announcements under way at once.
const UNDER_WAY_MAX: usize = 64;
/// Announcements per second.
const ANNOUNCED_PER_S: u64 = 2_000;
/// Interval between the announcements of one subscription, in milliseconds, if there are few, …
const INTERVAL_MS_MIN: u64 = 1_000;
/// … and if there are very many. Nodes remember a subscription for three intervals.
const INTERVAL_MS_MAX: u64 = 20_000;
const NS_PER_MS: u64 = 1_000_000;

/// Identifies a channel or pattern while it is subscribed to.
pub type SubscriptionId = u64;

/// A round of announcements has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Confirmation {
    /// Which subscription was announced.
    pub id: SubscriptionId,
    /// The version that was announced, as returned by [`Subscriptions::set`].
    pub version: u64,
    /// Whether all members have confirmed it.
    pub result: Result<(), OperationError>,
}

#[derive(Clone, Debug)]
struct Entry {
    kind: ListenKind,
    name: Vec<u8>,
    count: u32,
    version: u64,
    /// The version that is being announced.
    announced: u64,
    /// The match value whose partition comes next.
    at: u128,
    /// Requests in this round so far, and in the last round.
    requests: u64,
    cost: u64,
    is_under_way: bool,
    due_ns: u64,
}

/// The subscriptions of a client, and their announcements.
#[derive(Clone, Debug, Default)]
pub struct Subscriptions {
    entries: BTreeMap<SubscriptionId, Entry>,
    ids: BTreeMap<(ListenKind, Vec<u8>), SubscriptionId>,
    due: BTreeSet<(u64, SubscriptionId)>,
    confirmed: VecDeque<Confirmation>,
    last_id: SubscriptionId,
    last_version: u64,
    under_way: usize,
    /// Sum over all entries.
    cost: u64,
}

impl Subscriptions {
    /// Subscriptions, those whose end is being announced included.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Sets the number of listeners of a channel or pattern. Returns its id and the version of this change, which is
    /// [confirmed](Self::poll) once it was announced. `None`: there are too many subscriptions.
    pub fn set(
        &mut self,
        now_ns: u64,
        kind: ListenKind,
        name: &[u8],
        count: u32,
    ) -> Option<(SubscriptionId, u64)> {
        let id = match self.ids.get(&(kind, name.to_vec())) {
            Some(id) => *id,
            None => self.insert(kind, name)?,
        };
        self.last_version += 1;
        let entry = self.entries.get_mut(&id).expect("each id has one");
        (entry.count, entry.version) = (count, self.last_version);
        // If a round is in progress, the next one begins when it ends.
        if !entry.is_under_way && entry.at == 0 {
            self.schedule(id, 0, now_ns);
        }
        Some((id, self.last_version))
    }

    fn insert(&mut self, kind: ListenKind, name: &[u8]) -> Option<SubscriptionId> {
        if self.entries.len() == SUBSCRIPTIONS_MAX {
            return None;
        }
        self.last_id += 1;
        let entry = Entry {
            kind,
            name: name.to_vec(),
            count: 0,
            version: 0,
            announced: 0,
            at: 0,
            requests: 0,
            cost: 1,
            is_under_way: false,
            due_ns: 0,
        };
        self.cost += 1;
        self.ids.insert((kind, name.to_vec()), self.last_id);
        self.entries.insert(self.last_id, entry);
        Some(self.last_id)
    }

    /// Announces to the partition of this match value at that time.
    fn schedule(&mut self, id: SubscriptionId, at: u128, due_ns: u64) {
        let entry = self.entries.get_mut(&id).expect("it is there");
        self.due.remove(&(entry.due_ns, id));
        (entry.at, entry.due_ns) = (at, due_ns);
        self.due.insert((due_ns, id));
    }

    fn interval_ms(&self) -> u64 {
        (self.cost * 1_000 / ANNOUNCED_PER_S).clamp(INTERVAL_MS_MIN, INTERVAL_MS_MAX)
    }

    /// The next announcement, if one is due. It is under way until [`Self::answered`] or [`Self::put_off`].
    pub fn next(&mut self, now_ns: u64) -> Option<(SubscriptionId, Request<'_>)> {
        let (due_ns, id) = self.due.first().copied()?;
        if due_ns > now_ns || self.under_way == UNDER_WAY_MAX {
            return None;
        }
        self.due.pop_first();
        self.under_way += 1;
        let hold_ms = 3 * self.interval_ms() as u32;
        let entry = self.entries.get_mut(&id).expect("due subscriptions exist");
        if entry.at == 0 {
            (entry.announced, entry.requests) = (entry.version, 0);
        }
        entry.is_under_way = true;
        entry.requests += 1;
        let (kind, name, from, count) = (entry.kind, entry.name.as_slice(), entry.at, entry.count);
        Some((id, Request::Listen { kind, name, from, count, hold_ms }))
    }

    /// An announcement was answered or has failed.
    pub fn answered(&mut self, now_ns: u64, id: SubscriptionId, result: Result<Answer<'_>, OperationError>) {
        let Some(entry) = self.entries.get_mut(&id).filter(|entry| entry.is_under_way) else { return };
        entry.is_under_way = false;
        self.under_way -= 1;
        let last = result.map(|answer| last_of(&answer));
        match (entry.kind, last) {
            // The changed count is still to be announced.
            (_, Err(_)) if entry.version != entry.announced => self.schedule(id, 0, now_ns),
            (ListenKind::Pattern, Ok(Some(last))) if last >= entry.at && last < u128::MAX => {
                self.schedule(id, last + 1, now_ns);
            }
            (_, result) => self.end_round(id, now_ns, result.map(|_| ())),
        }
    }

    fn end_round(&mut self, id: SubscriptionId, now_ns: u64, result: Result<(), OperationError>) {
        let entry = self.entries.get_mut(&id).expect("it was announced");
        self.confirmed.push_back(Confirmation { id, version: entry.announced, result });
        let is_newest = entry.version == entry.announced;
        if entry.count == 0 && is_newest {
            self.cost -= entry.cost;
            if let Some(entry) = self.entries.remove(&id) {
                self.ids.remove(&(entry.kind, entry.name));
            }
            return;
        }
        self.cost = self.cost - entry.cost + entry.requests;
        entry.cost = entry.requests;
        let pause_ns = if is_newest { self.interval_ms() * NS_PER_MS } else { 0 };
        self.schedule(id, 0, now_ns + pause_ns);
    }

    /// An announcement from [`Self::next`] could not be sent: it is due again in a millisecond.
    pub fn put_off(&mut self, now_ns: u64, id: SubscriptionId) {
        let Some(entry) = self.entries.get_mut(&id).filter(|entry| entry.is_under_way) else { return };
        entry.is_under_way = false;
        entry.requests -= 1;
        self.under_way -= 1;
        let at = entry.at;
        self.schedule(id, at, now_ns + NS_PER_MS);
    }

    /// Takes the next round that was confirmed or has failed.
    pub fn poll(&mut self) -> Option<Confirmation> {
        self.confirmed.pop_front()
    }

    /// When to call [`Self::next`], in nanoseconds of the boot-time clock.
    pub fn next_deadline(&self) -> Option<u64> {
        self.due.first().map(|(due_ns, _)| *due_ns).filter(|_| self.under_way < UNDER_WAY_MAX)
    }
}

/// The last match value of the partition that has answered.
fn last_of(answer: &Answer<'_>) -> Option<u128> {
    Some(u128::from_be_bytes(answer.value?.try_into().ok()?))
}

#[cfg(test)]
#[path = "subscriptions_tests.rs"]
mod tests;
