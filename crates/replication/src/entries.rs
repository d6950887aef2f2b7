//! What takes effect: entries in the engine, and deletions that some original member may not know of (R7).
//!
//! A deletion is stored as a tombstone, so that whoever copies what was decided since some index copies it too. It is dropped when every
//! original member of the partition holds the decision: a member that goes away later comes back with it.

use crate::config::TOMBSTONES_MAX;
use crate::partition::{Decided, Partition};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use nicekv_node::{Host, Map, Plant};
use nicekv_wire::Update;
use nicekv_wire::recovery::Entry;
use nicekv_wire::replication::Effect;

/// Deletions that are in the engine, the oldest first. Those beyond [`TOMBSTONES_MAX`] are left to the scrub.
#[derive(Clone)]
pub(crate) struct Tombstones {
    queue: VecDeque<(u64, Box<[u8]>)>,
    /// The newest deletion of each key that has not been written again.
    newest: Map<Box<[u8]>, u64>,
}

impl Tombstones {
    pub(crate) fn new(newest: Map<Box<[u8]>, u64>) -> Self {
        Self { queue: VecDeque::new(), newest }
    }

    fn note(&mut self, key: &[u8], entry: &Entry<'_>) {
        if entry.value.is_some() {
            self.newest.remove(key);
            return;
        }
        if self.queue.len() == TOMBSTONES_MAX {
            self.clear();
        }
        self.queue.push_back((entry.index, key.into()));
        self.newest.insert(key.into(), entry.index);
    }

    /// The next key whose deletion came no later than decision `through`, and that is still deleted.
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

    #[cfg(feature = "exploration")]
    pub(crate) fn iter(&self) -> impl Iterator<Item = &(u64, Box<[u8]>)> {
        self.queue.iter()
    }
}

/// What a decision writes.
pub(crate) fn effect<'a>(decided: &'a Decided, update: &Update<'a>) -> Option<Entry<'a>> {
    let value = match decided.effect {
        Effect::None => return None,
        Effect::StorePrepared => Some(update.operation.value()),
        Effect::Store => Some(&*decided.value),
        Effect::Remove => None,
    };
    Some(Entry { index: decided.index, version: decided.version, expiry_ms: decided.expiry_ms, value })
}

impl Partition {
    pub(crate) fn apply(&mut self, host: &mut Host, decided: &Decided, update: &Update<'_>) {
        let Some(entry) = effect(decided, update) else { return };
        if self.join.as_mut().is_none_or(|join| !join.keeps_back(update.key, &entry)) {
            self.store(host, update.key, &entry);
        }
    }

    /// Writes an entry to the engine.
    pub(crate) fn store(&mut self, host: &mut Host, key: &[u8], entry: &Entry<'_>) {
        if entry.value.is_none() && host.has(Plant::TombstoneDroppedEarly) {
            self.agenda.note(key, entry);
            host.storage.remove(self.id(), key);
            return;
        }
        self.tombstones.note(key, entry);
        self.agenda.note(key, entry);
        host.storage.write(self.id(), key, |out| entry.append(out));
    }

    /// What is released has been forced by every member. If all originals are among them, its deletions need not be told to any.
    pub(crate) fn drop_tombstones(&mut self, host: &mut Host) {
        if !self.membership.is_whole() {
            return;
        }
        self.held_by_originals = self.released;
        while let Some(key) = self.tombstones.pop_through(self.released) {
            host.storage.remove(self.id(), &key);
        }
    }
}
