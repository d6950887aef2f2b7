//! A node that shows copies of keys that other nodes own.

use super::bounds::{HOT_KEYS_MAX, Name};
use super::shown::{CopyOf, CopyShift, Lessor};
use crate::node::outbox::Outbox;
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::net::SocketAddrV4;
use nicekv_proto::hot::{HotConfirm, HotCopy, HotDrop, HotPulse, HotPulsed, Stamp};
use nicekv_proto::recovery::Entry;
use nicekv_proto::{Get, KeyDigest, KeyspaceId, Now, Reply, Status};

/// Bytes of the keys and entries of all copies.
const COPIES_BYTES_MAX: usize = 32 << 20;
/// Copies of owners whose leases have run out are dropped after this, or twice as long.
const ABANDONED_NS: u64 = 10_000_000_000;
/// Owners whose leases are remembered.
const OWNERS_MAX: usize = 1024;

#[derive(Clone, Debug)]
struct Copy {
    stamp: Stamp,
    serial: u64,
    owner: SocketAddrV4,
    entry: Box<[u8]>,
}

impl Copy {
    fn told(&self, (name, key): &(Name, Box<[u8]>)) -> CopyShift {
        CopyShift::Kept {
            of: CopyOf { name: *name, key: key.clone() },
            stamp: self.stamp,
            lessor: Lessor { owner: self.owner, serial: self.serial },
            entry: self.entry.clone(),
        }
    }
}

/// Copies of a serial may be shown until then, on this node's clock.
#[derive(Clone, Copy, Debug)]
struct Lease {
    serial: u64,
    /// When it replaced the one before.
    since_ns: u64,
    until_ns: u64,
}

/// The fate of a get that a switch has sent here because its key is hot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer<'a> {
    /// Answered here.
    Reply(Reply<'a>),
    /// Passed on to the owner.
    Pass(SocketAddrV4),
    /// No copy and no owner known: the client retries, and then reaches no holder.
    Unknown,
}

#[derive(Clone, Debug)]
pub(crate) struct Holder {
    copies: BTreeMap<(Name, Box<[u8]>), Copy>,
    leases: BTreeMap<SocketAddrV4, Lease>,
    /// Identifies the process.
    nonce: u64,
    bytes: usize,
    /// When abandoned copies were last looked for.
    looked_ns: u64,
    /// Changes that were not polled yet; `None`: nobody polls.
    told: Option<VecDeque<CopyShift>>,
}

impl Holder {
    /// For a process that has just started.
    pub(crate) fn new(incarnation: u64) -> Self {
        // 0 means none.
        let nonce = incarnation.max(1);
        let (copies, leases) = (BTreeMap::new(), BTreeMap::new());
        Self { copies, leases, nonce, bytes: 0, looked_ns: 0, told: None }
    }

    /// From now on changes are kept to be polled.
    pub(crate) fn tell(&mut self) {
        self.told.get_or_insert_default();
    }

    pub(crate) fn poll(&mut self) -> Option<CopyShift> {
        self.told.as_mut()?.pop_front()
    }

    pub(crate) fn is_taken(&self) -> bool {
        self.told.as_ref().is_none_or(VecDeque::is_empty)
    }

    /// Copies with these names are not shown outside any more: the node is a member of their
    /// partition.
    pub(crate) fn withdraw(&mut self, is_meant: impl Fn(&Name) -> bool) {
        let Some(told) = &mut self.told else { return };
        let names = self.copies.keys().filter(|(name, _)| is_meant(name));
        told.extend(names.map(|(name, key)| CopyShift::Dropped(CopyOf { name: *name, key: key.clone() })));
    }

    /// An owner sends a copy. An older one changes nothing.
    pub(crate) fn on_copy(&mut self, from: SocketAddrV4, copy: &HotCopy<'_>, outbox: &mut Outbox) {
        let name = ((copy.keyspace, copy.digest), Box::from(copy.key));
        let known = self.copies.get(&name);
        if known.is_some_and(|known| known.stamp > copy.stamp) {
            return;
        }
        let before = known.map_or(0, |known| known.entry.len());
        let bytes = self.bytes + copy.entry.len() + if before == 0 { copy.key.len() } else { 0 } - before;
        let is_full = before == 0 && self.copies.len() >= HOT_KEYS_MAX;
        if is_full || bytes > COPIES_BYTES_MAX {
            // The copy is not confirmed, so the switch sends no gets for it.
            return;
        }
        self.bytes = bytes;
        let kept = Copy { stamp: copy.stamp, serial: copy.serial, owner: from, entry: copy.entry.into() };
        if let Some(told) = &mut self.told {
            told.push_back(kept.told(&name));
        }
        self.copies.insert(name, kept);
        let confirm = HotConfirm { keyspace: copy.keyspace, digest: copy.digest, stamp: copy.stamp };
        outbox.send(copy.vring, |out| confirm.encode(out));
    }

    /// Whether there are copies of a keyspace.
    pub(crate) fn has_copies_of(&self, keyspace: KeyspaceId) -> bool {
        self.next_keyspace(keyspace) == Some(keyspace)
    }

    /// The keyspaces of all copies, ascending.
    pub(crate) fn keyspaces(&self) -> Vec<KeyspaceId> {
        let after = |known: &KeyspaceId| self.next_keyspace(KeyspaceId(known.0.checked_add(1)?));
        core::iter::successors(self.next_keyspace(KeyspaceId::DEFAULT), after).collect()
    }

