//! Operators' changes of the set of nodes in a running cluster (NICE §4.4, ring re-configuration):
//! their effects, and reasons to refuse them.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::net::SocketAddrV4;

use nicekv_proto::NodeId;
use nicekv_proto::placement::{KeyspaceError, Protocol, check_keyspaces};
use nicekv_switch::{GROUP_CAPACITY, TableError};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::config::{Config, ConfigError, NodeConfig};
use crate::leader::Metadata;
use crate::policy::Policy;
use crate::probation::Undo;
use crate::state::{DesiredState, Node, State};
use crate::targets::Targets;
use crate::view::{Observed, is_intact};

/// A change of the set of nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Change {
    /// Add a node. A drained node gets its share of the data again.
    Add {
        /// The node's name, different from those of other nodes.
        name: String,
        /// The address with which the node sends and receives.
        address: SocketAddrV4,
        /// The node's Ethernet address.
        mac: [u8; 6],
        /// The switch port that leads to the node.
        switch_port: u16,
        /// The switch that the node is attached to, if there are several, connected by trunks.
        home: Option<u16>,
    },
    /// Move all data away from a node, which stays in the cluster.
    Drain { name: String },
    /// Move all data away from a node, and forget the node afterwards. It may be dead.
    Remove { name: String },
}

/// The effect of a [`Change`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// The node's id. A new node must be configured with it.
    pub node: u16,
    /// Number of replicas that move, by the names of the old and the new node.
    pub moves: Vec<(String, String, usize)>,
    /// Number of all replicas in the cluster.
    pub replicas: usize,
}

