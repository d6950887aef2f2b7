//! What operators and clients may know.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::net::{Ipv4Addr, SocketAddrV4};

use nicekv_dataplane::TableStatus;
use nicekv_placement::Vrings;
use nicekv_wire::quorum::Quorum;
use nicekv_wire::{NodeId, PartitionId};
use serde::{Deserialize, Serialize};

use crate::leader::{Counters, Metadata};
use crate::policy::Policy;
use crate::state::{Member, Partition, Standing};
use crate::view::{self, Observed};

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
    /// How many partitions are how well.
    pub health: HealthCounts,
    /// By id.
    pub nodes: Vec<NodeStatus>,
    /// By id; empty before bootstrap.
    pub partitions: Vec<PartitionStatus>,
    /// By id.
    pub switches: Vec<SwitchStatus>,
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
    pub id: u32,
    pub epoch: u32,
    /// Node that orders its puts.
    pub primary: u16,
    pub state: PartitionState,
    pub health: Health,
    pub members: Vec<MemberStatus>,
    /// Names of the originals that are no members, in ring order.
    pub away: Vec<String>,
}

/// What clients and data can rely on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Health {
    /// R originals hold everything.
    Whole,
    /// An original is away or behind; handoffs that serve make up for it.
    Covered,
    /// Fewer than R members hold what is put now.
    Reduced,
    /// Gets are answered; puts wait for more members, or for the epoch to come into force.
    Waiting,
    /// No original that holds everything is there.
    Unavailable,
    /// Every original that held everything came back with empty storage.
    Lost,
}

/// Partitions by [`Health`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "named like the variants of `Health`")]
pub struct HealthCounts {
    pub whole: usize,
    pub covered: usize,
    pub reduced: usize,
    pub waiting: usize,
    pub unavailable: usize,
    pub lost: usize,
}

impl HealthCounts {
    fn of(partitions: &[PartitionStatus]) -> Self {
        let mut counts = Self::default();
        for partition in partitions {
            *match partition.health {
                Health::Whole => &mut counts.whole,
                Health::Covered => &mut counts.covered,
                Health::Reduced => &mut counts.reduced,
                Health::Waiting => &mut counts.waiting,
                Health::Unavailable => &mut counts.unavailable,
                Health::Lost => &mut counts.lost,
            } += 1;
        }
        counts
    }
}

/// A switch agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SwitchStatus {
    /// Its place in the configuration.
    pub id: u16,
    /// Whether it can be talked to.
    pub connected: bool,
    /// Whether it goes by the newest tables, as far as it is known.
    pub current: bool,
    /// Why it refused them: the tables before are in force there.
    pub error: Option<String>,
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
    pub standing: MemberStanding,
    /// Stands in for an original that is away (R8).
    pub handoff: bool,
}

/// How far a member has come (R7).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MemberStanding {
    /// Not every member knows it yet.
    Joining,
    /// Takes part in puts, copies.
    Copying,
    /// Holds what it is to hold; not yet in the unicast ring.
    Promoted,
    /// In both rings.
    Serving,
}

