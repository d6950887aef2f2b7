//! Partitions are split and merged while puts continue (R17). Module `faults` adds failures in
//! every phase.

mod chains;
mod faults;
mod ranges;
mod strays;

use nicekv_proto::control::DiskSpace;
use nicekv_proto::{KeyspaceId, NodeId, PartitionId};

use super::cluster::{Cluster, partitions};
use super::node::{Node, address};
use super::scenarios::ready;
use crate::state::{Partition, State};
use crate::{
    Change, KeyspaceChange, MatchValue, Metadata, PartitionChange, PartitionPlan, Refused, ReshapingPhase,
};

const PHASES: [ReshapingPhase; 3] =
    [ReshapingPhase::Forming, ReshapingPhase::Sealed, ReshapingPhase::Succeeding];

fn split(partition: u32) -> PartitionChange {
    PartitionChange::Split { partition, at: None }
}

fn merge(one: u32, other: u32) -> PartitionChange {
    PartitionChange::Merge { partitions: [one, other] }
}

/// Requests a change. Repeats the request while another step is being persisted, and waits until an
/// accepted change is persisted.
fn change<P>(cluster: &mut Cluster, ask: impl Fn(&mut Metadata) -> Result<P, Refused>) -> Result<P, Refused> {
    for _ in 0..200 {
        match ask(cluster.core()) {
            Err(Refused::Busy) => cluster.run(1),
            outcome => {
                let version = cluster.core().version();
                let is_there = |cluster: &Cluster| cluster.state().unwrap().version > version;
                if outcome.is_ok() {
                    cluster.run_until(40, "the change is persisted", is_there);
                }
                return outcome;
            }
        }
    }
    panic!("the change was refused as busy for too long");
}

#[track_caller]
fn begin(cluster: &mut Cluster, wanted: &PartitionChange) -> PartitionPlan {
    change(cluster, |core| core.change_partitions(wanted)).unwrap()
}

fn state(cluster: &Cluster) -> State {
    cluster.state().unwrap()
}

/// The partitions of the default keyspace: first vnode and id.
fn layout(cluster: &Cluster) -> Vec<(u16, u32)> {
    let state = state(cluster);
    let here = state.partitions().filter(|(_, partition)| partition.keyspace == KeyspaceId::DEFAULT);
    let mut layout: Vec<_> = here.map(|(id, it)| ((it.range.first() >> 112) as u16, id.0)).collect();
    layout.sort_unstable();
    layout
}

fn is_done(cluster: &Cluster) -> bool {
    let state = state(cluster);
    let status = cluster.core.as_ref().map(Metadata::status);
    let is_ready = status.is_some_and(|status| status.ready && status.moves == 0);
    state.reshapings.is_empty() && state.reshaped.is_empty() && is_ready
}

#[track_caller]
fn finish(cluster: &mut Cluster) {
    cluster.run_until(9000, "split and merged", is_done);
    let before = cluster.acknowledged.clone();
    cluster.run(5);
    let takes_puts = |(_, id): &(u16, u32)| {
        let id = PartitionId(*id);
        cluster.acknowledged.get(&id) > before.get(&id)
    };
    assert!(layout(cluster).iter().all(takes_puts), "every partition takes puts");
    cluster.run_until(5000, "nothing is left", |cluster| cluster.status().leftovers == 0);
}

fn phase(cluster: &Cluster) -> Option<ReshapingPhase> {
    cluster.status().reshapings.first().map(|it| it.phase)
}

#[track_caller]
fn reach(cluster: &mut Cluster, wanted: ReshapingPhase) {
    cluster.run_until(3000, "that far", |cluster| phase(cluster) == Some(wanted));
}

fn with_a_fourth() -> Cluster {
    let mut cluster = ready(3, 3);
    cluster.nodes.insert(NodeId(4), Node::new(4, 0));
    cluster.start(NodeId(4));
    cluster
}

fn add(cluster: &mut Cluster, node: u16) {
    let (name, address) = (format!("node-{node}"), address(NodeId(node)));
    let wanted =
        Change::Add { name, address, mac: [2, 0, 0, 0, 0, node as u8], switch_port: node, home: None };
    change(cluster, |core| core.change(&wanted)).unwrap();
}

