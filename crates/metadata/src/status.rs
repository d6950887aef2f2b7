//! What operators and clients may know.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::net::{Ipv4Addr, SocketAddrV4};

use nicekv_dataplane::TableStatus;
use nicekv_placement::Vrings;
use nicekv_wire::NodeId;
use nicekv_wire::quorum::Quorum;
use serde::{Deserialize, Serialize};

use crate::epochs;
use crate::leader::{Counters, Metadata};
use crate::state::{Partition, Standing};

/// What a client needs to find the store: no node, no membership.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterInfo {
    /// The cluster.
    pub cluster: u128,
    /// Number of the keyspace in the header of a request.
    pub keyspace: u16,
    /// Base of the unicast vring, a /16.
    pub unicast: Ipv4Addr,
    /// Base of the multicast vring, a /16.
    pub multicast: Ipv4Addr,
    /// UDP port of both.
    pub port: u16,
    /// Leading bits of a vnode that name its partition.
    pub partition_bits: u8,
    /// R and k, if it is a quorum keyspace (R14).
    pub quorum: Option<(u8, u8)>,
}

impl ClusterInfo {
    /// The pair of rings.
    pub fn vrings(&self) -> Vrings {
        Vrings { unicast: self.unicast, multicast: self.multicast, port: self.port }
    }

    /// R and k of a quorum keyspace; none if a primary orders the puts.
    pub fn quorum(&self) -> Option<Quorum> {
        let (replicas, write_set) = self.quorum?;
        Quorum::new(replicas, write_set).ok()
    }
}

/// The state of everything.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// Name of the cluster, 32 hexadecimal digits.
    pub cluster: String,
    /// Term of the leader that answers.
    pub term: u64,
    /// Every partition has R consistent members, everything is acknowledged by nodes and switches.
    pub ready: bool,
    /// The first thing that is missing.
    pub why_not_ready: Option<String>,
    /// By id.
    pub nodes: Vec<NodeStatus>,
    /// By id; empty before bootstrap.
    pub partitions: Vec<PartitionStatus>,
    /// Fill and hits of the switch tables.
    pub tables: Vec<TableStatus>,
    /// What was not understood or not taken.
    pub counters: Counters,
}

/// A node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "named like the configuration")]
pub struct NodeStatus {
    pub id: u16,
    pub name: String,
    pub address: SocketAddrV4,
    pub state: NodeState,
}

/// Whether a node is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NodeState {
    /// Never heard by this leader.
    Unknown,
    /// Heard, and it hears us.
    Live,
    /// Silent or deaf.
    Suspected,
}

/// A partition in its newest epoch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the terms of DESIGN §4")]
pub struct PartitionStatus {
    pub id: u16,
    pub epoch: u32,
    /// Node that orders its puts.
    pub primary: u16,
    pub state: PartitionState,
    pub members: Vec<MemberStatus>,
}

/// Whether a partition can work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PartitionState {
    /// In force.
    Active,
    /// Waits until a removed member can answer no more gets (R6).
    Activating,
    /// Waits for a consistent member to come back.
    Waiting,
    /// Every consistent member came back with empty storage.
    Lost,
}

/// A member of a replica set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "named like the configuration")]
pub struct MemberStatus {
    pub node: u16,
    pub name: String,
    pub state: MemberStatusState,
}

/// Standing of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MemberStatusState {
    /// Takes part in puts, still copies.
    Joining,
    /// Holds everything.
    Consistent,
}

impl Metadata {
    /// The state of everything, at `now`.
    pub fn status(&self) -> Status {
        let why_not_ready = self.why_not_ready();
        let partitions = self.committed.partitions.iter().enumerate();
        Status {
            cluster: format!("{:032x}", self.committed.cluster),
            term: self.committed.term,
            ready: why_not_ready.is_none(),
            why_not_ready,
            nodes: self.committed.nodes.iter().map(|node| self.node_status(*node)).collect(),
            partitions: partitions
                .map(|(index, partition)| self.partition_status(index, partition))
                .collect(),
            tables: self.switches.table_status(),
            counters: self.counters,
        }
    }

