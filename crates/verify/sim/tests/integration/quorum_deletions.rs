//! Quorum keyspaces (R14) forget deletions: the tombstones are deleted on every disk, and deleted
//! values do not return.

use crate::quorum;

use nicekv_proto::Datagram;
use nicekv_proto::quorum::TombstoneStage;
use nicekv_proto::recovery::Entry;
use nicekv_sim::checker::Action;
use nicekv_sim::checker::model::{Change, When};
use nicekv_sim::cluster::{Cluster, Fault, Scenario, Seen, What};
use nicekv_sim::keyspace::Key;
use nicekv_sim::network::Host;
use quorum::*;

/// Time within which deletions are forgotten.
const FORGOTTEN_NS: u64 = 8_000 * MILLISECOND_NS;

fn patient(replicas: u8, write_set: u8) -> Scenario {
    let mut scenario = scenario(replicas, write_set);
    scenario.workload.timeout_ns = 60_000 * MILLISECOND_NS;
    scenario
}

/// The versions' counters in a node's entries, and whether each entry is a value (not a tombstone).
fn held(world: &Cluster, node: usize) -> Vec<(u64, bool)> {
    let entries = world.nodes()[node].disk.entries().values();
    entries.map(|bytes| Entry::decode(bytes).unwrap()).map(|it| (it.index, it.value.is_some())).collect()
}

fn are_forgotten(world: &Cluster) -> bool {
    (0..world.nodes().len()).all(|node| held(world, node).iter().all(|(_, is_value)| *is_value))
}

fn wait_until_forgotten(world: &mut Cluster) {
    world.run_until(world.now_ns() + FORGOTTEN_NS, are_forgotten);
    assert!(are_forgotten(world), "{:?}", held(world, 0));
    // Time until that is durable on all nodes.
    run_for(world, 1_000 * MILLISECOND_NS);
}

fn done(world: &mut Cluster, client: usize, change: Option<Change>) {
    assert!(finish_call(world, client, change).call.answered.is_some());
}

fn erase() -> Option<Change> {
    Some(Change::Erase)
}

#[test]
fn all_replicas_forget_deletions_and_later_puts_are_newer() {
    for (replicas, write_set) in [(1, 1), (2, 1), (3, 1), (3, 2), (3, 3), (5, 3)] {
        let mut scenario = patient(replicas, write_set);
        scenario.workload.keys = Key::several(0, 2);
        let mut world = ready(scenario, 12);
        (0..30).for_each(|_| done(&mut world, 0, set("old")));
        done(&mut world, 0, erase());
        assert_eq!(get(&mut world), Some(None));
        wait_until_forgotten(&mut world);
        assert_eq!(world.nodes().iter().map(|node| node.disk.entries().len()).sum::<usize>(), 0);
        assert_eq!(get(&mut world), Some(None));
        // So many puts that logs are trimmed. They are of another key, so only the floor still
        // tells that this key was deleted.
        for _ in 0..450 {
            let op = world.clients()[0].next_op();
            let change = Change::Set("other".into());
            let action = Action::Update { op, condition: When::Always, return_old: false, change };
            world.call(0, 1, action);
            run_for(&mut world, 5 * MILLISECOND_NS);
        }
        world.inject(Fault::PowerLoss { downtime_ns: 10 * MILLISECOND_NS });
        settle(&mut world);
        done(&mut world, 0, set("new"));
        assert_eq!(get(&mut world), Some(Some("new".into())));
        run_for(&mut world, 10 * MILLISECOND_NS);
        let newest = held(&world, 0).iter().map(|(counter, _)| *counter).min().unwrap();
        assert!(newest > 31, "R = {replicas}, k = {write_set}: counter {newest}, deleted under 31");
        assert!(is_linearizable(&world));
    }
}

/// Whether a datagram that `is_it` accepts arrives at a node.
fn arrives(seen: Seen<'_>, node: usize, is_it: impl Fn(&Datagram<'_>) -> bool) -> bool {
    match seen.what {
        What::Datagram { bytes, .. } if seen.host == Host::Node(node) => {
            Datagram::decode(bytes).is_ok_and(|(_, datagram)| is_it(&datagram))
        }
        _ => false,
    }
}

fn part(world: &mut Cluster, one: usize, other: usize) {
    for (from, to) in [(one, other), (other, one)] {
        world.inject(Fault::Cut { from: Host::Node(from), to: Host::Node(to) });
    }
}

/// One node still holds a tombstone that the two others have deleted. Returns that node and the
/// others.
fn one_remembers() -> (Cluster, usize, [usize; 2]) {
    let mut world = ready(patient(3, 2), 12);
    (0..5).for_each(|_| done(&mut world, 0, set("old")));
    done(&mut world, 0, erase());
    let is_order = |datagram: &Datagram<'_>| matches!(datagram, Datagram::Tombstones(told) if told.stage == TombstoneStage::Forget);
    let (mut last, end_ns) = (None, world.now_ns() + FORGOTTEN_NS);
    world.run_before(end_ns, |_, seen| {
        last = (0..3).find(|node| arrives(seen, *node, is_order));
        last.is_some()
    });
    let last = last.expect("two are told to forget");
    let others = [(last + 1) % 3, (last + 2) % 3];
    kill(&mut world, last, false);
    run_for(&mut world, 2 * FORGOTTEN_NS);
    others.into_iter().for_each(|node| part(&mut world, node, last));
    world.inject(Fault::Start(last));
    settle(&mut world);
    assert!(others.into_iter().all(|node| held(&world, node).is_empty()));
    assert_eq!(held(&world, last), [(6, false)]);
    (world, last, others)
}

