//! The persisted state: everything that a new leader must know (R13).
//!
//! Members name the *process* that was admitted, so a restart (R9) or a lost disk is detected by
//! comparison with the node's heartbeats.

mod chunks;
mod contradiction;
mod divisions;
mod dropped;
mod encoding;
mod layout;
mod partition;
mod placed;
mod reshaped;
mod reshaping;
pub(crate) mod storages;
mod stored;

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::net::Ipv4Addr;

use nicekv_proto::placement::{CREATED_FIRST, KeyOrder, KeyspaceSpec, check_keyspaces, vnode_blocks};
use nicekv_proto::{KeyspaceId, NodeId, PartitionId, Term};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::config::{Config, ConfigError, NodeConfig};
pub(crate) use chunks::ChunkGroups;
pub(crate) use contradiction::Contradiction;
pub(crate) use divisions::{Division, Divisions};
pub(crate) use dropped::{Dropped, Gone};
pub(crate) use encoding::node_id;
use encoding::{by_partition, keyspace_ids, keyspaces};
pub(crate) use layout::Layout;
pub(crate) use partition::{Left, Member, Partition, Process, Removed, Standing};
use placed::Placed;
pub(crate) use reshaping::{
    Child, FORMING_MAX, Forming, Parent, RESHAPED_MAX, RESHAPINGS_MAX, Reshaping, is_followed,
};
pub(crate) use storages::Storages;
pub use stored::StoredCluster;

/// Version of the encoding, which is the state's first byte.
const FORMAT_VERSION: u8 = 15;

/// The operator's desired state of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum DesiredState {
    /// It should hold its share of the data.
    Holds,
    /// It should hold no data.
    Drained,
    /// It should hold no data, and is forgotten afterwards.
    Removed,
}

/// A node of the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Node {
    pub(crate) config: NodeConfig,
    pub(crate) desired: DesiredState,
    /// Whether the node was added by a command. Then the configuration need not contain it.
    pub(crate) added: bool,
}

/// The whole state. Before bootstrap there are no keyspaces and no partitions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct State {
    /// Version of the state; increases by one with every change.
    pub(crate) version: u64,
    pub(crate) cluster: u128,
    pub(crate) term: u64,
    /// The nodes, ascending by id.
    pub(crate) nodes: Vec<Node>,
    /// The smallest id that no node has ever had.
    pub(crate) next_node: u16,
    /// Keyspaces that exist, in the order of their creation.
    #[serde(with = "keyspaces")]
    pub(crate) keyspaces: Vec<KeyspaceSpec>,
    /// The smallest id, among those for keyspaces created by command, that no keyspace has ever had.
    pub(crate) next_keyspace: u16,
    /// Configured keyspaces that were dropped, so that they are not created again.
    #[serde(with = "keyspace_ids")]
    pub(crate) retired: Vec<KeyspaceId>,
    /// Dropped keyspaces of which some node may still hold data.
    pub(crate) dropped: Vec<Dropped>,
    #[serde(with = "by_partition")]
    partitions: BTreeMap<PartitionId, Partition>,
    /// The smallest id that no partition has ever had.
    next_partition: u32,
    /// Requested splits and merges, in the order of the requests (R17).
    pub(crate) reshapings: Vec<Reshaping>,
    /// Partitions that were split or merged, and whose data some node may still hold.
    #[serde(with = "by_partition")]
    pub(crate) reshaped: BTreeMap<PartitionId, Gone>,
    /// Partitions that are placed by load instead of by the ring (TurboKV §5.1).
    #[serde(with = "by_partition")]
    placed: BTreeMap<PartitionId, Placed>,
    /// Groups of storage targets; `None` before the first keyspace with names of objects.
    pub(crate) chunks: Option<ChunkGroups>,
    /// Durable log positions that nodes have reported.
    pub(crate) storages: Storages,
    /// A node's evidence that this state is an older copy.
    pub(crate) contradiction: Option<Contradiction>,
}

/// Describes the difference between two keyspaces in their text form:
/// `name=setting=value,setting=value`.
fn differences(stored: &str, configured: &str) -> String {
    let whole = || format!("keyspace {stored} is stored, but {configured} is configured");
    let (Some((name, stored_settings)), Some((other_name, configured_settings))) =
        (stored.split_once('='), configured.split_once('='))
    else {
        return whole();
    };
    if name != other_name {
        return whole();
    }
    let only = |these: &str, those: &str| {
        let those: Vec<&str> = those.split(',').collect();
        let only: Vec<&str> = these.split(',').filter(|setting| !those.contains(setting)).collect();
        if only.is_empty() { "no such setting".into() } else { only.join(",") }
    };
    format!(
        "keyspace {name} is stored with {}, but configured with {}",
        only(stored_settings, configured_settings),
        only(configured_settings, stored_settings)
    )
}

