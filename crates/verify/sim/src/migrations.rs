//! Partitions that load moves (TurboKV §5.1) in a run, as far as they were seen.

use std::collections::{BTreeMap, BTreeSet};

/// What the metadata service's state said of them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Migrations {
    /// Of the state that was looked at last.
    pub(crate) version: u64,
    /// Partitions that there were.
    pub(crate) known: BTreeSet<u32>,
    /// Where they are to be, if not where the ring says.
    pub(crate) placed: BTreeMap<u32, Vec<u16>>,
    /// When they were moved last.
    pub(crate) moved_ns: BTreeMap<u32, u64>,
}
