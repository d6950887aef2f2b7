//! Parser of keyspace specifications, setting by setting.

use alloc::format;
use alloc::string::{String, ToString};
use core::net::Ipv4Addr;
use core::str::FromStr;

use crate::{KeyOrder, KeyspaceId};

use super::{ChunkDelivery, KeyspaceDefaults, KeyspaceSpec, LoadBalancing, Protocol, Refusal};

/// All settings, with their values.
pub const KEYSPACE_SETTINGS: [(&str, &str); 12] = [
    ("id", "1 to 15, as in SELECT 1; the next free one"),
    ("replication", "multicast, chain or quorum; multicast"),
    ("write-set", "1 to R, for quorum replication only: copies that hold an acknowledged put (k)"),
    ("replicas", "1 to 9: copies of each value (R); as in the default keyspace"),
    ("partitioning", "hash or range: how keys are divided among partitions; hash"),
    ("partitions", "a power of two up to 1024, 4096 in all keyspaces together; as in the default keyspace"),
    (
        "balancing",
        "none, migrate (partitions move, split and merge by load) or hot (the keys with most requests are copied); none",
    ),
    ("partition-keys", "with migrate: a partition with more keys is split; any"),
    ("partition-bytes", "with migrate: a partition with more bytes of keys and values is split; any"),
    (
        "chunks",
        "multicast or unicast: the keys are names of objects, and their chunks are sent to storage targets this way; none",
    ),
    ("unicast", "a ring like 127.12.0.0/16; one of the cluster's own"),
    ("multicast", "likewise"),
];

/// The names of all settings, as an English list.
pub(super) fn names() -> String {
    let [first @ .., last] = KEYSPACE_SETTINGS.map(|(name, _)| name);
    format!("{} and {last}", first.join(", "))
}

/// A parsed specification.
#[derive(Default)]
pub(super) struct Settings {
    id: Option<u16>,
    protocol: Option<Protocol>,
    write_set: Option<u8>,
    replicas: Option<usize>,
    order: Option<KeyOrder>,
    partitions: Option<u32>,
    balancing: Option<LoadBalancing>,
    partition_keys: Option<u64>,
    partition_bytes: Option<u64>,
    chunks: Option<ChunkDelivery>,
    unicast: Option<Ipv4Addr>,
    multicast: Option<Ipv4Addr>,
}

impl Settings {
    pub(super) fn parse(text: &str) -> Result<Self, Refusal> {
        let mut settings = Self::default();
        for setting in text.split(',').filter(|_| !text.is_empty()) {
            let said = setting.split_once('=').or_else(|| named_by_value(setting));
            let (name, value) = said.ok_or_else(|| Refusal::NoSetting { setting: setting.into() })?;
            settings.set(name, value)?;
        }
        Ok(settings)
    }

    fn set(&mut self, name: &str, value: &str) -> Result<(), Refusal> {
        match name {
            "id" => once(&mut self.id, "id", number("id", value)?),
            "replication" => once(&mut self.protocol, "replication", protocol(value)?),
            "write-set" => once(&mut self.write_set, "write-set", number("write-set", value)?),
            "replicas" => once(&mut self.replicas, "replicas", number("replicas", value)?),
            "partitioning" => once(&mut self.order, "partitioning", key_order(value)?),
            "partitions" => once(&mut self.partitions, "partitions", number("partitions", value)?),
            "balancing" => once(&mut self.balancing, "balancing", balancing(value)?),
            "partition-keys" => {
                once(&mut self.partition_keys, "partition-keys", positive("partition-keys", value)?)
            }
            "partition-bytes" => {
                once(&mut self.partition_bytes, "partition-bytes", positive("partition-bytes", value)?)
            }
            "chunks" => once(&mut self.chunks, "chunks", chunks(value)?),
            "unicast" => once(&mut self.unicast, "unicast", ring("unicast", value)?),
            "multicast" => once(&mut self.multicast, "multicast", ring("multicast", value)?),
            _ => Err(Refusal::UnknownSetting { setting: name.into() }),
        }
    }

