use proptest::prelude::*;

use super::*;
use crate::decide::epochs;
use crate::state::{Member, Process};
use nicekv_proto::{KeyspaceId, MatchRange};

const CLIENTS: Prefix = Prefix::new([10, 20, 2, 0], 24);

fn nodes(ids: &[u16]) -> Vec<NodeId> {
    ids.iter().copied().map(NodeId).collect()
}

/// The load of sources, which are given by the last byte of their addresses.
fn load(sources: &[(u8, u64)]) -> Load {
    let address = |last: u8| u32::from_be_bytes([10, 20, 2, last]);
    Load { inside: sources.iter().map(|(last, gets)| (address(*last), *gets)).collect(), outside: 0 }
}

fn divided(id: u32, among: &[u16], load: &Load) -> Divisions {
    let among = nodes(among);
    let list = divide(PartitionId(id), CLIENTS, &among, &Divisions::default(), load);
    Divisions { among, list }
}

/// The number of gets that each member answers, in the order of node ids.
fn shares(divisions: &Divisions, load: &Load) -> Vec<u64> {
    let mut shares: BTreeMap<NodeId, u64> = divisions.among.iter().map(|node| (*node, 0)).collect();
    *shares.get_mut(&divisions.among[0]).unwrap() += load.outside;
    for (address, gets) in &load.inside {
        *shares.get_mut(&divisions.holder(divisions.among[0], *address)).unwrap() += gets;
    }
    shares.into_values().collect()
}

#[test]
fn without_load_clients_are_divided_equally() {
    let entry = |last: u8, length: u8, node: u16| (format!("10.20.2.{last}/{length}"), NodeId(node));
    let evenly = |id: u32, among: &[u16]| -> Vec<_> {
        let divisions = evenly(PartitionId(id), CLIENTS, &nodes(among));
        divisions.iter().map(|division| (division.source.to_string(), division.node)).collect()
    };
    assert_eq!(evenly(0, &[1, 2, 3]), [entry(64, 26, 2), entry(128, 26, 3)]);
    assert_eq!(evenly(2, &[1, 2, 3]), [entry(192, 26, 2), entry(0, 26, 3)]);
    assert_eq!(evenly(0, &[1, 2]), [entry(128, 25, 2)]);
    assert_eq!(evenly(1, &[1, 2]), [entry(0, 25, 2)]);
    assert_eq!(evenly(5, &[1]), []);
    let all = super::evenly(PartitionId(0), Prefix::new([0; 4], 0), &nodes(&[1]));
    assert_eq!(all, [], "the primary serves the only part");
}

#[test]
fn as_many_clients_as_replicas_get_one_each() {
    for replicas in 2..=9u16 {
        let among: Vec<u16> = (1..=replicas).collect();
        let clients: Vec<(u8, u64)> = (1..=replicas).map(|client| (client as u8 * 3, 1_000)).collect();
        let load = load(&clients);
        let divisions = divided(3, &among, &load);
        assert_eq!(shares(&divisions, &load), vec![1_000; replicas.into()], "{divisions:?}");
        assert_eq!(divisions.list.len(), usize::from(replicas) - 1, "R + 1 entries with both rings");
    }
}

#[test]
fn shares_are_as_equal_as_prefixes_allow() {
    // The source with the most gets is in one part, all others are in the other parts.
    let uneven = load(&[(1, 500), (2, 250), (3, 250), (9, 300), (10, 200)]);
    assert_eq!(busiest(&divided(0, &[1, 2, 3], &uneven), &uneven), Some(500));
    // One part encloses another: source 10 has its own, and the rest of 8 to 15 is in the part
    // around it.
    let nested = load(&[(1, 300), (8, 100), (9, 100), (10, 300), (15, 100)]);
    let divisions = divided(0, &[1, 2, 3], &nested);
    assert_eq!(shares(&divisions, &nested), [300; 3], "{divisions:?}");
    // Sources outside of the divided addresses are served by the primary.
    let outside = Load { outside: 10_000, ..load(&[(1, 100), (2, 100)]) };
    assert_eq!(shares(&divided(0, &[1, 2, 3], &outside), &outside), [10_000, 100, 100]);
    let half = Load { outside: 100, ..load(&[(1, 100), (2, 100)]) };
    assert_eq!(shares(&divided(0, &[2, 1, 3], &half), &half), [100; 3]);
    // A single source cannot be divided.
    let alone = load(&[(1, 1_000)]);
    assert_eq!(busiest(&divided(0, &[1, 2, 3], &alone), &alone), Some(1_000));
}

