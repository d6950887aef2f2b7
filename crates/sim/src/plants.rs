//! Bugs that are planted on purpose, to see that they are found.

/// A bug, by the core that it is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Planted {
    /// In the replicas.
    Replica(nicekv_replication::Plant),
    /// In the metadata service.
    Metadata(nicekv_metadata::Plant),
}

impl Planted {
    /// A bug of the replicas.
    pub fn replica(self) -> Option<nicekv_replication::Plant> {
        match self {
            Self::Replica(plant) => Some(plant),
            Self::Metadata(_) => None,
        }
    }

    /// A bug of the metadata service.
    pub fn metadata(self) -> Option<nicekv_metadata::Plant> {
        match self {
            Self::Metadata(plant) => Some(plant),
            Self::Replica(_) => None,
        }
    }
}
