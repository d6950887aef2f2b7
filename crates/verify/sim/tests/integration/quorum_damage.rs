//! Quorum keyspaces (R14) whose disks damage what they store: docs/FAULTS.md row 10.

use crate::quorum;

use nicekv_sim::cluster::{Cluster, Fault};
use nicekv_sim::network::Host;
use quorum::*;

fn damaged(world: &Cluster, node: usize) -> usize {
    let disk = &world.nodes()[node].disk;
    disk.entries().keys().filter(|key| disk.is_damaged(key)).count()
}

/// The scrub finds damaged values and tombstones that no client reads, and restores them from other
/// replicas.
#[test]
fn row_10_damaged_values_of_a_quorum_are_repaired() {
    for (replicas, write_set) in [(3, 2), (3, 3), (4, 2), (5, 3)] {
        for last in [set("new"), Some(nicekv_sim::checker::model::Change::Erase)] {
            let is_value = last != Some(nicekv_sim::checker::model::Change::Erase);
            let mut world = ready(scenario(replicas, write_set), 10);
            finish_call(&mut world, 0, set("old"));
            finish_call(&mut world, 0, last);
            run_for(&mut world, 10 * MILLISECOND_NS);
            // Damage as many copies as lost disks would be survived: k - 1.
            let nodes = 0..usize::from(write_set) - 1;
            nodes.clone().for_each(|node| world.inject(Fault::Damage(node)));
            let is_damaged = nodes.clone().all(|node| damaged(&world, node) > 0);
            assert!(is_damaged || !is_value, "R = {replicas}, k = {write_set}");
            let expected = is_value.then(|| "new".to_owned());
            assert_eq!(get(&mut world), Some(expected.clone()), "the others know");
            settle(&mut world);
            assert!(nodes.clone().all(|node| damaged(&world, node) == 0), "R = {replicas}, k = {write_set}");
            assert_eq!(get(&mut world), Some(expected));
            assert!(is_linearizable(&world));
        }
    }
}

#[test]
fn row_10_a_damaged_value_with_one_holder_stays_unavailable() {
    let mut world = ready(scenario(3, 1), 10);
    finish_call(&mut world, 0, set("new"));
    run_for(&mut world, 10 * MILLISECOND_NS);
    world.inject(Fault::Damage(0));
    settle(&mut world);
    assert_eq!((damaged(&world, 0), get(&mut world)), (1, None), "rather no answer than a stale one");
}

/// A new member that copies from a member with a damaged value also gets this value, from other
/// members.
#[test]
fn row_10_a_new_replica_merges_values_damaged_elsewhere() {
    let mut world = ready(scenario(5, 3), 10);
    finish_call(&mut world, 0, set("new"));
    run_for(&mut world, 10 * MILLISECOND_NS);
    kill(&mut world, 4, true);
    world.inject(Fault::Damage(0));
    world.inject(Fault::Start(4));
    settle(&mut world);
    assert_eq!(damaged(&world, 0), 0);
    // The new member is among those that answer the get.
    (1..3).for_each(|node| cut(&mut world, 1, node));
    assert_eq!(get(&mut world), Some(Some("new".into())));
}

/// Node 1 acknowledges a put, its copy is damaged, and is restored from nodes that lack the put.
/// Then one of these acknowledges the put. Returns whether the put succeeded, and what nodes 1 and
/// 3 then answer.
fn put_across_a_repair() -> (Cluster, bool, Option<Option<String>>) {
    let mut scenario = scenario(3, 2);
    scenario.workload.timeout_ns = 30_000 * MILLISECOND_NS;
    let mut world = ready(scenario, 10);
    finish_call(&mut world, 0, set("old"));
    let put = call(&mut world, 0, set("new"));
    run_to_store(&mut world, 0);
    (1..3).for_each(|node| cut(&mut world, 0, node));
    run_for(&mut world, 5 * MILLISECOND_NS);
    cut(&mut world, 0, 0);
    world.inject(Fault::Damage(0));
    settle(&mut world);
    assert_eq!(damaged(&world, 0), 0, "as the other two have it");
    let (is_acknowledged, read) = read_past_the_put(&mut world, put);
    (world, is_acknowledged, read)
}

#[test]
fn answers_from_before_a_repair_do_not_count_after_it() {
    let (world, is_acknowledged, read) = put_across_a_repair();
    assert!(!is_acknowledged, "node 2 alone holds it");
    assert_eq!(read, Some(Some("old".into())));
    assert!(is_linearizable(&world));
}

/// Nodes 1 and 2 hold a put and cannot reach each other; the copy of node 1 is damaged. Returns
/// what nodes 1 and 3 answer.
fn repair_without_the_other_holder() -> (Cluster, Option<Option<String>>) {
    let mut world = ready(scenario(3, 2), 10);
    finish_call(&mut world, 0, set("old"));
    run_for(&mut world, 10 * MILLISECOND_NS);
    cut(&mut world, 0, 2);
    assert!(finish_call(&mut world, 0, set("new")).call.answered.is_some());
    for (from, to) in [(0, 1), (1, 0)] {
        world.inject(Fault::Cut { from: Host::Node(from), to: Host::Node(to) });
    }
    world.inject(Fault::Damage(0));
    cut(&mut world, 1, 1);
    settle(&mut world);
    let read = get(&mut world);
    (world, read)
}

#[test]
fn a_repair_waits_for_enough_others() {
    let (mut world, read) = repair_without_the_other_holder();
    assert_eq!((damaged(&world, 0), read), (1, None), "node 3 alone cannot tell");
    world.inject(Fault::Mend);
    settle(&mut world);
    assert_eq!((damaged(&world, 0), get(&mut world)), (0, Some(Some("new".into()))));
    assert!(is_linearizable(&world));
}
