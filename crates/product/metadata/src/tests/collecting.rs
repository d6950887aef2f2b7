//! Rounds of garbage collection among chunks: how names adopt them (P8).

use nicekv_proto::control::Assign;
use nicekv_proto::{Duration, KeyspaceId, NodeId, PartitionId};

use super::cluster::{Cluster, config};
use super::faults::{disturb, heal};
use super::scenarios::ready;
use crate::{ChunkInfo, KeyspaceChange, PartitionChange, Refused, TargetReport};

const NAMES: KeyspaceId = KeyspaceId(16);

/// Repeats a request while another step is being persisted.
fn begin<P>(
    cluster: &mut Cluster,
    mut ask: impl FnMut(&mut Cluster) -> Result<P, Refused>,
) -> Result<P, Refused> {
    loop {
        match ask(cluster) {
            Err(Refused::Busy) => cluster.run(1),
            outcome => return outcome,
        }
    }
}

pub(super) fn create_names(cluster: &mut Cluster) {
    let create = KeyspaceChange::Create { text: "objects=partitions=4,chunks=multicast".into() };
    begin(cluster, |cluster| cluster.core().change_keyspace(&create)).unwrap();
    cluster.run(20);
    let state = cluster.state().unwrap();
    let of_names = state.partitions().filter(|(_, partition)| partition.keyspace == NAMES);
    cluster.lineage.extend(of_names.map(|(id, _)| (id, Vec::new())));
    cluster.run_until_ready(3000);
}

fn collect(cluster: &mut Cluster) -> Result<u64, Refused> {
    begin(cluster, |cluster| cluster.core().collect_chunks())
}

fn told(cluster: &Cluster) -> Option<ChunkInfo> {
    cluster.core.as_ref()?.cluster_info().chunks
}

fn is_adopted(cluster: &Cluster) -> bool {
    told(cluster).is_some_and(|chunks| chunks.is_adopted)
}

/// The assignments that a node obeys, for all partitions of names.
fn assigned(cluster: &Cluster, node: NodeId) -> impl Iterator<Item = (&PartitionId, &Assign)> {
    let running = cluster.nodes[&node].running.as_ref();
    let assigned = running.into_iter().flat_map(|running| &running.assigned);
    assigned.filter(|(_, assign)| assign.keyspace == NAMES && !assign.members.is_empty())
}

/// Checks that once names are reported to have adopted a round, no primary can decide with stamps
/// that the round may collect: a primary of an older epoch lacks a member.
fn check(cluster: &Cluster) {
    let Some(chunks) = told(cluster).filter(|chunks| chunks.is_adopted) else { return };
    for node in cluster.node_ids() {
        for (id, assign) in assigned(cluster, node) {
            let leads = assign.primary == node && !assign.sealed;
            let is_there = |member: NodeId| {
                assigned(cluster, member).any(|(other, theirs)| other == id && theirs.epoch == assign.epoch)
            };
            let may_decide = leads && assign.members.iter().all(|member| is_there(member.node));
            let is_old = assign.stamp_min.0 + 1 < chunks.round;
            assert!(
                !(may_decide && is_old),
                "{node} decides about partition {id} with stamps from {:?} on",
                assign.stamp_min
            );
        }
    }
}

#[test]
fn names_adopt_a_round_by_an_epoch() {
    let mut cluster = ready(4, 3);
    let why = cluster.core().collect_chunks().unwrap_err();
    assert_eq!(why, Refused::NoNamesOfObjects);
    create_names(&mut cluster);
    assert!(is_adopted(&cluster), "keyspaces begin with the newest round");
    let epochs = |cluster: &Cluster| {
        let state = cluster.state().unwrap();
        state.partitions().map(|(_, it)| (it.keyspace, it.epoch, it.round)).collect::<Vec<_>>()
    };
    assert!(
        epochs(&cluster).iter().all(|(keyspace, epoch, round)| {
            (*epoch, *round) == (1, if *keyspace == NAMES { 2 } else { 0 })
        })
    );
    assert_eq!(collect(&mut cluster), Ok(3));
    cluster.run_until(50, "the round is persisted, but not adopted", |cluster| {
        told(cluster).is_some_and(|chunks| (chunks.round, chunks.is_adopted) == (3, false))
    });
    cluster.run_until(500, "names have adopted the round", is_adopted);
    assert!(epochs(&cluster).iter().all(|(keyspace, epoch, round)| {
        (*epoch, *round) == if *keyspace == NAMES { (2, 3) } else { (1, 0) }
    }));
    let node = cluster.node_ids()[0];
    assert!(assigned(&cluster, node).all(|(_, assign)| assign.stamp_min.0 == 2));
    // An absent node does not delay the adoption longer than other changes.
    cluster.kill(NodeId(2));
    assert_eq!(collect(&mut cluster), Ok(4));
    cluster.run_until(2000, "names have adopted the round", |cluster| {
        told(cluster).is_some_and(|chunks| (chunks.round, chunks.is_adopted) == (4, true))
    });
}

#[test]
fn targets_report_their_progress() {
    let mut cluster = ready(4, 3);
    let report = |node, swept| TargetReport {
        node,
        version: 1,
        swept,
        chunks: 3,
        bytes: 3_000,
        ..TargetReport::default()
    };
    cluster.core().handle_target_report(&report(1, 2));
    assert_eq!(cluster.status().chunks, None);
    create_names(&mut cluster);
    for node in [1, 2, 4, 9] {
        cluster.core().handle_target_report(&report(node, 2));
    }
    let status = cluster.status().chunks.unwrap();
    assert_eq!((status.round, status.held(), status.targets.len()), (2, (9, 9_000), 4));
    assert_eq!(status.unswept().map(|target| target.name.as_str()).collect::<Vec<_>>(), ["node-3"]);
    cluster.kill(NodeId(3));
    cluster.run_until(1000, "the target's node is not live", |cluster| {
        cluster.status().chunks.is_some_and(|chunks| chunks.unswept().count() == 0)
    });
}

#[test]
fn round_begins_by_itself_when_due() {
    let mut config = config(4, 3);
    config.timing.collect_interval = Some(Duration::from_secs(3));
    let mut cluster = Cluster::new(config, 1);
    cluster.run_until_ready(200);
    create_names(&mut cluster);
    let round = told(&cluster).unwrap().round;
    let later = |cluster: &Cluster| told(cluster).is_some_and(|chunks| chunks.round > round);
    let steps = cluster.run_until(5000, "another round", later);
    assert!(steps > 1_000, "after {steps} ms");
    cluster.run_until(500, "names have adopted it", is_adopted);
    assert_eq!(told(&cluster).unwrap().round, round + 1);
}

fn survive(seed: u64) {
    let mut cluster = Cluster::new(config(5, 3), seed);
    cluster.run_until_ready(1000);
    create_names(&mut cluster);
    for _ in 0..40 {
        match cluster.random.below(4) {
            0 if cluster.core.is_some() => drop(cluster.core().collect_chunks()),
            1 if cluster.core.is_some() => {
                let split =
                    PartitionChange::Split { partition: 4 + cluster.random.below(4) as u32, at: None };
                drop(cluster.core().change_partitions(&split));
            }
            _ => disturb(&mut cluster),
        }
        for _ in 0..1 + cluster.random.below(120) {
            cluster.run(1);
            check(&cluster);
        }
    }
    heal(&mut cluster);
    cluster.run(200);
    cluster.run_until(6000, "names have adopted the last round", is_adopted);
}

#[test]
fn adopted_round_excludes_decisions_by_older_ones() {
    (1..=40).for_each(survive);
}