/// Why a change is refused. The state is unchanged.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Refused {
    #[error("this metadata service does not lead")]
    NotLeading,
    #[error("another change is being persisted; try again")]
    Busy,
    #[error(
        "the metadata state is an older copy, so nothing can be changed; `nicekv status` says what to do"
    )]
    OldState,
    #[error("the cluster has not started: {0}")]
    NotBegun(&'static str),
    #[error("there is no node {name:?}; see `nicekv node list`")]
    Unknown { name: String },
    #[error("{name} is already a node of this cluster, with other settings")]
    InUse { name: String },
    #[error("{name} already holds its share")]
    Holds { name: String },
    #[error("{name} is already {desired}")]
    Already { name: String, desired: &'static str },
    #[error("without {name}: {error}")]
    TooFew { name: String, error: KeyspaceError },
    #[error("{0}")]
    Config(#[from] ConfigError),
    #[error(
        "{name} is the only node with all data of {partitions} partitions; try again when `nicekv status` shows the others as consistent"
    )]
    LastHolder { name: String, partitions: usize },
    #[error(
        "{name} is not live, and may be the only node with values of keyspace {keyspace:?}, whose write set is 1; bring it back first"
    )]
    SoleHolder { name: String, keyspace: String },
    #[error("node ids are exhausted; none is used twice")]
    NoNumber,
    #[error(transparent)]
    Keyspace(#[from] KeyspaceError),
    #[error("there is no keyspace {name:?}; see `nicekv keyspace list`")]
    UnknownKeyspace { name: String },
    #[error("keyspace {name:?} cannot be dropped: requests that name no keyspace use it")]
    DefaultKeyspace { name: String },
    #[error("keyspace {name:?}: leave out its id and its rings; the cluster assigns them")]
    Given { name: String },
    #[error("a keyspace is created only when all nodes that should hold data are live; not live: {nodes}")]
    Absent { nodes: String },
    #[error("all {pairs} pairs of rings are in use, {dropped} of them by keyspaces that are being dropped")]
    NoRings { pairs: usize, dropped: usize },
    #[error(
        "names of objects need the ring of groups, which this cluster does not have; see `group_ring` in its configuration"
    )]
    NoGroupRing,
    #[error(
        "no keyspace has names of objects, so there are no chunks; `nicekv keyspace create objects --chunks multicast` creates one"
    )]
    NoNamesOfObjects,
    #[error("keyspace ids are exhausted; none is used twice")]
    NoKeyspaceNumber,
    #[error("there is no partition {partition}; see `nicekv partition list`")]
    UnknownPartition { partition: u32 },
    #[error("partition {partition} no longer exists; it was replaced by partition {by}")]
    Succeeded { partition: u32, by: String },
    #[error("partition {partition} belongs to keyspace {keyspace:?}, which is being dropped")]
    DroppedPartition { partition: u32, keyspace: String },
    #[error(
        "partition {partition} belongs to quorum keyspace {keyspace:?}, whose partitions cannot be split or merged"
    )]
    ByQuorum { partition: u32, keyspace: String },
    #[error("a split or merge of partition {partition} is already pending")]
    AskedAlready { partition: u32 },
    #[error("no split or merge of partition {partition} is pending")]
    NotAsked { partition: u32 },
    #[error("partition {partition} has only vnode {vnode:04x}, and cannot be split")]
    OneVnode { partition: u32, vnode: u16 },
    #[error(
        "partition {partition} has vnodes {first:04x} to {last:04x}; its second half cannot begin at {at:04x}"
    )]
    NotInside { partition: u32, at: u16, first: u16, last: u16 },
    #[error("partition {partition} has only match value {value}, and cannot be split")]
    OneValue { partition: u32, value: String },
    #[error("partition {partition} has match values {first} to {last}; its second half cannot begin at {at}")]
    NotWithin { partition: u32, at: String, first: String, last: String },
    #[error("partition {partition} of keyspace {keyspace:?} has hashed keys; give a vnode to split at")]
    ByHash { partition: u32, keyspace: String },
    #[error("partitions {one} and {other} belong to different keyspaces")]
    OtherKeyspaces { one: u32, other: u32 },
    #[error("partitions {one} and {other} are not adjacent")]
    NotAdjacent { one: u32, other: u32 },
    #[error("{reshapings} splits and merges are pending, and no more can be queued")]
    TooManyReshapings { reshapings: usize },
    #[error(
        "{partitions} split or merged partitions are not discarded everywhere yet; bring back, or remove, the nodes that hold them"
    )]
    Undiscarded { partitions: usize },
    #[error("keyspace {keyspace:?} has, or will have, {most} partitions, the maximum")]
    TooManyPartitions { keyspace: String, most: u32 },
    #[error("the switches do not have the capacity: {error}")]
    Tables { error: String },
    #[error(
        "switch {} has no port {port}, the `switch_port` of {name}: correct it, or start the switch with that port",
        switch_name.clone().unwrap_or_else(|| switch.to_string())
    )]
    NoPort { name: String, port: u16, switch: u16, switch_name: Option<String> },
}

impl Refused {
    /// Replaces switch numbers in the message by names.
    #[must_use]
    pub fn naming_switches(self, name_of: impl Fn(u16) -> Option<String>) -> Self {
        match self {
            Self::NoPort { name, port, switch, .. } => {
                Self::NoPort { name, port, switch, switch_name: name_of(switch) }
            }
            other => other,
        }
    }
}

impl Metadata {
    /// The effect that a change would have.
    ///
    /// # Errors
    /// Why the change would be refused.
    pub fn plan(&self, change: &Change) -> Result<Plan, Refused> {
        self.changed(change).map(|(plan, _)| plan)
    }

    /// Begins a change. It is persisted through [`Metadata::poll_storage`], and carried out step by
    /// step; [`Metadata::status`] has its progress.
    ///
    /// # Errors
    /// Why the change is refused.
    pub fn change(&mut self, change: &Change) -> Result<Plan, Refused> {
        let plan = self.begin_change(|metadata| metadata.changed(change))?;
        if let Change::Add { name, .. } = change {
            let is_new = plan.node >= self.committed.next_node;
            let desired = if is_new { DesiredState::Removed } else { DesiredState::Drained };
            self.begin_probation(Undo::Node { name: name.clone(), desired });
        }
        Ok(plan)
    }

