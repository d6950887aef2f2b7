//! Partitions that are split and merged in a run, as far as they were seen.

use std::collections::BTreeSet;

/// What the metadata service's state said of them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reshapings {
    /// Some were asked for.
    pub(crate) are_asked: bool,
    /// Of the state that was looked at last.
    pub(crate) version: u64,
    /// Partitions of which others are formed that are to take their place.
    pub(crate) forming: BTreeSet<u32>,
    /// Those of them that are sealed.
    pub(crate) sealed: BTreeSet<u32>,
}
