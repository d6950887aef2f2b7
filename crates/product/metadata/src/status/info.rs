//! Information for clients: the keyspaces and their rings.

use alloc::string::String;
use alloc::vec::Vec;
use core::net::Ipv4Addr;

use nicekv_proto::Replication;
use nicekv_proto::placement::{KeyOrder, Vrings};
use nicekv_proto::quorum::Quorum;
use serde::{Deserialize, Serialize};

use super::UsageStatus;

/// What a client needs to find the store. It names no nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterInfo {
    /// The cluster.
    pub cluster: u128,
    /// UDP port of all vrings.
    pub port: u16,
    /// By id.
    pub keyspaces: Vec<KeyspaceInfo>,
    /// Groups of storage targets, if there are any.
    #[serde(default)]
    pub chunks: Option<ChunkInfo>,
}

/// What initiators and targets need to know about groups of targets (P2, P7).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChunkInfo {
    /// Version of the map.
    pub version: u32,
    /// Round of garbage collection.
    pub round: u64,
    /// Whether names have adopted that round (P8), so that listing them finds everything that it needs.
    pub is_adopted: bool,
    /// Groups and slots.
    pub layout: LayoutInfo,
    /// The layout before, until everything has moved (P13).
    pub before: Option<LayoutInfo>,
    /// Base of the ring of groups, prefix length, its port, and the targets' port.
    pub ring: (Ipv4Addr, u8, u16, u16),
    /// Copies of a chunk: the maximum over keyspaces.
    pub copies: usize,
    /// Link rate for reservations.
    pub link_bits_per_second: u64,
}

/// The targets of groups, and the groups of chunks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LayoutInfo {
    /// Nodes of each group, by place.
    pub groups: Vec<Vec<Option<u16>>>,
    /// The group of each chunk, by the first byte of its id.
    pub slots: Vec<u8>,
}

/// What a client needs to know of a keyspace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyspaceInfo {
    /// Its id in request headers.
    pub id: u16,
    /// Its name.
    pub name: String,
    /// Base of the unicast vring, a /16.
    pub unicast: Ipv4Addr,
    /// Base of the multicast vring, a /16.
    pub multicast: Ipv4Addr,
    /// R and k of a quorum keyspace (R14).
    pub quorum: Option<(u8, u8)>,
    /// Whether its replicas form chains.
    #[serde(default)]
    pub chain: bool,
    /// Whether its hot keys are spread: its clients leave room for stamps.
    #[serde(default)]
    pub hot: bool,
    /// Whether its keys are partitioned by range instead of by digest.
    #[serde(default)]
    pub by_range: bool,
    /// R.
    #[serde(default)]
    pub replicas: usize,
    /// How chunks of its objects are sent, if it has names of objects.
    #[serde(default)]
    pub chunks: Option<String>,
    /// All of its settings, in the form of a definition.
    #[serde(default)]
    pub settings: String,
    /// Log2 of its initial number of partitions: requests for keys of one may share a datagram.
    pub partition_bits: u32,
    /// Its usage.
    #[serde(default)]
    pub usage: UsageStatus,
}

impl ClusterInfo {
    /// The keyspace with this id.
    pub fn keyspace(&self, id: u16) -> Option<&KeyspaceInfo> {
        self.keyspaces.iter().find(|keyspace| keyspace.id == id)
    }
}

impl KeyspaceInfo {
    /// The pair of rings.
    pub fn vrings(&self, port: u16) -> Vrings {
        Vrings { unicast: self.unicast, multicast: self.multicast, port }
    }

    /// How its keys are mapped to match values.
    pub fn order(&self) -> KeyOrder {
        if self.by_range { KeyOrder::Range } else { KeyOrder::Hash }
    }

    /// Its replication protocol.
    pub fn replication(&self) -> Replication {
        let quorum = self.quorum.and_then(|(replicas, write_set)| Quorum::new(replicas, write_set).ok());
        let ordered = if self.chain { Replication::Chain } else { Replication::Multicast };
        quorum.map_or(ordered, Replication::Quorum)
    }
}
