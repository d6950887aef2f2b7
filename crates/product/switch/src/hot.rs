//! Table `hot`: where gets of single keys go instead of to their owner, and what was seen of these keys (KVSwitch §4.2 with rules H1, H2, H4 and H6).
//!
//! ```text
//!   (keyspace, digest) ─▶ instance, holders, usual turns ─▶ registers:  seen │ turn │ confirmed[holder] │ requests
//!
//!   update     seen += 1                                     stamped (instance, seen), its usual way
//!   get        turn += 1: the next holder of which
//!              confirmed == seen                             stamped (instance, seen), to the holder
//!              a usual turn, or nobody is valid              zeros, its usual way
//!   confirm    confirmed[sender] = n, if n <= seen           ends here
//!   close (n)  seen += 1, if seen <= n; gone: MAX            back to the sender, with the number
//! ```
//!
//! Of an entry that wants it the switch has a copy itself ([`values`], H9): a get that it may answer ends here, before its turn.
//!
//! An entry without holders only counts. It names no full key: who answers compares that, and keys of a keyspace by range that share a digest share its load.
//!
//! Invariants:
//! - An instance is installed at most once in the life of a switch, and later ones are greater. So what is not there, and is not above the newest, will never be there.
//! - An entry starts closed (H1): `seen` begins above every number that a copy can have been confirmed at.
//! - The registers are those of the instance, whatever tables change around it.
//!
//! Everything here only steers. A holder answers by the stamp that it is shown, and an owner decides by evidence that `seen` is above what its copies are labelled with,
//! so that no entry that a controller installs or loses makes a read stale.

pub(crate) mod detection;
pub(crate) mod stage;
pub(crate) mod values;

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec;
use alloc::vec::Vec;

pub use nicekv_proto::hot::HOT_HOLDERS_MAX;
use nicekv_proto::hot::Stamp;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{HostId, HostIndex, HostRole, HotCount};
use values::{Leases, Value};

/// Hot entries of one switch.
pub const HOT_CAPACITY: usize = 10_000;
/// Most turns of the round robin that go the usual way.
pub const HOT_USUAL_TURNS_MAX: u8 = 16;

/// Entries of one switch of which it may have a copy itself.
pub const HOT_VALUES_MAX: usize = 1024;

/// What is in a `HotClosed` for an instance that is gone for good: no copy has a label above it.
pub const HOT_GONE: u64 = u64::MAX;

/// What the controller installs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HotEntry {
    /// The keyspace of the keys.
    pub keyspace: u16,
    /// Their digest: of one key, but in keyspaces by range.
    pub digest: [u8; 16],
    /// Never used again; rises from one installation to the next (H1).
    pub instance: u64,
    /// How many turns go the usual way for one of each holder: 1 to [`HOT_USUAL_TURNS_MAX`], as many members of the partition answer gets.
    pub usual_turns: u8,
    /// Who has a copy, less the partition's members: at most [`HOT_HOLDERS_MAX`] nodes that hang at this switch, each once (H8). None: the entry only counts.
    pub holders: Vec<HostId>,
    /// Whether the switch itself may have one, of which it answers gets (H9): at most [`HOT_VALUES_MAX`] entries of a table.
    pub in_switch: bool,
}

/// Why a change of the table is refused. Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum HotError {
    #[error("{entries} entries in table hot, which holds {HOT_CAPACITY}")]
    Full { entries: usize },
    #[error("instance {instance:#x} in table hot is not above {newest:#x}, which was installed before")]
    InstanceUsed { instance: u64, newest: u64 },
    #[error(
        "{turns} usual turns of instance {instance:#x} in table hot, allowed are 1 to {HOT_USUAL_TURNS_MAX}"
    )]
    UsualTurns { instance: u64, turns: u8 },
    #[error("{holders} holders of instance {instance:#x} in table hot, allowed are {HOT_HOLDERS_MAX}")]
    Holders { instance: u64, holders: usize },
    #[error("{entries} entries with a copy in the switch in table hot, which has room for {HOT_VALUES_MAX}")]
    Values { entries: usize },
    #[error("holder {} of instance {instance:#x} in table hot is no node at this switch, or is there twice", .holder.0)]
    BadHolder { instance: u64, holder: HostId },
}

/// By what entries are found.
pub(crate) type Key = (u16, [u8; 16]);

#[derive(Clone, Debug)]
struct Slot {
    entry: HotEntry,
    seen: u64,
    turn: u32,
    /// Per holder; 0: nothing.
    confirmed: Vec<u64>,
    requests: u64,
    /// Of the requests, those that the switch has answered.
    answered: u64,
    value: Option<Value>,
}

/// What becomes of a get that has room for a stamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// Its usual way, without a stamp.
    Usual,
    /// To this holder, with this stamp.
    Holder(HostId, Stamp),
}

/// The table with its registers.
#[derive(Clone, Debug, Default)]
pub struct HotTable {
    slots: BTreeMap<Key, Slot>,
    /// The newest instance that was ever installed.
    newest: u64,
    leases: Leases,
}

