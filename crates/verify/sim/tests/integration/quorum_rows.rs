//! Quorum keyspaces (R14), event by event: docs/FAULTS.md rows 21 and 27, and why answers of
//! different epochs must not be counted together.

use crate::quorum;

use nicekv_proto::Status;
use nicekv_sim::client::Workload;
use nicekv_sim::cluster::{Cluster, Fault};
use nicekv_sim::keyspace::Key;
use quorum::*;

// --- Row 21: one node 100 times slower.

/// The longest time that a call took under load, in nanoseconds. The last node is slower by the
/// factor `slowness`.
fn longest_call_ns(replicas: u8, write_set: u8, slowness: u64) -> u64 {
    let mut scenario = scenario(replicas, write_set);
    scenario.clients = 4;
    scenario.faults.slow_factor = slowness;
    scenario.workload = Workload { keys: Key::several(0, 3), calls: 0, window: 2, ..scenario.workload };
    let mut world = ready(scenario, 21);
    let laggard = world.nodes().len() - 1;
    world.set_slow(laggard, true);
    world.add_calls(300);
    let end_ns = world.now_ns() + 60_000 * MILLISECOND_NS;
    world.run_until(end_ns, |world| world.clients().iter().all(|client| client.is_done()));
    assert!(is_linearizable(&world), "stale answers with a laggard {slowness} times slower");
    let answers = world.nodes()[laggard].core.as_ref().unwrap().status().counters.gets;
    assert!(answers > 100, "the laggard took part: it answered {answers} queries");
    let calls: Vec<_> = world.clients().iter().flat_map(|client| &client.history).collect();
    assert!(calls.len() >= 1200 && calls.iter().all(|call| call.call.answered.is_some()));
    calls.iter().map(|call| call.ended_ns.unwrap() - call.called_ns).max().unwrap()
}

#[test]
fn row_21_a_slow_replica_delays_no_call_and_serves_nothing_stale() {
    for (replicas, write_set) in [(3, 2), (5, 3), (4, 2)] {
        let (healthy_ns, lagging_ns) =
            (longest_call_ns(replicas, write_set, 1), longest_call_ns(replicas, write_set, 100));
        println!("R = {replicas}, k = {write_set}: {healthy_ns} ns, with a laggard {lagging_ns} ns");
        assert!(lagging_ns <= 2 * healthy_ns, "{lagging_ns} ns instead of {healthy_ns} ns");
    }
    // With k = R every replica must store a put, so the slow replica delays puts.
    let (healthy_ns, lagging_ns) = (longest_call_ns(3, 3, 1), longest_call_ns(3, 3, 100));
    println!("R = 3, k = 3: {healthy_ns} ns, with a laggard {lagging_ns} ns");
    assert!(lagging_ns > 10 * healthy_ns, "{lagging_ns} ns, and without a laggard {healthy_ns} ns");
}

// --- Row 27: nodes that acknowledged a put to k of R replicas die.

/// Makes a put that only the first k nodes hold.
fn put_on_first_k(world: &mut Cluster) {
    let shape = world.shape(0);
    let write_set = usize::from(shape.write_set.expect("by quorum"));
    assert_eq!(finish_call(world, 0, set("old")).call.answered.unwrap().1.status, Status::Ok);
    run_for(world, 10 * MILLISECOND_NS);
    for other in write_set..world.nodes().len() {
        (0..2).for_each(|client| cut(world, client, other));
    }
    // These k nodes must also be enough for the put's first phase.
    assert!(write_set >= shape.read_set());
    let call = finish_call(world, 0, set("new"));
    assert_eq!(call.call.answered.expect("k replicas are reached").1.status, Status::Ok);
    world.inject(Fault::Mend);
}

/// Kills the first `dead` of the k nodes that hold the put. Returns the result of a later get.
fn get_after_deaths(
    replicas: u8,
    write_set: u8,
    dead: usize,
    lose_disks: bool,
) -> (Cluster, Option<Option<String>>) {
    let mut world = ready(scenario(replicas, write_set), 27);
    put_on_first_k(&mut world);
    (0..dead).for_each(|node| kill(&mut world, node, lose_disks));
    // Long enough that the metadata service removes the dead nodes.
    run_for(&mut world, 1_000 * MILLISECOND_NS);
    let read = get(&mut world);
    (world, read)
}

