//! The physical ring (NICE §3.1): consistent hashing with bounded loads, so that a few partitions still spread evenly.
//!
//! Each node has [`TOKENS_PER_NODE`] tokens on a ring of 64-bit hashes. A partition's replica set is the first R distinct nodes
//! clockwise from the partition's own hash; a node is passed over as primary when it already leads its share, and as a secondary
//! when it already holds its share of replicas. When a node comes or goes, most partitions keep most of their members.

use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;
use nicekv_wire::NodeId;

use crate::KeyspaceSpec;

const TOKENS_PER_NODE: u16 = 32;

/// The replica set of every partition of a keyspace, its primary first.
///
/// # Panics
/// If there are fewer nodes than replicas, or no replicas: [`crate::check_keyspaces`] comes first.
pub fn replica_sets(nodes: &[NodeId], keyspace: &KeyspaceSpec) -> Vec<Vec<NodeId>> {
    let KeyspaceSpec { id, replicas, partitions, .. } = *keyspace;
    assert!((1..=nodes.len()).contains(&replicas), "{replicas} replicas on {} nodes", nodes.len());
    let partitions = partitions as usize;
    let ring = tokens(nodes);
    let mut led: BTreeMap<NodeId, usize> = nodes.iter().map(|node| (*node, 0)).collect();
    let mut held = led.clone();
    let led_max = partitions.div_ceil(nodes.len());
    let held_max = (partitions * replicas).div_ceil(nodes.len());
    let mut sets = Vec::with_capacity(partitions);
    for place in 0..partitions as u16 {
        let start = ring.partition_point(|(hash, _)| *hash < ring_hash(1, place, id.0));
        let clockwise = || ring[start..].iter().chain(&ring[..start]).map(|(_, node)| *node);
        let primary =
            clockwise().find(|node| led[node] < led_max).expect("some node leads less than its share");
        *led.get_mut(&primary).expect("known") += 1;
        *held.get_mut(&primary).expect("known") += 1;
        let mut set = vec![primary];
        // First those with room; the bound may leave too few distinct ones at the end, then any.
        for room_only in [true, false] {
            for node in clockwise() {
                if set.len() < replicas && !set.contains(&node) && (!room_only || held[&node] < held_max) {
                    set.push(node);
                    *held.get_mut(&node).expect("known") += 1;
                }
            }
        }
        sets.push(set);
    }
    sets
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{KeyspaceDefaults, RingsBase};
    use nicekv_wire::KeyspaceId;

    fn sets(nodes: u16, bits: u8, replicas: usize) -> Vec<Vec<NodeId>> {
        let nodes: Vec<_> = (0..nodes).map(NodeId).collect();
        replica_sets(&nodes, &keyspace(0, bits, replicas))
    }

    fn keyspace(id: u16, bits: u8, replicas: usize) -> KeyspaceSpec {
        let (id, rings) = (KeyspaceId(id), RingsBase::Network);
        KeyspaceSpec::of(&KeyspaceDefaults { id, replicas, partitions: 1 << bits, rings })
    }

    #[test]
    fn every_set_has_distinct_members_and_primaries_are_even() {
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
    fn a_new_node_moves_few_replicas() {
        let (before, after) = (sets(9, 8, 3), sets(10, 8, 3));
        let moved: usize =
            before.iter().zip(&after).map(|(b, a)| a.iter().filter(|node| !b.contains(node)).count()).sum();
        assert!(moved < 256 * 3 / 2, "{moved} of 768 replicas moved, a fresh placement would move most");
    }

    #[test]
    fn keyspaces_lie_differently() {
        let nodes: Vec<_> = (0..5).map(NodeId).collect();
        let sets = |id| replica_sets(&nodes, &keyspace(id, 4, 3));
        assert_ne!(sets(0), sets(1));
        assert_eq!(sets(1), sets(1));
    }
}
