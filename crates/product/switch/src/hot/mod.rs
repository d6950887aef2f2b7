//! Table `hot`: sends gets of single keys to holders of copies instead of to their owner (KVSwitch
//! §4.2 with rules H1, H2, H4 and H6).
//!
//! ```text
//!   (keyspace, digest) ─▶ instance, holders, owner turns ─▶ registers:  seen │ turn │ confirmed[holder] │ requests
//!
//!   update     seen += 1                                     stamped (instance, seen), its default route
//!   get        turn += 1: the next holder with
//!              confirmed == seen                             stamped (instance, seen), to the holder
//!              an owner turn, or no valid holder             zero stamp, its default route
//!   confirm    confirmed[sender] = n, if n <= seen           consumed
//!   close (n)  seen += 1, if seen <= n; removed: MAX         back to the sender, with the number
//! ```
//!
//! For an entry that allows it the switch stores a copy itself ([`values`], H9): it answers a get
//! before the get takes a turn.
//!
//! An entry without holders only counts. An entry has a digest, not the full key: the node that
//! answers compares the key, and keys of a range-partitioned keyspace that share a digest share its
//! load.
//!
//! Invariants:
//! - An instance is installed at most once in the life of a switch, and later ones are greater. So
//!   an instance that is not installed and not above the newest will never be installed.
//! - An entry starts closed (H1): `seen` begins above every number that a copy can have been
//!   confirmed at.
//! - The registers belong to the instance, whatever other tables change.
//!
//! The switch only steers. A holder answers by the stamp that it is shown, and an owner decides on
//! evidence that `seen` is above the labels of its copies, so no entry that a controller installs
//! or loses makes a read stale.

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

use crate::{HostId, HostIndex, HostRole};
use detection::HotCount;
use values::{Leases, Value};

/// Capacity of table `hot` in entries.
pub const HOT_CAPACITY: usize = 10_000;
/// Upper bound of [`HotEntry::owner_turns`].
pub const HOT_OWNER_TURNS_MAX: u8 = 16;

/// Upper bound of the entries for which the switch may store a copy itself.
pub const HOT_VALUES_MAX: usize = 1024;

/// The number in a `HotClosed` for an instance that will never be installed again: no copy has a
/// label above it.
pub const HOT_GONE: u64 = u64::MAX;

/// An entry of table `hot`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HotEntry {
    /// The keyspace of the key.
    pub keyspace: u16,
    /// The key's digest. In range-partitioned keyspaces several keys may share it.
    pub digest: [u8; 16],
    /// Identifies this installation of the entry. Every installation gets a greater number (H1).
    pub instance: u64,
    /// Number of turns of the round robin that take the default route, while each holder has one
    /// turn: 1 to [`HOT_OWNER_TURNS_MAX`], the number of the partition's members that answer gets.
    pub owner_turns: u8,
    /// Nodes that have a copy and are not members of the partition: at most [`HOT_HOLDERS_MAX`],
    /// attached to this switch, each listed once (H8). An entry without holders only counts.
    pub holders: Vec<HostId>,
    /// Whether the switch may store a copy itself and answer gets from it (H9). At most
    /// [`HOT_VALUES_MAX`] entries may set this.
    pub in_switch: bool,
}

/// Why a change of table `hot` is refused. The table is unchanged.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum HotError {
    #[error("{entries} entries in table hot; its capacity is {HOT_CAPACITY}")]
    Full { entries: usize },
    #[error("instance {instance:#x} of table hot is not above {newest:#x}, the newest one installed so far")]
    InstanceUsed { instance: u64, newest: u64 },
    #[error(
        "instance {instance:#x} of table hot has {turns} owner turns; 1 to {HOT_OWNER_TURNS_MAX} are allowed"
    )]
    OwnerTurns { instance: u64, turns: u8 },
    #[error("instance {instance:#x} of table hot has {holders} holders; the limit is {HOT_HOLDERS_MAX}")]
    Holders { instance: u64, holders: usize },
    #[error("{entries} entries of table hot want a copy in the switch; the limit is {HOT_VALUES_MAX}")]
    Values { entries: usize },
    #[error("holder {} of instance {instance:#x} of table hot is listed twice, or is not a node attached to this switch", .holder.0)]
    BadHolder { instance: u64, holder: HostId },
}

