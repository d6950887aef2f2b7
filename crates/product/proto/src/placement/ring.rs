//! The physical ring (NICE §3.1): consistent hashing with bounded loads, so that a few partitions still spread evenly.
//!
//! Each node has [`TOKENS_PER_NODE`] tokens on a ring of 64-bit hashes. A partition's replica set
//! is the first R distinct nodes clockwise from the partition's own hash; a node is skipped as
//! primary when it already leads its share of partitions, and as a secondary when it already holds
//! its share of replicas. When a node joins or leaves, most partitions keep most of their members.

use crate::NodeId;
use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

use crate::placement::KeyspaceSpec;

const TOKENS_PER_NODE: u16 = 32;

/// The replica set of every partition of a keyspace, its primary first.
///
/// # Panics
/// If there are fewer nodes than replicas, or no replicas: [`crate::placement::check_keyspaces`] comes first.
pub fn replica_sets(nodes: &[NodeId], keyspace: &KeyspaceSpec) -> Vec<Vec<NodeId>> {
    let KeyspaceSpec { id, replicas, partitions, .. } = *keyspace;
    assert!((1..=nodes.len()).contains(&replicas), "{replicas} replicas on {} nodes", nodes.len());
    let mut shares = Shares::of(nodes, partitions as usize, replicas);
    (0..partitions as u16).map(|place| shares.take(ring_hash(1, place, id.0))).collect()
}

/// Replica sets of a keyspace whose partitions were split and merged; they begin at these match
/// values, ascending.
///
/// A partition that begins where an initial partition began keeps that one's replica set; any other
/// gets a set by its first match value and the remaining room. So a split moves at most its second
/// half, a merge moves nothing of its first partition, no other partition moves, and a merge after
/// a split restores the old placement.
///
/// # Panics
/// As [`replica_sets`].
pub fn replica_sets_of(nodes: &[NodeId], keyspace: &KeyspaceSpec, starts: &[u128]) -> Vec<Vec<NodeId>> {
    let first = replica_sets(nodes, keyspace);
    let below = u128::BITS - first.len().ilog2();
    let place = |start: &u128| {
        let place = start.checked_shr(below).unwrap_or(0);
        (place.checked_shl(below).unwrap_or(0) == *start).then_some(place as usize)
    };
    let mut shares = Shares::of(nodes, starts.len(), keyspace.replicas);
    let kept: Vec<_> = starts.iter().map(|start| place(start).map(|place| first[place].clone())).collect();
    kept.iter().flatten().for_each(|set| shares.note(set));
    let own = |(set, start): (Option<Vec<NodeId>>, &u128)| {
        set.unwrap_or_else(|| shares.take(own_hash(*start, keyspace.id.0)))
    };
    kept.into_iter().zip(starts).map(own).collect()
}

/// The ring, and how many partitions each node leads and holds already.
struct Shares {
    ring: Vec<(u64, NodeId)>,
    replicas: usize,
    led: BTreeMap<NodeId, usize>,
    held: BTreeMap<NodeId, usize>,
    led_max: usize,
    held_max: usize,
}

impl Shares {
    fn of(nodes: &[NodeId], partitions: usize, replicas: usize) -> Self {
        let led: BTreeMap<NodeId, usize> = nodes.iter().map(|node| (*node, 0)).collect();
        Self {
            ring: tokens(nodes),
            replicas,
            held: led.clone(),
            led,
            led_max: partitions.div_ceil(nodes.len()),
            held_max: (partitions * replicas).div_ceil(nodes.len()),
        }
    }

    fn note(&mut self, set: &[NodeId]) {
        *self.led.get_mut(&set[0]).expect("known") += 1;
        for node in set {
            *self.held.get_mut(node).expect("known") += 1;
        }
    }

    /// The replica set of a partition with this hash.
    fn take(&mut self, hash: u64) -> Vec<NodeId> {
        let Self { ring, led, held, .. } = &*self;
        let start = ring.partition_point(|(token, _)| *token < hash);
        let clockwise = || ring[start..].iter().chain(&ring[..start]).map(|(_, node)| *node);
        let primary =
            clockwise().find(|node| led[node] < self.led_max).expect("some node leads less than its share");
        let mut set = vec![primary];
        // Nodes with room come first; if the bound leaves too few distinct nodes, any node.
        for room_only in [true, false] {
            for node in clockwise() {
                let has_room = !room_only || held[&node] < self.held_max;
                if set.len() < self.replicas && !set.contains(&node) && has_room {
                    set.push(node);
                }
            }
        }
        self.note(&set);
        set
    }
}

fn tokens(nodes: &[NodeId]) -> Vec<(u64, NodeId)> {
    let mut ring: Vec<_> = nodes
        .iter()
        .flat_map(|node| (0..TOKENS_PER_NODE).map(|token| (ring_hash(0, node.0, token), *node)))
        .collect();
    ring.sort_unstable();
    ring
}

