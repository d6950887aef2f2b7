//! The large values on this node's disk, and what uses them.
//!
//! ```text
//!   entry of a key written  ──▶ one more use of the value that it names, one less of the previous entry's value
//!   op prepared … decided   ──▶ one use of the value that it stores, while it is open
//!   no use is left          ──▶ removed a moment later, or some seconds after it was last read (`dying`)
//!   pinned: a remembered result names it ──▶ kept until that result is forgotten, and at most [`PINNED_NS`]
//!   a use of a value that is not on disk ──▶ missing: it is fetched from another member
//!   damaged ──▶ condemned: it stays on disk, and counts as missing
//! ```
//!
//! The index is in memory only. After a restart a pass over all entries rebuilds it. Nothing is
//! removed before that pass has ended, and until it has been through a partition, nobody knows
//! whether that partition lacks a value. A disk that has never held a large value needs no pass.

mod dying;

use crate::types::Map;
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use dying::Dying;
use nicekv_proto::large::Reference;
use nicekv_proto::{OpId, PartitionId};

/// Longest time for which a remembered result keeps a value that nothing else uses. A client that
/// has not moved its watermark for so long no longer reads the value.
pub(crate) const PINNED_NS: u64 = 60_000_000_000;

/// A value that an entry or op names but that is not on disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Lack {
    pub(crate) reference: Reference,
    /// The members of this partition are asked for it.
    pub(crate) partition: PartitionId,
}

/// A value that entries or ops name.
#[derive(Clone, Debug)]
struct Use {
    reference: Reference,
    /// For each partition the number of its entries and ops that name the value; the partition with
    /// the newest use is last. When a partition ends, the value is fetched from members of the
    /// remaining ones.
    by: Vec<(PartitionId, u32)>,
}

impl Use {
    fn has(&self, partition: PartitionId) -> bool {
        self.by.iter().any(|(of, _)| *of == partition)
    }

    /// Removes a partition. Returns how many uses it had.
    fn take(&mut self, partition: PartitionId) -> u32 {
        let place = self.by.iter().position(|(of, _)| *of == partition);
        place.map_or(0, |place| self.by.remove(place).1)
    }

    /// What to fetch if the value is not on disk, and from the members of which partition.
    fn lack(&self) -> Option<Lack> {
        let (partition, _) = *self.by.last()?;
        Some(Lack { reference: self.reference, partition })
    }
}

/// The pass over all entries after a restart.
#[derive(Clone, Debug, Default)]
struct Pass {
    /// Partitions that the pass has finished.
    done: BTreeSet<PartitionId>,
    /// Keys that were written while a page with them was being read.
    touched: BTreeSet<(PartitionId, Box<[u8]>)>,
}

#[derive(Clone, Default)]
pub(crate) struct ValueIndex {
    /// Values that are whole on disk.
    held: Map<OpId, ()>,
    /// Damaged values on disk. They stay until good content has been fetched: after a crash, an op
    /// that names a value which is not on disk would count as never synced (L2).
    condemned: BTreeSet<OpId>,
    uses: BTreeMap<OpId, Use>,
    by_key: Map<PartitionId, Map<Box<[u8]>, OpId>>,
    lacking: BTreeMap<OpId, Lack>,
    /// Values on disk that nothing uses.
    dying: Dying,
    /// For each value, how many remembered results name it.
    pins: Map<OpId, u32>,
    /// Whether this disk has ever held a large value.
    is_marked: bool,
    pass: Option<Pass>,
}

impl ValueIndex {
    /// Starts with the values that a process finds on a disk that has held large values before.
    pub(crate) fn begin(&mut self, names: impl Iterator<Item = OpId>) {
        (self.is_marked, self.pass) = (true, Some(Pass::default()));
        self.held = names.map(|name| (name, ())).collect();
    }

    /// Called before the first large value is written to this disk. Returns whether it is the
    /// first; later processes must know that there was one.
    pub(crate) fn mark(&mut self) -> bool {
        !core::mem::replace(&mut self.is_marked, true)
    }

    pub(crate) fn holds(&self, name: OpId) -> bool {
        self.held.contains_key(&name)
    }

    pub(crate) fn is_condemned(&self, name: OpId) -> bool {
        self.condemned.contains(&name)
    }

    fn is_on_disk(&self, name: OpId) -> bool {
        self.holds(name) || self.is_condemned(name)
    }