    /// What clients need.
    pub fn cluster_info(&self) -> ClusterInfo {
        let Vrings { unicast, multicast, port } = self.config.vrings;
        let (cluster, partition_bits) = (self.committed.cluster, self.committed.partition_bits);
        let quorum = self.committed.write_set.map(|write_set| (self.committed.replicas, write_set));
        ClusterInfo { cluster, keyspace: 0, unicast, multicast, port, partition_bits, quorum }
    }

    fn node_status(&self, id: NodeId) -> NodeStatus {
        let node = self.config.node(id).expect("the stored nodes are the configured ones");
        let state = match (self.membership.live(id), self.membership.is_known(id)) {
            (Some(_), _) => NodeState::Live,
            (None, true) => NodeState::Suspected,
            (None, false) => NodeState::Unknown,
        };
        NodeStatus { id: id.0, name: node.name.clone(), address: node.address, state }
    }

    fn partition_status(&self, index: usize, partition: &Partition) -> PartitionStatus {
        let view = self.view(index, 0);
        let state = if epochs::is_lost(partition, &view) {
            PartitionState::Lost
        } else if !epochs::has_live_consistent(partition, &view) {
            PartitionState::Waiting
        } else if partition.activated {
            PartitionState::Active
        } else {
            PartitionState::Activating
        };
        let member = |member: &crate::state::Member| MemberStatus {
            node: member.node.0,
            name: self.config.node(member.node).map(|node| node.name.clone()).unwrap_or_default(),
            state: if member.standing.is_consistent() {
                MemberStatusState::Consistent
            } else {
                MemberStatusState::Joining
            },
        };
        PartitionStatus {
            id: index as u16,
            epoch: partition.epoch,
            primary: partition.primary.0,
            state,
            members: partition.members.iter().map(member).collect(),
        }
    }

    fn why_not_ready(&self) -> Option<String> {
        if !self.is_leading() {
            return Some("the metadata term is not yet persisted".into());
        }
        let absent = self.config.nodes.iter().find(|node| self.membership.live(node.id).is_none());
        if let Some(node) = absent.filter(|_| !self.committed.is_bootstrapped()) {
            return Some(format!("waiting for {} to start for the first time", node.name));
        }
        if !self.committed.is_bootstrapped() {
            return Some("the placement is being persisted".into());
        }
        let partitions = self.committed.partitions.iter().enumerate();
        let unfinished = partitions.map(|(index, partition)| (index, self.unfinished(index, partition)));
        for (index, reason) in unfinished {
            if let Some(reason) = reason {
                return Some(format!("partition {index}: {reason}"));
            }
        }
        self.switches.why_not_ready()
    }

    fn unfinished(&self, index: usize, partition: &Partition) -> Option<String> {
        let view = self.view(index, 0);
        if epochs::is_lost(partition, &view) {
            return Some("its data are lost, no member kept its storage".into());
        }
        let consistent = partition.holders().count();
        if consistent < self.config.replicas {
            return Some(format!("{consistent} of {} members are consistent", self.config.replicas));
        }
        if let Some(member) =
            partition.members.iter().find(|member| self.membership.live(member.node).is_none())
        {
            return Some(format!("{} is not there", member.node));
        }
        if !partition.activated {
            return Some("a removed member may still answer".into());
        }
        if let Some(member) = partition.members.iter().find(|member| member.standing != Standing::Serving) {
            return Some(format!("{} is not yet in the unicast ring", member.node));
        }
        let waits = partition.members.iter().find(|member| !self.has_acknowledged(index, partition, member));
        waits.map(|member| format!("{} has not acknowledged epoch {}", member.node, partition.epoch))
    }
}