fn ring_hash(kind: u8, name: u16, token: u16) -> u64 {
    let [a, b] = name.to_be_bytes();
    let [c, d] = token.to_be_bytes();
    let hash = blake3::hash(&[kind, a, b, c, d]);
    u64::from_be_bytes(hash.as_bytes()[..8].try_into().expect("eight bytes"))
}

/// Hash of a partition that begins where no initial one did: by its vnode if it begins at one.
fn own_hash(start: u128, keyspace: u16) -> u64 {
    const VNODE: u128 = 1 << 112;
    if start.is_multiple_of(VNODE) {
        return ring_hash(2, (start / VNODE) as u16, keyspace);
    }
    let mut hasher = blake3::Hasher::new();
    hasher.update(&[3]).update(&start.to_be_bytes()).update(&keyspace.to_be_bytes());
    u64::from_be_bytes(hasher.finalize().as_bytes()[..8].try_into().expect("eight bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::KeyspaceId;
    use crate::placement::{KeyspaceDefaults, RingsBase};

    fn sets(nodes: u16, bits: u8, replicas: usize) -> Vec<Vec<NodeId>> {
        let nodes: Vec<_> = (0..nodes).map(NodeId).collect();
        replica_sets(&nodes, &keyspace(0, bits, replicas))
    }

    fn keyspace(id: u16, bits: u8, replicas: usize) -> KeyspaceSpec {
        let (id, rings) = (KeyspaceId(id), RingsBase::Network);
        KeyspaceSpec::of(&KeyspaceDefaults { id, replicas, partitions: 1 << bits, rings })
    }

    #[test]
    fn replica_sets_are_distinct_and_primaries_balanced() {
        for (nodes, replicas) in [(1, 1), (3, 3), (5, 3), (9, 5)] {
            let sets = sets(nodes, 6, replicas);
            assert_eq!(sets.len(), 64);
            for set in &sets {
                let mut distinct = set.clone();
                distinct.sort_unstable();
                distinct.dedup();
                assert_eq!(distinct.len(), replicas);
            }
            for node in 0..nodes {
                let led = sets.iter().filter(|set| set[0] == NodeId(node)).count();
                assert!(led <= 64usize.div_ceil(nodes.into()), "node {node} leads {led}");
            }
        }
    }

    #[test]
    fn new_node_moves_few_replicas() {
        let (before, after) = (sets(9, 8, 3), sets(10, 8, 3));
        let moved: usize =
            before.iter().zip(&after).map(|(b, a)| a.iter().filter(|node| !b.contains(node)).count()).sum();
        assert!(moved < 256 * 3 / 2, "{moved} of 768 replicas moved, a fresh placement would move most");
    }

    #[test]
    fn split_moves_only_its_second_half_and_merge_undoes_it() {
        let nodes: Vec<_> = (0..7).map(NodeId).collect();
        let keyspace = keyspace(0, 4, 3);
        let before = replica_sets(&nodes, &keyspace);
        let starts: Vec<u128> = (0..16).map(|place| place << 124).collect();
        assert_eq!(replica_sets_of(&nodes, &keyspace, &starts), before);
        for cut in [1 << 112, 0x3800 << 112, 0xf7ff << 112, 1, (7 << 124) - 1, u128::MAX] {
            let mut starts: Vec<u128> = starts.iter().copied().chain([cut]).collect();
            starts.sort_unstable();
            let mut split = replica_sets_of(&nodes, &keyspace, &starts);
            let own = split.remove(starts.binary_search(&cut).unwrap());
            assert_eq!((split, own.len()), (before.clone(), 3));
        }
        // After a merge, the first partition's set stays, and so do all others.
        let mut merged = starts;
        merged.remove(5);
        let after = replica_sets_of(&nodes, &keyspace, &merged);
        assert_eq!(after, [&before[..5], &before[6..]].concat());
        // One partition, and the maximum.
        assert_eq!(replica_sets_of(&nodes, &keyspace, &[0]), before[..1]);
        let many: Vec<u128> = (0..1024).map(|place| (place * 64) << 112).collect();
        let led = |node| {
            replica_sets_of(&nodes, &keyspace, &many).iter().filter(|set| set[0] == NodeId(node)).count()
        };
        assert!((0..7).all(|node| led(node) <= 1024usize.div_ceil(7)));
    }

    #[test]
    fn keyspaces_are_placed_differently() {
        let nodes: Vec<_> = (0..5).map(NodeId).collect();
        let sets = |id| replica_sets(&nodes, &keyspace(id, 4, 3));
        assert_ne!(sets(0), sets(1));
        assert_eq!(sets(1), sets(1));
    }
}
