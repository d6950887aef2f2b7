//! Double writes: while children are formed of a partition, writes to it also go to the children's
//! spaces (R17).
//!
//! ```text
//!   write(p, k) ─▶ space of p
//!             └──▶ space of the child whose range has k's match value
//! ```
//!
//! This happens where all writes pass, so no effect, deletion or repair is missed.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use nicekv_proto::control::Child;
use nicekv_proto::{KeyOrder, MatchRange, PartitionId};

#[derive(Clone)]
struct Mirror {
    parent: PartitionId,
    child: PartitionId,
    range: MatchRange,
    order: KeyOrder,
}

/// There are only a few mirrors, because a cluster runs only a few splits and merges at a time.
#[derive(Clone, Default)]
pub(crate) struct Mirrors {
    all: Vec<Mirror>,
    /// The parent whose page was requested, and its keys that were written or removed since.
    touched: Option<(PartitionId, BTreeSet<Box<[u8]>>)>,
}

impl Mirrors {
    /// From now on writes to `parent` also go to `child`, if they are in its range.
    pub(crate) fn begin(&mut self, parent: PartitionId, child: &Child) {
        self.end(parent, child.partition);
        self.all.push(Mirror { parent, child: child.partition, range: child.range, order: child.order });
    }

    /// From now on writes to `parent` no longer go to `child`.
    pub(crate) fn end(&mut self, parent: PartitionId, child: PartitionId) {
        self.all.retain(|mirror| (mirror.parent, mirror.child) != (parent, child));
    }

    /// A key is being written or removed. Returns the child to which the write must go, too.
    pub(crate) fn note(&mut self, partition: PartitionId, key: &[u8]) -> Option<PartitionId> {
        if self.all.is_empty() {
            return None;
        }
        if let Some((of, keys)) = &mut self.touched
            && *of == partition
        {
            keys.insert(key.into());
        }
        let mut mirrors = self.all.iter().filter(|mirror| mirror.parent == partition).peekable();
        let value = nicekv_proto::placement::match_digest(mirrors.peek()?.order, key).match_value();
        mirrors.find(|mirror| mirror.range.contains(value)).map(|mirror| mirror.child)
    }

    /// Begins to record the keys that are written to a partition.
    pub(crate) fn watch(&mut self, partition: PartitionId) {
        self.touched = Some((partition, BTreeSet::new()));
    }

    /// Ends [`Self::watch`]; returns the recorded keys.
    pub(crate) fn end_watch(&mut self) -> BTreeSet<Box<[u8]>> {
        self.touched.take().map(|(_, keys)| keys).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARENT: PartitionId = PartitionId(1);

    fn child(id: u32, first: u128, last: u128) -> Child {
        let range = MatchRange::new(first, last).unwrap();
        Child { partition: PartitionId(id), range, order: KeyOrder::Hash }
    }

    fn value(key: &[u8]) -> u128 {
        nicekv_proto::placement::key_digest(key).match_value()
    }

    #[test]
    fn write_goes_to_the_child_that_will_own_the_key() {
        let mut mirrors = Mirrors::default();
        let (low, high) = (child(7, 0, value(b"k")), child(8, value(b"k") + 1, u128::MAX));
        mirrors.begin(PARENT, &low);
        mirrors.begin(PARENT, &high);
        mirrors.begin(PARENT, &high);
        assert_eq!(mirrors.note(PARENT, b"k"), Some(PartitionId(7)));
        let other = (0u8..).map(|byte| [byte]).find(|key| value(key) > value(b"k")).unwrap();
        assert_eq!(mirrors.note(PARENT, &other), Some(PartitionId(8)));
        assert_eq!(mirrors.note(PartitionId(2), b"k"), None);
        mirrors.end(PARENT, PartitionId(8));
        assert_eq!(mirrors.note(PARENT, &other), None);
    }

    #[test]
    fn writes_during_a_page_are_known() {
        let mut mirrors = Mirrors::default();
        mirrors.begin(PARENT, &child(7, 0, u128::MAX));
        mirrors.note(PARENT, b"before");
        mirrors.watch(PARENT);
        mirrors.note(PARENT, b"k");
        mirrors.note(PartitionId(2), b"l");
        assert_eq!(mirrors.end_watch().into_iter().collect::<Vec<_>>(), [b"k".as_slice().into()]);
        assert!(mirrors.end_watch().is_empty());
    }
}
