//! The keyspaces of a simulated cluster.

use nicekv_client::Keyspace;
use nicekv_proto::KeyspaceId;
use nicekv_proto::limits::PORT_DEFAULT;
use nicekv_proto::placement::{
    ChunkDelivery, KeyOrder, KeyspaceDefaults, KeyspaceSpec, LoadBalancing, Protocol, RingsBase,
};
use nicekv_testkit::Random;

/// How a keyspace is replicated and partitioned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// R, the number of replicas.
    pub replicas: usize,
    /// The write quorum k of a quorum keyspace (R14). `None`: a primary orders the puts.
    pub write_set: Option<u8>,
    /// Whether the replicas are chains.
    pub is_chain: bool,
    /// The keyspace has `2^bits` partitions at the beginning.
    pub partition_bits: u8,
    pub order: KeyOrder,
    /// Whether load moves partitions.
    pub migrates: bool,
    /// Partitions with more keys are split.
    pub keys_max: Option<u64>,
    /// Whether hot keys get copies.
    pub is_hot: bool,
    /// Whether its keys are names of objects.
    pub has_names: bool,
}

impl Shape {
    /// A keyspace with primaries.
    pub const fn multicast(replicas: usize, partition_bits: u8) -> Self {
        Self {
            replicas,
            write_set: None,
            is_chain: false,
            partition_bits,
            order: KeyOrder::Hash,
            migrates: false,
            keys_max: None,
            is_hot: false,
            has_names: false,
        }
    }

    /// A keyspace of chains.
    pub const fn chain(replicas: usize, partition_bits: u8) -> Self {
        Self { is_chain: true, ..Self::multicast(replicas, partition_bits) }
    }

    /// A quorum keyspace.
    pub const fn quorum(replicas: usize, write_set: u8) -> Self {
        Self { write_set: Some(write_set), ..Self::multicast(replicas, 0) }
    }

    /// The same with ordered keys.
    pub fn by_range(self) -> Self {
        Self { order: KeyOrder::Range, ..self }
    }

    /// The same with partitions that load moves.
    pub fn that_migrates(self) -> Self {
        Self { migrates: true, ..self }
    }

    /// The same with partitions that are split when they have more than `keys` keys.
    pub fn of_at_most(self, keys: u64) -> Self {
        Self { keys_max: Some(keys), ..self.that_migrates() }
    }

    /// The same with copies of hot keys.
    pub fn with_hot_keys(self) -> Self {
        Self { is_hot: true, ..self }
    }

    /// The same with keys that are names of objects.
    pub fn of_names(self) -> Self {
        Self { has_names: true, ..self }
    }

    /// Whether it has no primary.
    pub fn is_quorum(&self) -> bool {
        self.write_set.is_some()
    }

    /// Whether its partitions can be split and merged.
    pub fn can_be_reshaped(&self) -> bool {
        !self.is_quorum()
    }

    /// The read quorum: R − k + 1. With a primary it is 1.
    pub fn read_set(&self) -> usize {
        self.write_set.map_or(1, |write_set| self.replicas - usize::from(write_set) + 1)
    }

    /// Its specification, for the metadata service.
    pub fn spec(&self, id: KeyspaceId) -> KeyspaceSpec {
        let (replicas, partitions, rings) = (self.replicas, 1 << self.partition_bits, RingsBase::Network);
        let mut spec = KeyspaceSpec::of(&KeyspaceDefaults { id, replicas, partitions, rings });
        spec.name = format!("keyspace-{id}");
        spec.order = self.order;
        if self.migrates {
            spec.balancing = LoadBalancing::Migrate;
            spec.partition_keys = self.keys_max;
        }
        spec.chunks = self.has_names.then_some(ChunkDelivery::Multicast);
        if let Some(write_set) = self.write_set {
            spec.protocol = Protocol::Quorum { write_set };
        }
        if self.is_chain {
            spec.protocol = Protocol::Chain;
        }
        spec
    }
}

/// Chooses the seeds with chains.
const CHAINS: u64 = 0x63_6861_696e;

