//! Which large values lie on this disk, and who speaks of them.
//!
//! ```text
//!   entry of a key written ──▶ one use more of what it speaks of, one less of what the entry before spoke of
//!   op prepared … decided   ──▶ one use of what it stores, as long as it is open
//!   no use is left          ──▶ removed a moment later, or some seconds after it was read last: somebody may be reading it (`dying`)
//!   pinned: a remembered result names it ──▶ so long after that is forgotten, and after [`PINNED_NS`] anyway
//!   a use of what is not here ──▶ lacking: it is fetched from another member
//!   damaged ──▶ condemned: on the disk as before, and lacking
//! ```
//!
//! All of that is in memory. After a restart it is learned anew from a pass over all entries; nothing is removed before its end, and until it has been through a partition
//! nobody knows whether that lacks something. A disk on which there never was a large value needs no pass.

mod dying;

use crate::kinds::Map;
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use dying::Dying;
use nicekv_proto::large::Reference;
use nicekv_proto::{OpId, PartitionId};

/// So long at most while a remembered result names it: a client that asked for it has asked for nothing since.
pub(crate) const PINNED_NS: u64 = 60_000_000_000;

/// A value that is spoken of and is not here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Lack {
    pub(crate) reference: Reference,
    /// Who has it: members of this one.
    pub(crate) partition: PartitionId,
}

/// A value that is spoken of.
#[derive(Clone, Debug)]
struct Use {
    reference: Reference,
    /// Partitions whose entries and ops do, the newest one last, and how many of them. When one ends, the value is looked for with those that are left.
    by: Vec<(PartitionId, u32)>,
}

impl Use {
    fn has(&self, partition: PartitionId) -> bool {
        self.by.iter().any(|(of, _)| *of == partition)
    }

    /// Takes out what is known of a partition.
    fn take(&mut self, partition: PartitionId) -> u32 {
        let place = self.by.iter().position(|(of, _)| *of == partition);
        place.map_or(0, |place| self.by.remove(place).1)
    }

    /// What to look for, and where, if it is not here.
    fn lack(&self) -> Option<Lack> {
        let (partition, _) = *self.by.last()?;
        Some(Lack { reference: self.reference, partition })
    }
}

/// The pass over all entries.
#[derive(Clone, Debug, Default)]
struct Pass {
    /// Partitions that it has been through.
    done: BTreeSet<PartitionId>,
    /// Keys that were written while its page was read.
    touched: BTreeSet<(PartitionId, Box<[u8]>)>,
}

/// See the module.
#[derive(Clone, Default)]
pub(crate) struct ValueIndex {
    /// Whole ones.
    held: Map<OpId, ()>,
    /// On the disk, and damaged. They stay there until they are fetched: after a crash what speaks of a value that is not on the disk counts as never forced (L2).
    condemned: BTreeSet<OpId>,
    uses: BTreeMap<OpId, Use>,
    by_key: Map<PartitionId, Map<Box<[u8]>, OpId>>,
    lacking: BTreeMap<OpId, Lack>,
    /// On the disk, and without use.
    dying: Dying,
    /// How many results name each.
    pins: Map<OpId, u32>,
    /// There has been a large value on this disk.
    is_marked: bool,
    pass: Option<Pass>,
}

impl ValueIndex {
    /// What a process finds on its disk, on which there has been a large value once.
    pub(crate) fn begin(&mut self, names: impl Iterator<Item = OpId>) {
        (self.is_marked, self.pass) = (true, Some(Pass::default()));
        self.held = names.map(|name| (name, ())).collect();
    }

    /// The first large value is about to be on this disk: that must be known to later processes.
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

    /// A whole value is here from now on.
    pub(crate) fn add(&mut self, name: OpId) {
        self.lacking.remove(&name);
        self.condemned.remove(&name);
        if self.held.insert(name, ()).is_none() && !self.uses.contains_key(&name) {
            self.dying.add(name);
        }
    }

    /// What was held is damaged: it is what those say who speak of it that is fetched, whoever has read it.
    pub(crate) fn lose(&mut self, name: OpId) {
        if self.held.remove(&name).is_none() {
            return;
        }
        self.condemned.insert(name);
        self.lacking.extend(self.uses.get(&name).and_then(Use::lack).map(|lack| (name, lack)));
    }

    /// An open op stores this; or the engine has it in an entry.
    pub(crate) fn take_up(&mut self, reference: Reference, partition: PartitionId) {
        let of = self.uses.entry(reference.name).or_insert_with(|| Use { reference, by: Vec::new() });
        let uses = of.take(partition);
        of.by.push((partition, uses + 1));
        if !self.holds(reference.name) {
            self.lacking.insert(reference.name, Lack { reference, partition });
        }
    }

