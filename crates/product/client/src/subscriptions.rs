//! What this client listens to, said to the store and said again before that forgets it.
//!
//! ```text
//!   set ─▶ due ─▶ asked ─ answered, and it is all partitions ─▶ told ─ an interval later ─▶ due
//!            ▲       │  └ of a pattern, the next partition ─▶ due
//!            └───────┴─── it was set again meanwhile: at once from the beginning, with what counts now
//! ```
//!
//! A channel is said to the members of its partition. A pattern is said to those of every partition, one after the other: each answer tells how far its partition goes, as in
//! a scan. However often it is set meanwhile, a round comes to its end, and who waits for that is told. What is not listened to any more is said once, and forgotten.
//!
//! However many there are, no more than [`SAID_PER_S`] of them are said in a second: with more the interval grows, and so does the time for which they are to be remembered.

use crate::{Answer, OperationError, Request};
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use nicekv_proto::publish::ListenKind;

/// Channels and patterns of one client.
pub const SUBSCRIPTIONS_MAX: usize = 65_536;
/// Requests for them that are under way at once.
const ASKED_MAX: usize = 64;
/// So many are said again in a second.
const SAID_PER_S: u64 = 2_000;
/// How often one is said again, if there are few, in milliseconds.
const INTERVAL_MS_MIN: u64 = 1_000;
/// The same if there are very many: nodes remember nobody for more than three times as long.
const INTERVAL_MS_MAX: u64 = 20_000;
const NS_PER_MS: u64 = 1_000_000;

/// Names a channel or a pattern that is listened to, as long as it is.
pub type SubscriptionId = u64;

/// What was said to the store, or could not be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Confirmation {
    /// Of which.
    pub id: SubscriptionId,
    /// As it was set then: [`Subscriptions::set`] numbers what it is told.
    pub version: u64,
    /// Whether everybody knows who has to.
    pub result: Result<(), OperationError>,
}

#[derive(Clone, Debug)]
struct Entry {
    kind: ListenKind,
    name: Vec<u8>,
    count: u32,
    version: u64,
    /// The version that is being said.
    said: u64,
    /// The match value whose partition is told next.
    at: u128,
    /// Requests of this round so far, and those that the last round took.
    requests: u64,
    cost: u64,
    is_asked: bool,
    due_ns: u64,
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct Subscriptions {
    entries: BTreeMap<SubscriptionId, Entry>,
    ids: BTreeMap<(ListenKind, Vec<u8>), SubscriptionId>,
    due: BTreeSet<(u64, SubscriptionId)>,
    told: VecDeque<Confirmation>,
    last_id: SubscriptionId,
    last_version: u64,
    asked: usize,
    /// Of all entries.
    cost: u64,
}

impl Subscriptions {
    /// How many there are, those among them that are being given up.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// From now on so many listen there; which it is, and the number under which that is [told](Self::poll). `None`: there are too many already.
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
        // Where it is being said the end of that begins the next round.
        if !entry.is_asked && entry.at == 0 {
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
            said: 0,
            at: 0,
            requests: 0,
            cost: 1,
            is_asked: false,
            due_ns: 0,
        };
        self.cost += 1;
        self.ids.insert((kind, name.to_vec()), self.last_id);
        self.entries.insert(self.last_id, entry);
        Some(self.last_id)
    }

    /// The partition of this match value is told then.
    fn schedule(&mut self, id: SubscriptionId, at: u128, due_ns: u64) {
        let entry = self.entries.get_mut(&id).expect("it is there");
        self.due.remove(&(entry.due_ns, id));
        (entry.at, entry.due_ns) = (at, due_ns);
        self.due.insert((due_ns, id));
    }

    fn interval_ms(&self) -> u64 {
        (self.cost * 1_000 / SAID_PER_S).clamp(INTERVAL_MS_MIN, INTERVAL_MS_MAX)
    }

    /// The next request to be sent, if one is due. It is under way until [`Self::answered`].
    pub fn next(&mut self, now_ns: u64) -> Option<(SubscriptionId, Request<'_>)> {
        let (due_ns, id) = self.due.first().copied()?;
        if due_ns > now_ns || self.asked == ASKED_MAX {
            return None;
        }
        self.due.pop_first();
        self.asked += 1;
        let hold_ms = 3 * self.interval_ms() as u32;
        let entry = self.entries.get_mut(&id).expect("what is due is there");
        if entry.at == 0 {
            (entry.said, entry.requests) = (entry.version, 0);
        }
        entry.is_asked = true;
        entry.requests += 1;
        let (kind, name, from, count) = (entry.kind, entry.name.as_slice(), entry.at, entry.count);
        Some((id, Request::Listen { kind, name, from, count, hold_ms }))
    }

    /// The request for one was answered, or has failed.
    pub fn answered(&mut self, now_ns: u64, id: SubscriptionId, result: Result<Answer<'_>, OperationError>) {
        let Some(entry) = self.entries.get_mut(&id).filter(|entry| entry.is_asked) else { return };
        entry.is_asked = false;
        self.asked -= 1;
        let last = result.map(|answer| last_of(&answer));
        match (entry.kind, last) {
            // What counts now is still to be said.
            (_, Err(_)) if entry.version != entry.said => self.schedule(id, 0, now_ns),
            (ListenKind::Pattern, Ok(Some(last))) if last >= entry.at && last < u128::MAX => {
                self.schedule(id, last + 1, now_ns);
            }
            (_, result) => self.end_round(id, now_ns, result.map(|_| ())),
        }
    }

    fn end_round(&mut self, id: SubscriptionId, now_ns: u64, result: Result<(), OperationError>) {
        let entry = self.entries.get_mut(&id).expect("it was asked");
        self.told.push_back(Confirmation { id, version: entry.said, result });
        let is_newest = entry.version == entry.said;
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

    /// A request that was taken from [`Self::next`] could not be sent: it is due again soon.
    pub fn put_off(&mut self, now_ns: u64, id: SubscriptionId) {
        let Some(entry) = self.entries.get_mut(&id).filter(|entry| entry.is_asked) else { return };
        entry.is_asked = false;
        entry.requests -= 1;
        self.asked -= 1;
        let at = entry.at;
        self.schedule(id, at, now_ns + NS_PER_MS);
    }

    /// What was said, or could not be, since it was asked last.
    pub fn poll(&mut self) -> Option<Confirmation> {
        self.told.pop_front()
    }

    /// When [`Self::next`] has something to say, in nanoseconds of the boot-time clock.
    pub fn next_deadline(&self) -> Option<u64> {
        self.due.first().map(|(due_ns, _)| *due_ns).filter(|_| self.asked < ASKED_MAX)
    }
}

/// The last match value of the partition that has answered.
fn last_of(answer: &Answer<'_>) -> Option<u128> {
    Some(u128::from_be_bytes(answer.value?.try_into().ok()?))
}

#[cfg(test)]
#[path = "subscriptions_tests.rs"]
mod tests;
