//! State of children that are being formed of their parents; see [`crate::split::forming`].

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use nicekv_proto::PartitionId;
use nicekv_proto::control::Child;

/// How far the forming of a partition's children has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// An earlier process began it; this process does not continue it.
    Left,
    /// The parent's entries are being read.
    Reading,
    /// The children are complete once this record is synced.
    Syncing(u64),
    /// The children are complete and synced.
    Formed,
}

/// The children of one partition.
#[derive(Clone)]
pub(crate) struct Formation {
    /// The children that were assigned.
    pub(crate) asked: Vec<Child>,
    /// Those that have not taken over yet.
    pub(crate) children: Vec<Child>,
    pub(crate) stage: Stage,
    /// The last key of the parent that was read.
    pub(crate) after: Option<Vec<u8>>,
    /// Number that distinguishes this attempt from earlier ones of the same partition.
    pub(crate) number: u64,
}

/// A page of a parent that is being read.
#[derive(Clone, Copy)]
pub(crate) struct ParentPage {
    token: u64,
    pub(crate) parent: PartitionId,
    pub(crate) number: u64,
}

#[derive(Clone, Default)]
pub(crate) struct Formations {
    pub(crate) by_parent: BTreeMap<PartitionId, Formation>,
    pub(crate) pending: Option<ParentPage>,
    /// Parents in sealed epochs, and whether each was reported as drained.
    pub(crate) sealed: BTreeMap<PartitionId, bool>,
    begun: u64,
}

impl Formations {
    /// Begins to form children of `parent`.
    pub(crate) fn begin(&mut self, parent: PartitionId, children: &[Child], stage: Stage) {
        self.begun += 1;
        let (children, number) = (children.to_vec(), self.begun);
        let formation = Formation { asked: children.clone(), children, stage, after: None, number };
        self.by_parent.insert(parent, formation);
    }

    /// Whether the page read under this token is for a child.
    pub(crate) fn is_reading(&self, token: u64) -> bool {
        self.pending.is_some_and(|page| page.token == token)
    }

    /// Whether a page of this parent is being read for its children.
    pub(crate) fn is_in(&self, parent: PartitionId) -> bool {
        self.pending.is_some_and(|page| page.parent == parent)
    }

    /// A page of the parent was requested under this token.
    pub(crate) fn read(&mut self, token: u64, parent: PartitionId) {
        let number = self.by_parent[&parent].number;
        self.pending = Some(ParentPage { token, parent, number });
    }

    /// Whether this partition is being formed.
    pub(crate) fn forms(&self, child: PartitionId) -> bool {
        self.by_parent.values().any(|formation| formation.has(child))
    }

    /// The children of a partition that have not taken over yet.
    pub(crate) fn children(&self, parent: PartitionId) -> Vec<Child> {
        self.by_parent.get(&parent).map(|formation| formation.children.clone()).unwrap_or_default()
    }

    /// A child is no longer being formed. Returns its parents; a parent without other children is
    /// dropped from this state.
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
    /// Whether this partition is one of the children.
    pub(crate) fn has(&self, child: PartitionId) -> bool {
        self.children.iter().any(|known| known.partition == child)
    }

    /// Whether exactly these children were assigned, and this process is forming them.
    pub(crate) fn is_as_asked(&self, children: &[Child]) -> bool {
        self.stage != Stage::Left && self.asked == children
    }
}
