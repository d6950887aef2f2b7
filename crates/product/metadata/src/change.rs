//! What an operator asks of a running cluster (NICE §4.4, ring re-configuration): what would follow, and whether it is refused.

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
use crate::state::{Node, State, Wish};
use crate::targets::Targets;
use crate::view::{Observed, is_intact};

/// A change of the set of nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Change {
    /// A node is to hold its share: a new one, or one that was drained.
    Add {
        /// Its name; no other node's.
        name: String,
        /// Where it sends from and is reached.
        address: SocketAddrV4,
        /// Ethernet address.
        mac: [u8; 6],
        /// Port of the switch that leads to it.
        switch_port: u16,
        /// The switch that it hangs at, where there are trunks between several.
        home: Option<u16>,
    },
    /// A node is to hold nothing, and stays in the cluster.
    Drain {
        /// Which.
        name: String,
    },
    /// A node is to hold nothing, and is forgotten then. It may be dead.
    Remove {
        /// Which.
        name: String,
    },
}

/// What follows from a [`Change`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// The node's number; that of a new node it must be configured with.
    pub node: u16,
    /// Replicas of partitions that go from a node to another one: by their names, how many.
    pub moves: Vec<(String, String, usize)>,
    /// Replicas that there are.
    pub replicas: usize,
}

/// Why a [`Change`] is refused: nothing has changed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Refused {
    #[error("this metadata service does not lead")]
    NotLeading,
    #[error("another change is being written down; try again")]
    Busy,
    #[error(
        "the metadata state is an older copy, so nothing can be changed; `nicekv status` says what to do"
    )]
    OldState,
    #[error("the cluster has not begun: {0}")]
    NotBegun(&'static str),
    #[error("there is no node {name:?}; `nicekv node list` names them")]
    Unknown { name: String },
    #[error("{name} is a node of this cluster already, with other settings")]
    InUse { name: String },
    #[error("{name} holds its share already")]
    Holds { name: String },
    #[error("{name} is {wish} already")]
    Already { name: String, wish: &'static str },
    #[error("without {name}: {error}")]
    TooFew { name: String, error: KeyspaceError },
    #[error("{0}")]
    Config(#[from] ConfigError),
    #[error(
        "{name} alone holds {partitions} partitions whole just now; try again when `nicekv status` shows the others consistent"
    )]
    LastHolder { name: String, partitions: usize },
    #[error(
        "{name} is not there, and may alone hold what was put into keyspace {keyspace:?}, whose write set is 1: bring it back first"
    )]
    SoleHolder { name: String, keyspace: String },
    #[error("no number is left for a node: none is given twice")]
    NoNumber,
    #[error(transparent)]
    Keyspace(#[from] KeyspaceError),
    #[error("there is no keyspace {name:?}; `nicekv keyspace list` names them")]
    UnknownKeyspace { name: String },
    #[error("keyspace {name:?} stays: requests that name none go to it")]
    DefaultKeyspace { name: String },
    #[error("keyspace {name:?}: its number and its rings are given by the cluster")]
    Given { name: String },
    #[error(
        "a keyspace comes into being when every node that is to hold something is there; not there: {nodes}"
    )]
    Absent { nodes: String },
    #[error("all {pairs} pairs of rings are taken, {dropped} of them by keyspaces that are being dropped")]
    NoRings { pairs: usize, dropped: usize },
    #[error(
        "names of objects need the ring of groups, and this cluster has none: see `group_ring` in its configuration"
    )]
    NoGroupRing,
    #[error(
        "no keyspace has names of objects: there are no chunks; `nicekv keyspace create objects --chunks multicast` makes one"
    )]
    NoNamesOfObjects,
    #[error("no number is left for a keyspace: none is given twice")]
    NoKeyspaceNumber,
    #[error("there is no partition {partition}; `nicekv partition list` names them")]
    UnknownPartition { partition: u32 },
    #[error("partition {partition} is no more: partition {by} took its place")]
    Succeeded { partition: u32, by: String },
    #[error("partition {partition} goes with keyspace {keyspace:?}, which is being dropped")]
    DroppedPartition { partition: u32, keyspace: String },
    #[error(
        "partition {partition} is of keyspace {keyspace:?}, which is by quorum: such partitions cannot be split or merged"
    )]
    ByQuorum { partition: u32, keyspace: String },
    #[error("partition {partition} is to be split or merged already")]
    AskedAlready { partition: u32 },
    #[error("partition {partition} is neither to be split nor merged")]
    NotAsked { partition: u32 },
    #[error("partition {partition} is the one vnode {vnode:04x}, which cannot be split")]
    OneVnode { partition: u32, vnode: u16 },
    #[error(
        "partition {partition} has vnodes {first:04x} to {last:04x}: the second half cannot begin with {at:04x}"
    )]
    NotInside { partition: u32, at: u16, first: u16, last: u16 },
    #[error("partition {partition} is the one match value {value}, which cannot be split")]
    OneValue { partition: u32, value: String },
    #[error(
        "partition {partition} has match values {first} to {last}: the second half cannot begin with {at}"
    )]
    NotWithin { partition: u32, at: String, first: String, last: String },
    #[error("partition {partition} of keyspace {keyspace:?} is of hashed keys: it is split at a vnode")]
    ByHash { partition: u32, keyspace: String },
    #[error("partitions {one} and {other} are of different keyspaces")]
    OtherKeyspaces { one: u32, other: u32 },
    #[error("partitions {one} and {other} are not adjacent")]
    NotAdjacent { one: u32, other: u32 },
    #[error("{wishes} partitions are to be split or merged already, and no more can wait")]
    TooManyWishes { wishes: usize },
    #[error(
        "{partitions} partitions that were split or merged are not discarded everywhere yet: bring back, or remove, the nodes that hold them"
    )]
    Undiscarded { partitions: usize },
    #[error("keyspace {keyspace:?} has, or is to have, {most} partitions: no keyspace can have more")]
    TooManyPartitions { keyspace: String, most: u32 },
    #[error("the switches have no room for it: {error}")]
    Tables { error: String },
    #[error(
        "switch {} has no port {port}, the `switch_port` of {name}: correct it, or start the switch with that port",
        switch_name.clone().unwrap_or_else(|| switch.to_string())
    )]
    NoPort { name: String, port: u16, switch: u16, switch_name: Option<String> },
}