#[test]
fn split_and_merge_restore_the_partition() {
    let mut cluster = ready(3, 3);
    assert_eq!(layout(&cluster), [(0, 0), (0x4000, 1), (0x8000, 2), (0xc000, 3)]);
    let plan = cluster.core().plan_partitions(&split(1)).unwrap();
    assert_eq!((plan.parents.as_slice(), plan.keyspace.as_str()), (&[1][..], "default"));
    let value = |vnode: u128| MatchValue(vnode << 112);
    let last = |end: u128| MatchValue((end << 112) - 1);
    assert_eq!(plan.children, [(value(0x4000), last(0x6000)), (value(0x6000), last(0x8000))]);
    assert_eq!(begin(&mut cluster, &split(1)), plan);
    let mut seen = Vec::new();
    for _ in 0..1000 {
        cluster.run(1);
        let now = phase(&cluster);
        if let Some(now) = now
            && seen.last() != Some(&now)
        {
            seen.push(now);
        }
    }
    assert!(seen.ends_with(&PHASES), "{seen:?}");
    finish(&mut cluster);
    assert_eq!(layout(&cluster), [(0, 0), (0x4000, 4), (0x6000, 5), (0x8000, 2), (0xc000, 3)]);
    let tables = cluster.switches.values().next().unwrap().tables.clone().unwrap();
    assert_eq!((tables.unicast.len(), tables.multicast.len()), (5, 5));
    // Gets of the children are divided among all replicas again.
    assert!(cluster.node_ids().iter().all(|node| cluster.is_routed(PartitionId(4), *node)));
    // A split at a given vnode, into blocks of different lengths.
    begin(&mut cluster, &PartitionChange::Split { partition: 5, at: Some(0x6001) });
    finish(&mut cluster);
    assert_eq!(layout(&cluster)[2..4], [(0x6000, 6), (0x6001, 7)]);
    for (one, other) in [(7, 6), (4, 8), (9, 2)] {
        begin(&mut cluster, &merge(one, other));
        finish(&mut cluster);
    }
    assert_eq!(layout(&cluster), [(0, 0), (0x4000, 10), (0xc000, 3)]);
}

#[test]
fn parents_of_a_merge_move_to_the_same_nodes_first() {
    let mut cluster = with_a_fourth();
    add(&mut cluster, 4);
    cluster.run_until(3000, "added", is_done);
    let originals = |cluster: &Cluster, id| {
        let mut originals = state(cluster).partition(PartitionId(id)).unwrap().originals.clone();
        originals.sort_unstable();
        originals
    };
    let apart = |pair: &&[u32]| originals(&cluster, pair[0]) != originals(&cluster, pair[1]);
    let ids = [0, 1, 2, 3];
    let pair: Vec<u32> = ids.windows(2).find(apart).expect("some neighbours have different members").into();
    let plan = begin(&mut cluster, &merge(pair[0], pair[1]));
    assert!(!plan.moves.is_empty(), "{plan:?}");
    let kept = originals(&cluster, pair[0]);
    finish(&mut cluster);
    assert_eq!(layout(&cluster).len(), 3);
    assert_eq!(
        originals(&cluster, layout(&cluster)[pair[0] as usize].1),
        kept,
        "no replica moves after the merge"
    );
}

#[test]
fn inconsistent_settings_are_refused() {
    let mut cluster = ready(3, 3);
    let create = |text: &str| KeyspaceChange::Create { text: text.into() };
    for text in ["carts=partitions=1", "q=replication=quorum,write-set=2,partitions=2"] {
        change(&mut cluster, |core| core.change_keyspace(&create(text))).unwrap();
    }
    cluster.run_until_ready(3000);
    let at = |partition, at| PartitionChange::Split { partition, at: Some(at) };
    let inside = "partition 1 has vnodes 4000 to 7fff; its second half cannot begin at ";
    let quorum = "partition 5 belongs to quorum keyspace \"q\", whose partitions cannot be split or merged";
    for (wanted, why) in [
        (split(99), "there is no partition 99; see `nicekv partition list`"),
        (at(1, 0x4000), &format!("{inside}4000")),
        (at(1, 0x8000), &format!("{inside}8000")),
        (at(1, 0), &format!("{inside}0000")),
        (split(5), quorum),
        (merge(5, 6), quorum),
        (merge(0, 2), "partitions 0 and 2 are not adjacent"),
        (merge(1, 1), "partitions 1 and 1 are not adjacent"),
        (merge(3, 4), "partitions 3 and 4 belong to different keyspaces"),
        (PartitionChange::Cancel { partition: 0 }, "no split or merge of partition 0 is pending"),
    ] {
        let before = state(&cluster);
        let refused = change(&mut cluster, |core| core.change_partitions(&wanted)).unwrap_err();
        assert_eq!((refused.to_string().as_str(), state(&cluster).reshapings), (why, before.reshapings));
    }
    cluster.forms = false;
    begin(&mut cluster, &split(0));
    for wanted in [split(0), merge(0, 1)] {
        let refused = change(&mut cluster, |core| core.change_partitions(&wanted)).unwrap_err();
        assert_eq!(refused.to_string(), "a split or merge of partition 0 is already pending");
    }
    cluster.forms = true;
    cluster.run_until(3000, "split", |cluster| state(cluster).partition(PartitionId(0)).is_none());
    let refused = change(&mut cluster, |core| core.change_partitions(&split(0))).unwrap_err();
    assert_eq!(refused.to_string(), "partition 0 no longer exists; it was replaced by partition 7 and 8");
}

