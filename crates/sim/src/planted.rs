//! Which bug a cluster is given, by the core that it is in. What they are and how they are found: [`crate::plants`].

use nicekv_client::Plant as InClient;
use nicekv_dataplane::Plant as InSwitch;
use nicekv_kernel_gets::Plant as InKernel;
use nicekv_metadata::Plant as InMetadata;
use nicekv_node::Plant as InReplica;

/// A bug, by the core that it is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Planted {
    /// In the replicas.
    Replica(InReplica),
    /// In the metadata service.
    Metadata(InMetadata),
    /// In the clients.
    Client(InClient),
    /// In the switches and their agents.
    Switch(InSwitch),
    /// Of gets that the kernel answers.
    Kernel(InKernel),
    /// Between the instances of the metadata service and their store.
    Store(InStore),
}

impl Planted {
    /// A bug of gets in the kernel.
    pub fn kernel(self) -> Option<InKernel> {
        match self {
            Self::Kernel(plant) => Some(plant),
            _ => None,
        }
    }
}

/// A bug of the store that instances of the metadata service share, or of how they use it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InStore {
    /// R13: a step is written without asking who has the seat, and what is there.
    WrittenUnguarded,
    /// R12: the seat is taken without waiting for its holder's lease.
    TakenAtOnce,
    /// R12: a leader goes on although its hold of the seat is over.
    HoldIgnored,
}

impl Planted {
    /// A bug of the replicas.
    pub fn replica(self) -> Option<InReplica> {
        match self {
            Self::Replica(plant) => Some(plant),
            _ => None,
        }
    }

    /// A bug of the metadata service.
    pub fn metadata(self) -> Option<InMetadata> {
        match self {
            Self::Metadata(plant) => Some(plant),
            _ => None,
        }
    }

    /// A bug of the clients.
    pub fn client(self) -> Option<InClient> {
        match self {
            Self::Client(plant) => Some(plant),
            _ => None,
        }
    }

    /// A bug of the store.
    pub fn store(self) -> Option<InStore> {
        match self {
            Self::Store(plant) => Some(plant),
            _ => None,
        }
    }

    /// A bug of the switches.
    pub fn switch(self) -> Option<InSwitch> {
        match self {
            Self::Switch(plant) => Some(plant),
            _ => None,
        }
    }
}
