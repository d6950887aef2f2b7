//! An older copy of the state replaces the newest one (docs/FAULTS.md row 40).

use nicekv_proto::PartitionId;

use super::cluster::Cluster;
use super::scenarios::ready;
use crate::{Change, Refused};

const PARTITION: PartitionId = PartitionId(0);

/// A cluster whose state is replaced by an older copy after `epochs` further epochs. The nodes have
/// been in these epochs.
fn goes_back(epochs: u32, restarts_nodes: bool) -> Cluster {
    let mut cluster = ready(3, 3);
    let older = cluster.stored.clone().unwrap();
    let first = super::scenarios::partition(&cluster, PARTITION).epoch;
    let last = *cluster.nodes.keys().max().unwrap();
    while super::scenarios::partition(&cluster, PARTITION).epoch < first + epochs {
        cluster.kill(last);
        cluster.run(400);
        cluster.start(last);
        cluster.run_until_ready(2_000);
    }
    cluster.kill_metadata();
    if restarts_nodes {
        cluster.node_ids().into_iter().for_each(|node| cluster.kill(node));
        cluster.run(1);
        cluster.node_ids().into_iter().for_each(|node| cluster.start(node));
    }
    cluster.checks = Default::default();
    cluster.stored = Some(older);
    cluster
}

#[test]
fn row_40_an_older_state_decides_nothing_and_says_so() {
    for restarts_nodes in [false, true] {
        let mut cluster = goes_back(6, restarts_nodes);
        cluster.start_metadata();
        cluster.run_until(2_000, "the status reports the older copy", |cluster| {
            let status = cluster.status();
            status.why_not_ready.is_some_and(|why| why.contains("older copy") && why.contains("put back"))
        });
        cluster.run(1_000);
        let (stored, now_ns) = (cluster.stored.clone(), cluster.now_ns);
        assert!(cluster.state().unwrap().contradiction.is_some());
        let drain = Change::Drain { name: "node-1".into() };
        assert_eq!(cluster.core().change(&drain).unwrap_err(), Refused::OldState);
        cluster.run(2_000);
        assert_eq!(cluster.stored, stored, "no decision is made any more");
        let answers = |node| cluster.nodes[&node].answers(PARTITION, now_ns + 2_000_000_000);
        assert!(!cluster.node_ids().into_iter().any(answers), "no node has a lease");
    }
}

#[test]
fn row_40_an_older_state_is_known_to_every_later_leader() {
    let mut cluster = goes_back(3, true);
    for start in 0..6 {
        cluster.start_metadata();
        cluster.run(2_000);
        let why = cluster.status().why_not_ready.unwrap_or_default();
        assert!(why.contains("older copy"), "start {start}: {why}");
        cluster.kill_metadata();
    }
}

#[test]
fn row_40_the_newest_state_goes_on() {
    let mut cluster = ready(3, 3);
    for _ in 0..3 {
        cluster.kill_metadata();
        cluster.node_ids().into_iter().for_each(|node| cluster.start(node));
        cluster.start_metadata();
        cluster.run_until_ready(4_000);
        assert_eq!(cluster.state().unwrap().contradiction, None);
    }
}