/// The match key: keyspace and digest.
pub(crate) type Key = (u16, [u8; 16]);

#[derive(Clone, Debug)]
struct Slot {
    entry: HotEntry,
    seen: u64,
    turn: u32,
    /// The number that each holder has confirmed; 0: the holder has confirmed none.
    confirmed: Vec<u64>,
    requests: u64,
    /// Number of requests that the switch has answered itself.
    answered: u64,
    value: Option<Value>,
}

/// Where a get goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// The get takes its default route, without a stamp.
    Owner,
    /// The get goes to this holder, with this stamp.
    Holder(HostId, Stamp),
}

/// Table `hot` with its registers.
#[derive(Clone, Debug, Default)]
pub struct HotTable {
    slots: BTreeMap<Key, Slot>,
    /// The newest instance that was ever installed.
    newest: u64,
    leases: Leases,
}

impl HotTable {
    /// Installed entries, by keyspace and digest.
    pub fn entries(&self) -> impl Iterator<Item = &HotEntry> {
        self.slots.values().map(|slot| &slot.entry)
    }

    /// The newest instance that was ever installed; 0: none.
    pub fn newest(&self) -> u64 {
        self.newest
    }

    /// The register `seen` of an instance: begins at 1, rises with each update and each effective
    /// close.
    pub fn seen(&self, instance: u64) -> Option<u64> {
        self.slots.values().find(|slot| slot.entry.instance == instance).map(|slot| slot.seen)
    }

    /// Gets and updates of each entry since it was installed, ascending by instance.
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

    /// Removes all entries if `clear`, otherwise the instances in `removed`, then installs the
    /// entries of `set`. The change is applied as a whole or not at all. An entry that is already
    /// installed unchanged keeps its registers. A key's new instance replaces its old one.
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
        let removed_keys = change.removed_keys(self.entries());
        let of = |key: &Key| self.slots.get(key).map(|slot| &slot.entry);
        let values = self.slots.values().filter(|slot| slot.entry.in_switch).count();
        let change = change.validated((self.slots.len(), values), &removed_keys, of, hosts)?;
        removed_keys.iter().for_each(|key| drop(self.slots.remove(key)));
        for entry in change.added {
            self.slots.insert(entry.key(), Slot::new(entry));
        }
        self.newest = change.newest;
        Ok(())
    }

    /// Counts an update of the key; returns the stamp to write into it. `None`: there is no entry.
    pub(crate) fn pass_update(&mut self, key: &Key) -> Option<Stamp> {
        let slot = self.slots.get_mut(key)?;
        slot.requests += 1;
        slot.seen += 1;
        Some(slot.stamp())
    }

    /// Counts a get of the key and decides where it goes; only a get that `has_room` for a stamp
    /// can be redirected. `is_here`: whether a holder is still attached to this switch. `None`:
    /// there is no entry.
    pub(crate) fn pass_get(
        &mut self,
        key: &Key,
        has_room: bool,
        is_here: impl Fn(HostId) -> bool,
    ) -> Option<Turn> {
        let slot = self.slots.get_mut(key)?;
        slot.requests += 1;
        let holder = if has_room { slot.next(is_here) } else { None };
        Some(holder.map_or(Turn::Owner, |holder| Turn::Holder(holder, slot.stamp())))
    }

    /// A holder confirms the number of its copy. The confirmation is accepted if the sender is a
    /// holder of this instance and the number is not above `seen`. Returns whether it is.
    pub(crate) fn confirm(&mut self, key: &Key, sender: HostId, confirmed: Stamp) -> bool {
        let slot = self.slots.get_mut(key).filter(|slot| slot.entry.instance == confirmed.instance);
        let Some(slot) = slot.filter(|slot| confirmed.seen <= slot.seen) else { return false };
        let place = slot.entry.holders.iter().position(|holder| *holder == sender);
        // The number may fall: a holder that has lost its copy confirms 0.
        place.map(|place| slot.confirmed[place] = confirmed.seen).is_some()
    }

    /// A primary closes copies with labels up to this one. Returns the stamp to answer with, or
    /// `None` for no answer: an instance that is not installed yet proves nothing.
    pub(crate) fn close(&mut self, key: &Key, label: Stamp) -> Option<Stamp> {
        let instance = label.instance;
        if let Some(slot) = self.slots.get_mut(key).filter(|slot| slot.entry.instance == instance) {
            let is_open = slot.seen <= label.seen;
            slot.seen += u64::from(is_open);
            return Some(slot.stamp());
        }
        let was_there = instance <= self.newest;
        was_there.then_some(Stamp { instance, seen: HOT_GONE })
    }
}

