//! How names and keyspaces are persisted: numbers as themselves, keyspaces as their text, so that a setting more needs no other format.

/// A type of numbers: `with = "$one"` for one of them, `with = "$several"` for a list.
macro_rules! numbers {
    ($one:ident, $several:ident, $Number:ident of $Raw:ty) => {
        pub(crate) mod $one {
            use nicekv_wire::$Number;
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
            use nicekv_wire::$Number;
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

/// `with = "keyspace"`
pub(super) mod keyspace {
    use alloc::string::String;
    use nicekv_placement::{KeyspaceDefaults, KeyspaceSpec, RingsBase};
    use nicekv_wire::KeyspaceId;
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    /// A canonical text says everything.
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
    use nicekv_placement::KeyspaceSpec;
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

/// Makes an encoding of what is known by partitions' ids, in their order.
macro_rules! by_partition {
    ($(#[$doc:meta])* $name:ident: $type:ident) => {
        $(#[$doc])*
        pub(super) mod $name {
            use alloc::collections::BTreeMap;
            use alloc::vec::Vec;
            use nicekv_wire::PartitionId;
            use serde::de::Error;
            use serde::{Deserialize, Deserializer, Serializer};

            use crate::state::$type;

            type Partitions = BTreeMap<PartitionId, $type>;

            pub(in crate::state) fn serialize<S: Serializer>(
                partitions: &Partitions,
                serializer: S,
            ) -> Result<S::Ok, S::Error> {
                serializer.collect_seq(partitions.iter().map(|(id, partition)| (id.0, partition)))
            }

            pub(in crate::state) fn deserialize<'de, D: Deserializer<'de>>(
                deserializer: D,
            ) -> Result<Partitions, D::Error> {
                let listed = Vec::<(u32, $type)>::deserialize(deserializer)?;
                let count = listed.len();
                let partitions: Partitions =
                    listed.into_iter().map(|(id, partition)| (PartitionId(id), partition)).collect();
                if partitions.len() != count {
                    return Err(D::Error::custom("a partition is named twice"));
                }
                Ok(partitions)
            }
        }
    };
}

by_partition! {
    /// `with = "partitions"`
    partitions: Partition
}

by_partition! {
    /// `with = "gone"`
    gone: Gone
}