#[test]
fn row_27_a_put_outlives_fewer_than_k_of_its_holders() {
    for (replicas, write_set) in [(3, 2), (5, 3)] {
        for dead in 1..usize::from(write_set) {
            for lose_disks in [false, true] {
                let (mut world, read) = get_after_deaths(replicas, write_set, dead, lose_disks);
                assert_eq!(read, Some(Some("new".into())), "{dead} dead of k = {write_set}, R = {replicas}");
                // The get has written the value back to k of the remaining nodes; restarted nodes
                // count again, with or without their disks.
                (0..dead).for_each(|node| world.inject(Fault::Start(node)));
                settle(&mut world);
                assert_eq!(get(&mut world), Some(Some("new".into())));
                let put = finish_call(&mut world, 0, set("newer"));
                assert!(put.call.answered.is_some() && is_linearizable(&world));
            }
        }
    }
}

#[test]
fn row_27_a_put_whose_k_holders_died_is_unavailable_and_never_stale() {
    for (replicas, write_set) in [(3, 2), (5, 3)] {
        let dead = usize::from(write_set);
        let (mut world, read) = get_after_deaths(replicas, write_set, dead, false);
        assert_eq!(read, None, "the {} that are left know an older value only", replicas - write_set);
        let put = finish_call(&mut world, 0, set("later"));
        assert!(put.call.answered.is_none(), "nor can anybody put");
        (0..dead).for_each(|node| world.inject(Fault::Start(node)));
        settle(&mut world);
        assert_eq!(get(&mut world), Some(Some("new".into())), "their disks have it");
        assert!(is_linearizable(&world));
    }
}

#[test]
fn row_27_a_put_whose_k_holders_lost_their_disks_stays_unavailable() {
    for (replicas, write_set) in [(3, 2), (5, 3)] {
        let dead = usize::from(write_set);
        let (mut world, read) = get_after_deaths(replicas, write_set, dead, true);
        assert_eq!(read, None);
        (0..dead).for_each(|node| world.inject(Fault::Start(node)));
        run_for(&mut world, 10 * SETTLE_NS);
        let counted = world.nodes().iter().filter(|node| is_counted(node)).count();
        assert_eq!(counted, usize::from(replicas) - dead, "new storage cannot merge R - k + 1 old members");
        assert_eq!(get(&mut world), None, "rather no answer than a stale one");
        assert!(is_linearizable(&world));
    }
}

// --- Answers count only within one epoch.

/// Node 1 alone holds a put, acknowledges it, and loses its disk; later node 2 acknowledges it in a
/// newer epoch. Returns whether the put succeeded, and what nodes 1 and 3 then answer.
fn put_across_a_lost_disk() -> (Cluster, bool, Option<Option<String>>) {
    let mut scenario = scenario(3, 2);
    scenario.workload.timeout_ns = 30_000 * MILLISECOND_NS;
    let mut world = ready(scenario, 14);
    // Nodes 2 and 3 are slow, and die while the store request is on its way to them.
    (1..3).for_each(|node| world.set_slow(node, true));
    let appended = world.nodes()[0].disk.appended();
    let put = call(&mut world, 0, set("new"));
    let end_ns = world.now_ns() + SETTLE_NS;
    assert!(world.run_before(end_ns, |world, _| world.nodes()[0].disk.appended() > appended));
    (1..3).for_each(|node| kill(&mut world, node, false));
    run_for(&mut world, MILLISECOND_NS);
    (0..3).for_each(|node| cut(&mut world, 0, node));
    kill(&mut world, 0, true);
    // The requests on their way are lost.
    run_for(&mut world, 10 * MILLISECOND_NS);
    (0..3).for_each(|node| {
        world.set_slow(node, false);
        world.inject(Fault::Start(node));
    });
    settle(&mut world);
    let (is_acknowledged, read) = read_past_the_put(&mut world, put);
    (world, is_acknowledged, read)
}

#[test]
fn answers_of_different_epochs_do_not_make_a_write_set() {
    let (world, is_acknowledged, read) = put_across_a_lost_disk();
    assert!(!is_acknowledged, "node 2 alone holds it");
    assert_eq!(read, Some(None));
    assert!(is_linearizable(&world));
}
