//! Which partitions are being formed of which, and how far that is: see [`crate::split::form`].

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use nicekv_proto::PartitionId;
use nicekv_proto::control::Child;

/// How far the children of a partition are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// A process before this one began it, and nobody goes on with it.
    Left,
    /// The parent is being read.
    Reading,
    /// They hold everything when this record is durable.
    Forcing(u64),
    /// They hold everything, durably.
    Formed,
}

/// What is formed of a partition.
#[derive(Clone)]
pub(crate) struct Formation {
    /// As they were asked for.
    pub(crate) asked: Vec<Child>,
    /// Those of them that are not partitions of their own yet.
    pub(crate) children: Vec<Child>,
    pub(crate) stage: Stage,
    /// The last key that was read of the parent.
    pub(crate) after: Option<Vec<u8>>,
    /// Tells it from one of the same partition before.
    pub(crate) number: u64,
}

/// A page of a parent that is being read.
#[derive(Clone, Copy)]
pub(crate) struct ParentPage {
    token: u64,
    pub(crate) parent: PartitionId,
    pub(crate) number: u64,
}

/// See the module.
#[derive(Clone, Default)]
pub(crate) struct Formations {
    pub(crate) by_parent: BTreeMap<PartitionId, Formation>,
    pub(crate) pending: Option<ParentPage>,
    /// Partitions in sealed epochs, and whether the metadata service was told that they are drained.
    pub(crate) sealed: BTreeMap<PartitionId, bool>,
    begun: u64,
}

impl Formations {
    /// These are formed of `parent` from now on.
    pub(crate) fn begin(&mut self, parent: PartitionId, children: &[Child], stage: Stage) {
        self.begun += 1;
        let (children, number) = (children.to_vec(), self.begun);
        let formation = Formation { asked: children.clone(), children, stage, after: None, number };
        self.by_parent.insert(parent, formation);
    }

    /// Whether this scan was asked for here.
    pub(crate) fn is_reading(&self, token: u64) -> bool {
        self.pending.is_some_and(|page| page.token == token)
    }

    /// Whether a page of this partition is being read.
    pub(crate) fn is_in(&self, parent: PartitionId) -> bool {
        self.pending.is_some_and(|page| page.parent == parent)
    }

    /// A page is being read by the scan with this token.
    pub(crate) fn read(&mut self, token: u64, parent: PartitionId) {
        let number = self.by_parent[&parent].number;
        self.pending = Some(ParentPage { token, parent, number });
    }

    /// Whether a partition is being formed of another one.
    pub(crate) fn forms(&self, child: PartitionId) -> bool {
        self.by_parent.values().any(|formation| formation.has(child))
    }

    /// The children of a partition that are not partitions of their own yet.
    pub(crate) fn children(&self, parent: PartitionId) -> Vec<Child> {
        self.by_parent.get(&parent).map(|formation| formation.children.clone()).unwrap_or_default()
    }

    /// A partition is formed of none any more. Of which it was; those of which nothing else is are not known here from now on.
    pub(crate) fn remove(&mut self, child: PartitionId) -> Vec<PartitionId> {
        let is_parent =
            |(parent, formation): (&PartitionId, &Formation)| formation.has(child).then_some(*parent);
        let parents: Vec<PartitionId> = self.by_parent.iter().filter_map(is_parent).collect();
        for formation in self.by_parent.values_mut() {
            formation.children.retain(|known| known.partition != child);
        }
        self.by_parent.retain(|_, formation| !formation.children.is_empty());
        parents
    }
}

impl Formation {
    /// Whether a partition is among what is formed here.
    pub(crate) fn has(&self, child: PartitionId) -> bool {
        self.children.iter().any(|known| known.partition == child)
    }

    /// Whether these are asked for, and on their way.
    pub(crate) fn is_as_asked(&self, children: &[Child]) -> bool {
        self.stage != Stage::Left && self.asked == children
    }
}