impl Refused {
    /// With switches by their names.
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
    /// What would follow from a change.
    ///
    /// # Errors
    /// Why it would be refused.
    pub fn plan(&self, change: &Change) -> Result<Plan, Refused> {
        self.changed(change).map(|(plan, _)| plan)
    }

    /// Begins a change. It is persisted with [`Metadata::poll_storage`], and carried out step by step from then on; [`Metadata::status`]
    /// tells how far it is.
    ///
    /// # Errors
    /// Why it is refused.
    pub fn change(&mut self, change: &Change) -> Result<Plan, Refused> {
        let plan = self.begin_change(|metadata| metadata.changed(change))?;
        if let Change::Add { name, .. } = change {
            let is_new = plan.node >= self.committed.next_node;
            let wish = if is_new { Wish::Removed } else { Wish::Drained };
            self.watch_switches(Undo::Node { name: name.clone(), wish });
        }
        Ok(plan)
    }

    /// Begins the state that follows from a change, unless another step is under way.
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

    /// Whether anything can be asked for.
    pub(crate) fn check_begun(&self) -> Result<(), Refused> {
        if !self.is_leading() {
            return Err(Refused::NotLeading);
        }
        if !self.committed.is_bootstrapped() {
            return Err(Refused::NotBegun("not all of its first nodes are there"));
        }
        Ok(())
    }

    /// For people.
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
            Change::Drain { name } => take_away(&mut next, name, Wish::Drained)?,
            Change::Remove { name } => {
                let node = take_away(&mut next, name, Wish::Removed)?;
                self.check_last_holder(node, name)?;
                self.check_sole_holder(node, name)?;
                node
            }
        };
        Ok((plan_of(&next, node), next))
    }

    /// Whether every switch has the port that leads to a node, as far as switches have reported theirs.
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

    /// Whether switches have room for the groups that there are when everything has moved to where it is to be.
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
            match known.wish {
                Wish::Holds => return Err(Refused::Holds { name: config.name }),
                // It is given up: what still moves from it may be all that is left of it.
                Wish::Removed => return Err(Refused::Already { name: config.name, wish: "being removed" }),
                Wish::Drained => known.wish = Wish::Holds,
            }
            self.check_port(next, id)?;
            return Ok(id);
        }
        let id = config.id;
        next.next_node = id.0.checked_add(1).ok_or(Refused::NoNumber)?;
        next.nodes.push(Node { config, wish: Wish::Holds, added: true });
        let nodes = next.nodes.iter().map(|node| node.config.clone()).collect();
        Config { nodes, ..self.config.clone() }.validate()?;
        self.check_port(next, id)?;
        Ok(id)
    }

    /// What nobody else holds must not be given up.
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

    /// By quorum with k = 1, no other member need hold what one has acknowledged (R14).
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

/// What follows from the change of a node that makes this the state.
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

/// Replicas that go from a node to another one: by their names, how many.
#[derive(Default)]
pub(crate) struct Moves(BTreeMap<(String, String), usize>);

impl Moves {
    /// Those of a partition.
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

/// A node is to hold nothing any more.
fn take_away(next: &mut State, name: &str, wish: Wish) -> Result<NodeId, Refused> {
    let unknown = || Refused::Unknown { name: name.into() };
    let place = next.nodes.iter().position(|node| node.config.name == name).ok_or_else(unknown)?;
    let id = next.nodes[place].config.id;
    let node = &mut next.nodes[place];
    match (node.wish, wish) {
        (Wish::Removed, _) => return Err(Refused::Already { name: name.into(), wish: "being removed" }),
        (Wish::Drained, Wish::Drained) => {
            return Err(Refused::Already { name: name.into(), wish: "drained" });
        }
        _ => node.wish = wish,
    }
    check_keyspaces(&next.keyspaces, next.ring().len())
        .map_err(|error| Refused::TooFew { name: name.into(), error })?;
    Ok(id)
}
