//! Expired values are deleted even if no client asks for them (R11), also after restarts and by a
//! new primary.

use nicekv_proto::PartitionId;
use nicekv_proto::recovery::Entry;
use nicekv_sim::cluster::{Cluster, Fault};
use nicekv_sim::faults::Faults;
use nicekv_sim::judge;
use nicekv_sim::keyspace::{Key, Shape};
use nicekv_sim::node::Kept;

const MILLISECOND_NS: u64 = 1_000_000;

/// Number of values that a node holds, and how many of them expire.
fn held(cluster: &Cluster) -> (usize, usize) {
    let stored = cluster.nodes().iter().flat_map(|node| node.disk.entries().values());
    let entries = stored.map(|entry| Entry::decode(entry).unwrap());
    let expiries: Vec<u64> =
        entries.filter(|entry| entry.value.is_some()).map(|entry| entry.expiry_ms).collect();
    (expiries.len(), expiries.iter().filter(|expiry_ms| **expiry_ms != 0).count())
}

/// Clients write keys that expire, and do not touch most of them again; then `fault` happens. All
/// expired values must be deleted.
fn vanish(seed: u64, fault: impl FnOnce(&mut Cluster)) {
    let mut scenario = judge::draw(seed);
    scenario.keyspaces = vec![Shape::multicast(3, 1)];
    scenario.workload.keys = Key::several(0, 300);
    (scenario.workload.calls, scenario.workload.expiring) = (200, 1_000_000);
    (scenario.workload.window, scenario.workload.pause_ns_max) = (4, 10 * MILLISECOND_NS);
    scenario.faults = Faults::NONE;
    let mut cluster = Cluster::new(scenario, seed);
    cluster.run_until(10_000 * MILLISECOND_NS, |cluster| cluster.clients().iter().all(|c| c.is_done()));
    let (_, expiring) = held(&cluster);
    assert!(expiring > 30, "seed {seed}: {expiring} left to vanish");
    fault(&mut cluster);
    let end_ns = cluster.now_ns() + 3_000 * MILLISECOND_NS;
    cluster.run_until(end_ns, |_| false);
    assert!(judge::is_at_rest(&cluster), "seed {seed}");
    let (values, expiring) = held(&cluster);
    assert_eq!(expiring, 0, "seed {seed}: of {values} values");
    assert!(values > 0, "seed {seed}: others stay");
}

#[test]
fn expired_values_are_deleted() {
    (1..=4).for_each(|seed| vanish(seed, |_| ()));
}

#[test]
fn expired_values_are_deleted_after_a_power_loss() {
    (1..=4).for_each(|seed| {
        vanish(seed, |cluster| cluster.inject(Fault::PowerLoss { downtime_ns: 100 * MILLISECOND_NS }));
    });
}

#[test]
fn expired_values_are_deleted_by_another_primary() {
    (1..=4).for_each(|seed| {
        vanish(seed, |cluster| {
            let partition = cluster.metadata().expect("it leads").status().partitions[0].id;
            let node = cluster.primary(PartitionId(partition)).expect("all is well");
            let downtime_ns = Some(1_500 * MILLISECOND_NS);
            cluster.inject(Fault::Crash { node, kept: Kept::Any, downtime_ns });
        });
    });
}