    /// The first keyspace with copies, from this one on.
    fn next_keyspace(&self, from: KeyspaceId) -> Option<KeyspaceId> {
        let first = ((from, KeyDigest::default()), Box::default());
        self.copies.range(first..).next().map(|(((keyspace, _), _), _)| *keyspace)
    }

    /// Drops the copies of this digest.
    pub(crate) fn on_drop(&mut self, from: SocketAddrV4, drop: &HotDrop) {
        let name = (drop.keyspace, drop.digest);
        self.keep_if(|of, copy| *of != name || copy.owner != from || copy.stamp.instance > drop.instance);
    }

    fn keep_if(&mut self, stays: impl Fn(&Name, &Copy) -> bool) {
        let Self { copies, bytes, told, .. } = self;
        copies.retain(|(name, key), copy| {
            let stays = stays(name, copy);
            if !stays {
                *bytes -= key.len() + copy.entry.len();
                let told = told.iter_mut();
                told.for_each(|told| {
                    told.push_back(CopyShift::Dropped(CopyOf { name: *name, key: key.clone() }));
                });
            }
            stays
        });
    }

    /// An owner grants a lease for its copies, and gets this node's time in answer. A lease of
    /// another serial replaces the one before, and the answer promises that the old copies are not
    /// shown any more, so a late pulse must not bring the old lease back. Such a pulse refers to an
    /// earlier time.
    pub(crate) fn on_pulse(&mut self, now: Now, from: SocketAddrV4, pulse: &HotPulse, outbox: &mut Outbox) {
        let HotPulse { serial, nonce, clock_ns, lease_ns } = *pulse;
        // Without a lease it ends: the time is one that this node has sent.
        let until_ns = clock_ns.saturating_add(lease_ns);
        let is_full = self.leases.len() >= OWNERS_MAX;
        let lease = match self.leases.get(&from) {
            _ if nonce != self.nonce => None,
            Some(known) if known.serial == serial => {
                Some(Lease { until_ns: known.until_ns.max(until_ns), ..*known })
            }
            Some(known) if clock_ns <= known.since_ns => None,
            None if is_full => None,
            _ => Some(Lease { serial, since_ns: now.boot_ns, until_ns }),
        };
        if let Some(lease) = lease {
            self.leases.insert(from, lease);
            if let Some(told) = &mut self.told {
                let lessor = Lessor { owner: from, serial };
                told.push_back(CopyShift::Leased { lessor, until_ns: lease.until_ns });
            }
        }
        let serial = self.leases.get(&from).map_or(0, |lease| lease.serial);
        let answer = HotPulsed { nonce: self.nonce, clock_ns: now.boot_ns, serial };
        outbox.send(from, |out| answer.encode(out));
    }

    /// The serial of an owner whose copies would be shown.
    #[cfg(test)]
    pub(super) fn shows(&self, now: Now, owner: SocketAddrV4) -> Option<u64> {
        let lease = self.leases.get(&owner)?;
        (now.boot_ns < lease.until_ns).then_some(lease.serial)
    }

    /// Drops copies of owners whose leases have run out long ago; looks from time to time.
    pub(crate) fn forget_abandoned(&mut self, now: Now) {
        let is_empty = self.copies.is_empty() && self.leases.is_empty();
        if is_empty || now.boot_ns < self.looked_ns + ABANDONED_NS {
            return;
        }
        self.looked_ns = now.boot_ns;
        let is_over = |lease: &Lease| lease.until_ns.saturating_add(ABANDONED_NS) <= now.boot_ns;
        for (owner, Lease { serial, .. }) in self.leases.extract_if(.., |_, lease| is_over(lease)) {
            let lessor = Lessor { owner, serial };
            let told = self.told.iter_mut();
            told.for_each(|told| told.push_back(CopyShift::Leased { lessor, until_ns: 0 }));
        }
        let leases = core::mem::take(&mut self.leases);
        self.keep_if(|_, copy| leases.contains_key(&copy.owner));
        self.leases = leases;
    }

    /// A get that a switch has stamped (H6): answered from a copy of that instance with that number
    /// or a later one, within the lease of its owner.
    pub(crate) fn answer(&self, now: Now, get: &Get<'_>, stamp: Stamp) -> Answer<'_> {
        let name = ((get.keyspace, get.digest), Box::from(get.key));
        let Some(copy) = self.copies.get(&name) else { return Answer::Unknown };
        let is_of_instance = copy.stamp.instance == stamp.instance;
        let is_new_enough = copy.stamp.seen >= stamp.seen;
        let has_lease = self
            .leases
            .get(&copy.owner)
            .is_some_and(|lease| lease.serial == copy.serial && now.boot_ns < lease.until_ns);
        if !is_of_instance || !is_new_enough || !has_lease {
            return Answer::Pass(copy.owner);
        }
        match Entry::decode(&copy.entry) {
            Ok(Entry { value: Some(value), version, .. }) => {
                Answer::Reply(Reply { version, value: Some(value), ..Reply::bare(get.op, Status::Ok) })
            }
            // Keys that expire or do not exist have no copies.
            _ => Answer::Pass(copy.owner),
        }
    }
}
