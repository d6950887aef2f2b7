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

/// Memory for all copies: bytes of their keys and entries.
const COPIES_BYTES_MAX: usize = 32 << 20;
/// A copy is dropped when its owner's lease ended at least this long ago. The check runs at the
/// same interval, so a copy stays for up to twice as long.
const ABANDONED_NS: u64 = 10_000_000_000;
/// How many owners' leases a holder remembers at most.
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

/// Until when copies of one serial may be shown, on this node's clock.
#[derive(Clone, Copy, Debug)]
struct Lease {
    serial: u64,
    /// When this lease replaced the owner's lease of an earlier serial.
    since_ns: u64,
    until_ns: u64,
}

/// The decision on a get that a switch has sent here because its key is hot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer<'a> {
    /// Answer it with this reply.
    Reply(Reply<'a>),
    /// Pass it on to the owner at this address.
    Pass(SocketAddrV4),
    /// Drop it: neither a copy nor the owner is known. The client's retry has no room for a stamp,
    /// so it reaches no holder.
    Unknown,
}

#[derive(Clone, Debug)]
pub(crate) struct Holder {
    copies: BTreeMap<(Name, Box<[u8]>), Copy>,
    leases: BTreeMap<SocketAddrV4, Lease>,
    /// Random number of this process, so that owners notice a restart.
    nonce: u64,
    bytes: usize,
    /// When this holder last searched for abandoned copies.
    looked_ns: u64,
    /// Changes for `poll`, oldest first. `None`: nobody polls, so changes are not recorded.
    told: Option<VecDeque<CopyShift>>,
}

impl Holder {
    /// State of a process that has just started.
    pub(crate) fn new(incarnation: u64) -> Self {
        // 0 would mean "unknown process".
        let nonce = incarnation.max(1);
        let (copies, leases) = (BTreeMap::new(), BTreeMap::new());
        Self { copies, leases, nonce, bytes: 0, looked_ns: 0, told: None }
    }

    /// Starts recording changes for [`Self::poll`].
    pub(crate) fn tell(&mut self) {
        self.told.get_or_insert_default();
    }

    pub(crate) fn poll(&mut self) -> Option<CopyShift> {
        self.told.as_mut()?.pop_front()
    }

    pub(crate) fn is_taken(&self) -> bool {
        self.told.as_ref().is_none_or(VecDeque::is_empty)
    }

    /// Reports the copies with these names as dropped, so that nobody outside of the core (the
    /// kernel) answers from them any more: the node has become a member of their partition.
    pub(crate) fn withdraw(&mut self, is_meant: impl Fn(&Name) -> bool) {
        let Some(told) = &mut self.told else { return };
        let names = self.copies.keys().filter(|(name, _)| is_meant(name));
        told.extend(names.map(|(name, key)| CopyShift::Dropped(CopyOf { name: *name, key: key.clone() })));
    }

    /// An owner has sent a copy. It replaces the copy held unless its stamp is older.
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
            // No room. Without a `HotConfirm` the switch sends this node no gets for the key.
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

    /// Whether this node holds copies of keys of this keyspace.
    pub(crate) fn has_copies_of(&self, keyspace: KeyspaceId) -> bool {
        self.next_keyspace(keyspace) == Some(keyspace)
    }

    /// The keyspaces of all copies held, ascending.
    pub(crate) fn keyspaces(&self) -> Vec<KeyspaceId> {
        let after = |known: &KeyspaceId| self.next_keyspace(KeyspaceId(known.0.checked_add(1)?));
        core::iter::successors(self.next_keyspace(KeyspaceId::DEFAULT), after).collect()
    }

    /// The first keyspace at or above `from` with a copy.
    fn next_keyspace(&self, from: KeyspaceId) -> Option<KeyspaceId> {
        let first = ((from, KeyDigest::default()), Box::default());
        self.copies.range(first..).next().map(|(((keyspace, _), _), _)| *keyspace)
    }

    /// The owner takes back the copies of a key digest: drops those up to the given instance.
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

    /// An owner grants a lease for its copies; the answer carries this node's time. A lease of
    /// another serial replaces the earlier one, and by its answer this node promises to show no
    /// copies of the earlier serial. So a pulse that was delayed must not restore the earlier
    /// lease. It is recognized by its clock time, which is older than the replacement.
    pub(crate) fn on_pulse(&mut self, now: Now, from: SocketAddrV4, pulse: &HotPulse, outbox: &mut Outbox) {
        let HotPulse { serial, nonce, clock_ns, lease_ns } = *pulse;
        // A grant of length 0 ends the lease, because `clock_ns` is a past time of this node.
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

    /// The serial of an owner whose copies may be shown now.
    #[cfg(test)]
    pub(super) fn shows(&self, now: Now, owner: SocketAddrV4) -> Option<u64> {
        let lease = self.leases.get(&owner)?;
        (now.boot_ns < lease.until_ns).then_some(lease.serial)
    }

    /// Drops copies of owners whose leases ended more than [`ABANDONED_NS`] ago. Checks at most
    /// once in that time.
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

    /// Answers a get that a switch has stamped (H6): from a copy of the stamp's instance, with the
    /// stamp's number or a later one, while the owner's lease runs. Otherwise the get is passed on
    /// or dropped.
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
            // Absent keys and keys that expire have no copies.
            _ => Answer::Pass(copy.owner),
        }
    }
}