impl HotTable {
    /// Installed entries, in the order of their keyspaces and digests.
    pub fn entries(&self) -> impl Iterator<Item = &HotEntry> {
        self.slots.values().map(|slot| &slot.entry)
    }

    /// The newest instance that was ever installed; 0: none was.
    pub fn newest(&self) -> u64 {
        self.newest
    }

    /// What the switch has seen of an instance.
    pub fn seen(&self, instance: u64) -> Option<u64> {
        self.slots.values().find(|slot| slot.entry.instance == instance).map(|slot| slot.seen)
    }

    /// Gets and updates of each entry since it was installed, ascending by instances.
    pub(crate) fn counts(&self) -> Vec<HotCount> {
        let count = |slot: &Slot| HotCount {
            instance: slot.entry.instance,
            requests: slot.requests,
            answered: slot.answered,
        };
        let mut counts: Vec<HotCount> = self.slots.values().map(count).collect();
        counts.sort_unstable_by_key(|count| count.instance);
        counts
    }

    /// Removes all entries if it is to `clear`, else the instances of `removed`, then installs those of `set`; as a whole, or not at all. One that is there already, just
    /// so, stays with its registers. A key's new instance takes the place of its old one.
    pub fn change(
        &mut self,
        clear: bool,
        removed: &[u64],
        set: &[HotEntry],
        hosts: Option<&HostIndex>,
    ) -> Result<(), HotError> {
        let change = HotChange::new(self.newest, clear, removed, set, |entry| {
            let there = self.slots.get(&entry.key());
            there.is_some_and(|there| there.entry == *entry)
        });
        let going = change.going(self.entries());
        let of = |key: &Key| self.slots.get(key).map(|slot| &slot.entry);
        let values = self.slots.values().filter(|slot| slot.entry.in_switch).count();
        let change = change.validated((self.slots.len(), values), &going, of, hosts)?;
        going.iter().for_each(|key| drop(self.slots.remove(key)));
        for entry in change.added {
            self.slots.insert(entry.key(), Slot::new(entry));
        }
        self.newest = change.newest;
        Ok(())
    }

    /// An update of the key passes: the stamp that it gets if it has room. `None`: there is no entry.
    pub(crate) fn pass_update(&mut self, key: &Key) -> Option<Stamp> {
        let slot = self.slots.get_mut(key)?;
        slot.requests += 1;
        slot.seen += 1;
        Some(slot.stamp())
    }

    /// A get of the key passes, which can be redirected only if it `has_room`. `is_here`: whether a holder is still a node at this switch. `None`: there is no entry.
    pub(crate) fn pass_get(
        &mut self,
        key: &Key,
        has_room: bool,
        is_here: impl Fn(HostId) -> bool,
    ) -> Option<Turn> {
        let slot = self.slots.get_mut(key)?;
        slot.requests += 1;
        let holder = if has_room { slot.next(is_here) } else { None };
        Some(holder.map_or(Turn::Usual, |holder| Turn::Holder(holder, slot.stamp())))
    }

    /// A holder says of which number its copy is. Whether that was taken in: it is of this instance, from a holder, and nothing that has not been seen.
    pub(crate) fn confirm(&mut self, key: &Key, sender: HostId, told: Stamp) -> bool {
        let slot = self.slots.get_mut(key).filter(|slot| slot.entry.instance == told.instance);
        let Some(slot) = slot.filter(|slot| told.seen <= slot.seen) else { return false };
        let place = slot.entry.holders.iter().position(|holder| *holder == sender);
        // It may fall: who has lost its copy says 0.
        place.map(|place| slot.confirmed[place] = told.seen).is_some()
    }

    /// A primary wants copies with labels up to this one closed: what it is told. `None`: nothing, as what is not installed yet is no evidence.
    pub(crate) fn close(&mut self, key: &Key, told: Stamp) -> Option<Stamp> {
        let instance = told.instance;
        if let Some(slot) = self.slots.get_mut(key).filter(|slot| slot.entry.instance == instance) {
            let is_open = slot.seen <= told.seen;
            slot.seen += u64::from(is_open);
            return Some(slot.stamp());
        }
        let was_there = instance <= self.newest;
        was_there.then_some(Stamp { instance, seen: HOT_GONE })
    }
}

impl HotEntry {
    /// By what it is found.
    pub fn key(&self) -> (u16, [u8; 16]) {
        (self.keyspace, self.digest)
    }

