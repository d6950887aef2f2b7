//! Helpers for the tests of quorum keyspaces.

use nicekv_proto::{Datagram, Duration, Status};
use nicekv_replica::Standing;
use nicekv_sim::checker::model::{Change, When};
use nicekv_sim::checker::{Action, Call, Verdict, check};
use nicekv_sim::client::{KeyCall, Workload};
use nicekv_sim::cluster::{Cluster, Fault, Scenario, What};
use nicekv_sim::faults::{Faults, StoreFaults};
use nicekv_sim::keyspace::{Key, Shape};
use nicekv_sim::network::{Host, Pace};
use nicekv_sim::node::{Kept, Node};

pub(crate) const MILLISECOND_NS: u64 = 1_000_000;
/// Time after which a new cluster is ready, and a restarted node counts again.
pub(crate) const SETTLE_NS: u64 = 2_000 * MILLISECOND_NS;

/// A scenario without faults, and without calls but those that the test makes.
pub(crate) fn scenario(replicas: u8, write_set: u8) -> Scenario {
    Scenario {
        nodes: replicas.into(),
        keyspaces: vec![Shape::quorum(replicas.into(), write_set)],
        spares: 0,
        instances: 1,
        store_lease: Duration::from_secs(1),
        store_faults: StoreFaults::NONE,
        switches: 1,
        trunks: Default::default(),
        ways_are_whole: false,
        edges: false,
        balancing: false,
        hides_sources: false,
        matching: Default::default(),
        kernel_gets: false,
        hot_interval_ns: 0,
        hot_values: false,
        coordination: nicekv_client::Coordination::Switch,
        copy_bytes_per_second: 100 << 20,
        discard_bytes_per_second: 16 << 20,
        clients: 2,
        workload: Workload {
            keys: Key::several(0, 1),
            skew: 1,
            calls: 0,
            window: 1,
            begins_ns: 0,
            retry_min: nicekv_sim::client::HURRY,
            pause_ns_max: MILLISECOND_NS,
            timeout_ns: 3_000 * MILLISECOND_NS,
            expiring: 0,
            large: 0,
            whole_bytes_max: 0,
            appends: 0,
            reads_at_once: 0,
            gets: 0,
            transactions: 0,
            hashes: 0,
            scripts: 0,
            messages: 0,
            scans: (0, 0, 1),
            shift_ns: 0,
        },
        pace: Pace::VARYING,
        timing: nicekv_metadata::Timing::default(),
        faults: Faults { slow_factor: 100, ..Faults::NONE },
        faults_end_ns: 0,
        retries_max: None,
    }
}

pub(crate) fn ready(scenario: Scenario, seed: u64) -> Cluster {
    let mut world = Cluster::new(scenario, seed);
    settle(&mut world);
    world
}

pub(crate) fn is_counted(node: &Node) -> bool {
    let status = node.core.as_ref().map(|core| core.status());
    status.is_some_and(|status| status.partitions.iter().any(|known| known.standing == Standing::Consistent))
}

pub(crate) fn settle(world: &mut Cluster) {
    run_for(world, SETTLE_NS);
    let status = world.metadata().map(nicekv_metadata::Metadata::status);
    assert!(world.nodes().iter().all(is_counted), "{status:?}");
}

pub(crate) fn run_for(world: &mut Cluster, time_ns: u64) {
    world.run_until(world.now_ns() + time_ns, |_| false);
}

pub(crate) fn kill(world: &mut Cluster, node: usize, loses_disk: bool) {
    let kept = if loses_disk { Kept::NoDisk } else { Kept::Any };
    world.inject(Fault::Crash { node, kept, downtime_ns: None });
}

pub(crate) fn cut(world: &mut Cluster, client: usize, node: usize) {
    world.inject(Fault::Cut { from: Host::Client(client), to: Host::Node(node) });
}

pub(crate) fn set(value: &str) -> Option<Change> {
    Some(Change::Set(value.into()))
}

/// A client makes a call. Returns its index in the client's history.
pub(crate) fn call(world: &mut Cluster, client: usize, change: Option<Change>) -> usize {
    let op = world.clients()[client].next_op();
    let action = match change {
        None => Action::Get,
        Some(change) => Action::Update { op, condition: When::Always, return_old: false, change },
    };
    world.call(client, 0, action);
    world.clients()[client].history.len() - 1
}

/// Makes a call and waits for its end.
pub(crate) fn finish_call(world: &mut Cluster, client: usize, change: Option<Change>) -> KeyCall {
    let call = call(world, client, change);
    let end_ns = world.now_ns() + 2 * world.scenario().workload.timeout_ns;
    world.run_until(end_ns, |world| world.clients()[client].history[call].ended_ns.is_some());
    world.clients()[client].history[call].clone()
}

/// The result of a get: `None` if too few replicas answered it.
pub(crate) fn read(call: &KeyCall) -> Option<Option<String>> {
    let (_, answer) = call.call.answered.clone()?;
    assert_eq!(answer.status == Status::Ok, answer.value.is_some());
    Some(answer.value.map(|value| String::from_utf8(value).unwrap()))
}

pub(crate) fn get(world: &mut Cluster) -> Option<Option<String>> {
    read(&finish_call(world, 1, None))
}

pub(crate) fn is_linearizable(world: &Cluster) -> bool {
    (0..world.scenario().workload.keys.len()).all(|key| {
        let calls = world.clients().iter().flat_map(|client| client.history());
        let calls: Vec<Call> = calls.filter(|call| call.key == key).map(|call| call.call.clone()).collect();
        let verdict = check(&calls);
        assert_ne!(verdict, Verdict::TooLarge);
        verdict == Verdict::Linearizable
    })
}

/// Runs up to the moment at which a client has received the answers of its put's or delete's first
/// phase, and sends the store requests.
pub(crate) fn run_to_store(world: &mut Cluster, client: usize) {
    for _ in 0..world.shape(0).read_set() {
        let is_answer = |_: &Cluster, seen: nicekv_sim::cluster::Seen<'_>| match seen.what {
            What::Datagram { bytes, .. } if seen.host == Host::Client(client) => {
                matches!(Datagram::decode(bytes), Ok((_, Datagram::QuorumHeld(_))))
            }
            _ => false,
        };
        assert!(world.run_before(world.now_ns() + SETTLE_NS, is_answer), "nobody answers");
        world.step();
    }
}

/// From now on client 0, which made the call `put`, reaches only node 1, and client 1 only the
/// other nodes. Returns whether the put was acknowledged, and the result of a later get.
pub(crate) fn read_past_the_put(world: &mut Cluster, put: usize) -> (bool, Option<Option<String>>) {
    world.inject(Fault::Mend);
    [0, 2].into_iter().for_each(|node| cut(world, 0, node));
    cut(world, 1, 1);
    run_for(world, 1_000 * MILLISECOND_NS);
    let is_acknowledged = world.clients()[0].history[put].call.answered.is_some();
    (is_acknowledged, get(world))
}
