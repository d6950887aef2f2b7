//! The persisted state: everything that a new leader must know (R13).
//!
//! Members name the *process* that was admitted, so that a restart (R9) and a lost disk show by comparison with
//! what the node's heartbeats say.

use alloc::vec::Vec;

use nicekv_placement::Partitioning;
use nicekv_wire::control::MemberState;
use nicekv_wire::limits::MEMBERS_MAX;
use nicekv_wire::quorum::Quorum;
use nicekv_wire::{Epoch, NodeId, PartitionId, Replication, Term};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::config::{Config, ConfigError};

/// Version of the encoding, its first byte.
const FORMAT_VERSION: u8 = 2;

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
    /// Stands in for an original that is away (R8).
    pub(crate) handoff: bool,
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
    pub(crate) epoch: u32,
    pub(crate) activated: bool,
    #[serde(with = "node_id")]
    pub(crate) primary: NodeId,
    pub(crate) members: Vec<Member>,
    pub(crate) removed: Vec<Removed>,
    /// The replica set by the hash ring; other members are handoffs.
    #[serde(with = "node_ids")]
    pub(crate) originals: Vec<NodeId>,
}

impl Partition {
    pub(crate) fn epoch(&self) -> Epoch {
        Epoch(self.epoch)
    }

    pub(crate) fn member(&self, node: NodeId) -> Option<&Member> {
        self.members.iter().find(|member| member.node == node)
    }

    /// Consistent originals: each holds everything, and may lead.
    pub(crate) fn holders(&self) -> impl Iterator<Item = &Member> {
        self.members.iter().filter(|member| !member.handoff && member.standing.is_consistent())
    }

    /// Every original serves, nobody stands in, and nothing is left to wait for.
    pub(crate) fn is_whole(&self) -> bool {
        let all_serve = self.members.iter().all(|member| member.standing == Standing::Serving);
        let only_originals = self.members.len() == self.originals.len() && self.handoffs().count() == 0;
        all_serve && only_originals && self.activated && self.removed.is_empty()
    }

    pub(crate) fn handoffs(&self) -> impl Iterator<Item = &Member> {
        self.members.iter().filter(|member| member.handoff)
    }

    /// What must hold in every epoch; `nodes` are the cluster's.
    fn validate(&self, replicas: u8, nodes: &[NodeId]) -> Result<(), &'static str> {
        if !self.holders().any(|member| member.node == self.primary) {
            return Err("a primary is not a consistent original member");
        }
        let removed = self.removed.iter().map(|removed| removed.node);
        let members = self.members.iter().map(|member| member.node);
        let mut named = self.originals.iter().copied().chain(members).chain(removed);
        if self.originals.len() != usize::from(replicas)
            || self.members.len() > MEMBERS_MAX
            || !named.all(|node| nodes.contains(&node))
        {
            return Err("a replica set has the wrong size or names an unknown node");
        }
        let is_original = |member: &Member| self.originals.contains(&member.node);
        let is_named_once = |(index, member): (usize, &Member)| {
            self.members[..index].iter().all(|before| before.node != member.node)
        };
        if self.members.iter().any(|member| is_original(member) == member.handoff)
            || !self.members.iter().enumerate().all(is_named_once)
        {
            return Err("a member is named twice, or in the wrong role");
        }
        Ok(())
    }
}

/// The whole state. Before bootstrap there are no partitions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct State {
    /// Rises by one with every change.
    pub(crate) version: u64,
    pub(crate) cluster: u128,
    pub(crate) term: u64,
    pub(crate) replicas: u8,
    pub(crate) write_set: Option<u8>,
    pub(crate) partition_bits: u8,
    #[serde(with = "node_ids")]
    pub(crate) nodes: Vec<NodeId>,
    pub(crate) partitions: Vec<Partition>,
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
    #[error("the stored {field} differs from the configured; changing it is not supported")]
    Changed { field: &'static str },
}

/// The version inside encoded state, for [`crate::StateStore::compare_and_swap`].
pub fn persisted_version(bytes: &[u8]) -> Result<u64, StateError> {
    State::decode(bytes).map(|state| state.version)
}

impl State {
    /// The state of a cluster that has never been.
    pub(crate) fn new(config: &Config) -> Result<Self, StateError> {
        let mut nodes: Vec<_> = config.nodes.iter().map(|node| node.id).collect();
        nodes.sort_unstable();
        Ok(Self {
            version: 0,
            cluster: config.cluster,
            term: 0,
            replicas: config.replicas as u8,
            write_set: config.write_set,
            partition_bits: config.partitioning()?.bits(),
            nodes,
            partitions: Vec::new(),
        })
    }

    /// What was persisted, if it belongs to this configuration.
    pub(crate) fn resume(config: &Config, bytes: &[u8]) -> Result<Self, StateError> {
        let stored = Self::decode(bytes)?;
        let fresh = Self::new(config)?;
        if stored.cluster != fresh.cluster {
            return Err(StateError::OtherCluster { found: stored.cluster, expected: fresh.cluster });
        }
        let same = [
            ("set of nodes", stored.nodes == fresh.nodes),
            ("number of replicas", stored.replicas == fresh.replicas),
            ("write set", stored.write_set == fresh.write_set),
            ("number of partitions", stored.partition_bits == fresh.partition_bits),
        ];
        match same.iter().find(|(_, same)| !same) {
            Some((field, _)) => Err(StateError::Changed { field }),
            None => Ok(stored),
        }
    }

    pub(crate) fn term(&self) -> Term {
        Term(self.term)
    }

    pub(crate) fn is_bootstrapped(&self) -> bool {
        !self.partitions.is_empty()
    }

    pub(crate) fn partition(&self, id: PartitionId) -> Option<&Partition> {
        self.partitions.get(id.position())
    }

    pub(crate) fn partitioning(&self) -> Partitioning {
        Partitioning::new(self.partition_bits).expect("checked when the state was made")
    }

    pub(crate) fn replication(&self) -> Replication {
        let by_quorum =
            |write_set| Quorum::new(self.replicas, write_set).expect("checked with the configuration");
        self.write_set.map_or(Replication::Multicast, |write_set| Replication::Quorum(by_quorum(write_set)))
    }

    /// Every partition.
    pub(crate) fn partitions(&self) -> impl Iterator<Item = (PartitionId, &Partition)> {
        let ids = (0..).map(PartitionId);
        ids.zip(&self.partitions)
    }

    pub(crate) fn replace(&mut self, id: PartitionId, next: Partition) {
        self.partitions[id.position()] = next;
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
        if self.is_bootstrapped()
            && Some(self.partitions.len()) != 1usize.checked_shl(self.partition_bits.into())
        {
            return Err("the number of partitions is not the one stated");
        }
        self.partitions.iter().try_for_each(|partition| partition.validate(self.replicas, &self.nodes))
    }
}

mod node_id {
    use nicekv_wire::NodeId;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<S: Serializer>(node: &NodeId, serializer: S) -> Result<S::Ok, S::Error> {
        node.0.serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<NodeId, D::Error> {
        u16::deserialize(deserializer).map(NodeId)
    }
}

mod node_ids {
    use alloc::vec::Vec;
    use nicekv_wire::NodeId;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(nodes: &[NodeId], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(nodes.iter().map(|node| node.0))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<NodeId>, D::Error> {
        Ok(Vec::<u16>::deserialize(deserializer)?.into_iter().map(NodeId).collect())
    }
}
