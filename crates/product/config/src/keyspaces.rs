//! `[[keyspaces]]`: the further keyspaces. Settings of the default keyspace are at the top of the
//! file.

use crate::error::ConfigError;
use clap::ValueEnum;
use nicekv_proto::KeyspaceId;
use nicekv_proto::placement::{
    ChunkDelivery, KeyOrder, KeyspaceError, KeyspaceSpec, LoadBalancing, Protocol, Refusal, RingsBase,
};
use serde::{Deserialize, Serialize};
use std::net::Ipv4Addr;

/// How a keyspace is replicated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Replication {
    /// The primary orders puts (two-phase commit by multicast); supports every operation
    #[default]
    Multicast,
    /// The head orders puts and passes them down a chain, the tail answers; supports every operation
    Chain,
    /// Any k replicas store a put, no primary; only get, set and delete without conditions or expiry
    Quorum,
}

/// How keys are assigned to partitions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Partitioning {
    /// By hash, which spreads them evenly
    #[default]
    Hash,
    /// By their first 16 bytes, in order; a partition can be split where its keys are
    Range,
}

impl From<Partitioning> for KeyOrder {
    fn from(partitioning: Partitioning) -> Self {
        match partitioning {
            Partitioning::Hash => Self::Hash,
            Partitioning::Range => Self::Range,
        }
    }
}

impl From<KeyOrder> for Partitioning {
    fn from(order: KeyOrder) -> Self {
        match order {
            KeyOrder::Hash => Self::Hash,
            KeyOrder::Range => Self::Range,
        }
    }
}

/// How load is balanced over nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum KeyspaceBalancing {
    /// Partitions stay where the ring puts them
    #[default]
    None,
    /// Partitions move, split and merge by load
    Migrate,
    /// The most requested keys are copied to other nodes, which also answer gets
    Hot,
}

impl From<KeyspaceBalancing> for LoadBalancing {
    fn from(balancing: KeyspaceBalancing) -> Self {
        match balancing {
            KeyspaceBalancing::None => Self::None,
            KeyspaceBalancing::Migrate => Self::Migrate,
            KeyspaceBalancing::Hot => Self::Hot,
        }
    }
}

impl From<LoadBalancing> for KeyspaceBalancing {
    fn from(balancing: LoadBalancing) -> Self {
        match balancing {
            LoadBalancing::None => Self::None,
            LoadBalancing::Migrate => Self::Migrate,
            LoadBalancing::Hot => Self::Hot,
        }
    }
}

/// How chunks of objects are sent to their storage targets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum ObjectChunks {
    /// Once to all of them, in a window that they share
    Multicast,
    /// To one after the other, each in its own window
    Unicast,
}

impl From<ObjectChunks> for ChunkDelivery {
    fn from(chunks: ObjectChunks) -> Self {
        match chunks {
            ObjectChunks::Multicast => Self::Multicast,
            ObjectChunks::Unicast => Self::Unicast,
        }
    }
}

impl From<ChunkDelivery> for ObjectChunks {
    fn from(delivery: ChunkDelivery) -> Self {
        match delivery {
            ChunkDelivery::Multicast => Self::Multicast,
            ChunkDelivery::Unicast => Self::Unicast,
        }
    }
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_none(balancing: &KeyspaceBalancing) -> bool {
    *balancing == KeyspaceBalancing::None
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_hash(partitioning: &Partitioning) -> bool {
    *partitioning == Partitioning::Hash
}

/// An entry of `[[keyspaces]]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeyspaceSection {
    pub name: String,
    pub id: u16,
    #[serde(default)]
    pub replication: Replication,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write_set: Option<u8>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<usize>,
    #[serde(default, skip_serializing_if = "is_hash")]
    pub partitioning: Partitioning,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partitions: Option<u32>,
    #[serde(default, skip_serializing_if = "is_none")]
    pub balancing: KeyspaceBalancing,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partition_keys: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partition_bytes: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chunks: Option<ObjectChunks>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unicast_vring: Option<Ipv4Addr>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub multicast_vring: Option<Ipv4Addr>,
}

impl KeyspaceSection {
    /// An entry with every key set.
    pub fn of(spec: &KeyspaceSpec) -> Self {
        let (replication, write_set) = match spec.protocol {
            Protocol::Multicast => (Replication::Multicast, None),
            Protocol::Chain => (Replication::Chain, None),
            Protocol::Quorum { write_set } => (Replication::Quorum, Some(write_set)),
        };
        Self {
            name: spec.name.clone(),
            id: spec.id.0,
            replication,
            write_set,
            replicas: Some(spec.replicas),
            partitioning: spec.order.into(),
            partitions: Some(spec.partitions),
            balancing: spec.balancing.into(),
            partition_keys: spec.partition_keys,
            partition_bytes: spec.partition_bytes,
            chunks: spec.chunks.map(ObjectChunks::from),
            unicast_vring: Some(spec.unicast),
            multicast_vring: Some(spec.multicast),
        }
    }

    pub(super) fn spec(&self, default: &KeyspaceSpec) -> Result<KeyspaceSpec, ConfigError> {
        let rings = if default.unicast.is_loopback() { RingsBase::Loopback } else { RingsBase::Network };
        let (unicast, multicast) = rings.rings(KeyspaceId(self.id));
        Ok(KeyspaceSpec {
            id: KeyspaceId(self.id),
            name: self.name.clone(),
            protocol: protocol(&self.name, self.replication, self.write_set)?,
            order: self.partitioning.into(),
            replicas: self.replicas.unwrap_or(default.replicas),
            partitions: self.partitions.unwrap_or(default.partitions),
            balancing: self.balancing.into(),
            partition_keys: self.partition_keys,
            partition_bytes: self.partition_bytes,
            chunks: self.chunks.map(ChunkDelivery::from),
            unicast: self.unicast_vring.unwrap_or(unicast),
            multicast: self.multicast_vring.unwrap_or(multicast),
        })
    }
}

/// The protocol of a keyspace; `name` is for errors.
pub fn protocol(
    name: &str,
    replication: Replication,
    write_set: Option<u8>,
) -> Result<Protocol, ConfigError> {
    let reason = match (replication, write_set) {
        (Replication::Multicast, None) => return Ok(Protocol::Multicast),
        (Replication::Chain, None) => return Ok(Protocol::Chain),
        (Replication::Quorum, Some(write_set)) => return Ok(Protocol::Quorum { write_set }),
        (Replication::Multicast | Replication::Chain, Some(_)) => Refusal::WriteSetWithoutQuorum,
        (Replication::Quorum, None) => Refusal::QuorumWithoutWriteSet,
    };
    Err(ConfigError::new(KeyspaceError::Refused { name: name.into(), reason }))
}