/// Requests are refused at the limits of partitions and of pending requests.
#[test]
fn full_tables_refuse_requests() {
    let mut cluster = ready(3, 3);
    cluster.forms = false;
    let text = String::from("many=partitions=1024");
    change(&mut cluster, |core| core.change_keyspace(&KeyspaceChange::Create { text: text.clone() }))
        .unwrap();
    cluster.run_until_ready(9000);
    let refused = change(&mut cluster, |core| core.change_partitions(&split(4))).unwrap_err();
    let most = "keyspace \"many\" has, or will have, 1024 partitions, the maximum";
    assert_eq!(refused.to_string(), most);
    for pair in 0..64 {
        begin(&mut cluster, &merge(4 + 2 * pair, 5 + 2 * pair));
    }
    let refused = change(&mut cluster, |core| core.change_partitions(&split(0))).unwrap_err();
    assert_eq!(refused.to_string(), "64 splits and merges are pending, and no more can be queued");
    let forming = |cluster: &Cluster| {
        state(cluster).partitions().filter(|(_, partition)| partition.forming.is_some()).count()
    };
    cluster.run_until(3000, "four at once", |cluster| forming(cluster) == 8);
    cluster.run(500);
    assert_eq!(forming(&cluster), 8);
    // When a request is cancelled, the next one begins.
    begin(&mut cluster, &PartitionChange::Cancel { partition: 4 });
    cluster.run_until(3000, "the next", |cluster| {
        state(cluster).partition(PartitionId(12)).unwrap().forming.is_some()
    });
    assert_eq!(forming(&cluster), 8);
}

#[test]
fn one_vnode_is_not_split() {
    let mut cluster = ready(3, 3);
    begin(&mut cluster, &PartitionChange::Split { partition: 0, at: Some(1) });
    finish(&mut cluster);
    let refused = change(&mut cluster, |core| core.change_partitions(&split(4))).unwrap_err();
    assert_eq!(refused.to_string(), "partition 4 has only vnode 0000, and cannot be split");
}

#[test]
fn broken_off_reshaping_restarts_with_new_ids() {
    let mut cluster = ready(3, 3);
    cluster.forms = false;
    begin(&mut cluster, &merge(0, 1));
    reach(&mut cluster, ReshapingPhase::Forming);
    let epoch = |cluster: &Cluster, id| state(cluster).partition(PartitionId(id)).unwrap().epoch;
    let of = |cluster: &Cluster, id: u32| -> Option<Partition> {
        state(cluster).partition(PartitionId(id)).cloned()
    };
    assert_eq!((epoch(&cluster, 0), epoch(&cluster, 1), epoch(&cluster, 2)), (2, 2, 1));
    cluster.kill(NodeId(2));
    cluster.run_until(1000, "broken off", |cluster| phase(cluster) == Some(ReshapingPhase::Waiting));
    assert!(
        [0, 1].iter().all(|id| of(&cluster, *id).unwrap().forming.is_none()),
        "both parents are broken off in one step"
    );
    let before = cluster.acknowledged.clone();
    cluster.run(500);
    assert!(
        partitions().all(|id| cluster.acknowledged[&id] > before[&id]),
        "puts continue without the dead member"
    );
    let waits = &cluster.status().reshapings[0];
    assert!(waits.waits_for.contains("2 of 3 members are consistent"), "{waits:?}");
    cluster.forms = true;
    cluster.start(NodeId(2));
    finish(&mut cluster);
    assert_eq!(layout(&cluster)[0], (0, 5), "id 4 of the broken-off attempt is not used again");
}

