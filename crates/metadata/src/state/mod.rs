//! The persisted state: everything that a new leader must know (R13).
//!
//! Members name the *process* that was admitted, so that a restart (R9) and a lost disk show by comparison with
//! what the node's heartbeats say.

mod divisions;
mod encoding;

use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use nicekv_placement::{KeyspaceSpec, check_keyspaces, vnode_blocks};
use nicekv_wire::control::{MemberRole, MemberState};
use nicekv_wire::limits::MEMBERS_MAX;
use nicekv_wire::{Epoch, KeyspaceId, MatchRange, NodeId, PartitionId, Term};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::config::{Config, ConfigError, NodeConfig};
pub(crate) use divisions::{Division, Divisions};
pub(crate) use encoding::node_id;
use encoding::{keyspace_id, keyspaces, match_range, node_ids, partitions};

/// Version of the encoding, its first byte.
const FORMAT_VERSION: u8 = 5;

/// One life of a node's process and of its storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Process {
    pub(crate) incarnation: u64,
    pub(crate) storage: u128,
}

/// How far a member has come. Each step takes the acknowledgements of the whole epoch (R7).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum Standing {
    /// Announced as joining; in no ring.
    Joining,
    /// In the multicast ring; copies.
    Copying,
    /// Announced as consistent; not yet in the unicast ring, unless as primary.
    Promoted,
    /// In both rings.
    Serving,
}

impl Standing {
    pub(crate) fn is_consistent(self) -> bool {
        matches!(self, Self::Promoted | Self::Serving)
    }

    /// What the members are told.
    pub(crate) fn announced(self) -> MemberState {
        if self.is_consistent() { MemberState::Consistent } else { MemberState::Joining }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Member {
    #[serde(with = "node_id")]
    pub(crate) node: NodeId,
    pub(crate) process: Process,
    pub(crate) standing: Standing,
    /// Stands in for an original that is away (R8). Who is neither that nor an original is leaving.
    pub(crate) handoff: bool,
}

/// What the operator wants of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Wish {
    /// That it holds its share.
    Holds,
    /// That it holds nothing.
    Drained,
    /// That it holds nothing and is forgotten then.
    Removed,
}

/// A node of the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Node {
    pub(crate) config: NodeConfig,
    pub(crate) wish: Wish,
    /// By an operator's command: the configuration need not know it.
    pub(crate) added: bool,
}

/// A former member that has not acknowledged that it is none. It gets no lease (R12).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Removed {
    #[serde(with = "node_id")]
    pub(crate) node: NodeId,
    pub(crate) incarnation: u64,
    /// The epoch that removed it.
    pub(crate) since: u32,
    /// Whether it may have been answering gets: then the epoch is activated only when it cannot any more (R6).
    pub(crate) served: bool,
}

/// A partition in its newest epoch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Partition {
    #[serde(with = "keyspace_id")]
    pub(crate) keyspace: KeyspaceId,
    /// Which of the keyspace's match values it owns.
    #[serde(with = "match_range")]
    pub(crate) range: MatchRange,
    pub(crate) epoch: u32,
    pub(crate) activated: bool,
    #[serde(with = "node_id")]
    pub(crate) primary: NodeId,
    pub(crate) members: Vec<Member>,
    pub(crate) removed: Vec<Removed>,
    /// The replica set by the hash ring; other members are handoffs, or leaving.
    #[serde(with = "node_ids")]
    pub(crate) originals: Vec<NodeId>,
    /// Originals that have never been consistent since they are.
    #[serde(with = "node_ids")]
    pub(crate) newcomers: Vec<NodeId>,
    /// Which member answers whose gets.
    pub(crate) divisions: Divisions,
}

impl Partition {
    pub(crate) fn epoch(&self) -> Epoch {
        Epoch(self.epoch)
    }

    pub(crate) fn member(&self, node: NodeId) -> Option<&Member> {
        self.members.iter().find(|member| member.node == node)
    }