#[test]
fn divisions_keep_their_members() {
    let clients = load(&[(1, 100), (65, 100), (129, 100)]);
    let before = divided(0, &[1, 2, 3], &clients);
    let held =
        |divisions: &Divisions, last: u8| divisions.holder(NodeId(1), u32::from_be_bytes([10, 20, 2, last]));
    // A fourth source changes the part of at most one member.
    let more = load(&[(1, 100), (65, 100), (129, 100), (200, 100)]);
    let among = nodes(&[1, 2, 3, 4]);
    let list = divide(PartitionId(0), CLIENTS, &among, &before, &more);
    let after = Divisions { among, list };
    assert_eq!(shares(&after, &more), [100; 4]);
    let moved = [1, 65, 129].iter().filter(|last| held(&before, **last) != held(&after, **last)).count();
    assert!(moved <= 1, "{before:?} to {after:?}");
    // Dividing the same load again gives the same divisions.
    assert_eq!(divide(PartitionId(0), CLIENTS, &before.among, &before, &clients), before.list);
}

#[test]
fn order_of_members_differs_by_partition() {
    let alone = load(&[(1, 100)]);
    let asked = |id| {
        let among = nodes(&[1, 2, 3, 4]);
        let list = evenly(PartitionId(id), CLIENTS, &among);
        Divisions { among, list }.holder(NodeId(1), alone.inside[0].0)
    };
    let all: std::collections::BTreeSet<_> = (0..4).map(asked).collect();
    assert_eq!(all.len(), 4, "{all:?}");
}

#[test]
fn serving_originals_come_first_and_joiners_are_left_out() {
    let process = |_| Process { incarnation: 1, storage: 1 };
    let mut partition = epochs::first(KeyspaceId::DEFAULT, MatchRange::ALL, nodes(&[2, 1, 3]), process);
    assert_eq!(among(&partition, 3), nodes(&[2]), "a promoted member does not serve yet");
    partition.members.iter_mut().for_each(|member| member.standing = Standing::Serving);
    assert_eq!(among(&partition, 3), nodes(&[2, 1, 3]));
    let other = |node, handoff, standing| Member {
        node: NodeId(node),
        handoff,
        standing,
        process: process(NodeId(node)),
    };
    partition.members.retain(|member| member.node != NodeId(3));
    partition.members.insert(0, other(9, true, Standing::Serving));
    assert_eq!(among(&partition, 3), nodes(&[2, 1, 9]), "a serving handoff is included");
    partition.members.push(other(3, false, Standing::Copying));
    assert_eq!(among(&partition, 3), nodes(&[2, 1, 9]));
    partition.members.last_mut().unwrap().standing = Standing::Serving;
    assert_eq!(among(&partition, 3), nodes(&[2, 1, 3]), "at most R - 1 besides the primary");
}

proptest! {
    #[test]
    fn divisions_are_sound_for_random_loads(
        sources in proptest::collection::btree_map(any::<u8>(), 1u64..10_000, 0..40),
        replicas in 1u16..=9,
        outside in 0u64..5_000,
        id: u32,
    ) {
        let sources: Vec<_> = sources.into_iter().collect();
        let load = Load { outside, ..load(&sources) };
        let among: Vec<u16> = (1..=replicas).collect();
        let divisions = divided(id, &among, &load);
        prop_assert!(divisions.are_sound());
        prop_assert!(divisions.list.len() < usize::from(replicas).max(1));
        prop_assert!(divisions.list.iter().all(|division| CLIENTS.covers(&division.source)));
        prop_assert!(divisions.list.iter().all(|division| division.node != NodeId(1)));
        let shares = shares(&divisions, &load);
        prop_assert_eq!(shares.iter().sum::<u64>(), load.total());
        prop_assert_eq!(busiest(&divisions, &load), shares.iter().max().copied());
    }
}