/// What a member holds.
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
        let partitions = self.committed.partitions();
        let partitions: Vec<_> =
            partitions.map(|(id, partition)| self.partition_status(id, partition)).collect();
        Status {
            cluster: format!("{:032x}", self.committed.cluster),
            term: self.committed.term,
            ready: why_not_ready.is_none(),
            why_not_ready,
            nodes: self.committed.nodes.iter().map(|node| self.node_status(*node)).collect(),
            health: HealthCounts::of(&partitions),
            partitions,
            switches: self.observations.switches.status(),
            tables: self.observations.switches.table_status(),
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
        let state = match (self.observations.membership.live(id), self.observations.membership.is_known(id)) {
            (Some(_), _) => NodeState::Live,
            (None, true) => NodeState::Suspected,
            (None, false) => NodeState::Unknown,
        };
        NodeStatus { id: id.0, name: node.name.clone(), address: node.address, state }
    }

    fn partition_status(&self, id: PartitionId, partition: &Partition) -> PartitionStatus {
        let view = self.situation().view(id, partition);
        let state = if view::is_lost(partition, &view) {
            PartitionState::Lost
        } else if !view::has_live_consistent(partition, &view) {
            PartitionState::Waiting
        } else if partition.activated {
            PartitionState::Active
        } else {
            PartitionState::Activating
        };
        let away = partition.originals.iter().filter(|node| partition.member(**node).is_none());
        PartitionStatus {
            id: id.0,
            epoch: partition.epoch,
            primary: partition.primary.0,
            state,
            health: self.health(partition, state, view.policy()),
            members: partition.members.iter().map(|member| self.member_status(member)).collect(),
            away: away.map(|node| self.name(*node)).collect(),
        }
    }

    fn member_status(&self, member: &Member) -> MemberStatus {
        MemberStatus {
            node: member.node.0,
            name: self.name(member.node),
            state: if member.standing.is_consistent() {
                MemberStatusState::Consistent
            } else {
                MemberStatusState::Joining
            },
            standing: match member.standing {
                Standing::Joining => MemberStanding::Joining,
                Standing::Copying => MemberStanding::Copying,
                Standing::Promoted => MemberStanding::Promoted,
                Standing::Serving => MemberStanding::Serving,
            },
            handoff: member.handoff,
        }
    }

    fn name(&self, node: NodeId) -> String {
        self.config.node(node).map(|node| node.name.clone()).unwrap_or_default()
    }

    fn health(&self, partition: &Partition, state: PartitionState, policy: Policy) -> Health {
        let membership = &self.observations.membership;
        let is_there = |member: &&Member| membership.is_live(member.node, member.process.incarnation);
        let there = partition.members.iter().filter(is_there);
        let originals = partition.holders().filter(is_there).count();
        let consistent = there.clone().filter(|member| member.standing.is_consistent()).count();
        match state {
            PartitionState::Lost => Health::Lost,
            PartitionState::Waiting => Health::Unavailable,
            PartitionState::Activating => Health::Waiting,
            PartitionState::Active if !policy.takes_puts(partition.members.len(), there.count()) => {
                Health::Waiting
            }
            PartitionState::Active if originals >= policy.replicas => Health::Whole,
            PartitionState::Active if consistent >= policy.replicas => Health::Covered,
            PartitionState::Active => Health::Reduced,
        }
    }

    fn why_not_ready(&self) -> Option<String> {
        if self.is_overdue() {
            return Some("another metadata service may lead".into());
        }
        if !self.is_leading() {
            return Some("the metadata term is not yet persisted".into());
        }
        let absent =
            self.config.nodes.iter().find(|node| self.observations.membership.live(node.id).is_none());
        if let Some(node) = absent.filter(|_| !self.committed.is_bootstrapped()) {
            return Some(format!("waiting for {} to start for the first time", node.name));
        }
        if !self.committed.is_bootstrapped() {
            return Some("the placement is being persisted".into());
        }
        for (id, partition) in self.committed.partitions() {
            if let Some(reason) = self.unfinished(id, partition) {
                return Some(format!("partition {id}: {reason}"));
            }
        }
        self.observations.switches.why_not_ready()
    }

    fn unfinished(&self, id: PartitionId, partition: &Partition) -> Option<String> {
        let view = self.situation().view(id, partition);
        if view::is_lost(partition, &view) {
            return Some("its data are lost, no member kept its storage".into());
        }
        let (consistent, replicas) = (partition.holders().count(), view.policy().replicas);
        if consistent < replicas {
            return Some(format!("{consistent} of {replicas} members are consistent"));
        }
        if let Some(member) = partition.members.iter().find(|member| view.live(member.node).is_none()) {
            return Some(format!("{} is not there", member.node));
        }
        if !partition.activated {
            return Some("a removed member may still answer".into());
        }
        if let Some(member) = partition.members.iter().find(|member| member.standing != Standing::Serving) {
            return Some(format!("{} is not yet in the unicast ring", member.node));
        }
        let waits = partition.members.iter().find(|member| !view.is_informed(member));
        waits.map(|member| format!("{} has not acknowledged epoch {}", member.node, partition.epoch))
    }
}
