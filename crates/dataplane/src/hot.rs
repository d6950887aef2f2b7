//! Table `hot`: where gets of single keys go instead of to their owner (KVSwitch §4.2 with rules H1, H2, H4, H6, H7).
//!
//! ```text
//!   (keyspace, digest), full key ─▶ instance, holders ─▶ registers:  seen │ turn │ confirmed[holder]
//!
//!   update     seen += 1                                   stamped (instance, seen), its usual way
//!   get        turn += 1: the next holder of which
//!              confirmed == seen                           stamped (instance, seen), to the holder
//!              the owner's turn, nobody is valid, or
//!              the lease is over                           no stamp, its usual way
//!   confirm    confirmed[sender] rises                     ends here
//!   close      seen += 1                                   back to the sender, with the number
//! ```
//!
//! Invariants: an entry starts closed (H1), as `seen` begins above every number that a copy can have been confirmed at; an instance is installed at most once in the
//! life of a switch, and the registers are those of the instance, whatever tables change around it. That a register is wrong misleads no get: the holder
//! judges by the stamp (H6). What is not of the entry's very key has no stamp, whatever its digest is.

use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;
use core::mem::{offset_of, size_of};

use nicekv_wire::hot::{Stamp, key_of};
use nicekv_wire::route::{ROOM_AT, room_for_stamp};
use nicekv_wire::{HeaderLayout, Opcode, ROOM_STAMP};
use thiserror::Error;

use crate::plant::Plant;
use crate::{HostId, HostIndex, HostRole, Ring};

const OPCODE_AT: usize = offset_of!(HeaderLayout, opcode);

/// Hot entries of one switch.
pub const HOT_CAPACITY: usize = 10_000;
/// Longest key of a hot entry.
pub const HOT_KEY_BYTES_MAX: usize = 64;
/// Holders of a hot entry, less its owner.
pub const HOT_HOLDERS_MAX: usize = 31;

/// What the controller installs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HotEntry {
    /// The keyspace of the key.
    pub keyspace: u16,
    /// Digest of the key.
    pub digest: [u8; 16],
    /// The key itself, 1 to [`HOT_KEY_BYTES_MAX`] bytes.
    pub key: Vec<u8>,
    /// Never used again; rises from one installation to the next (H1).
    pub instance: u64,
    /// Whose key it is.
    pub partition: u32,
    /// In which epoch of the partition (H5).
    pub epoch: u32,
    /// Who has a copy: 1 to [`HOT_HOLDERS_MAX`] nodes that hang at this switch, each once (H8).
    pub holders: Vec<HostId>,
}

/// Why a change of the table is refused. Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[allow(missing_docs, reason = "the message of each variant says what its fields are")]
pub enum HotError {
    #[error("{entries} entries in table hot, which holds {HOT_CAPACITY}")]
    Full { entries: usize },
    #[error("key of {bytes} bytes in table hot, allowed are 1 to {HOT_KEY_BYTES_MAX}")]
    KeyLength { bytes: usize },
    #[error("instance {instance:#x} in table hot is not above {newest:#x}, which was installed before")]
    InstanceUsed { instance: u64, newest: u64 },
    #[error("holders of instance {instance:#x} in table hot: {holders}, allowed are 1 to {HOT_HOLDERS_MAX}")]
    Holders { instance: u64, holders: usize },
    #[error("holder {} of instance {instance:#x} in table hot is no node at this switch, or is there twice", .holder.0)]
    BadHolder { instance: u64, holder: HostId },
}

#[derive(Clone, Debug)]
struct Slot {
    entry: HotEntry,
    seen: u64,
    turn: usize,
    /// Per holder; 0: nothing.
    confirmed: Vec<u64>,
}

/// The table with its registers.
#[derive(Clone, Debug, Default)]
pub struct HotTable {
    /// By keyspace and digest.
    slots: BTreeMap<(u16, [u8; 16]), Slot>,
    /// The newest instance that was ever installed.
    newest: u64,
    /// On the switch's boot-time clock: from then on nothing is redirected. 0: there is no lease.
    lease_until_ns: u64,
    now_ns: u64,
    counters: HotCounters,
}

/// What the table has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HotCounters {
    /// Gets and updates of hot keys.
    pub hits: u64,
    /// Of these, gets that went to a holder.
    pub redirected: u64,
    /// Gets for which a holder was passed over, as what it confirmed is not what the switch has seen.
    pub not_valid: u64,
    /// Gets that went their usual way for want of a lease.
    pub lease_over: u64,
    /// Confirmations and closes that were taken in.
    pub heard: u64,
    /// Those of an instance that is not there, or from who is no holder.
    pub unheard: u64,
}

