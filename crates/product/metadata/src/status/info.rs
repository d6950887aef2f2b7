//! What clients ask for: where keyspaces are.

use alloc::string::String;
use alloc::vec::Vec;
use core::net::Ipv4Addr;

use nicekv_proto::Replication;
use nicekv_proto::placement::{KeyOrder, Vrings};
use nicekv_proto::quorum::Quorum;
use serde::{Deserialize, Serialize};

use super::UsageStatus;

/// What a client needs to find the store: no node, no membership.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterInfo {
    /// The cluster.
    pub cluster: u128,
    /// UDP port of all vrings.
    pub port: u16,
    /// By id.
    pub keyspaces: Vec<KeyspaceInfo>,
    /// Who holds chunks of objects, if anybody does.
    #[serde(default)]
    pub chunks: Option<ChunkInfo>,
}

/// What initiators and targets need to know of the groups of targets (P2, P7).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChunkInfo {
    /// Of the map.
    pub version: u32,
    /// Of garbage collection.
    pub round: u64,
    /// Whether names have adopted that round (P8): what they say from now on is what is needed of it.
    pub is_adopted: bool,
    /// Groups, and their slots.
    pub layout: LayoutInfo,
    /// How they were, until all that has to move has moved (P13).
    pub before: Option<LayoutInfo>,
    /// Base of the ring of groups, bits of its prefix, its port, and that of the targets.
    pub ring: (Ipv4Addr, u8, u16, u16),
    /// How many targets are to hold a chunk: as many as the keyspace wants that wants most.
    pub copies: usize,
    /// Of each link, as far as windows are reserved on it.
    pub link_bits_per_second: u64,
}

/// Which targets are in which groups, and which group has which chunks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LayoutInfo {
    /// Nodes by their places, of each group.
    pub groups: Vec<Vec<Option<u16>>>,
    /// The group of each chunk, by the first byte of its id.
    pub slots: Vec<u8>,
}

/// What a client needs to know of a keyspace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyspaceInfo {
    /// Its number in the header of a request.
    pub id: u16,
    /// Its name.
    pub name: String,
    /// Base of the unicast vring, a /16.
    pub unicast: Ipv4Addr,
    /// Base of the multicast vring, a /16.
    pub multicast: Ipv4Addr,
    /// R and k, if it is a quorum keyspace (R14).
    pub quorum: Option<(u8, u8)>,
    /// Whether its replicas are chains.
    #[serde(default)]
    pub chain: bool,
    /// Whether its hot keys are spread: its clients leave room for stamps.
    #[serde(default)]
    pub hot: bool,
    /// Its keys are partitioned by range, and not by their digests.
    #[serde(default)]
    pub by_range: bool,
    /// R.
    #[serde(default)]
    pub replicas: usize,
    /// How chunks of its objects go, if it has names of such.
    #[serde(default)]
    pub chunks: Option<String>,
    /// All of its settings, as a new keyspace takes them.
    #[serde(default)]
    pub settings: String,
    /// It began with two to the power of this many partitions: requests for keys of one may share a datagram.
    pub partition_bits: u32,
    /// What it holds, and what is asked of it.
    #[serde(default)]
    pub usage: UsageStatus,
}

impl ClusterInfo {
    /// The keyspace of this number.
    pub fn keyspace(&self, id: u16) -> Option<&KeyspaceInfo> {
        self.keyspaces.iter().find(|keyspace| keyspace.id == id)
    }
}

impl KeyspaceInfo {
    /// The pair of rings.
    pub fn vrings(&self, port: u16) -> Vrings {
        Vrings { unicast: self.unicast, multicast: self.multicast, port }
    }

    /// How its keys become match values.
    pub fn order(&self) -> KeyOrder {
        if self.by_range { KeyOrder::Range } else { KeyOrder::Hash }
    }

    /// How its replicas are kept in step.
    pub fn replication(&self) -> Replication {
        let quorum = self.quorum.and_then(|(replicas, write_set)| Quorum::new(replicas, write_set).ok());
        let ordered = if self.chain { Replication::Chain } else { Replication::Multicast };
        quorum.map_or(ordered, Replication::Quorum)
    }
}