    /// What a member is there for.
    pub(crate) fn role(&self, member: &Member) -> MemberRole {
        match (member.handoff, self.originals.contains(&member.node)) {
            (true, _) => MemberRole::Handoff,
            (false, false) => MemberRole::Leaving,
            (false, true) if self.is_newcomer(member.node) => MemberRole::Newcomer,
            (false, true) => MemberRole::Original,
        }
    }

    /// Who holds everything, and may lead: consistent originals, and those that were.
    pub(crate) fn holders(&self) -> impl Iterator<Item = &Member> {
        self.members.iter().filter(|member| !member.handoff && member.standing.is_consistent())
    }

    /// Every original serves, nobody stands in, and nothing is left to wait for.
    pub(crate) fn is_whole(&self) -> bool {
        let all_serve = self.members.iter().all(|member| member.standing == Standing::Serving);
        all_serve && self.has_only_originals() && self.activated && self.removed.is_empty()
    }

    fn has_only_originals(&self) -> bool {
        let is_original = |member: &Member| self.originals.contains(&member.node);
        self.members.len() == self.originals.len() && self.members.iter().all(is_original)
    }

    /// Whether a node is an original that does not hold everything.
    pub(crate) fn is_newcomer(&self, node: NodeId) -> bool {
        self.newcomers.contains(&node)
    }

    /// Whether a node is a member, or is to be one.
    pub(crate) fn has(&self, node: NodeId) -> bool {
        self.originals.contains(&node) || self.member(node).is_some()
    }

    pub(crate) fn handoffs(&self) -> impl Iterator<Item = &Member> {
        self.members.iter().filter(|member| member.handoff)
    }

    /// What must hold in every epoch; `nodes` are the cluster's.
    fn validate(&self, replicas: usize, nodes: &[NodeId]) -> Result<(), &'static str> {
        if !self.holders().any(|member| member.node == self.primary) {
            return Err("a primary does not hold everything");
        }
        let removed = self.removed.iter().map(|removed| removed.node);
        let members = self.members.iter().map(|member| member.node);
        let mut named = self.originals.iter().copied().chain(members).chain(removed);
        if self.originals.len() != replicas
            || self.members.len() > MEMBERS_MAX
            || !named.all(|node| nodes.contains(&node))
        {
            return Err("a replica set has the wrong size or names an unknown node");
        }
        let is_original = |member: &Member| self.originals.contains(&member.node);
        let is_named_once = |(index, member): (usize, &Member)| {
            self.members[..index].iter().all(|before| before.node != member.node)
        };
        let is_in_two_roles = |member: &Member| is_original(member) && member.handoff;
        if self.members.iter().any(is_in_two_roles)
            || !self.newcomers.iter().all(|node| self.originals.contains(node))
            || !self.members.iter().enumerate().all(is_named_once)
        {
            return Err("a member is named twice, or in the wrong role");
        }
        if !self.divisions.are_sound() {
            return Err("the divisions of a partition make no sense");
        }
        if vnode_blocks(self.range).is_none() {
            return Err("a partition begins or ends within a vnode");
        }
        Ok(())
    }
}

/// The whole state. Before bootstrap there are no keyspaces and no partitions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct State {
    /// Rises by one with every change.
    pub(crate) version: u64,
    pub(crate) cluster: u128,
    pub(crate) term: u64,
    /// By their ids.
    pub(crate) nodes: Vec<Node>,
    /// The smallest id that no node ever had.
    pub(crate) next_node: u16,
    /// Those that have come into being, in the order in which they did.
    #[serde(with = "keyspaces")]
    pub(crate) keyspaces: Vec<KeyspaceSpec>,
    #[serde(with = "partitions")]
    partitions: BTreeMap<PartitionId, Partition>,
    /// The smallest id that no partition ever had.
    next_partition: u32,
}