impl HotEntry {
    /// The match key: keyspace and digest.
    pub fn key(&self) -> (u16, [u8; 16]) {
        (self.keyspace, self.digest)
    }

    fn check(&self, newest: u64, hosts: Option<&HostIndex>) -> Result<(), HotError> {
        let &Self { instance, owner_turns: turns, .. } = self;
        if instance <= newest {
            return Err(HotError::InstanceUsed { instance, newest });
        }
        if turns == 0 || turns > HOT_OWNER_TURNS_MAX {
            return Err(HotError::OwnerTurns { instance, turns });
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

/// Whether the host is a node attached to this switch.
pub(crate) fn is_here(hosts: &HostIndex, id: HostId) -> bool {
    hosts.get(id).is_some_and(|host| host.role == HostRole::Node && !host.is_remote)
}

/// A change of table `hot`, as every back end needs it: the entries to remove and the entries to
/// add.
#[derive(Clone, Debug)]
pub struct HotChange<'a> {
    newest_before: u64,
    clear: bool,
    removed: BTreeSet<u64>,
    /// Entries to add, in the order of the request.
    pub added: Vec<&'a HotEntry>,
    /// The newest instance after the change.
    pub newest: u64,
}

impl<'a> HotChange<'a> {
    /// `newest`: the newest instance before the change. `is_installed`: whether exactly this entry
    /// is installed.
    pub fn new(
        newest: u64,
        clear: bool,
        removed: &[u64],
        set: &'a [HotEntry],
        is_installed: impl Fn(&HotEntry) -> bool,
    ) -> Self {
        let removed: BTreeSet<u64> = removed.iter().copied().collect();
        let stays = |entry: &HotEntry| !clear && !removed.contains(&entry.instance) && is_installed(entry);
        let added: Vec<&HotEntry> = set.iter().filter(|entry| !stays(entry)).collect();
        let newest_then = added.iter().map(|entry| entry.instance).fold(newest, u64::max);
        Self { newest_before: newest, clear, removed, added, newest: newest_then }
    }

    /// The keys of those installed `entries` that the change removes or replaces. If nothing is
    /// removed, `entries` is not iterated.
    pub fn removed_keys<'b>(&self, entries: impl Iterator<Item = &'b HotEntry>) -> BTreeSet<(u16, [u8; 16])> {
        if !self.clear && self.removed.is_empty() {
            return BTreeSet::new();
        }
        entries.filter(|entry| self.removes(entry.instance)).map(HotEntry::key).collect()
    }

    /// Checks the rules of the table. `entries` and `values`: the number of installed entries, and
    /// of those with `in_switch`; `removed`: the result of [`Self::removed_keys`]; `of`: returns
    /// the installed entry of a key.
    pub fn validated<'b>(
        self,
        (entries, values): (usize, usize),
        removed: &BTreeSet<(u16, [u8; 16])>,
        of: impl Fn(&(u16, [u8; 16])) -> Option<&'b HotEntry>,
        hosts: Option<&HostIndex>,
    ) -> Result<Self, HotError> {
        let mut newest = self.newest_before;
        for entry in &self.added {
            entry.check(newest, hosts)?;
            newest = entry.instance;
        }
        // If the change adds two entries for one key, the later one stays.
        let added: BTreeMap<Key, bool> = self.added.iter().map(|it| (it.key(), it.in_switch)).collect();
        let is_new = |key: &&Key| of(key).is_none() || removed.contains(*key);
        let entries = entries - removed.len() + added.keys().filter(is_new).count();
        if entries > HOT_CAPACITY {
            return Err(HotError::Full { entries });
        }
        let leave: BTreeSet<&Key> = removed.iter().chain(added.keys()).collect();
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

    /// Takes a turn: the holder whose turn it is, or the next one with a valid copy. `None`: it is
    /// an owner turn, or no copy is valid.
    fn next(&mut self, is_here: impl Fn(HostId) -> bool) -> Option<HostId> {
        let holders = self.entry.holders.len();
        let turns = holders as u32 + u32::from(self.entry.owner_turns);
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