    pub(super) fn complete(self, name: &str, defaults: &KeyspaceDefaults) -> Result<KeyspaceSpec, Refusal> {
        let protocol = match (self.protocol.unwrap_or_default(), self.write_set) {
            (Protocol::Quorum { .. }, None) => return Err(Refusal::QuorumWithoutWriteSet),
            (Protocol::Quorum { .. }, Some(write_set)) => Protocol::Quorum { write_set },
            (_, Some(_)) => return Err(Refusal::WriteSetWithoutQuorum),
            (protocol, None) => protocol,
        };
        let id = self.id.map_or(defaults.id, KeyspaceId);
        let default = KeyspaceSpec::of(&KeyspaceDefaults { id, ..*defaults });
        Ok(KeyspaceSpec {
            name: name.to_string(),
            protocol,
            order: self.order.unwrap_or(default.order),
            replicas: self.replicas.unwrap_or(default.replicas),
            partitions: self.partitions.unwrap_or(default.partitions),
            balancing: self.balancing.unwrap_or_default(),
            partition_keys: self.partition_keys,
            partition_bytes: self.partition_bytes,
            chunks: self.chunks,
            unicast: self.unicast.unwrap_or(default.unicast),
            multicast: self.multicast.unwrap_or(default.multicast),
            ..default
        })
    }
}

/// The only setting that has this value: `range,chain` is unambiguous.
fn named_by_value(word: &str) -> Option<(&'static str, &str)> {
    match word {
        "hash" | "range" => Some(("partitioning", word)),
        "multicast" | "chain" | "quorum" => Some(("replication", word)),
        _ => None,
    }
}

fn once<T>(place: &mut Option<T>, setting: &str, value: T) -> Result<(), Refusal> {
    match place.replace(value) {
        None => Ok(()),
        Some(_) => Err(Refusal::SaidTwice { setting: setting.into() }),
    }
}

fn bad_value(setting: &'static str, value: &str, expected: &'static str) -> Refusal {
    Refusal::Value { setting, value: value.into(), expected }
}

fn number<T: FromStr>(setting: &'static str, value: &str) -> Result<T, Refusal> {
    value.parse().map_err(|_| bad_value(setting, value, "a number that is not too large"))
}

/// Parses a replication mode. The write set of a quorum is a separate setting.
fn protocol(value: &str) -> Result<Protocol, Refusal> {
    match value {
        "multicast" => Ok(Protocol::Multicast),
        "quorum" => Ok(Protocol::Quorum { write_set: 0 }),
        "chain" => Ok(Protocol::Chain),
        _ => Err(bad_value("replication", value, "multicast, chain or quorum")),
    }
}

fn key_order(value: &str) -> Result<KeyOrder, Refusal> {
    match value {
        "hash" => Ok(KeyOrder::Hash),
        "range" => Ok(KeyOrder::Range),
        _ => Err(bad_value("partitioning", value, "hash or range")),
    }
}

fn ring(setting: &'static str, value: &str) -> Result<Ipv4Addr, Refusal> {
    let address = value.strip_suffix("/16").and_then(|address| address.parse().ok());
    address.ok_or_else(|| bad_value(setting, value, "a /16 like 10.12.0.0/16"))
}

fn chunks(value: &str) -> Result<ChunkDelivery, Refusal> {
    match value {
        "multicast" => Ok(ChunkDelivery::Multicast),
        "unicast" => Ok(ChunkDelivery::Unicast),
        _ => Err(bad_value("chunks", value, "multicast or unicast")),
    }
}

fn balancing(value: &str) -> Result<LoadBalancing, Refusal> {
    match value {
        "none" => Ok(LoadBalancing::None),
        "migrate" => Ok(LoadBalancing::Migrate),
        "hot" => Ok(LoadBalancing::Hot),
        _ => Err(bad_value("balancing", value, "none, migrate or hot")),
    }
}

fn positive(setting: &'static str, value: &str) -> Result<u64, Refusal> {
    match number(setting, value)? {
        0 => Err(bad_value(setting, value, "above zero")),
        limit => Ok(limit),
    }
}
