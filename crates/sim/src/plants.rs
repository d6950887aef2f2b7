//! Bugs that are planted on purpose, to see that they are found.

/// A bug, by the core that it is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Planted {
    /// In the replicas.
    Replica(nicekv_replication::Plant),
}

impl Planted {
    /// A bug of the replicas.
    pub fn replica(self) -> Option<nicekv_replication::Plant> {
        match self {
            Self::Replica(plant) => Some(plant),
        }
    }
}
