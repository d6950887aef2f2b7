//! Names of objects: a keyspace of manifests, with adoption of garbage collection rounds (P8, P9).

use nicekv_proto::chunk::{ChunkId, Round};
use std::collections::BTreeMap;

/// The value of a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Manifest {
    /// Its chunks in order: the id, and the number by which users know the content.
    pub(super) chunks: Vec<(ChunkId, u64)>,
    /// The oldest stamp of its chunks.
    pub(super) stamp: Round,
}

/// Number of partitions of names.
pub(super) const PARTITIONS: u64 = 2;

#[derive(Clone, Debug, Default)]
pub(super) struct Names {
    /// The manifests, by name. Each with the number of puts that took effect before it.
    manifests: BTreeMap<u64, (u64, Manifest)>,
    puts: u64,
    adopted: BTreeMap<u64, Round>,
}

pub(super) fn partition_of(name: u64) -> u64 {
    name % PARTITIONS
}

impl Names {
    /// Puts a manifest. False if it is rejected: one of its chunks may have been condemned before
    /// the manifest was known (P8).
    pub(super) fn put(&mut self, name: u64, manifest: Manifest) -> bool {
        let adopted = self.adopted.get(&partition_of(name)).copied().unwrap_or_default();
        if manifest.stamp.0.saturating_add(1) < adopted.0 {
            return false;
        }
        self.manifests.insert(name, (self.puts, manifest));
        self.puts += 1;
        true
    }

    pub(super) fn get(&self, name: u64) -> Option<&Manifest> {
        self.manifests.get(&name).map(|(_, manifest)| manifest)
    }

    /// A number that distinguishes the name's manifest from earlier and later ones.
    pub(super) fn version(&self, name: u64) -> Option<u64> {
        self.manifests.get(&name).map(|(version, _)| *version)
    }

    pub(super) fn delete(&mut self, name: u64) {
        self.manifests.remove(&name);
    }

    /// A partition adopts a round: it rejects older stamps from now on.
    pub(super) fn adopt(&mut self, partition: u64, round: Round) {
        let adopted = self.adopted.entry(partition).or_default();
        *adopted = (*adopted).max(round);
    }

    /// Whether all partitions have adopted a round.
    pub(super) fn have_adopted(&self, round: Round) -> bool {
        (0..PARTITIONS).all(|partition| self.adopted.get(&partition).is_some_and(|adopted| *adopted >= round))
    }

    /// At most `most` names after this one, with their chunks.
    pub(super) fn page(&self, after: Option<u64>, most: usize) -> Vec<(u64, Vec<ChunkId>)> {
        let first = after.map_or(0, |name| name + 1);
        let ids = |manifest: &Manifest| manifest.chunks.iter().map(|(id, _)| *id).collect();
        self.manifests.range(first..).take(most).map(|(name, (_, manifest))| (*name, ids(manifest))).collect()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, &Manifest)> {
        self.manifests.iter().map(|(name, (_, manifest))| (*name, manifest))
    }
}
