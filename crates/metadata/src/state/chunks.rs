//! Groups of storage targets (Replicast §II-A; P2): formed when the first keyspace comes into being that has names of objects.

use alloc::vec::Vec;

use nicekv_placement::{GROUP_MEMBERS_MAX, KeyspaceSpec};
use nicekv_wire::{KeyspaceId, NodeId};
use serde::{Deserialize, Serialize};

use super::State;

/// Three times as many targets as a chunk has copies by default: the best three of them are a good choice, and not too many hear of each request.
const GROUP_MEMBERS: usize = 9;

/// Which nodes are targets of which group, each at its place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ChunkGroups {
    /// Rises with every change of what follows.
    pub(crate) version: u32,
    /// Of garbage collection.
    pub(crate) round: u64,
    pub(crate) groups: Vec<Vec<Option<u16>>>,
}

impl ChunkGroups {
    /// All nodes, dealt out to groups of about nine.
    pub(crate) fn form(nodes: &[NodeId]) -> Self {
        let least = nodes.len().div_ceil(GROUP_MEMBERS_MAX);
        let usual = (nodes.len() + GROUP_MEMBERS / 2) / GROUP_MEMBERS;
        let count = least.max(usual).max(1);
        let mut groups = Vec::new();
        groups.resize_with(count, Vec::new);
        for (at, node) in nodes.iter().enumerate() {
            groups[at % count].push(Some(node.0));
        }
        // Stamps are taken from the round before on, and there is one.
        Self { version: 1, round: 2, groups }
    }

    /// Whether a node is a target.
    pub(crate) fn has(&self, node: NodeId) -> bool {
        self.groups.iter().flatten().any(|target| *target == Some(node.0))
    }
}

impl State {
    /// The round that names of a keyspace's objects are to adopt (P8); 0 if it has none.
    pub(crate) fn round_of(&self, keyspace: KeyspaceId) -> u64 {
        let has_names = |spec: &&KeyspaceSpec| spec.id == keyspace && spec.chunks.is_some();
        let chunks = self.chunks.as_ref().filter(|_| self.keyspaces.iter().any(|spec| has_names(&spec)));
        chunks.map_or(0, |chunks| chunks.round)
    }

    /// Groups have as many places as an address has bits, and each node of the cluster at most one of them.
    pub(super) fn validate_chunks(&self) -> Result<(), &'static str> {
        let Some(chunks) = &self.chunks else { return Ok(()) };
        let mut targets: Vec<u16> = chunks.groups.iter().flatten().copied().flatten().collect();
        let count = targets.len();
        targets.sort_unstable();
        targets.dedup();
        let is_known = |target: &u16| self.node(NodeId(*target)).is_some();
        let fits = |group: &Vec<Option<u16>>| (1..=GROUP_MEMBERS_MAX).contains(&group.len());
        let are_well =
            targets.len() == count && targets.iter().all(is_known) && chunks.groups.iter().all(fits);
        if are_well && chunks.version > 0 && chunks.round > 1 {
            Ok(())
        } else {
            Err("its groups of targets make no sense")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_have_about_nine_members_and_never_more_than_twelve() {
        for (nodes, sizes) in [
            (1, &[1][..]),
            (3, &[3]),
            (9, &[9]),
            (12, &[12]),
            (13, &[7, 6]),
            (18, &[9, 9]),
            (20, &[10, 10]),
            (27, &[9, 9, 9]),
            (40, &[10, 10, 10, 10]),
        ] {
            let all: Vec<NodeId> = (0..nodes).map(NodeId).collect();
            let formed = ChunkGroups::form(&all);
            assert_eq!(formed.groups.iter().map(Vec::len).collect::<Vec<_>>(), sizes, "{nodes}");
            assert!(all.iter().all(|node| formed.has(*node)) && !formed.has(NodeId(nodes)));
        }
    }
}
