//! The physical ring (NICE §3.1): consistent hashing with bounded loads, so that a few partitions still spread evenly.
//!
//! Each node has [`TOKENS_PER_NODE`] tokens on a ring of 64-bit hashes. A partition's replica set is the first R distinct nodes
//! clockwise from the partition's own hash; a node is passed over as primary when it already leads its share, and as a secondary
//! when it already holds its share of replicas. When a node comes or goes, most partitions keep most of their members.

use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;
use nicekv_wire::NodeId;
use thiserror::Error;

use crate::Partitioning;

const TOKENS_PER_NODE: u16 = 32;

/// Why there is no placement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum PlacementError {
    /// More replicas than nodes, or none.
    #[error("{replicas} replicas need at least as many nodes, there are {nodes}")]
    TooFewNodes {
        /// Replicas wanted.
        replicas: usize,
        /// Nodes there are.
        nodes: usize,
    },
}

/// The replica set of every partition, its primary first.
pub fn replica_sets(
    nodes: &[NodeId],
    partitioning: Partitioning,
    replicas: usize,
) -> Result<Vec<Vec<NodeId>>, PlacementError> {
    if replicas == 0 || replicas > nodes.len() {
        return Err(PlacementError::TooFewNodes { replicas, nodes: nodes.len() });
    }
    let ring = tokens(nodes);
    let partitions = usize::from(partitioning.count());
    let mut led: BTreeMap<NodeId, usize> = nodes.iter().map(|node| (*node, 0)).collect();
    let mut held = led.clone();
    let led_max = partitions.div_ceil(nodes.len());
    let held_max = (partitions * replicas).div_ceil(nodes.len());
    let mut sets = Vec::with_capacity(partitions);
    for place in 0..partitioning.count() {
        let start = ring.partition_point(|(hash, _)| *hash < ring_hash(1, place, 0));
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
    Ok(sets)
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

    fn sets(nodes: u16, bits: u8, replicas: usize) -> Vec<Vec<NodeId>> {
        let nodes: Vec<_> = (0..nodes).map(NodeId).collect();
        replica_sets(&nodes, Partitioning::new(bits).unwrap(), replicas).unwrap()
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
    fn too_few_nodes_is_an_error() {
        let error = replica_sets(&[NodeId(1)], Partitioning::new(0).unwrap(), 2);
        assert_eq!(error, Err(PlacementError::TooFewNodes { replicas: 2, nodes: 1 }));
    }
}