    /// Called when a value is whole on disk.
    pub(crate) fn add(&mut self, name: OpId) {
        self.lacking.remove(&name);
        self.condemned.remove(&name);
        if self.held.insert(name, ()).is_none() && !self.uses.contains_key(&name) {
            self.dying.add(name);
        }
    }

    /// A value on disk is damaged. If anything uses it, it is missing and will be fetched.
    pub(crate) fn lose(&mut self, name: OpId) {
        if self.held.remove(&name).is_none() {
            return;
        }
        self.condemned.insert(name);
        self.lacking.extend(self.uses.get(&name).and_then(Use::lack).map(|lack| (name, lack)));
    }

    /// One more open op, or entry, of this partition uses the value.
    pub(crate) fn take_up(&mut self, reference: Reference, partition: PartitionId) {
        let of = self.uses.entry(reference.name).or_insert_with(|| Use { reference, by: Vec::new() });
        let uses = of.take(partition);
        of.by.push((partition, uses + 1));
        if !self.holds(reference.name) {
            self.lacking.insert(reference.name, Lack { reference, partition });
        }
    }

    /// One open op, or entry, less uses the value.
    pub(crate) fn let_go(&mut self, name: OpId, partition: PartitionId) {
        let Some(of) = self.uses.get_mut(&name) else { return };
        let Some((_, uses)) = of.by.iter_mut().find(|(by, _)| *by == partition) else { return };
        *uses -= 1;
        if *uses > 0 {
            return;
        }
        of.take(partition);
        if let Some(lack) = of.lack() {
            self.lacking.get_mut(&name).into_iter().for_each(|known| *known = lack.clone());
            return;
        }
        let length = of.reference.length;
        self.uses.remove(&name);
        self.lacking.remove(&name);
        if self.is_on_disk(name) {
            self.dying.add_unread(name, length);
        }
    }

    /// One more remembered result names the value.
    pub(crate) fn pin(&mut self, name: OpId) {
        *self.pins.entry(name).or_default() += 1;
    }

    /// One result less names the value. After the last one its time until removal starts anew.
    pub(crate) fn unpin(&mut self, name: OpId) {
        let Some(pins) = self.pins.get_mut(&name) else { return };
        *pins -= 1;
        if *pins == 0 {
            self.pins.remove(&name);
            if self.is_on_disk(name) && !self.uses.contains_key(&name) {
                self.dying.add(name);
            }
        }
    }

    /// A request that will be handled again needs this value: marks it as missing.
    pub(crate) fn want(&mut self, reference: Reference, partition: PartitionId) {
        if !self.holds(reference.name) {
            self.lacking.entry(reference.name).or_insert(Lack { reference, partition });
        }
    }

    /// No member has the value: stops looking for it if nothing uses it.
    pub(crate) fn give_up(&mut self, name: OpId) {
        if !self.uses.contains_key(&name) {
            self.lacking.remove(&name);
        }
    }

    /// The entry of this key was written: it now names this value, or none.
    pub(crate) fn note(&mut self, partition: PartitionId, key: &[u8], reference: Option<Reference>) {
        if let Some(pass) = &mut self.pass
            && !pass.done.contains(&partition)
        {
            pass.touched.insert((partition, key.into()));
        }
        let name = reference.map(|reference| reference.name);
        let known = self.by_key.get_mut(&partition);
        let before = match (known, name) {
            (Some(keys), Some(name)) => keys.insert(key.into(), name),
            (Some(keys), None) => keys.remove(key),
            (None, Some(name)) => {
                self.by_key.entry(partition).or_default().insert(key.into(), name);
                None
            }
            (None, None) => None,
        };
        if before == name {
            return;
        }
        if let Some(reference) = reference {
            self.take_up(reference, partition);
        }
        if let Some(before) = before {
            self.let_go(before, partition);
        }
    }

    /// All entries of the partition were removed.
    pub(crate) fn note_cleared(&mut self, partition: PartitionId) {
        for (_, name) in self.by_key.remove(&partition).into_iter().flatten() {
            self.let_go(name, partition);
        }
    }

    /// Whether a partition lacks a value, or might, because the pass has not reached it.
    pub(crate) fn lacks(&self, partition: PartitionId) -> bool {
        let is_unknown = self.pass.as_ref().is_some_and(|pass| !pass.done.contains(&partition));
        let is_of = |(name, lack): (&OpId, &Lack)| {
            lack.partition == partition || self.uses.get(name).is_some_and(|of| of.has(partition))
        };
        is_unknown || self.lacking.iter().any(is_of)
    }

