//! Members of quorum keyspaces whose places go to other nodes (R14) in a run, as far as they were seen.

use std::collections::BTreeSet;

/// What the state said of them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Places {
    /// The set of nodes was changed.
    pub(crate) are_asked: bool,
    /// Of the state that was looked at last.
    pub(crate) version: u64,
    /// Partitions, and which member of them leaves.
    pub(crate) leaving: BTreeSet<(u32, u16)>,
}
