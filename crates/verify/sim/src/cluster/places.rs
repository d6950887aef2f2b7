//! Members of quorum keyspaces that are being replaced (R14), observed in the metadata service's
//! state.

use super::Cluster;
use nicekv_metadata::{Metadata, PartitionStatus};
use std::collections::BTreeSet;

/// Replacements of quorum members, observed in the metadata service's state.
#[derive(Clone, Debug, Default)]
pub(super) struct Places {
    /// Whether any change of the set of nodes was requested.
    pub(super) are_asked: bool,
    /// Version of the last observed state.
    pub(super) version: u64,
    /// Partitions, each with the member that leaves.
    pub(super) leaving: BTreeSet<(u32, u16)>,
}

impl Cluster {
    /// Counts members that were replaced, and replacements that were broken off, since the last
    /// observed state.
    pub(super) fn look_at_places(&mut self) {
        if !self.places.are_asked {
            return;
        }
        let newer = |core: &&Metadata| core.version() != self.places.version;
        let Some(core) = self.metadata().filter(newer) else { return };
        let (version, partitions) = (core.version(), core.status().partitions);
        let of_quorum = |partition: &&PartitionStatus| self.shape(partition.keyspace).is_quorum();
        let members = partitions.iter().filter(of_quorum).flat_map(|partition| {
            partition.members.iter().map(|member| (partition.id, member.node, member.leaving))
        });
        let members: Vec<_> = members.collect();
        let leaving =
            members.iter().filter(|(.., leaves)| *leaves).map(|(id, node, _)| (*id, *node)).collect();
        let before = &self.places.leaving;
        let over: Vec<_> = before.difference(&leaving).collect();
        let stays = |place: &&&(u32, u16)| members.iter().any(|(id, node, _)| (*id, *node) == ***place);
        let broken_off = over.iter().filter(stays).count();
        let taken = over.len() - broken_off;
        self.tally.count_many("members' places taken by others", taken as u64);
        self.tally.count_many("successions broken off", broken_off as u64);
        (self.places.version, self.places.leaving) = (version, leaving);
    }
}