    /// Begins to persist the state with a change. Refused while another step is being persisted.
    pub(crate) fn begin_change<P>(
        &mut self,
        change: impl FnOnce(&Self) -> Result<(P, State), Refused>,
    ) -> Result<P, Refused> {
        if self.observations.contradiction.is_some() {
            return Err(Refused::OldState);
        }
        if self.has_step_in_flight() {
            return Err(Refused::Busy);
        }
        let (plan, mut next) = change(self)?;
        next.version += 1;
        self.begin_step(next);
        Ok(plan)
    }

    /// Checks that changes are possible: this instance leads, and the cluster has started.
    pub(crate) fn check_begun(&self) -> Result<(), Refused> {
        if !self.is_leading() {
            return Err(Refused::NotLeading);
        }
        if !self.committed.is_bootstrapped() {
            return Err(Refused::NotBegun("not all of its initial nodes have started"));
        }
        Ok(())
    }

    /// Names of nodes, separated by commas, for messages.
    pub(crate) fn names(&self, nodes: &[NodeId]) -> String {
        let names: Vec<_> =
            nodes.iter().filter_map(|id| Some(self.committed.node(*id)?.config.name.as_str())).collect();
        names.join(", ")
    }

    fn changed(&self, change: &Change) -> Result<(Plan, State), Refused> {
        self.check_begun()?;
        let mut next = self.committed.clone();
        let node = match change {
            Change::Add { name, address, mac, switch_port, home } => {
                let config = NodeConfig {
                    id: NodeId(next.next_node),
                    name: name.clone(),
                    address: *address,
                    mac: *mac,
                    switch_port: *switch_port,
                    home: *home,
                };
                let node = self.add(&mut next, config)?;
                self.check_tables(&next)?;
                self.check_groups(&next)?;
                node
            }
            Change::Drain { name } => take_away(&mut next, name, DesiredState::Drained)?,
            Change::Remove { name } => {
                let node = take_away(&mut next, name, DesiredState::Removed)?;
                self.check_last_holder(node, name)?;
                self.check_sole_holder(node, name)?;
                node
            }
        };
        Ok((plan_of(&next, node), next))
    }

    /// Checks that every switch that has reported its ports has the port that leads to the node.
    fn check_port(&self, next: &State, node: NodeId) -> Result<(), Refused> {
        let nodes = next.node_configs();
        let Some(config) = nodes.iter().find(|config| config.id == node) else { return Ok(()) };
        match self.observations.switches.without_port(config, &nodes) {
            Some((switch, port)) => {
                Err(Refused::NoPort { name: config.name.clone(), port, switch: switch.0, switch_name: None })
            }
            None => Ok(()),
        }
    }

    /// Checks that switches have the capacity for the multicast groups that exist after all moves.
    fn check_groups(&self, next: &State) -> Result<(), Refused> {
        let mut targets = Targets::default();
        targets.update(next);
        let replicated = next.partitions().filter(|(_, it)| !Policy::of(next.keyspace(it)).is_chain);
        let groups = replicated.map(|(id, partition)| {
            let members = targets.of(id).unwrap_or(&partition.originals);
            members.iter().copied().collect::<BTreeSet<_>>()
        });
        match groups.collect::<BTreeSet<_>>().len() {
            groups if groups > GROUP_CAPACITY => {
                Err(Refused::Tables { error: TableError::TooManyGroups { groups }.to_string() })
            }
            _ => Ok(()),
        }
    }

    fn add(&self, next: &mut State, config: NodeConfig) -> Result<NodeId, Refused> {
        if let Some(known) = next.nodes.iter_mut().find(|node| node.config.name == config.name) {
            let id = known.config.id;
            if known.config != (NodeConfig { id, ..config.clone() }) {
                return Err(Refused::InUse { name: config.name });
            }
            match known.desired {
                DesiredState::Holds => return Err(Refused::Holds { name: config.name }),
                // Data that are still moving away from the node may be the last copy.
                DesiredState::Removed => {
                    return Err(Refused::Already { name: config.name, desired: "being removed" });
                }
                DesiredState::Drained => known.desired = DesiredState::Holds,
            }
            self.check_port(next, id)?;
            return Ok(id);
        }
        let id = config.id;
        next.next_node = id.0.checked_add(1).ok_or(Refused::NoNumber)?;
        next.nodes.push(Node { config, desired: DesiredState::Holds, added: true });
        let nodes = next.nodes.iter().map(|node| node.config.clone()).collect();
        Config { nodes, ..self.config.clone() }.validate()?;
        self.check_port(next, id)?;
        Ok(id)
    }