/// Why the core does not start.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[allow(missing_docs, reason = "the message of each variant says what its fields are")]
pub enum StateError {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error("the metadata state has format {found}, this release reads {FORMAT_VERSION}")]
    Format { found: u8 },
    #[error("the metadata state is damaged: {0}")]
    Damaged(&'static str),
    #[error("the metadata state belongs to cluster {found:032x}, not {expected:032x}")]
    OtherCluster { found: u128, expected: u128 },
    #[error(
        "the set of nodes differs: {name} is configured, and no node of this cluster; `nicekv node add` adds a spare one"
    )]
    NodeUnknown { name: String },
    #[error(
        "the set of nodes differs: {name} is a node of this cluster, and not configured; `nicekv node remove` gives nodes up"
    )]
    NodeMissing { name: String },
    #[error("keyspace {stored} is stored, {configured} is configured; changing it is not supported")]
    KeyspaceChanged { stored: String, configured: String },
}

/// The version inside encoded state, for [`crate::StateStore::compare_and_swap`].
pub fn persisted_version(bytes: &[u8]) -> Result<u64, StateError> {
    State::decode(bytes).map(|state| state.version)
}

impl State {
    /// The state of a cluster that has never been.
    pub(crate) fn new(config: &Config) -> Self {
        let node = |config: &NodeConfig| Node { config: config.clone(), wish: Wish::Holds, added: false };
        let mut nodes: Vec<_> = config.nodes.iter().map(node).collect();
        nodes.sort_unstable_by_key(|node| node.config.id);
        Self {
            version: 0,
            cluster: config.cluster,
            term: 0,
            next_node: nodes.last().map_or(0, |node| node.config.id.0 + 1),
            nodes,
            keyspaces: Vec::new(),
            partitions: BTreeMap::new(),
            next_partition: 0,
        }
    }

    /// What was persisted, if it belongs to this configuration. Keyspaces may be configured that are not there yet; of nodes
    /// only those that were added or removed since may make a difference.
    pub(crate) fn resume(config: &Config, bytes: &[u8]) -> Result<Self, StateError> {
        let mut stored = Self::decode(bytes)?;
        let fresh = Self::new(config);
        if stored.cluster != fresh.cluster {
            return Err(StateError::OtherCluster { found: stored.cluster, expected: fresh.cluster });
        }
        for Node { config: configured, .. } in fresh.nodes {
            match stored.nodes.iter_mut().find(|node| node.config.id == configured.id) {
                // It may have moved to another address.
                Some(known) => known.config = configured,
                None if configured.id.0 < stored.next_node => {}
                None => return Err(StateError::NodeUnknown { name: configured.name }),
            }
        }
        let is_configured =
            |node: &Node| config.nodes.iter().any(|configured| configured.id == node.config.id);
        if let Some(node) = stored.nodes.iter().find(|node| !node.added && !is_configured(node)) {
            return Err(StateError::NodeMissing { name: node.config.name.clone() });
        }
        for spec in &stored.keyspaces {
            let configured = config.keyspaces.iter().find(|configured| configured.id == spec.id);
            if configured != Some(spec) {
                return Err(StateError::KeyspaceChanged {
                    stored: spec.to_string(),
                    configured: configured.map_or("none of this id".into(), ToString::to_string),
                });
            }
        }
        Ok(stored)
    }

    pub(crate) fn term(&self) -> Term {
        Term(self.term)
    }

    pub(crate) fn is_bootstrapped(&self) -> bool {
        !self.partitions.is_empty()
    }

    /// A node of the cluster.
    pub(crate) fn node(&self, id: NodeId) -> Option<&Node> {
        self.nodes.iter().find(|node| node.config.id == id)
    }

    /// The nodes as a configuration has them.
    pub(crate) fn node_configs(&self) -> Vec<NodeConfig> {
        self.nodes.iter().map(|node| node.config.clone()).collect()
    }

    /// The nodes that are to hold something.
    pub(crate) fn ring(&self) -> Vec<NodeId> {
        let holds = self.nodes.iter().filter(|node| node.wish == Wish::Holds);
        holds.map(|node| node.config.id).collect()
    }

