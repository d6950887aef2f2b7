//! Groups of targets follow the set of nodes (P11, P13).

use nicekv_proto::{Duration, NodeId};

use super::cluster::{Cluster, config};
use super::collecting::create_names;
use crate::{Change, ChunkInfo, TargetReport};

const TIMEOUT: Duration = Duration::from_secs(2);

fn cluster(nodes: u16) -> Cluster {
    let mut config = config(nodes, 3);
    config.timing.target_timeout = Some(TIMEOUT);
    let mut cluster = Cluster::new(config, 1);
    cluster.run_until_ready(500);
    create_names(&mut cluster);
    cluster
}

fn told(cluster: &Cluster) -> ChunkInfo {
    cluster.core.as_ref().unwrap().cluster_info().chunks.unwrap()
}

/// The nodes of each group, without empty places.
fn groups(cluster: &Cluster) -> Vec<Vec<u16>> {
    told(cluster).layout.groups.iter().map(|group| group.iter().copied().flatten().collect()).collect()
}

/// These nodes report for the present map that they have moved everything and hold `chunks` chunks.
fn report(cluster: &mut Cluster, nodes: &[u16], chunks: u64) {
    let version = told(cluster).version;
    for node in nodes {
        let report =
            TargetReport { node: *node, version, has_moved: true, chunks, ..TargetReport::default() };
        cluster.core().handle_target_report(&report);
    }
    cluster.run(50);
}

fn change(cluster: &mut Cluster, change: &Change) {
    while let Err(refused) = cluster.core().change(change) {
        assert_eq!(refused, crate::Refused::Busy);
        cluster.run(1);
    }
    cluster.run(50);
}

#[test]
fn drained_node_stays_a_target_until_it_is_empty() {
    let mut cluster = cluster(5);
    assert_eq!((told(&cluster).version, groups(&cluster)), (1, vec![vec![1, 2, 3, 4, 5]]));
    change(&mut cluster, &Change::Drain { name: "node-2".into() });
    let chunks = told(&cluster);
    assert_eq!((chunks.version, groups(&cluster)), (2, vec![vec![1, 3, 4, 5], vec![2]]));
    assert_eq!(chunks.layout.groups[0][1], None, "others keep their places");
    assert!(chunks.before.is_some() && chunks.layout.slots.iter().all(|slot| *slot == 0));
    assert!(cluster.status().chunks.unwrap().is_moving);
    report(&mut cluster, &[1, 2, 3, 4], 9);
    assert_eq!(told(&cluster).version, 2, "one target has not reported yet");
    report(&mut cluster, &[5], 9);
    assert_eq!((told(&cluster).version, told(&cluster).before), (3, None));
    // Reports for the previous map do not count.
    cluster.run(200);
    assert_eq!(groups(&cluster), [vec![1, 3, 4, 5], vec![2]]);
    report(&mut cluster, &[2], 1);
    assert_eq!(told(&cluster).version, 3, "the leaving target still has chunks");
    report(&mut cluster, &[2], 0);
    assert_eq!((told(&cluster).version, groups(&cluster)), (4, vec![vec![1, 3, 4, 5]]));
    let back = cluster.config.nodes[1].clone();
    let (name, mac) = (back.name, back.mac);
    let add = Change::Add { name, address: back.address, mac, switch_port: back.switch_port, home: None };
    change(&mut cluster, &add);
    assert_eq!((told(&cluster).before, groups(&cluster)), (None, vec![vec![1, 2, 3, 4, 5]]));
}

#[test]
fn a_removed_node_is_forgotten_when_it_holds_no_chunks_or_is_gone() {
    let mut cluster = cluster(5);
    change(&mut cluster, &Change::Remove { name: "node-2".into() });
    let is_known = |cluster: &Cluster| cluster.state().unwrap().node(NodeId(2)).is_some();
    cluster.run_until(3000, "the node holds no partition", |cluster| {
        cluster.state().unwrap().partitions().all(|(_, partition)| !partition.has(NodeId(2)))
    });
    cluster.run(500);
    assert!(is_known(&cluster), "the node still has chunks");
    report(&mut cluster, &[1, 2, 3, 4, 5], 9);
    report(&mut cluster, &[2], 0);
    cluster.run_until(500, "the node is forgotten", |cluster| !is_known(cluster));
    // A node is dead when it is removed.
    cluster.kill(NodeId(3));
    cluster.run(1000);
    assert_eq!(groups(&cluster), [vec![1, 3, 4, 5]]);
    change(&mut cluster, &Change::Remove { name: "node-3".into() });
    assert_eq!((told(&cluster).before, groups(&cluster)), (None, vec![vec![1, 4, 5]]));
}

#[test]
fn target_absent_for_long_is_lost_unless_its_group_needs_it() {
    let mut cluster = cluster(5);
    cluster.kill(NodeId(4));
    cluster.run(TIMEOUT.as_millis() as u64 / 2);
    assert_eq!(groups(&cluster), [vec![1, 2, 3, 4, 5]]);
    cluster.run(2 * TIMEOUT.as_millis() as u64);
    assert_eq!(groups(&cluster), [vec![1, 2, 3, 5]]);
    [1, 2].into_iter().for_each(|node| cluster.kill(NodeId(node)));
    cluster.run(3 * TIMEOUT.as_millis() as u64);
    assert_eq!(groups(&cluster), [vec![1, 2, 3, 5]], "too few targets would remain");
    cluster.start(NodeId(4));
    cluster.run(1000);
    assert_eq!(groups(&cluster), [vec![3, 4, 5]], "one target has returned, so two lost ones can be removed");
}

#[test]
fn reshapings_are_completed_one_at_a_time() {
    let mut cluster = cluster(6);
    change(&mut cluster, &Change::Drain { name: "node-2".into() });
    change(&mut cluster, &Change::Drain { name: "node-3".into() });
    cluster.run(200);
    assert_eq!(groups(&cluster), [vec![1, 3, 4, 5, 6], vec![2]]);
    // A target that is lost in the meantime is not waited for any more.
    cluster.kill(NodeId(6));
    cluster.run(3 * TIMEOUT.as_millis() as u64);
    assert_eq!(groups(&cluster), [vec![1, 3, 4, 5], vec![2]]);
    assert!(told(&cluster).before.is_some_and(|before| before.groups[0].contains(&Some(2))));
    report(&mut cluster, &[1, 2, 3, 4, 5], 9);
    cluster.run(50);
    assert_eq!(groups(&cluster), [vec![1, 4, 5], vec![2, 3]]);
}