/// What becomes of a datagram that the table knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Heat {
    /// Its usual way; its room, if it has some, is filled.
    Usual,
    /// To this holder, which is at this switch.
    To(HostId),
    /// Ends here.
    Ends,
}

/// Whether it may have room for a stamp, or be said to a switch: all else, of which nobody has looked at the header, costs two comparisons.
pub(crate) fn is_concerned(payload: &[u8]) -> bool {
    const SAID: [u8; 2] = [Opcode::HotConfirm as u8, Opcode::HotClose as u8];
    has_room_for_stamp(payload) || payload.get(OPCODE_AT).is_some_and(|opcode| SAID.contains(opcode))
}

/// Whether it may have room for a stamp.
pub(crate) fn has_room_for_stamp(payload: &[u8]) -> bool {
    payload.get(ROOM_AT) == Some(&ROOM_STAMP)
}

impl HotTable {
    /// The time, on the switch's boot-time clock.
    pub fn set_now(&mut self, now_ns: u64) {
        self.now_ns = self.now_ns.max(now_ns);
    }

    /// The metadata service lets the switch redirect until then, counted from when it asked (H7, R12). A lease is never shortened.
    pub fn extend_lease(&mut self, until_ns: u64) {
        self.lease_until_ns = self.lease_until_ns.max(until_ns);
    }

    /// Installed entries, in the order of their keyspaces and digests.
    pub fn entries(&self) -> impl Iterator<Item = &HotEntry> {
        self.slots.values().map(|slot| &slot.entry)
    }

    /// What it has counted.
    pub fn counters(&self) -> HotCounters {
        self.counters
    }

    /// What the switch has seen of an instance.
    pub fn seen(&self, instance: u64) -> Option<u64> {
        self.slots.values().find(|slot| slot.entry.instance == instance).map(|slot| slot.seen)
    }

    /// Removes the instances of `removed`, then installs those of `set`; as a whole, or not at all. One that is there already, just so, stays with its
    /// registers. A key's new instance takes the place of its old one.
    pub fn change(
        &mut self,
        removed: &[u64],
        set: &[HotEntry],
        hosts: Option<&HostIndex>,
    ) -> Result<(), HotError> {
        let mut newest = self.newest;
        let mut added = Vec::new();
        for entry in set {
            let there = self.slots.get(&(entry.keyspace, entry.digest));
            if there.is_some_and(|there| there.entry == *entry) {
                continue;
            }
            validate(entry, newest, hosts)?;
            newest = entry.instance;
            added.push(entry);
        }
        let is_new = |entry: &&&HotEntry| {
            let there = self.slots.get(&(entry.keyspace, entry.digest));
            there.is_none_or(|there| removed.contains(&there.entry.instance))
        };
        let gone = self.slots.values().filter(|slot| removed.contains(&slot.entry.instance)).count();
        let entries = self.slots.len() - gone + added.iter().filter(is_new).count();
        if entries > HOT_CAPACITY {
            return Err(HotError::Full { entries });
        }
        self.slots.retain(|_, slot| !removed.contains(&slot.entry.instance));
        for entry in added {
            self.slots.insert((entry.keyspace, entry.digest), Slot::new(entry));
        }
        self.newest = newest;
        Ok(())
    }

    /// Removes all entries of a partition that are of an epoch before this one (H5).
    pub fn remove_older(&mut self, partition: u32, epoch: u32) {
        self.slots.retain(|_, slot| slot.entry.partition != partition || slot.entry.epoch >= epoch);
    }

    /// Fills the room of a request that goes to a host of this switch, whatever is there (H2), and takes in what is said to the switch. `sender`: the
    /// server that sends, if one does.
    pub(crate) fn process(
        &mut self,
        ring: Ring,
        sender: Option<HostId>,
        payload: &mut [u8],
        plant: Option<Plant>,
    ) -> Heat {
        match HeaderLayout::peek(payload).and_then(HeaderLayout::opcode) {
            Some(Opcode::HotConfirm | Opcode::HotClose) => {
                let heard = sender.and_then(|sender| self.hear(sender, payload));
                let counter =
                    if heard.is_some() { &mut self.counters.heard } else { &mut self.counters.unheard };
                *counter += 1;
                heard.unwrap_or(Heat::Ends)
            }
            Some(Opcode::Get | Opcode::Update) => {
                let (stamp, to) = self.stamp(ring, payload, plant).unwrap_or_default();
                if let Some(room) = room_for_stamp(payload)
                    && (stamp.is_some() || plant != Some(Plant::StampBelieved))
                {
                    *room = stamp.to_bytes();
                }
                to.map_or(Heat::Usual, Heat::To)
            }
            _ => Heat::Usual,
        }
    }