    /// A node is none of the cluster's any more.
    pub(crate) fn forget(&mut self, node: NodeId) {
        self.nodes.retain(|known| known.config.id != node);
        for partition in self.partitions.values_mut() {
            partition.removed.retain(|removed| removed.node != node);
        }
    }

    /// Every partition.
    pub(crate) fn partitions(&self) -> impl Iterator<Item = (PartitionId, &Partition)> {
        self.partitions.iter().map(|(id, partition)| (*id, partition))
    }

    pub(crate) fn partition(&self, id: PartitionId) -> Option<&Partition> {
        self.partitions.get(&id)
    }

    /// A partition comes into being, under an id that none ever had.
    pub(crate) fn add(&mut self, partition: Partition) -> PartitionId {
        let id = PartitionId(self.next_partition);
        self.next_partition += 1;
        self.partitions.insert(id, partition);
        id
    }

    /// A partition goes on to `next`.
    pub(crate) fn replace(&mut self, id: PartitionId, next: Partition) {
        self.partitions.insert(id, next).expect("the partition is there");
    }

    /// The keyspace of a partition.
    pub(crate) fn keyspace(&self, partition: &Partition) -> &KeyspaceSpec {
        let of_id = |spec: &&KeyspaceSpec| spec.id == partition.keyspace;
        self.keyspaces.iter().find(of_id).expect("every partition is of a keyspace that is there")
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        postcard::to_allocvec(&(FORMAT_VERSION, self)).expect("a state in memory can be encoded")
    }

    fn decode(bytes: &[u8]) -> Result<Self, StateError> {
        let (&found, body) = bytes.split_first().ok_or(StateError::Damaged("it is empty"))?;
        if found != FORMAT_VERSION {
            return Err(StateError::Format { found });
        }
        let (state, rest): (Self, _) =
            postcard::take_from_bytes(body).map_err(|_| StateError::Damaged("it cannot be decoded"))?;
        if !rest.is_empty() {
            return Err(StateError::Damaged("bytes follow it"));
        }
        state.validate().map_err(StateError::Damaged)?;
        Ok(state)
    }

    fn validate(&self) -> Result<(), &'static str> {
        if self.keyspaces.is_empty() && self.partitions.is_empty() {
            return Ok(());
        }
        check_keyspaces(&self.keyspaces, self.ring().len()).map_err(|_| "its keyspaces make no sense")?;
        let is_known =
            |partition: &Partition| self.keyspaces.iter().any(|spec| spec.id == partition.keyspace);
        if !self.partitions.values().all(is_known) {
            return Err("a partition is of no keyspace");
        }
        if self.partitions.keys().any(|id| id.0 >= self.next_partition) {
            return Err("a partition has an id that is to be given");
        }
        self.keyspaces.iter().try_for_each(|spec| self.validate_keyspace(spec))
    }

    /// Every match value is owned by one partition.
    fn validate_keyspace(&self, spec: &KeyspaceSpec) -> Result<(), &'static str> {
        let mut ranges = Vec::new();
        let nodes: Vec<_> = self.nodes.iter().map(|node| node.config.id).collect();
        for partition in self.partitions.values().filter(|partition| partition.keyspace == spec.id) {
            partition.validate(spec.replicas, &nodes)?;
            ranges.push((partition.range.first(), partition.range.last()));
        }
        ranges.sort_unstable();
        let follows = |pair: &[(u128, u128)]| pair[0].1.checked_add(1) == Some(pair[1].0);
        let (first, last) = (ranges.first().map(|range| range.0), ranges.last().map(|range| range.1));
        if (first, last) == (Some(0), Some(u128::MAX)) && ranges.windows(2).all(follows) {
            return Ok(());
        }
        Err("the partitions of a keyspace leave a gap, or overlap")
    }
}

#[cfg(test)]
mod tests;