#[test]
fn full_targets_node_is_waited_for() {
    let mut cluster = ready(3, 3);
    cluster.nodes.get_mut(&NodeId(3)).unwrap().space = DiskSpace::Reserve;
    cluster.run(100);
    begin(&mut cluster, &split(0));
    cluster.run(500);
    assert_eq!(cluster.status().reshapings[0].waits_for, "disk space on the nodes of partition 0");
    cluster.nodes.get_mut(&NodeId(3)).unwrap().space = DiskSpace::Enough;
    cluster.forms = false;
    reach(&mut cluster, ReshapingPhase::Forming);
    // Forming is broken off if a member runs out of disk space.
    cluster.nodes.get_mut(&NodeId(3)).unwrap().space = DiskSpace::Reserve;
    reach(&mut cluster, ReshapingPhase::Waiting);
    cluster.forms = true;
    cluster.nodes.get_mut(&NodeId(3)).unwrap().space = DiskSpace::Enough;
    finish(&mut cluster);
}

#[test]
fn seal_times_out() {
    let mut cluster = ready(3, 3);
    cluster.drains = false;
    begin(&mut cluster, &merge(0, 1));
    reach(&mut cluster, ReshapingPhase::Sealed);
    let sealed_for = cluster.run_until(6000, "broken off", |it| phase(it) != Some(ReshapingPhase::Sealed));
    assert!((4900..5300).contains(&sealed_for), "{sealed_for} ms");
    cluster.drains = true;
    finish(&mut cluster);
}

#[test]
fn pending_request_can_be_cancelled() {
    let mut cluster = ready(3, 3);
    for (forms, drains) in [(false, true), (true, false)] {
        (cluster.forms, cluster.drains) = (forms, drains);
        begin(&mut cluster, &merge(2, 3));
        reach(&mut cluster, if forms { ReshapingPhase::Sealed } else { ReshapingPhase::Forming });
        begin(&mut cluster, &PartitionChange::Cancel { partition: 3 });
        finish(&mut cluster);
    }
    assert_eq!(layout(&cluster), [(0, 0), (0x4000, 1), (0x8000, 2), (0xc000, 3)]);
}

/// Members that never form the children delay neither the addition nor the removal of nodes.
#[test]
fn nodes_come_and_go_between_reshapings() {
    let mut cluster = with_a_fourth();
    cluster.forms = false;
    begin(&mut cluster, &split(0));
    begin(&mut cluster, &merge(1, 2));
    cluster.run(300);
    add(&mut cluster, 4);
    let is_settled = |cluster: &Cluster| cluster.status().ready && cluster.status().moves == 0;
    cluster.run_until(5000, "it has its share", is_settled);
    let name = String::from("node-1");
    change(&mut cluster, |core| core.change(&Change::Remove { name: name.clone() })).unwrap();
    let is_forgotten = |cluster: &Cluster| cluster.status().nodes.iter().all(|node| node.id != 1);
    cluster.run_until(9000, "forgotten", |cluster| is_settled(cluster) && is_forgotten(cluster));
    cluster.forms = true;
    finish(&mut cluster);
    assert_eq!(layout(&cluster).len(), 4);
}

#[test]
fn keyspace_is_dropped_in_any_phase() {
    for wanted in [split(4), merge(4, 5)] {
        for phase in [&[ReshapingPhase::Waiting][..], &PHASES].concat() {
            let mut cluster = ready(3, 3);
            let text = String::from("carts=partitions=2");
            change(&mut cluster, |core| core.change_keyspace(&KeyspaceChange::Create { text: text.clone() }))
                .unwrap();
            cluster.run_until_ready(3000);
            let is_to_wait = phase == ReshapingPhase::Waiting;
            if is_to_wait {
                cluster.kill(NodeId(2));
                cluster.run(300);
            }
            begin(&mut cluster, &wanted);
            // The model puts nothing into other keyspaces, so their partitions drain at decision 0.
            for id in [4, 5] {
                cluster.lineage.insert(PartitionId(id), Vec::new());
            }
            reach(&mut cluster, phase);
            let drop = KeyspaceChange::Drop { name: "carts".into() };
            change(&mut cluster, |core| core.change_keyspace(&drop)).unwrap();
            assert!(state(&cluster).reshapings.is_empty() && state(&cluster).reshaped.is_empty());
            if is_to_wait {
                cluster.start(NodeId(2));
            }
            cluster
                .run_until(5000, "no node holds the keyspace", |cluster| cluster.status().dropped.is_empty());
            for id in cluster.ids().into_iter().filter(|id| id.0 > 3) {
                cluster.lineage.remove(&id);
            }
            finish(&mut cluster);
        }
    }
}