/// Why the core cannot start.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum StateError {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error("the metadata state has format {found}; this release reads format {FORMAT_VERSION}")]
    Format { found: u8 },
    #[error("the metadata state is damaged: {0}")]
    Damaged(&'static str),
    #[error("the metadata state belongs to cluster {found:032x}, not {expected:032x}")]
    OtherCluster { found: u128, expected: u128 },
    #[error(
        "the set of nodes differs: {name} is configured, but not a node of this cluster; add spare nodes with `nicekv node add`"
    )]
    NodeUnknown { name: String },
    #[error(
        "the set of nodes differs: {name} is a node of this cluster, but not configured; remove nodes with `nicekv node remove`"
    )]
    NodeMissing { name: String },
    #[error("{}; changing it is not supported", differences(.stored, .configured))]
    KeyspaceChanged { stored: String, configured: String },
    #[error("keyspace {name} of this cluster has the ring {ring}/16, which the configuration no longer has")]
    RingUnknown { name: String, ring: Ipv4Addr },
    #[error(
        "keyspace {name} is configured with the ring {ring}/16, which another keyspace of this cluster has; set `unicast_vring` and `multicast_vring`"
    )]
    RingTaken { name: String, ring: Ipv4Addr },
}

/// The version of an encoded state, for [`crate::StateStore::compare_and_swap`].
pub fn persisted_version(bytes: &[u8]) -> Result<u64, StateError> {
    State::decode(bytes).map(|state| state.version)
}

impl State {
    /// The state of a new cluster.
    pub(crate) fn new(config: &Config) -> Self {
        let node =
            |config: &NodeConfig| Node { config: config.clone(), desired: DesiredState::Holds, added: false };
        let mut nodes: Vec<_> = config.nodes.iter().map(node).collect();
        nodes.sort_unstable_by_key(|node| node.config.id);
        Self {
            version: 0,
            cluster: config.cluster,
            term: 0,
            next_node: nodes.last().map_or(0, |node| node.config.id.0 + 1),
            nodes,
            keyspaces: Vec::new(),
            next_keyspace: CREATED_FIRST.0,
            retired: Vec::new(),
            dropped: Vec::new(),
            partitions: BTreeMap::new(),
            next_partition: 0,
            reshapings: Vec::new(),
            reshaped: BTreeMap::new(),
            placed: BTreeMap::new(),
            chunks: None,
            storages: Storages::new(),
            contradiction: None,
        }
    }

