//! How names and keyspaces are persisted: numbers as themselves, keyspaces as their text, so that a setting more needs no other format.

/// `with = "node_id"`
pub(crate) mod node_id {
    use nicekv_wire::NodeId;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(crate) fn serialize<S: Serializer>(node: &NodeId, serializer: S) -> Result<S::Ok, S::Error> {
        node.0.serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<NodeId, D::Error> {
        u16::deserialize(deserializer).map(NodeId)
    }
}

/// `with = "node_ids"`
pub(super) mod node_ids {
    use alloc::vec::Vec;
    use nicekv_wire::NodeId;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(in crate::state) fn serialize<S: Serializer>(
        nodes: &[NodeId],
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(nodes.iter().map(|node| node.0))
    }

    pub(in crate::state) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Vec<NodeId>, D::Error> {
        Ok(Vec::<u16>::deserialize(deserializer)?.into_iter().map(NodeId).collect())
    }
}

/// `with = "keyspace_id"`
pub(super) mod keyspace_id {
    use nicekv_wire::KeyspaceId;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(in crate::state) fn serialize<S: Serializer>(
        keyspace: &KeyspaceId,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        keyspace.0.serialize(serializer)
    }

    pub(in crate::state) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<KeyspaceId, D::Error> {
        u16::deserialize(deserializer).map(KeyspaceId)
    }
}

/// `with = "match_range"`
pub(super) mod match_range {
    use nicekv_wire::MatchRange;
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(in crate::state) fn serialize<S: Serializer>(
        range: &MatchRange,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        (range.first(), range.last()).serialize(serializer)
    }

    pub(in crate::state) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<MatchRange, D::Error> {
        let (first, last) = Deserialize::deserialize(deserializer)?;
        MatchRange::new(first, last).map_err(D::Error::custom)
    }
}

/// `with = "keyspaces"`
pub(super) mod keyspaces {
    use alloc::string::String;
    use alloc::vec::Vec;
    use nicekv_placement::{KeyspaceDefaults, KeyspaceSpec, RingsBase};
    use nicekv_wire::KeyspaceId;
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    /// A canonical text says everything.
    const DEFAULTS: KeyspaceDefaults =
        KeyspaceDefaults { id: KeyspaceId::DEFAULT, replicas: 1, partitions: 1, rings: RingsBase::Network };

    pub(in crate::state) fn serialize<S: Serializer>(
        keyspaces: &[KeyspaceSpec],
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(keyspaces.iter().map(alloc::string::ToString::to_string))
    }

    pub(in crate::state) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Vec<KeyspaceSpec>, D::Error> {
        let texts = Vec::<String>::deserialize(deserializer)?;
        let specs = texts.iter().map(|text| KeyspaceSpec::parse(text, &DEFAULTS));
        specs.collect::<Result<_, _>>().map_err(D::Error::custom)
    }
}

/// `with = "partitions"`: in the order of their ids.
pub(super) mod partitions {
    use alloc::collections::BTreeMap;
    use alloc::vec::Vec;
    use nicekv_wire::PartitionId;
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    use crate::state::Partition;

    type Partitions = BTreeMap<PartitionId, Partition>;

    pub(in crate::state) fn serialize<S: Serializer>(
        partitions: &Partitions,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(partitions.iter().map(|(id, partition)| (id.0, partition)))
    }

    pub(in crate::state) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Partitions, D::Error> {
        let listed = Vec::<(u32, Partition)>::deserialize(deserializer)?;
        let count = listed.len();
        let partitions: Partitions =
            listed.into_iter().map(|(id, partition)| (PartitionId(id), partition)).collect();
        if partitions.len() != count {
            return Err(D::Error::custom("a partition is named twice"));
        }
        Ok(partitions)
    }
}
