//! Disks damage entries, and the large values that entries refer to.

use super::Cluster;
use nicekv_proto::PartitionId;
use std::collections::BTreeSet;

/// Names an entry, and the large value that it refers to.
type Place = (PartitionId, Vec<u8>);

impl Cluster {
    /// Damages one entry on every node, and one large value where there is any. At most one copy of
    /// each key is damaged.
    pub fn damage_values(&mut self) {
        // While a split or merge is under way, entries of the old and of the new partition refer to
        // the same large value.
        let (mut damaged, mut damaged_large) = (BTreeSet::new(), BTreeSet::new());
        let repaired = self.repaired_partitions();
        for node in 0..self.nodes.len() {
            let disk = &self.nodes[node].disk;
            let is_chosen = |key: &&Place| repaired.contains(&key.0) && !damaged.contains(*key);
            let intact: Vec<Place> = disk.entries().keys().filter(is_chosen).cloned().collect();
            let large: Vec<Place> =
                intact.iter().filter(|key| disk.large_value(key).is_some()).cloned().collect();
            if !intact.is_empty() {
                let key = intact[self.random.below(intact.len() as u64) as usize].clone();
                self.tally.count("values damaged");
                self.nodes[node].disk.damage(&key);
                damaged.insert(key);
            }
            let disk = &self.nodes[node].disk;
            let is_whole = |key: &Place| {
                let name = disk.large_value(key).map(|reference| reference.name);
                !damaged.contains(key) && name.is_some_and(|name| !damaged_large.contains(&name))
            };
            // A put to a quorum that was never acknowledged may have left its value with one
            // replica only.
            let is_elsewhere = |key: &Place| self.is_large_repairable(key, node);
            let large: Vec<Place> =
                large.into_iter().filter(|key| is_whole(key) && is_elsewhere(key)).collect();
            if !large.is_empty() {
                let key = large[self.random.below(large.len() as u64) as usize].clone();
                damaged_large.extend(disk.large_value(&key).map(|reference| reference.name));
                // Half of the damage the disk does not detect.
                let is_known = self.random.below(2) == 0;
                self.damage_large(node, &key, is_known);
                damaged.insert(key);
            }
        }
    }

    fn damage_large(&mut self, node: usize, key: &Place, is_known: bool) {
        let disk = &mut self.nodes[node].disk;
        if let Some(reference) = disk.large_value(key).filter(|reference| disk.has_large(reference)) {
            disk.damage_large(reference.name, is_known);
            self.tally.count("large values damaged");
        }
    }

    /// The partitions in which damaged values are restored from other members: all but those with k
    /// = 1, where a single member may hold a put (R14).
    pub(crate) fn repaired_partitions(&self) -> BTreeSet<PartitionId> {
        let Some(metadata) = self.metadata() else { return BTreeSet::new() };
        let partitions = metadata.status().partitions;
        let is_repaired =
            |known: &&nicekv_metadata::PartitionStatus| self.shape(known.keyspace).write_set != Some(1);
        partitions.iter().filter(is_repaired).map(|known| PartitionId(known.id)).collect()
    }

    /// Whether a damaged copy can be restored: from a node with an intact copy; in a quorum
    /// keyspace from R - k + 1 other counted members that can read theirs.
    fn is_repairable(&self, key: &Place, index: usize) -> bool {
        let known = self.metadata().map(|metadata| metadata.status().partitions).unwrap_or_default();
        let known = known.iter().find(|known| PartitionId(known.id) == key.0);
        let Some(shape) = known.map(|known| self.shape(known.keyspace)) else { return false };
        if !shape.is_quorum() {
            let mut others = self.nodes.iter().enumerate().filter(|(other, _)| *other != index);
            return others.any(|(_, node)| node.disk.is_intact(key));
        }
        let is_readable = |other: &&usize| **other != index && !self.nodes[**other].disk.is_damaged(key);
        crate::judge::members(self, key.0).iter().filter(is_readable).count() >= shape.read_set()
    }

    /// Whether another full member has the large value of this key and refers to it from its own
    /// entry. A value without such an entry does not count: it may be deleted at any time.
    fn is_large_repairable(&self, key: &Place, index: usize) -> bool {
        let reference = self.nodes[index].disk.large_value(key);
        let has_it = |other: &usize| {
            let disk = &self.nodes[*other].disk;
            let is_theirs = disk.large_value(key) == reference;
            *other != index && is_theirs && reference.is_some_and(|reference| disk.has_large(&reference))
        };
        self.is_repairable(key, index) && crate::judge::members(self, key.0).iter().any(has_it)
    }

    /// Whether any node has a damaged entry. Then the loss of another storage may destroy the last
    /// copy.
    pub(super) fn has_damage(&self) -> bool {
        self.nodes.iter().any(|node| node.disk.entries().keys().any(|key| node.disk.is_damaged(key)))
    }

    /// Whether a large value is missing or damaged anywhere.
    pub(super) fn lacks_large(&self) -> bool {
        self.scenario.faults.corruption > 0 && self.nodes.iter().any(|node| node.disk.lacks_large())
    }

    /// Damages an entry that can be restored, or the large value that it refers to, if the value's
    /// op number is even.
    pub(super) fn damage_value(&mut self, index: usize) {
        let repaired = self.repaired_partitions();
        let stored = self.nodes[index].disk.entries().keys().filter(|key| repaired.contains(&key.0));
        let choices = stored.clone().count() as u64;
        if choices == 0 {
            return;
        }
        let chosen = self.random.below(choices) as usize;
        let key = stored.clone().nth(chosen).expect("below the length").clone();
        let large = self.nodes[index].disk.large_value(&key);
        if large.is_some_and(|reference| reference.name.sequence % 2 == 0) {
            if self.is_large_repairable(&key, index) {
                self.damage_large(index, &key, true);
            }
        } else if self.is_repairable(&key, index) {
            self.tally.count("values damaged");
            self.nodes[index].disk.damage(&key);
        }
    }
}
