//! The large values on a node's disk: those that are being written go with the process, whole ones stay if they were forced, and may stay if not.
//!
//! Of damage the real disk knows by a checksum for each block, unless what is damaged came with the checksum: then nobody but the value's own digest tells.

use nicekv_node::ValueEnd;
use nicekv_transport::checksum;
use nicekv_wire::OpId;
use nicekv_wire::large::Reference;
use std::collections::{BTreeMap, BTreeSet};

/// See the module.
#[derive(Clone, Debug, Default)]
pub(crate) struct LargeValues {
    /// There has been one.
    pub(crate) is_marked: bool,
    /// What is being written, and how much of it was.
    parts: BTreeMap<OpId, Vec<u8>>,
    /// With their numbers, in the order in which they were whole.
    whole: BTreeMap<OpId, (u64, Vec<u8>)>,
    /// Of those, the ones that the disk knows to be damaged.
    damaged: BTreeSet<OpId>,
    /// Number of the last one.
    pub(crate) ended: u64,
    /// No crash takes away those up to this one.
    pub(crate) forced: u64,
}

impl LargeValues {
    pub(crate) fn names(&self) -> impl Iterator<Item = OpId> {
        self.whole.keys().copied()
    }

    pub(crate) fn write(&mut self, name: OpId, length: u32, offset: u32, bytes: &[u8]) {
        if self.whole.contains_key(&name) {
            return;
        }
        let value = self.parts.entry(name).or_insert_with(|| vec![0; length as usize]);
        value[offset as usize..][..bytes.len()].copy_from_slice(bytes);
    }

    pub(crate) fn end(&mut self, reference: &Reference) -> ValueEnd {
        let Reference { name, checksum: expected, .. } = *reference;
        if self.whole.contains_key(&name) {
            return ValueEnd::Whole;
        }
        match self.parts.remove(&name) {
            Some(value) if checksum(&value) == expected => {
                self.ended += 1;
                self.whole.insert(name, (self.ended, value));
                ValueEnd::Whole
            }
            _ => ValueEnd::Wrong,
        }
    }

    /// A part of a value, or none, and whether that is because of damage.
    pub(crate) fn read(&self, name: OpId, offset: u32, bytes: usize) -> (Option<&[u8]>, bool) {
        if self.damaged.contains(&name) {
            return (None, true);
        }
        let rest = self.whole.get(&name).and_then(|(_, value)| value.get(offset as usize..));
        (rest.and_then(|rest| rest.get(..bytes)), false)
    }

    pub(crate) fn remove(&mut self, name: OpId) {
        self.parts.remove(&name);
        self.whole.remove(&name);
        self.damaged.remove(&name);
    }

    /// Whether all of what this names is here and right.
    pub(crate) fn is_intact(&self, reference: &Reference) -> bool {
        let value = self.whole.get(&reference.name);
        !self.damaged.contains(&reference.name)
            && value.is_some_and(|(_, value)| checksum(value) == reference.checksum)
    }

    /// Bits of a value flip, and the disk knows it, or does not.
    pub(crate) fn damage(&mut self, name: OpId, is_known: bool) {
        if let Some((_, value)) = self.whole.get_mut(&name) {
            if is_known {
                self.damaged.insert(name);
            } else {
                let middle = value.len() / 2;
                value[middle] ^= 1;
            }
        }
    }

    /// Undoes damage that the disk knows of.
    pub(crate) fn mend(&mut self) {
        self.damaged.clear();
    }

    /// The process is gone, and of what was not forced whatever does not stay.
    pub(crate) fn crash(&mut self, mut stays: impl FnMut() -> bool) {
        self.parts.clear();
        self.whole.retain(|_, (number, _)| *number <= self.forced || stays());
        self.damaged.retain(|name| self.whole.contains_key(name));
        // What is found is durable.
        self.ended = self.ended.max(self.forced);
        self.forced = self.ended;
    }
}