    /// Checks that no partition has its only complete copy on the node, if the node is not live.
    fn check_last_holder(&self, node: NodeId, name: &str) -> Result<(), Refused> {
        let situation = self.situation();
        let needs_it = |(id, partition): (_, &crate::state::Partition)| {
            let view = situation.view(id, partition);
            let other_holds =
                partition.holders().any(|member| member.node != node && is_intact(member, &view));
            partition.has(node) && !other_holds && view.live(node).is_none()
        };
        match situation.state.partitions().filter(|entry| needs_it(*entry)).count() {
            0 => Ok(()),
            partitions => Err(Refused::LastHolder { name: name.into(), partitions }),
        }
    }

    /// Checks that a node that is not live is not the only one with an acknowledged value. In
    /// quorum mode with k = 1 it may be (R14).
    fn check_sole_holder(&self, node: NodeId, name: &str) -> Result<(), Refused> {
        let state = &self.committed;
        let is_there = self.situation().observations.membership.live(node).is_some();
        let held = state.partitions().filter(|(_, partition)| partition.has(node));
        let mut specs = held.map(|(_, partition)| state.keyspace(partition));
        match specs.find(|spec| spec.protocol == Protocol::Quorum { write_set: 1 }) {
            Some(spec) if !is_there => {
                Err(Refused::SoleHolder { name: name.into(), keyspace: spec.name.clone() })
            }
            _ => Ok(()),
        }
    }
}

/// The effect of a change of `node`. `next`: the state that results from the change.
fn plan_of(next: &State, node: NodeId) -> Plan {
    let name = |id| next.node(id).map_or_else(String::new, |node| node.config.name.clone());
    let mut targets = Targets::default();
    targets.update(next);
    let (mut moves, mut replicas) = (Moves::default(), 0);
    for (id, partition) in next.partitions() {
        let Some(target) = targets.of(id) else { continue };
        replicas += target.len();
        moves.add(&partition.originals, target, name);
    }
    Plan { node: node.0, moves: moves.listed(), replicas }
}

/// Number of replicas that move, by the names of the old and the new node.
#[derive(Default)]
pub(crate) struct Moves(BTreeMap<(String, String), usize>);

impl Moves {
    /// Adds the moves of one partition.
    pub(crate) fn add(&mut self, originals: &[NodeId], target: &[NodeId], name: impl Fn(NodeId) -> String) {
        let gone = originals.iter().filter(|node| !target.contains(node));
        let come = target.iter().filter(|node| !originals.contains(node));
        for (from, to) in gone.zip(come) {
            *self.0.entry((name(*from), name(*to))).or_default() += 1;
        }
    }

    pub(crate) fn listed(self) -> Vec<(String, String, usize)> {
        self.0.into_iter().map(|((from, to), count)| (from, to, count)).collect()
    }
}

/// Sets the desired state of a node that should hold no data.
fn take_away(next: &mut State, name: &str, desired: DesiredState) -> Result<NodeId, Refused> {
    let unknown = || Refused::Unknown { name: name.into() };
    let place = next.nodes.iter().position(|node| node.config.name == name).ok_or_else(unknown)?;
    let id = next.nodes[place].config.id;
    let node = &mut next.nodes[place];
    match (node.desired, desired) {
        (DesiredState::Removed, _) => {
            return Err(Refused::Already { name: name.into(), desired: "being removed" });
        }
        (DesiredState::Drained, DesiredState::Drained) => {
            return Err(Refused::Already { name: name.into(), desired: "drained" });
        }
        _ => node.desired = desired,
    }
    check_keyspaces(&next.keyspaces, next.ring().len())
        .map_err(|error| Refused::TooFew { name: name.into(), error })?;
    Ok(id)
}
