//! Large values on a node's disk. A crash discards values that are being written, and keeps
//! complete ones that were synced. Complete ones that were not synced may survive or not.
//!
//! The real disk detects damage by a checksum for each block, unless the bytes were damaged before
//! the checksum was computed: then only the value's own digest shows it.

use nicekv_proto::OpId;
use nicekv_proto::large::Reference;
use nicekv_replica::ValueEnd;
use nicekv_transport::checksum;
use std::collections::{BTreeMap, BTreeSet};

#[derive(Clone, Debug, Default)]
pub(crate) struct LargeValues {
    /// Whether any value was ever written.
    pub(crate) is_marked: bool,
    /// Whether there is no space for another value.
    pub(crate) is_full: bool,
    /// Values that are being written: the part that is there.
    parts: BTreeMap<OpId, Vec<u8>>,
    /// Complete values, with their numbers in the order of completion.
    whole: BTreeMap<OpId, (u64, Vec<u8>)>,
    /// Complete values that the disk knows to be damaged.
    damaged: BTreeSet<OpId>,
    /// Complete values that the process has found to be damaged, and writes again.
    condemned: BTreeSet<OpId>,
    /// Damaged values that were replaced: number, content, and whether the disk knew of the damage.
    /// A crash that discards the replacement restores them.
    former: BTreeMap<OpId, (u64, Vec<u8>, bool)>,
    /// Number of the last complete value.
    pub(crate) ended: u64,
    /// Number of the last synced value.
    pub(crate) synced: u64,
}

impl LargeValues {
    pub(crate) fn names(&self) -> impl Iterator<Item = OpId> {
        self.whole.keys().copied()
    }

    fn is_there(&self, name: OpId) -> bool {
        self.whole.contains_key(&name) && !self.condemned.contains(&name)
    }

    pub(crate) fn write(&mut self, name: OpId, length: u32, offset: u32, bytes: &[u8]) {
        if self.is_there(name) {
            return;
        }
        let value = self.parts.entry(name).or_insert_with(|| vec![0; length as usize]);
        value[offset as usize..][..bytes.len()].copy_from_slice(bytes);
    }

    pub(crate) fn end(&mut self, reference: &Reference) -> ValueEnd {
        let Reference { name, checksum: expected, .. } = *reference;
        if self.is_there(name) {
            return ValueEnd::Whole;
        }
        match self.parts.remove(&name) {
            Some(_) if self.is_full => ValueEnd::NoRoom,
            Some(value) if checksum(&value) == expected => {
                self.ended += 1;
                if let Some((number, former)) = self.whole.insert(name, (self.ended, value)) {
                    self.former.insert(name, (number, former, self.damaged.remove(&name)));
                }
                self.condemned.remove(&name);
                ValueEnd::Whole
            }
            _ => ValueEnd::Wrong,
        }
    }

    /// Reads a part of a value. The flag: whether it cannot be read because of damage.
    pub(crate) fn read(&self, name: OpId, offset: u32, bytes: usize) -> (Option<&[u8]>, bool) {
        if !self.is_there(name) {
            return (None, false);
        }
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
        self.condemned.remove(&name);
        self.former.remove(&name);
    }

    pub(crate) fn condemn(&mut self, name: OpId) {
        if self.whole.contains_key(&name) {
            self.condemned.insert(name);
        }
    }

    /// Whether the referenced value is present and intact.
    pub(crate) fn is_intact(&self, reference: &Reference) -> bool {
        let value = self.whole.get(&reference.name);
        !self.damaged.contains(&reference.name)
            && !self.condemned.contains(&reference.name)
            && value.is_some_and(|(_, value)| checksum(value) == reference.checksum)
    }

    /// Damages a value. If `is_known`, the disk detects it.
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

    /// The process crashes. `stays` decides which values that were not synced survive.
    pub(crate) fn crash(&mut self, mut stays: impl FnMut() -> bool) {
        self.parts.clear();
        self.condemned.clear();
        self.whole.retain(|_, (number, _)| *number <= self.synced || stays());
        self.damaged.retain(|name| self.whole.contains_key(name));
        for (name, (number, former, is_damaged)) in std::mem::take(&mut self.former) {
            if number <= self.synced && !self.whole.contains_key(&name) {
                self.whole.insert(name, (number, former));
                self.damaged.extend(is_damaged.then_some(name));
            }
        }
        // Everything that survived is durable.
        self.ended = self.ended.max(self.synced);
        self.synced = self.ended;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nicekv_proto::ClientId;

    const BYTES: [u8; 3] = [1, 2, 3];

    fn write(values: &mut LargeValues) -> ValueEnd {
        let name = OpId { client: ClientId(1), sequence: 2 };
        values.write(name, 3, 0, &BYTES);
        values.end(&Reference { name, length: 3, checksum: checksum(&BYTES) })
    }

    #[test]
    fn a_deleted_value_returns_if_a_crash_discards_its_replacement() {
        let mut values = LargeValues::default();
        assert_eq!(write(&mut values), ValueEnd::Whole);
        values.synced = values.ended;
        let name = values.names().next().expect("it was just written");
        values.damage(name, true);
        assert_eq!(values.read(name, 0, 3), (None, true));
        values.condemn(name);
        assert_eq!((values.read(name, 0, 3), values.names().count()), ((None, false), 1));
        for stays in [false, true] {
            assert_eq!(write(&mut values), ValueEnd::Whole);
            assert_eq!(values.read(name, 0, 3), (Some(&BYTES[..]), false));
            values.crash(|| stays);
            let expected = if stays { (Some(&BYTES[..]), false) } else { (None, true) };
            assert_eq!(values.read(name, 0, 3), expected);
            values.condemn(name);
        }
    }
}
