//! Groups of storage targets (Replicast §II-A; P2). They are formed with the first keyspace that
//! has names of objects, and changed when nodes come and go (P13).

use alloc::collections::BTreeSet;

use nicekv_proto::placement::KeyspaceSpec;
use nicekv_proto::{KeyspaceId, NodeId};
use serde::{Deserialize, Serialize};

use super::State;
use super::layout::Layout;

/// The targets of each group with their places, and the slots of each group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ChunkGroups {
    /// Version of the map; increases with every change of the layouts.
    pub(crate) version: u32,
    /// The current round of garbage collection.
    pub(crate) round: u64,
    pub(crate) layout: Layout,
    /// The previous layout, until all chunks have moved (P13).
    pub(crate) before: Option<Layout>,
}

impl ChunkGroups {
    /// The first map: all nodes, in groups of about nine.
    pub(crate) fn form(nodes: &[NodeId]) -> Self {
        // Stamps start at the previous round, so the first round must be at least 2.
        Self { version: 1, round: 2, layout: Layout::form(nodes), before: None }
    }

    /// Whether a node is a target.
    pub(crate) fn has(&self, node: NodeId) -> bool {
        self.layout.has(node)
    }

    /// The next map, without a node whose chunks are lost.
    pub(crate) fn without(mut self, node: NodeId) -> Self {
        self.layout.take_out(node);
        self.layout.tidy();
        self.before.iter_mut().for_each(|before| before.take_out(node));
        self
    }

    /// The next map, with another layout to which chunks move.
    pub(crate) fn reshaped(self, layout: Layout) -> Self {
        let before = self.layout.moves_to(&layout).then_some(self.layout);
        Self { layout, before, ..self }
    }
}

impl State {
    /// The round that a keyspace's names of objects should adopt (P8); 0 if it has no such names.
    pub(crate) fn round_of(&self, keyspace: KeyspaceId) -> u64 {
        let has_names = |spec: &&KeyspaceSpec| spec.id == keyspace && spec.chunks.is_some();
        let chunks = self.chunks.as_ref().filter(|_| self.keyspaces.iter().any(|spec| has_names(&spec)));
        chunks.map_or(0, |chunks| chunks.round)
    }

    /// The nodes that should be targets: those that should hold data.
    pub(crate) fn wanted_targets(&self) -> BTreeSet<NodeId> {
        self.ring().into_iter().collect()
    }

    /// Number of copies of a chunk: the R of the keyspace with names of objects; 1 if there is
    /// none.
    pub(crate) fn copies(&self) -> usize {
        let named = self.keyspaces.iter().filter(|spec| spec.chunks.is_some());
        named.map(|spec| spec.replicas).max().unwrap_or(1)
    }

    /// Checks that groups have at most as many places as an address has bits, and that each node
    /// has at most one place.
    pub(super) fn validate_chunks(&self) -> Result<(), &'static str> {
        let Some(chunks) = &self.chunks else { return Ok(()) };
        let are_known = chunks.layout.targets().all(|target| self.node(target).is_some());
        let are_sound =
            chunks.layout.is_sound() && chunks.before.as_ref().is_none_or(Layout::has_sound_places);
        if are_known && are_sound && chunks.version > 0 && chunks.round > 1 {
            Ok(())
        } else {
            Err("its groups of storage targets are invalid")
        }
    }
}