    fn check(&self, newest: u64, hosts: Option<&HostIndex>) -> Result<(), HotError> {
        let &Self { instance, usual_turns: turns, .. } = self;
        if instance <= newest {
            return Err(HotError::InstanceUsed { instance, newest });
        }
        if turns == 0 || turns > HOT_USUAL_TURNS_MAX {
            return Err(HotError::UsualTurns { instance, turns });
        }
        let holders = self.holders.len();
        if holders > HOT_HOLDERS_MAX {
            return Err(HotError::Holders { instance, holders });
        }
        for (place, &holder) in self.holders.iter().enumerate() {
            let is_here = hosts.is_some_and(|hosts| is_here(hosts, holder));
            if !is_here || self.holders[..place].contains(&holder) {
                return Err(HotError::BadHolder { instance, holder });
            }
        }
        Ok(())
    }
}

/// Whether a host is a node at this switch.
pub(crate) fn is_here(hosts: &HostIndex, id: HostId) -> bool {
    hosts.get(id).is_some_and(|host| host.role == HostRole::Node && !host.is_remote)
}

/// A change of the table, for every back end: what is to go, and what is to come.
#[derive(Clone, Debug)]
pub struct HotChange<'a> {
    newest_before: u64,
    clear: bool,
    removed: BTreeSet<u64>,
    /// Entries that are new, in their order.
    pub added: Vec<&'a HotEntry>,
    /// The newest instance from then on.
    pub newest: u64,
}

impl<'a> HotChange<'a> {
    /// `newest`: the newest instance so far. `is_there`: whether there is just this entry.
    pub fn new(
        newest: u64,
        clear: bool,
        removed: &[u64],
        set: &'a [HotEntry],
        is_there: impl Fn(&HotEntry) -> bool,
    ) -> Self {
        let removed: BTreeSet<u64> = removed.iter().copied().collect();
        let stays = |entry: &HotEntry| !clear && !removed.contains(&entry.instance) && is_there(entry);
        let added: Vec<&HotEntry> = set.iter().filter(|entry| !stays(entry)).collect();
        let newest_then = added.iter().map(|entry| entry.instance).fold(newest, u64::max);
        Self { newest_before: newest, clear, removed, added, newest: newest_then }
    }

    /// The keys whose entries have to go, whatever takes their places; of those that are there. Who removes nothing looks at none.
    pub fn going<'b>(&self, entries: impl Iterator<Item = &'b HotEntry>) -> BTreeSet<(u16, [u8; 16])> {
        if !self.clear && self.removed.is_empty() {
            return BTreeSet::new();
        }
        entries.filter(|entry| self.removes(entry.instance)).map(HotEntry::key).collect()
    }

    /// Refuses what breaks a rule. Of so many `entries` that are there so many want a value, and these are `going`; `of`: the one of a key.
    pub fn validated<'b>(
        self,
        (entries, values): (usize, usize),
        going: &BTreeSet<(u16, [u8; 16])>,
        of: impl Fn(&(u16, [u8; 16])) -> Option<&'b HotEntry>,
        hosts: Option<&HostIndex>,
    ) -> Result<Self, HotError> {
        let mut newest = self.newest_before;
        for entry in &self.added {
            entry.check(newest, hosts)?;
            newest = entry.instance;
        }
        // Of two for the same key the later one stays.
        let added: BTreeMap<Key, bool> = self.added.iter().map(|it| (it.key(), it.in_switch)).collect();
        let is_new = |key: &&Key| of(key).is_none() || going.contains(*key);
        let entries = entries - going.len() + added.keys().filter(is_new).count();
        if entries > HOT_CAPACITY {
            return Err(HotError::Full { entries });
        }
        let leave: BTreeSet<&Key> = going.iter().chain(added.keys()).collect();
        let leaving = leave.into_iter().filter(|key| of(key).is_some_and(|entry| entry.in_switch)).count();
        let values = values - leaving + added.values().filter(|in_switch| **in_switch).count();
        if values > HOT_VALUES_MAX { Err(HotError::Values { entries: values }) } else { Ok(self) }
    }

    fn removes(&self, instance: u64) -> bool {
        self.clear || self.removed.contains(&instance)
    }
}

impl Slot {
    fn new(entry: &HotEntry) -> Self {
        Self {
            entry: entry.clone(),
            seen: 1,
            turn: 0,
            confirmed: vec![0; entry.holders.len()],
            requests: 0,
            answered: 0,
            value: None,
        }
    }

    fn stamp(&self) -> Stamp {
        Stamp { instance: self.entry.instance, seen: self.seen }
    }

    /// The holder whose turn it is, or the next one after it whose copy is valid. `None`: it is a usual turn, or nobody's is.
    fn next(&mut self, is_here: impl Fn(HostId) -> bool) -> Option<HostId> {
        let holders = self.entry.holders.len();
        let turns = holders as u32 + u32::from(self.entry.usual_turns);
        let first = (self.turn % turns) as usize;
        self.turn = self.turn.wrapping_add(1);
        if first >= holders {
            return None;
        }
        let is_valid =
            |place: &usize| self.confirmed[*place] == self.seen && is_here(self.entry.holders[*place]);
        let from_there = (first..holders).chain(0..first);
        from_there.into_iter().find(is_valid).map(|place| self.entry.holders[place])
    }
}

#[cfg(test)]
mod tests;