/// Two nodes accept a put after that. Returns what one of them and the node with the tombstone
/// answer.
fn put_over_a_remembered_deletion() -> (Cluster, Option<Option<String>>) {
    let (mut world, last, others) = one_remembers();
    cut(&mut world, 0, last);
    done(&mut world, 0, set("new"));
    cut(&mut world, 1, others[0]);
    let read = get(&mut world);
    (world, read)
}

#[test]
fn a_put_is_newer_than_a_forgotten_deletion() {
    let (world, read) = put_over_a_remembered_deletion();
    assert_eq!(read, Some(Some("new".into())));
    assert!(is_linearizable(&world));
}

#[test]
fn the_last_replica_forgets_a_damaged_deletion() {
    for is_damaged in [false, true] {
        let (mut world, last, others) = one_remembers();
        world.inject(Fault::Mend);
        if is_damaged {
            world.inject(Fault::Damage(last));
        }
        run_for(&mut world, FORGOTTEN_NS);
        assert!(are_forgotten(&world) && held(&world, last).is_empty(), "damaged: {is_damaged}");
        // The floor of this node, too, is above the deletion that it has forgotten.
        cut(&mut world, 0, others[0]);
        done(&mut world, 0, set("new"));
        run_for(&mut world, 10 * MILLISECOND_NS);
        assert!(held(&world, last)[0].0 > 6, "damaged: {is_damaged}");
    }
}

/// A duplicate of a store request arrives after its value was deleted and the tombstone forgotten.
/// Returns the result of a later get.
fn store_across_forgetting() -> (Cluster, Option<Option<String>>) {
    let mut world = ready(patient(3, 2), 12);
    call(&mut world, 0, set("old"));
    let mut store = None;
    let is_store = |datagram: &Datagram<'_>| matches!(datagram, Datagram::QuorumStore(_));
    let end_ns = world.now_ns() + SETTLE_NS;
    assert!(world.run_before(end_ns, |_, seen| {
        if let (true, What::Datagram { sender, bytes }) = (arrives(seen, 0, is_store), seen.what) {
            store = Some((sender, bytes.to_vec()));
        }
        store.is_some()
    }));
    run_for(&mut world, 10 * MILLISECOND_NS);
    done(&mut world, 1, erase());
    wait_until_forgotten(&mut world);
    let (sender, bytes) = store.unwrap();
    world.replay(sender, &bytes);
    run_for(&mut world, 10 * MILLISECOND_NS);
    let read = get(&mut world);
    (world, read)
}

#[test]
fn a_duplicate_store_does_not_undo_a_forgotten_deletion() {
    let (world, read) = store_across_forgetting();
    assert_eq!(read, Some(None));
    assert!(is_linearizable(&world));
}

/// Two of three replicas hold a tombstone, and cannot reach the third. Returns what one of them and
/// the third answer.
fn deletion_that_one_has_not_heard_of() -> (Cluster, Option<Option<String>>) {
    let mut world = ready(patient(3, 2), 12);
    done(&mut world, 0, set("old"));
    run_for(&mut world, 10 * MILLISECOND_NS);
    (0..2).for_each(|node| part(&mut world, node, 2));
    cut(&mut world, 0, 2);
    done(&mut world, 0, erase());
    run_for(&mut world, FORGOTTEN_NS);
    cut(&mut world, 1, 0);
    let read = get(&mut world);
    (world, read)
}

#[test]
fn a_deletion_is_not_forgotten_while_a_replica_may_lack_it() {
    let (mut world, read) = deletion_that_one_has_not_heard_of();
    assert_eq!(read, Some(None));
    world.inject(Fault::Mend);
    wait_until_forgotten(&mut world);
    assert_eq!(get(&mut world), Some(None));
    assert!(is_linearizable(&world));
}

/// A put is stored by one replica only. Its value is read, deleted and forgotten while the putting
/// client is cut off. Then that client continues, and reaches node 2 and node 3, which has a new
/// disk. Returns whether the put succeeded, and the result of a later get.
fn put_across_forgetting() -> (Cluster, bool, Option<Option<String>>) {
    let mut world = ready(patient(3, 2), 12);
    let put = call(&mut world, 0, set("late"));
    run_to_store(&mut world, 0);
    (1..3).for_each(|node| cut(&mut world, 0, node));
    run_for(&mut world, 5 * MILLISECOND_NS);
    world.inject(Fault::Mend);
    (0..3).for_each(|node| cut(&mut world, 0, node));
    cut(&mut world, 1, 1);
    assert_eq!(get(&mut world), Some(Some("late".into())));
    world.inject(Fault::Mend);
    (0..3).for_each(|node| cut(&mut world, 0, node));
    done(&mut world, 1, erase());
    wait_until_forgotten(&mut world);
    kill(&mut world, 2, true);
    run_for(&mut world, 500 * MILLISECOND_NS);
    world.inject(Fault::Start(2));
    settle(&mut world);
    assert_eq!(get(&mut world), Some(None));
    world.inject(Fault::Mend);
    cut(&mut world, 0, 0);
    run_for(&mut world, 5_000 * MILLISECOND_NS);
    let is_acknowledged = world.clients()[0].history[put].call.answered.is_some();
    let read = get(&mut world);
    (world, is_acknowledged, read)
}

#[test]
fn a_delayed_put_does_not_undo_a_forgotten_deletion() {
    let (world, is_acknowledged, read) = put_across_forgetting();
    assert_eq!((is_acknowledged, read), (false, Some(None)), "nobody knows what became of it");
    assert!(is_linearizable(&world));
}
