//! The client table of replicas is bounded (R10): a client that was idle while very many others
//! were active is evicted, gets one error, and continues under a new id.

use nicekv_sim::checker::model::{Action, Change, When};
use nicekv_sim::cluster::Cluster;
use nicekv_sim::faults::Faults;
use nicekv_sim::judge;
use nicekv_sim::keyspace::{Key, Shape};

const MILLISECOND_NS: u64 = 1_000_000;
/// More clients than a partition remembers.
const OTHERS: usize = 27_000;
const KEYS: usize = 50;

fn put(cluster: &mut Cluster, client: usize, key: usize) {
    let op = cluster.clients()[client].next_op();
    let change = Change::Set(b"blue".to_vec());
    cluster.call(client, key, Action::Update { op, condition: When::Always, return_old: false, change });
}

/// The client puts. Returns whether it got an answer.
fn is_stored(cluster: &mut Cluster, client: usize, key: usize) -> bool {
    put(cluster, client, key);
    let end_ns = cluster.now_ns() + 1_000 * MILLISECOND_NS;
    cluster.run_until(end_ns, |cluster| cluster.clients()[client].open_calls() == 0);
    cluster.clients()[client].history.last().expect("it has just put").call.answered.is_some()
}

#[test]
fn an_evicted_client_continues_under_another_id() {
    let mut scenario = judge::draw(1);
    (scenario.clients, scenario.faults, scenario.faults_end_ns) = (2, Faults::NONE, 0);
    (scenario.nodes, scenario.keyspaces) = (3, vec![Shape::multicast(3, 0)]);
    scenario.workload.calls = 0;
    let key = |key| Key { keyspace: 0, name: format!("key-{key}").into_bytes() };
    scenario.workload.keys = (0..=KEYS).map(key).collect();
    let mut cluster = Cluster::new(scenario, 1);
    cluster.run_until(500 * MILLISECOND_NS, |_| false);
    assert!(is_stored(&mut cluster, 0, KEYS));
    let first = cluster.clients()[0].id();
    for _ in 0..OTHERS / KEYS {
        for key in 0..KEYS {
            cluster.rename_client(1);
            put(&mut cluster, 1, key);
        }
        let end_ns = cluster.now_ns() + 1_000 * MILLISECOND_NS;
        cluster.run_until(end_ns, |cluster| cluster.clients()[1].open_calls() == 0);
    }
    assert!(!is_stored(&mut cluster, 0, KEYS), "it has been forgotten: the outcome of this put is not known");
    assert_ne!(cluster.clients()[0].id(), first);
    (0..3).for_each(|_| assert!(is_stored(&mut cluster, 0, KEYS), "and of no other"));
}
