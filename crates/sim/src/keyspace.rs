//! The keyspaces of a simulated cluster.

use nicekv_client::Keyspace;
use nicekv_placement::{KeyspaceDefaults, KeyspaceSpec, Protocol, RingsBase};
use nicekv_wire::KeyspaceId;
use nicekv_wire::limits::PORT_DEFAULT;

/// How a keyspace is replicated, and over how many partitions it is spread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// R.
    pub replicas: usize,
    /// k, if it is by quorum (R14); else a primary orders the puts.
    pub write_set: Option<u8>,
    /// `2^bits` partitions.
    pub partition_bits: u8,
}

impl Shape {
    /// With a primary.
    pub fn multicast(replicas: usize, partition_bits: u8) -> Self {
        Self { replicas, write_set: None, partition_bits }
    }

    /// By quorum.
    pub fn quorum(replicas: usize, write_set: u8) -> Self {
        Self { replicas, write_set: Some(write_set), partition_bits: 0 }
    }

    /// Whether it has no primary.
    pub fn is_quorum(&self) -> bool {
        self.write_set.is_some()
    }

    /// R − k + 1, or one.
    pub fn read_set(&self) -> usize {
        self.write_set.map_or(1, |write_set| self.replicas - usize::from(write_set) + 1)
    }

    /// What the metadata service is told of it.
    pub fn spec(&self, id: KeyspaceId) -> KeyspaceSpec {
        let (replicas, partitions, rings) = (self.replicas, 1 << self.partition_bits, RingsBase::Network);
        let mut spec = KeyspaceSpec::of(&KeyspaceDefaults { id, replicas, partitions, rings });
        spec.name = format!("keyspace-{id}");
        if let Some(write_set) = self.write_set {
            spec.protocol = Protocol::Quorum { write_set };
        }
        spec
    }
}

/// What the metadata service is told of the keyspaces, which are numbered from 0.
pub fn specs(shapes: &[Shape]) -> Vec<KeyspaceSpec> {
    shapes.iter().enumerate().map(|(id, shape)| shape.spec(KeyspaceId(id as u16))).collect()
}

/// What clients are told of them.
pub fn known_to_clients(shapes: &[Shape]) -> Vec<Keyspace> {
    let keyspace = |spec: KeyspaceSpec| Keyspace {
        id: spec.id,
        replication: spec.replication(),
        partition_bits: Some(spec.partitions.ilog2()),
        ..spec.vrings(PORT_DEFAULT).into()
    };
    specs(shapes).into_iter().map(keyspace).collect()
}

/// A key of the workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key {
    /// The number of its keyspace.
    pub keyspace: u16,
    /// Its name.
    pub name: Vec<u8>,
}

impl Key {
    /// So many keys of a keyspace.
    pub fn several(keyspace: u16, count: usize) -> Vec<Self> {
        (0..count).map(|key| Self { keyspace, name: format!("key-{key}").into_bytes() }).collect()
    }
}