/// In a quarter of the seeds the keyspaces with a primary become chains.
pub fn with_chains(mut shapes: Vec<Shape>, nodes: usize, seed: u64) -> Vec<Shape> {
    if Random::new(!(seed ^ CHAINS)).below(4) == 0 {
        make_chains(&mut shapes, nodes, seed);
    }
    shapes
}

/// Makes every keyspace with a primary a keyspace of chains, for a cluster of `nodes` nodes.
pub fn make_chains(shapes: &mut [Shape], nodes: usize, seed: u64) {
    let mut random = Random::new(seed ^ CHAINS);
    for shape in shapes.iter_mut().filter(|shape| !shape.is_quorum()) {
        let replicas = random.pick(&[2, 3, 3, 3, 4, 5]).min(nodes);
        *shape = Shape::chain(replicas, shape.partition_bits);
    }
}

/// Chooses which keyspaces are ordered.
const ORDERS: u64 = 0x6f_7264_6572;

/// Makes a third of the keyspaces ordered.
pub fn with_orders(mut shapes: Vec<Shape>, seed: u64) -> Vec<Shape> {
    let mut orders = Random::new(seed ^ ORDERS);
    shapes.iter_mut().filter(|_| orders.below(3) == 0).for_each(|shape| *shape = shape.by_range());
    shapes
}

/// Specifications of the keyspaces, numbered from 0, for the metadata service.
pub fn specs(shapes: &[Shape]) -> Vec<KeyspaceSpec> {
    shapes.iter().enumerate().map(|(id, shape)| shape.spec(KeyspaceId(id as u16))).collect()
}

/// The keyspaces as clients know them.
pub fn known_to_clients(shapes: &[Shape]) -> Vec<Keyspace> {
    let keyspace = |(spec, shape): (KeyspaceSpec, &Shape)| Keyspace {
        id: spec.id,
        replication: spec.replication(),
        order: spec.order,
        partition_bits: Some(spec.partitions.ilog2()),
        is_hot: shape.is_hot,
        ..spec.vrings(PORT_DEFAULT).into()
    };
    specs(shapes).into_iter().zip(shapes).map(keyspace).collect()
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key {
    pub keyspace: u16,
    pub name: Vec<u8>,
}

impl Key {
    /// This number of keys. Of ordered keys, some lie at borders: just before the middle of the key
    /// range, just after it, and at its end. Several of these share a match value.
    pub fn of(keyspace: u16, order: KeyOrder, count: usize) -> Vec<Self> {
        let mut keys = Self::several(keyspace, count);
        if order == KeyOrder::Range {
            for (number, key) in keys.iter_mut().enumerate() {
                let name = std::mem::take(&mut key.name);
                key.name = match number % 4 {
                    0 => name,
                    1 => [&[0xff; 16][..], &name].concat(),
                    2 => [&[0x7f][..], &[0xff; 15], &name].concat(),
                    _ => [&[0x80][..], &name].concat(),
                };
            }
        }
        keys
    }

    /// This number of keys, spread evenly over all keyspaces.
    pub fn of_all(keys: usize, keyspaces: &[Shape]) -> Vec<Self> {
        let share = keys.div_ceil(keyspaces.len());
        keyspaces.iter().zip(0..).flat_map(|(shape, number)| Self::of(number, shape.order, share)).collect()
    }

    /// This number of ordered keys, spread over a keyspace of `2^bits` partitions: in turn the
    /// first of a partition, the last before it, and one in its middle. Several share a match
    /// value.
    pub fn at_borders(keyspace: u16, bits: u8, count: usize) -> Vec<Self> {
        let partitions = 1u128 << bits;
        let key = |number: usize| {
            let first = (number as u128 % partitions) << (128 - u32::from(bits));
            let value = match number as u128 / partitions % 3 {
                0 => first,
                1 => first.wrapping_sub(1),
                _ => first | u128::MAX >> (u32::from(bits) + 1),
            };
            Self { keyspace, name: [&value.to_be_bytes()[..], format!("key-{number}").as_bytes()].concat() }
        };
        (0..count).map(key).collect()
    }

    /// This number of keys of a keyspace.
    pub fn several(keyspace: u16, count: usize) -> Vec<Self> {
        (0..count).map(|key| Self { keyspace, name: format!("key-{key}").into_bytes() }).collect()
    }
}