    /// The same no more.
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

    /// One result more names it.
    pub(crate) fn pin(&mut self, name: OpId) {
        *self.pins.entry(name).or_default() += 1;
    }

    /// One less: after the last one its time begins anew.
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

    /// A member wants it, of whom this one will be told again.
    pub(crate) fn want(&mut self, reference: Reference, partition: PartitionId) {
        if !self.holds(reference.name) {
            self.lacking.entry(reference.name).or_insert(Lack { reference, partition });
        }
    }

    /// Nobody can give it, and nobody speaks of it.
    pub(crate) fn give_up(&mut self, name: OpId) {
        if !self.uses.contains_key(&name) {
            self.lacking.remove(&name);
        }
    }

    /// The engine has an entry of this key from now on that speaks of this, or of none.
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

    /// The engine has no entry of this partition any more.
    pub(crate) fn note_cleared(&mut self, partition: PartitionId) {
        for (_, name) in self.by_key.remove(&partition).into_iter().flatten() {
            self.let_go(name, partition);
        }
    }

    /// Whether a partition lacks a value, or may.
    pub(crate) fn lacks(&self, partition: PartitionId) -> bool {
        let is_unknown = self.pass.as_ref().is_some_and(|pass| !pass.done.contains(&partition));
        let is_of = |(name, lack): (&OpId, &Lack)| {
            lack.partition == partition || self.uses.get(name).is_some_and(|of| of.has(partition))
        };
        is_unknown || self.lacking.iter().any(is_of)
    }

    /// What is lacking, after this one.
    pub(crate) fn lacking_after(&self, after: Option<OpId>) -> Option<&Lack> {
        let after = after.map_or(core::ops::Bound::Unbounded, core::ops::Bound::Excluded);
        self.lacking.range((after, core::ops::Bound::Unbounded)).next().map(|(_, lack)| lack)
    }

    pub(crate) fn lack(&self, name: OpId) -> Option<&Lack> {
        self.lacking.get(&name)
    }

    /// The next value after this one that is here and spoken of.
    pub(crate) fn used_after(&self, after: Option<OpId>) -> Option<Reference> {
        let after = after.map_or(core::ops::Bound::Unbounded, core::ops::Bound::Excluded);
        let mut used = self.uses.range((after, core::ops::Bound::Unbounded));
        used.find(|(name, _)| self.holds(**name)).map(|(_, of)| of.reference)
    }

    /// Somebody reads it, and may read on though nobody speaks of it.
    pub(crate) fn touch(&mut self, now_ns: u64, name: OpId) {
        self.dying.touch(now_ns, name);
    }

    /// Values that are to be removed now.
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

    /// Whether the pass has still to go through a partition.
    pub(crate) fn is_unread(&self, partition: PartitionId) -> bool {
        self.pass.as_ref().is_some_and(|pass| !pass.done.contains(&partition))
    }

    pub(crate) fn is_in_pass(&self) -> bool {
        self.pass.is_some()
    }

    /// A page of a partition is about to be read.
    pub(crate) fn begin_page(&mut self) {
        self.pass.iter_mut().for_each(|pass| pass.touched.clear());
    }

    /// An entry of that page. What was written since is known better.
    pub(crate) fn note_read(&mut self, partition: PartitionId, key: &[u8], reference: Reference) {
        let Some(pass) = &self.pass else { return };
        if !pass.touched.contains(&(partition, key.into())) {
            self.learn(partition, key, reference);
        }
    }

    /// The engine has an entry, which the pass has gone by, if it was there then.
    pub(crate) fn find(&mut self, partition: PartitionId, key: &[u8], reference: Reference) {
        if !self.is_unread(partition) {
            self.learn(partition, key, reference);
        }
    }

    /// An entry speaks of this, unless one of its key is known already.
    fn learn(&mut self, partition: PartitionId, key: &[u8], reference: Reference) {
        let is_known = self.by_key.get(&partition).is_some_and(|keys| keys.contains_key(key));
        if !is_known {
            self.by_key.entry(partition).or_default().insert(key.into(), reference.name);
            self.take_up(reference, partition);
        }
    }

    /// The pass has been through a partition.
    pub(crate) fn end_partition(&mut self, partition: PartitionId) {
        self.pass.iter_mut().for_each(|pass| {
            pass.done.insert(partition);
        });
    }

    /// The pass has been through all: what nobody speaks of may go.
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
