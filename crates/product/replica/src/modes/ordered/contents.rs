//! A partition's content in the engine, and how much of it other members hold (R7).
//!
//! A deletion is stored as a tombstone, so that a member that copies recent changes copies the
//! deletion, too. The tombstone is dropped when every original member of the partition holds the
//! deletion. From then on an original that leaves and returns has the deletion in its own storage.
//!
//! Every change of an entry passes through here, and is reported to
//! [`Visibility`](crate::Visibility).

use super::agenda::Agenda;
use super::recent::Recent;
use super::sequence::Decided;
use crate::modes::bounds::{RECENT_DECISIONS_MAX, TOMBSTONES_MAX};
use crate::modes::ordered::transaction::entries;
use crate::{Host, Map, Membership};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use nicekv_proto::large::Reference;
use nicekv_proto::recovery::Entry;
use nicekv_proto::replication::Effect;
use nicekv_proto::{Form, PartitionId, StoredUpdate};
use smallvec::SmallVec;

/// Tombstones in the engine, oldest first. Those beyond [`TOMBSTONES_MAX`] are left for the scrub
/// to find.
#[derive(Clone)]
pub(crate) struct Tombstones {
    queue: VecDeque<(u64, Box<[u8]>)>,
    /// For each deleted key the index of its newest deletion, unless the key was written again.
    newest: Map<Box<[u8]>, u64>,
}

impl Tombstones {
    pub(crate) fn new(newest: Map<Box<[u8]>, u64>) -> Self {
        Self { queue: VecDeque::new(), newest }
    }

    fn note(&mut self, key: &[u8], entry: &Entry<'_>) {
        if entry.value.is_some() {
            if !self.newest.is_empty() {
                self.newest.remove(key);
            }
            return;
        }
        if self.queue.len() == TOMBSTONES_MAX {
            self.clear();
        }
        self.queue.push_back((entry.index, key.into()));
        self.newest.insert(key.into(), entry.index);
    }

    /// Takes the next key whose newest deletion has an index up to `through`.
    fn pop_through(&mut self, through: u64) -> Option<Box<[u8]>> {
        while let Some((index, key)) = self.queue.pop_front_if(|(index, _)| *index <= through) {
            if self.newest.get(&key) == Some(&index) {
                self.newest.remove(&key);
                return Some(key);
            }
        }
        None
    }

    pub(crate) fn clear(&mut self) {
        self.queue.clear();
        self.newest.clear();
    }
}

/// The entries that a decision writes for the op `prepared`, all at once (T1).
pub(crate) fn effects<'a>(
    decided: &'a Decided,
    prepared: &'a StoredUpdate,
) -> SmallVec<[(&'a [u8], Entry<'a>); 1]> {
    if decided.effect == Effect::Transaction {
        return entries(prepared.value(), &decided.value, (decided.index, decided.version));
    }
    effect(decided, prepared).map(|entry| (prepared.key(), entry)).into_iter().collect()
}

fn effect<'a>(decided: &'a Decided, prepared: &'a StoredUpdate) -> Option<Entry<'a>> {
    let (value, form) = match decided.effect {
        Effect::None | Effect::Transaction => return None,
        Effect::StorePrepared => (Some(prepared.value()), prepared.head().operation.form()),
        Effect::Store => (Some(&*decided.value), decided.form),
        Effect::Remove => (None, Form::Plain),
    };
    let Decided { index, version, expiry_ms, .. } = *decided;
    Some(Entry { index, version, expiry_ms, form, value })
}

/// Whether an op carries a large value.
pub(crate) fn is_large(prepared: &StoredUpdate) -> bool {
    prepared.head().operation.reference().is_some()
}

/// The large value that an op carries.
pub(crate) fn reference(prepared: &StoredUpdate) -> Option<Reference> {
    is_large(prepared).then(|| Reference::checked(prepared.value()))
}

#[derive(Clone)]
pub(crate) struct Contents {
    partition: PartitionId,
    /// A handoff lacks entries written by decisions up to this one.
    floor: u64,
    /// Every original member has the decisions up to this one, or was emptied since and copies
    /// everything.
    held_by_originals: u64,
    tombstones: Tombstones,
    agenda: Agenda,
    recent: Recent,
}

impl Contents {
    /// State for a partition that is empty, or whose entries are unknown.
    pub(crate) fn new(partition: PartitionId, host: &Host) -> Self {
        let (tombstones, agenda) = (Tombstones::new(host.map()), Agenda::new(host.map()));
        let recent = Recent::new(host.recent_decisions_max(RECENT_DECISIONS_MAX));
        Self { partition, floor: 0, held_by_originals: 0, tombstones, agenda, recent }
    }

    pub(crate) fn agenda(&self) -> &Agenda {
        &self.agenda
    }

    pub(crate) fn agenda_mut(&mut self) -> &mut Agenda {
        &mut self.agenda
    }

    pub(crate) fn recent(&self) -> &Recent {
        &self.recent
    }

    pub(crate) fn recent_mut(&mut self) -> &mut Recent {
        &mut self.recent
    }

    /// A handoff lacks entries written by decisions up to this one.
    pub(crate) fn floor(&self) -> u64 {
        self.floor
    }

    pub(crate) fn set_floor(&mut self, floor: u64) {
        self.floor = floor;
    }

    /// Every original member has the decisions up to this one, or was emptied since and copies
    /// everything.
    pub(crate) fn held_by_originals(&self) -> u64 {
        self.held_by_originals
    }

    pub(crate) fn set_held_by_originals(&mut self, through: u64) {
        self.held_by_originals = through;
    }

    /// Writes an entry to the engine.
    pub(crate) fn store(&mut self, host: &mut Host, key: &[u8], entry: &Entry<'_>) {
        host.visibility.changed(self.partition, key, Some(entry));
        self.agenda.note(key, entry);
        self.tombstones.note(key, entry);
        self.recent.note(entry.index, key);
        host.storage.write(self.partition, key, |out| entry.append(out));
    }

    /// Removes an entry that other members do not have.
    pub(crate) fn remove(&mut self, host: &mut Host, key: &[u8]) {
        host.visibility.changed(self.partition, key, None);
        self.agenda.remove(key);
        host.storage.remove(self.partition, key);
    }

    /// Removes all entries of the partition.
    pub(crate) fn clear(&mut self, host: &mut Host) {
        host.visibility.unknown(self.partition);
        self.tombstones.clear();
        self.agenda.clear();
        self.recent.begin_after(0);
        host.storage.discard_writes(self.partition);
        host.storage.clear(self.partition);
    }

    /// Every member has synced the decisions up to `released`. If all originals are members, drops
    /// the tombstones of these decisions.
    pub(crate) fn drop_tombstones(&mut self, host: &mut Host, membership: &Membership, released: u64) {
        if !membership.is_whole() {
            return;
        }
        self.held_by_originals = released;
        while let Some(key) = self.tombstones.pop_through(released) {
            host.storage.remove(self.partition, &key);
        }
    }
}

mod fingerprint {
    use super::Contents;
    use core::hash::{Hash, Hasher};

    impl Contents {
        pub(crate) fn fingerprint(&self, state: &mut impl Hasher) {
            self.tombstones.queue.iter().for_each(|tombstone| tombstone.hash(state));
            self.held_by_originals.hash(state);
        }
    }
}
