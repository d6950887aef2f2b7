//! Encodings of ids and keyspaces in the persisted state. Ids are encoded as numbers. Keyspaces are
//! encoded as text, so that a new setting does not need a new format.

/// Defines the encodings of an id type: `with = "$one"` for one id, `with = "$several"` for a list.
macro_rules! numbers {
    ($one:ident, $several:ident, $Number:ident of $Raw:ty) => {
        pub(crate) mod $one {
            use nicekv_proto::$Number;
            use serde::{Deserialize, Deserializer, Serialize, Serializer};

            pub(crate) fn serialize<S: Serializer>(
                number: &$Number,
                serializer: S,
            ) -> Result<S::Ok, S::Error> {
                number.0.serialize(serializer)
            }

            pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
                deserializer: D,
            ) -> Result<$Number, D::Error> {
                <$Raw>::deserialize(deserializer).map($Number)
            }
        }

        pub(super) mod $several {
            use alloc::vec::Vec;
            use nicekv_proto::$Number;
            use serde::{Deserialize, Deserializer, Serializer};

            pub(in crate::state) fn serialize<S: Serializer>(
                numbers: &[$Number],
                serializer: S,
            ) -> Result<S::Ok, S::Error> {
                serializer.collect_seq(numbers.iter().map(|number| number.0))
            }

            pub(in crate::state) fn deserialize<'de, D: Deserializer<'de>>(
                deserializer: D,
            ) -> Result<Vec<$Number>, D::Error> {
                Ok(Vec::<$Raw>::deserialize(deserializer)?.into_iter().map($Number).collect())
            }
        }
    };
}

numbers!(node_id, node_ids, NodeId of u16);
numbers!(keyspace_id, keyspace_ids, KeyspaceId of u16);
numbers!(partition_id, partition_ids, PartitionId of u32);

/// `with = "match_range"`
pub(super) mod match_range {
    use nicekv_proto::MatchRange;
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

/// `with = "keyspace"`
pub(super) mod keyspace {
    use alloc::string::String;
    use nicekv_proto::KeyspaceId;
    use nicekv_proto::placement::{KeyspaceDefaults, KeyspaceSpec, RingsBase};
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    /// Not used in practice: a canonical text has all settings.
    pub(super) const DEFAULTS: KeyspaceDefaults =
        KeyspaceDefaults { id: KeyspaceId::DEFAULT, replicas: 1, partitions: 1, rings: RingsBase::Network };

    pub(in crate::state) fn serialize<S: Serializer>(
        keyspace: &KeyspaceSpec,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_str(keyspace)
    }

    pub(in crate::state) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<KeyspaceSpec, D::Error> {
        KeyspaceSpec::parse(&String::deserialize(deserializer)?, &DEFAULTS).map_err(D::Error::custom)
    }
}

/// `with = "keyspaces"`
pub(super) mod keyspaces {
    use super::keyspace::DEFAULTS;
    use alloc::string::{String, ToString};
    use alloc::vec::Vec;
    use nicekv_proto::placement::KeyspaceSpec;
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(in crate::state) fn serialize<S: Serializer>(
        keyspaces: &[KeyspaceSpec],
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(keyspaces.iter().map(ToString::to_string))
    }

    pub(in crate::state) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Vec<KeyspaceSpec>, D::Error> {
        let texts = Vec::<String>::deserialize(deserializer)?;
        let specs = texts.iter().map(|text| KeyspaceSpec::parse(text, &DEFAULTS));
        specs.collect::<Result<_, _>>().map_err(D::Error::custom)
    }
}

/// `with = "by_partition"`: a map from partition ids, encoded in ascending order.
pub(super) mod by_partition {
    use alloc::collections::BTreeMap;
    use alloc::vec::Vec;
    use nicekv_proto::PartitionId;
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(in crate::state) fn serialize<T: Serialize, S: Serializer>(
        partitions: &BTreeMap<PartitionId, T>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(partitions.iter().map(|(id, partition)| (id.0, partition)))
    }

    pub(in crate::state) fn deserialize<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<BTreeMap<PartitionId, T>, D::Error> {
        let pairs = Vec::<(u32, T)>::deserialize(deserializer)?;
        let count = pairs.len();
        let partitions: BTreeMap<_, _> =
            pairs.into_iter().map(|(id, partition)| (PartitionId(id), partition)).collect();
        match partitions.len() == count {
            true => Ok(partitions),
            false => Err(D::Error::custom("a partition is listed twice")),
        }
    }
}