    /// The next missing value after this one, in the order of names.
    pub(crate) fn lacking_after(&self, after: Option<OpId>) -> Option<&Lack> {
        let after = after.map_or(core::ops::Bound::Unbounded, core::ops::Bound::Excluded);
        self.lacking.range((after, core::ops::Bound::Unbounded)).next().map(|(_, lack)| lack)
    }

    pub(crate) fn lack(&self, name: OpId) -> Option<&Lack> {
        self.lacking.get(&name)
    }

    /// The next value after this one, in the order of names, that is on disk and used.
    pub(crate) fn used_after(&self, after: Option<OpId>) -> Option<Reference> {
        let after = after.map_or(core::ops::Bound::Unbounded, core::ops::Bound::Excluded);
        let mut used = self.uses.range((after, core::ops::Bound::Unbounded));
        used.find(|(name, _)| self.holds(**name)).map(|(_, of)| of.reference)
    }

    /// A client reads the value, and may continue after the last use has ended.
    pub(crate) fn touch(&mut self, now_ns: u64, name: OpId) {
        self.dying.touch(now_ns, name);
    }

    /// Takes the values that have to be removed now.
    pub(crate) fn take_dead(&mut self, now_ns: u64) -> Vec<OpId> {
        self.dying.begin(now_ns);
        let mut dead = Vec::new();
        if self.pass.is_some() {
            return dead;
        }
        while let Some((name, since_ns)) = self.dying.pop(now_ns) {
            let pinned_until_ns = since_ns + PINNED_NS;
            if self.pins.contains_key(&name) && now_ns < pinned_until_ns {
                self.dying.keep(name, pinned_until_ns, since_ns);
            } else if !self.uses.contains_key(&name) && self.is_on_disk(name) {
                self.held.remove(&name);
                self.condemned.remove(&name);
                dead.push(name);
            }
        }
        dead
    }

    /// Whether the pass has not finished this partition yet.
    pub(crate) fn is_unread(&self, partition: PartitionId) -> bool {
        self.pass.as_ref().is_some_and(|pass| !pass.done.contains(&partition))
    }

    pub(crate) fn is_in_pass(&self) -> bool {
        self.pass.is_some()
    }

    /// Called before the pass reads a page of a partition.
    pub(crate) fn begin_page(&mut self) {
        self.pass.iter_mut().for_each(|pass| pass.touched.clear());
    }

    /// Takes in an entry of that page, unless its key was written since the read began.
    pub(crate) fn note_read(&mut self, partition: PartitionId, key: &[u8], reference: Reference) {
        let Some(pass) = &self.pass else { return };
        if !pass.touched.contains(&(partition, key.into())) {
            self.learn(partition, key, reference);
        }
    }

    /// The engine holds this entry, but the pass may have missed it (it was unreadable then).
    pub(crate) fn find(&mut self, partition: PartitionId, key: &[u8], reference: Reference) {
        if !self.is_unread(partition) {
            self.learn(partition, key, reference);
        }
    }

    /// Records that an entry names this value, unless a newer entry of the key is known.
    fn learn(&mut self, partition: PartitionId, key: &[u8], reference: Reference) {
        let is_known = self.by_key.get(&partition).is_some_and(|keys| keys.contains_key(key));
        if !is_known {
            self.by_key.entry(partition).or_default().insert(key.into(), reference.name);
            self.take_up(reference, partition);
        }
    }

    /// The pass has finished a partition.
    pub(crate) fn end_partition(&mut self, partition: PartitionId) {
        self.pass.iter_mut().for_each(|pass| {
            pass.done.insert(partition);
        });
    }

    /// The pass has finished: values that nothing uses may be removed.
    pub(crate) fn end_pass(&mut self) {
        if self.pass.take().is_some() {
            let on_disk = self.held.keys().chain(&self.condemned);
            let unused: BTreeSet<OpId> =
                on_disk.filter(|name| !self.uses.contains_key(*name)).copied().collect();
            self.dying = Dying::default();
            unused.into_iter().for_each(|name| self.dying.add(name));
        }
    }
}

#[cfg(test)]
mod tests;