    /// Decodes a persisted state, and checks it against the configuration. The configuration may
    /// have new keyspaces. The sets of nodes may differ only by nodes that were added or removed by
    /// command.
    pub(crate) fn resume(config: &Config, bytes: &[u8]) -> Result<Self, StateError> {
        let mut stored = Self::decode(bytes)?;
        let fresh = Self::new(config);
        if stored.cluster != fresh.cluster {
            return Err(StateError::OtherCluster { found: stored.cluster, expected: fresh.cluster });
        }
        for Node { config: configured, .. } in fresh.nodes {
            match stored.nodes.iter_mut().find(|node| node.config.id == configured.id) {
                // The node's address may have changed.
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
        for spec in stored.keyspaces.iter().filter(|spec| spec.id < CREATED_FIRST) {
            let configured = config.keyspaces.iter().find(|configured| configured.id == spec.id);
            if configured != Some(spec) {
                return Err(StateError::KeyspaceChanged {
                    stored: spec.to_string(),
                    configured: configured.map_or("none of this id".into(), ToString::to_string),
                });
            }
        }
        stored.check_rings(config)?;
        Ok(stored)
    }

    /// Checks that the rings of every existing keyspace are in the configuration, because switches
    /// know only those, and that no new keyspace is configured with rings of an existing one.
    fn check_rings(&self, config: &Config) -> Result<(), StateError> {
        let pairs = config.ring_pairs();
        let there = || self.keyspaces.iter().chain(self.dropped.iter().map(|dropped| &dropped.spec));
        if let Some(spec) = there().find(|spec| !pairs.contains(&(spec.unicast, spec.multicast))) {
            let (name, ring) = (spec.name.clone(), spec.unicast);
            return Err(StateError::RingUnknown { name, ring });
        }
        let takes = |new: &&KeyspaceSpec| there().any(|spec| spec.unicast == new.unicast);
        match self.unfounded(config).find(takes) {
            Some(new) => Err(StateError::RingTaken { name: new.name.clone(), ring: new.unicast }),
            None => Ok(()),
        }
    }

    /// Configured keyspaces that the cluster does not have yet.
    pub(crate) fn unfounded<'a>(&'a self, config: &'a Config) -> impl Iterator<Item = &'a KeyspaceSpec> {
        config.keyspaces.iter().filter(|spec| {
            let is_there = self.keyspaces.iter().any(|known| known.id == spec.id);
            !is_there && !self.retired.contains(&spec.id)
        })
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

    /// The nodes in the form of a configuration.
    pub(crate) fn node_configs(&self) -> Vec<NodeConfig> {
        self.nodes.iter().map(|node| node.config.clone()).collect()
    }

    /// The nodes that should hold data.
    pub(crate) fn ring(&self) -> Vec<NodeId> {
        let holds = self.nodes.iter().filter(|node| node.desired == DesiredState::Holds);
        holds.map(|node| node.config.id).collect()
    }

    /// Removes a node from the cluster.
    pub(crate) fn forget(&mut self, node: NodeId) {
        self.nodes.retain(|known| known.config.id != node);
        for partition in self.partitions.values_mut() {
            partition.removed.retain(|removed| removed.node != node);
            partition.left.retain(|left| left.node != node);
        }
        let dropped = self.dropped.iter_mut().flat_map(|dropped| dropped.partitions.values_mut());
        dropped.chain(self.reshaped.values_mut()).for_each(|gone| gone.forget(node));
    }

    /// Partitions that no longer exist: of dropped keyspaces, and those that were split or merged.
    pub(crate) fn gone(&self) -> impl Iterator<Item = (PartitionId, &KeyspaceSpec, &Gone)> {
        let dropped = self
            .dropped
            .iter()
            .flat_map(|dropped| dropped.partitions.iter().map(|(id, gone)| (*id, &dropped.spec, gone)));
        let reshaped = self.reshaped.iter().map(|(id, gone)| {
            let spec = self.keyspaces.iter().find(|spec| spec.id == gone.keyspace);
            (*id, spec.expect("its keyspace is there"), gone)
        });
        dropped.chain(reshaped)
    }

    /// Former members of any partition that may not know that they were removed.
    pub(crate) fn removed(&self) -> impl Iterator<Item = &Removed> {
        let of_gone = self.gone().flat_map(|(_, _, gone)| &gone.removed);
        self.partitions.values().flat_map(|partition| &partition.removed).chain(of_gone)
    }

    /// The newest epoch of a partition, or its last one if it no longer exists.
    pub(crate) fn newest_epoch(&self, id: PartitionId) -> Option<u32> {
        let dropped = || self.dropped.iter().find_map(|dropped| dropped.partitions.get(&id));
        let gone = || self.reshaped.get(&id).or_else(dropped);
        self.partition(id).map(|partition| partition.epoch).or_else(|| gone().map(|gone| gone.epoch))
    }

    /// Drops a keyspace: its partitions continue without members until no node holds their data.
    pub(crate) fn drop_keyspace(&mut self, id: KeyspaceId) {
        let Some(place) = self.keyspaces.iter().position(|spec| spec.id == id) else { return };
        let spec = self.keyspaces.remove(place);
        let partitions = self.partitions.extract_if(.., |_, partition| partition.keyspace == id);
        let partitions = partitions.map(|(id, partition)| (id, Gone::of(&partition)));
        let reshaped = self.reshaped.extract_if(.., |_, gone| gone.keyspace == id);
        let reshaped = reshaped.map(|(id, gone)| (id, gone.end(spec.replicas)));
        let partitions = partitions.chain(reshaped).collect();
        self.placed.retain(|id, _| self.partitions.contains_key(id));
        let is_there = |parent: &PartitionId| self.partitions.contains_key(parent);
        self.reshapings.retain(|reshaping| reshaping.parents.iter().all(is_there));
        if id < CREATED_FIRST {
            self.retired.push(id);
        }
        self.dropped.push(Dropped { spec, partitions });
    }

    /// Every partition.
    pub(crate) fn partitions(&self) -> impl Iterator<Item = (PartitionId, &Partition)> {
        self.partitions.iter().map(|(id, partition)| (*id, partition))
    }

    pub(crate) fn partition(&self, id: PartitionId) -> Option<&Partition> {
        self.partitions.get(&id)
    }

    /// Adds a partition with an id that no partition has ever had.
    pub(crate) fn add(&mut self, partition: Partition) -> PartitionId {
        let id = PartitionId(self.next_partition);
        self.next_partition += 1;
        let round = self.round_of(partition.keyspace);
        self.partitions.insert(id, Partition { round, ..partition });
        id
    }

    /// Replaces a partition by `next`. With any new epoch, names of objects adopt the newest round
    /// (P8).
    pub(crate) fn replace(&mut self, id: PartitionId, next: Partition) {
        let newest = self.round_of(next.keyspace);
        let before = self.partition(id).expect("the partition is there");
        let round = if next.epoch > before.epoch { newest } else { before.round };
        self.partitions.insert(id, Partition { round, ..next });
    }

    /// Voids the data of a node: it starts without data in every partition that it joins.
    pub(crate) fn note_emptied(&mut self, node: NodeId) {
        for partition in self.partitions.values_mut() {
            if partition.originals.contains(&node) && !partition.emptied.contains(&node) {
                partition.emptied.push(node);
            }
        }
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
            return Err(StateError::Damaged("bytes follow the state"));
        }
        state.validate().map_err(StateError::Damaged)?;
        Ok(state)
    }

    fn validate(&self) -> Result<(), &'static str> {
        if self.keyspaces.is_empty() && self.partitions.is_empty() {
            return Ok(());
        }
        check_keyspaces(&self.keyspaces, self.ring().len()).map_err(|_| "its keyspaces are invalid")?;
        self.validate_dropped()?;
        let is_known =
            |partition: &Partition| self.keyspaces.iter().any(|spec| spec.id == partition.keyspace);
        if !self.partitions.values().all(is_known) {
            return Err("a partition belongs to an unknown keyspace");
        }
        let gone = self.gone().map(|(id, _, _)| id);
        if { gone }.chain(self.partitions.keys().copied()).any(|id| id.0 >= self.next_partition) {
            return Err("a partition has an id that is not assigned yet");
        }
        self.validate_reshapings()?;
        self.validate_placed()?;
        self.validate_chunks()?;
        self.keyspaces.iter().try_for_each(|spec| self.validate_keyspace(spec))
    }

    /// Checks that no two keyspaces, existing or being dropped, have the same id or ring.
    fn validate_dropped(&self) -> Result<(), &'static str> {
        let dropped = || self.dropped.iter().map(|dropped| &dropped.spec);
        let (mut ids, mut rings) = (BTreeSet::new(), BTreeSet::new());
        for spec in self.keyspaces.iter().chain(dropped()) {
            if !ids.insert(spec.id) || !rings.insert(spec.unicast) || !rings.insert(spec.multicast) {
                return Err("two keyspaces share an id or a ring");
            }
        }
        let is_to_be_given = |id: &KeyspaceId| *id >= CREATED_FIRST && id.0 >= self.next_keyspace;
        if ids.iter().any(is_to_be_given) || self.keyspaces.iter().any(|spec| self.retired.contains(&spec.id))
        {
            return Err("a keyspace has an id that is not assigned yet, or is retired");
        }
        if !self.reshaped.values().all(|gone| self.keyspaces.iter().any(|spec| spec.id == gone.keyspace)) {
            return Err("a split or merged partition belongs to an unknown keyspace");
        }
        let is_known = |node: NodeId| self.nodes.iter().any(|known| known.config.id == node);
        match self.gone().all(|(_, _, gone)| gone.nodes().all(is_known)) {
            true => Ok(()),
            false => Err("a partition that no longer exists names an unknown node"),
        }
    }

    /// Checks that every match value belongs to exactly one partition.
    fn validate_keyspace(&self, spec: &KeyspaceSpec) -> Result<(), &'static str> {
        let mut ranges = Vec::new();
        let nodes: Vec<_> = self.nodes.iter().map(|node| node.config.id).collect();
        for partition in self.partitions.values().filter(|partition| partition.keyspace == spec.id) {
            partition.validate(spec.replicas, &nodes)?;
            if spec.order == KeyOrder::Hash && vnode_blocks(partition.range).is_none() {
                return Err("a partition begins or ends within a vnode");
            }
            ranges.push(partition.range);
        }
        ranges.sort_unstable_by_key(|range| range.first());
        let (first, last) =
            (ranges.first().map(|range| range.first()), ranges.last().map(|range| range.last()));
        let is_gapless = ranges.windows(2).all(|pair| is_followed(pair[0], pair[1]));
        if (first, last) == (Some(0), Some(u128::MAX)) && is_gapless {
            return Ok(());
        }
        Err("the partitions of a keyspace leave a gap, or overlap")
    }
}

#[cfg(test)]
mod tests;