    /// The stamp of a request, and the holder to which it goes.
    fn stamp(&mut self, ring: Ring, payload: &[u8], plant: Option<Plant>) -> Option<(Stamp, Option<HostId>)> {
        if self.slots.is_empty() {
            return None;
        }
        let (keyspace, digest, key) = key_of(payload)?;
        let has_lease = self.now_ns < self.lease_until_ns || plant == Some(Plant::HotLeaseIgnored);
        let slot = self.slots.get_mut(&(keyspace.0, digest.0))?;
        if slot.entry.key != key && plant != Some(Plant::HotKeyNotCompared) {
            return None;
        }
        self.counters.hits += 1;
        if ring == Ring::Multicast {
            slot.seen += u64::from(plant != Some(Plant::SeenNotCounted));
            return Some((slot.stamp(), None));
        }
        if !has_lease {
            self.counters.lease_over += 1;
            return None;
        }
        let starts_open = plant == Some(Plant::HotEntryStartsOpen);
        let (to, passed_over) = slot.next(starts_open);
        self.counters.not_valid += u64::from(passed_over);
        let to = to?;
        self.counters.redirected += 1;
        Some((slot.stamp(), Some(to)))
    }

    /// What a holder confirms, or a primary wants closed. `None`: it is not of this instance, not from a holder, or ahead of the switch.
    fn hear(&mut self, sender: HostId, payload: &mut [u8]) -> Option<Heat> {
        let (header, told) = said(payload)?;
        let slot = self.slots.get_mut(&(header.keyspace.get(), header.digest))?;
        if slot.entry.instance != told.instance {
            return None;
        }
        if header.opcode == Opcode::HotConfirm as u8 {
            let place = slot.entry.holders.iter().position(|holder| *holder == sender)?;
            if told.seen > slot.seen {
                return None;
            }
            slot.confirmed[place] = slot.confirmed[place].max(told.seen);
            return Some(Heat::Ends);
        }
        slot.seen += 1;
        answer(payload, slot.stamp());
        Some(Heat::To(sender))
    }
}

impl Slot {
    fn new(entry: &HotEntry) -> Self {
        Self { entry: entry.clone(), seen: 1, turn: 0, confirmed: vec![0; entry.holders.len()] }
    }

    fn stamp(&self) -> Stamp {
        Stamp { instance: self.entry.instance, seen: self.seen }
    }

    /// Whose turn it is: a holder's whose register is valid, or the owner's (`None`), and whether one was passed over.
    fn next(&mut self, starts_open: bool) -> (Option<HostId>, bool) {
        let turns = self.entry.holders.len() + 1;
        let first = self.turn;
        self.turn = (first + 1) % turns;
        for place in first..self.entry.holders.len() {
            let is_open = starts_open && self.confirmed[place] == 0 && self.seen == 1;
            if self.confirmed[place] == self.seen || is_open {
                return (Some(self.entry.holders[place]), place != first);
            }
        }
        (None, first < self.entry.holders.len())
    }
}

/// What is said to a switch, of a datagram that nobody has decoded.
fn said(payload: &[u8]) -> Option<(HeaderLayout, Stamp)> {
    let header = *HeaderLayout::peek(payload)?;
    let body: &[u8; Stamp::BYTES] = payload.get(size_of::<HeaderLayout>()..)?.try_into().ok()?;
    let word = |at: usize| u64::from_be_bytes(*body[at..].first_chunk().expect("two words"));
    Some((header, Stamp { instance: word(0), seen: word(8) }))
}

/// Turns a `HotClose` into its answer.
fn answer(payload: &mut [u8], stamp: Stamp) {
    let opcode_at = offset_of!(HeaderLayout, opcode);
    payload[opcode_at] = Opcode::HotClosed as u8;
    payload[size_of::<HeaderLayout>()..].copy_from_slice(&stamp.to_bytes());
}

fn validate(entry: &HotEntry, newest: u64, hosts: Option<&HostIndex>) -> Result<(), HotError> {
    let &HotEntry { instance, .. } = entry;
    if instance <= newest {
        return Err(HotError::InstanceUsed { instance, newest });
    }
    let bytes = entry.key.len();
    if bytes == 0 || bytes > HOT_KEY_BYTES_MAX {
        return Err(HotError::KeyLength { bytes });
    }
    let holders = entry.holders.len();
    if holders == 0 || holders > HOT_HOLDERS_MAX {
        return Err(HotError::Holders { instance, holders });
    }
    for (place, &holder) in entry.holders.iter().enumerate() {
        let host = hosts.and_then(|hosts| hosts.get(holder));
        let is_here = host.is_some_and(|host| host.role == HostRole::Node && !host.is_remote);
        if !is_here || entry.holders[..place].contains(&holder) {
            return Err(HotError::BadHolder { instance, holder });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
