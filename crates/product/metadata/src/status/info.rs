//! Information for clients: the keyspaces and their rings.

use alloc::string::String;
use alloc::vec::Vec;
use core::net::Ipv4Addr;

use nicekv_proto::Replication;
use nicekv_proto::placement::{KeyOrder, Vrings};
use nicekv_proto::quorum::Quorum;
use serde::{Deserialize, Serialize};

use super::UsageStatus;

/// Information with which a client finds the store. It does not name nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterInfo {
    /// The cluster's id.
    pub cluster: u128,
    /// UDP port of all vrings.
    pub port: u16,
    /// The keyspaces, by id.
    pub keyspaces: Vec<KeyspaceInfo>,
    /// Groups of storage targets, if there are any.
    #[serde(default)]
    pub chunks: Option<ChunkInfo>,
}

/// Groups of targets, for initiators and targets (P2, P7).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChunkInfo {
    /// Version of the map.
    pub version: u32,
    /// Round of garbage collection.
    pub round: u64,
    /// Whether names have adopted that round (P8), so that a list of all names shows every chunk
    /// that the round needs.
    pub is_adopted: bool,
    /// The current layout: groups and slots.
    pub layout: LayoutInfo,
    /// The previous layout, until all chunks have moved (P13).
    pub before: Option<LayoutInfo>,
    /// The ring of groups: base address, prefix length, its port, and the targets' port.
    pub ring: (Ipv4Addr, u8, u16, u16),
    /// Number of copies of a chunk: the maximum over keyspaces.
    pub copies: usize,
    /// Link rate for which windows are reserved.
    pub link_bits_per_second: u64,
}

/// The targets of each group, and the group of each chunk.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LayoutInfo {
    /// The nodes of each group, by place.
    pub groups: Vec<Vec<Option<u16>>>,
    /// The group of each chunk, by the first byte of its id.
    pub slots: Vec<u8>,
}

/// A keyspace, for clients.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyspaceInfo {
    /// The keyspace's id in request headers.
    pub id: u16,
    /// Its name.
    pub name: String,
    /// Base of the unicast vring, a /16.
    pub unicast: Ipv4Addr,
    /// Base of the multicast vring, a /16.
    pub multicast: Ipv4Addr,
    /// If the keyspace is replicated by quorum: R and k (R14).
    pub quorum: Option<(u8, u8)>,
    /// Whether the replicas form chains.
    #[serde(default)]
    pub chain: bool,
    /// Whether hot keys are spread, so that clients must leave room for stamps.
    #[serde(default)]
    pub hot: bool,
    /// Whether keys are partitioned by range instead of by digest.
    #[serde(default)]
    pub by_range: bool,
    /// Whether requests must be sent to the address of their vnode, since switches match only
    /// headers.
    #[serde(default)]
    pub by_vnode: bool,
    /// Number of replicas, R.
    #[serde(default)]
    pub replicas: usize,
    /// How chunks of objects are sent, if the keyspace has names of objects.
    #[serde(default)]
    pub chunks: Option<String>,
    /// All settings of the keyspace, in the form of a definition.
    #[serde(default)]
    pub settings: String,
    /// Log2 of the initial number of partitions. Requests for keys of one partition may share a
    /// datagram.
    pub partition_bits: u32,
    /// Stored data and request rates.
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

    /// How keys are mapped to match values.
    pub fn order(&self) -> KeyOrder {
        if self.by_range { KeyOrder::Range } else { KeyOrder::Hash }
    }

    /// The keyspace's replication protocol.
    pub fn replication(&self) -> Replication {
        let quorum = self.quorum.and_then(|(replicas, write_set)| Quorum::new(replicas, write_set).ok());
        let ordered = if self.chain { Replication::Chain } else { Replication::Multicast };
        quorum.map_or(ordered, Replication::Quorum)
    }
}
