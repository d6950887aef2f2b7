//! Summary of a stored state, for restarting a cluster.

use alloc::vec::Vec;

use nicekv_proto::KeyspaceId;
use nicekv_proto::placement::{CREATED_FIRST, KeyspaceSpec};

use super::{DesiredState, State, StateError};
use crate::config::NodeConfig;

/// The summary of a cluster that is read from a stored state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredCluster {
    /// Nodes of the cluster that have not been forgotten, ascending by id.
    pub nodes: Vec<NodeConfig>,
    /// The number of these nodes that were not removed with `node remove`.
    pub kept: usize,
    /// The smallest id that no node has ever had.
    pub next_node: u16,
    /// Existing keyspaces, including those created by command; empty before bootstrap.
    pub keyspaces: Vec<KeyspaceSpec>,
    /// The smallest id that no configured keyspace has ever had.
    pub next_keyspace: KeyspaceId,
}

impl StoredCluster {
    /// Reads an encoded state.
    ///
    /// # Errors
    /// The state is damaged, or of another release.
    pub fn read(bytes: &[u8]) -> Result<Self, StateError> {
        let state = State::decode(bytes)?;
        let dropped = state.dropped.iter().map(|dropped| dropped.spec.id);
        let ids =
            state.keyspaces.iter().map(|spec| spec.id).chain(dropped).chain(state.retired.iter().copied());
        let last = ids.filter(|id| *id < CREATED_FIRST).max().unwrap_or(KeyspaceId::DEFAULT);
        Ok(Self {
            nodes: state.node_configs(),
            kept: state.nodes.iter().filter(|node| node.desired != DesiredState::Removed).count(),
            next_node: state.next_node,
            next_keyspace: KeyspaceId(last.0 + 1),
            keyspaces: state.keyspaces,
        })
    }
}
