//! Hot entries that somebody has put into switches who knows nothing of load.

use crate::random::Random;
use nicekv_proto::{KeyDigest, KeyspaceId};
use std::collections::BTreeMap;

/// What is installed.
#[derive(Clone, Debug)]
pub(crate) struct Installed {
    /// Its instance.
    pub(crate) instance: u64,
    /// Where.
    pub(crate) switch: usize,
    /// Nodes, by their indexes.
    pub(crate) holders: Vec<usize>,
    /// Whether the switch is to have a copy, too (H9).
    pub(crate) in_switch: bool,
}

/// What was changed so far.
#[derive(Clone)]
pub(crate) struct HotEntries {
    /// Chooses.
    pub(crate) random: Random,
    /// The newest instance.
    pub(crate) newest: u64,
    /// By keyspace and digest: in one switch (H8), though nothing here depends on that.
    pub(crate) installed: BTreeMap<(KeyspaceId, KeyDigest), Vec<Installed>>,
}

impl HotEntries {
    pub(crate) fn new(seed: u64) -> Self {
        Self { random: Random::new(seed), newest: 0, installed: BTreeMap::new() }
    }
}
