//! A cluster with two keyspaces that have different replication protocols.

use nicekv_proto::control::{Report, ReportKind};
use nicekv_proto::placement::{KeyspaceSpec, Protocol, Refusal};
use nicekv_proto::{Epoch, KeyspaceId, NodeId, Now, PartitionId};

use super::cluster::{Cluster, PARTITIONS, config, keyspace};
use super::node::{address, encode};
use super::scenarios::partition;
use crate::{Config, ConfigError, Health, Metadata, StateError};

/// Four nodes with the default keyspace and a quorum keyspace, R = 3, k = 2.
fn mixed() -> Config {
    let mut config = config(4, 3);
    config.keyspaces.push(sessions());
    config
}

fn sessions() -> KeyspaceSpec {
    KeyspaceSpec {
        id: KeyspaceId(1),
        name: "sessions".into(),
        protocol: Protocol::Quorum { write_set: 2 },
        unicast: [10, 12, 0, 0].into(),
        multicast: [10, 13, 0, 0].into(),
        ..keyspace(3)
    }
}

fn of(cluster: &Cluster, keyspace: u16) -> Vec<PartitionId> {
    let state = cluster.state().expect("persisted");
    let of_it = |(id, partition): (PartitionId, &crate::state::Partition)| {
        (partition.keyspace == KeyspaceId(keyspace)).then_some(id)
    };
    state.partitions().filter_map(of_it).collect()
}

#[test]
fn each_keyspace_has_its_own_partitions_and_rings() {
    let mut cluster = Cluster::new(mixed(), 1);
    cluster.run_until_ready(3000);
    let status = cluster.status();
    let names: Vec<_> =
        status.keyspaces.iter().map(|it| (it.name.as_str(), it.replication.as_str())).collect();
    assert_eq!(names, [("default", "multicast"), ("sessions", "quorum")]);
    assert_eq!(status.keyspaces[1].write_set, Some(2));
    assert!(status.keyspaces.iter().all(|it| it.health.whole == PARTITIONS as usize));
    let (first, last) = (&status.partitions[4], &status.partitions[7]);
    assert_eq!((first.keyspace, first.first.as_str()), (1, "0".repeat(32).as_str()));
    assert_eq!((last.keyspace, last.last.as_str()), (1, "f".repeat(32).as_str()));

    let tables = cluster.switches.values().next().unwrap().tables.clone().unwrap();
    let unicast = tables.unicast.iter().map(|it| it.destination);
    let destinations: Vec<_> = unicast.chain(tables.multicast.iter().map(|it| it.destination)).collect();
    let of_ring =
        |second: u8| destinations.iter().filter(|it| it.address[1] == second && it.length == 18).count();
    assert_eq!([10, 11, 12, 13].map(of_ring), [4; 4]);
    let divided = |keyspace| {
        let ids = of(&cluster, keyspace);
        tables.division.iter().filter(|it| ids.contains(&PartitionId(it.partition))).count()
    };
    assert!(divided(0) > 0, "gets of the multicast keyspace are divided");
    assert_eq!(divided(1), 0, "gets of the quorum keyspace go to all members");
}

#[test]
fn multicast_removes_a_silent_member_and_quorum_counts_it() {
    let mut cluster = Cluster::new(mixed(), 1);
    cluster.run_until_ready(3000);
    let dead = NodeId(2);
    let has = |cluster: &Cluster, id: &PartitionId| partition(cluster, *id).member(dead).is_some();
    let had: Vec<_> = of(&cluster, 1).into_iter().filter(|id| has(&cluster, id)).collect();
    assert!(!had.is_empty());
    cluster.kill(dead);
    cluster.run(2000);
    assert!(of(&cluster, 0).iter().all(|id| !has(&cluster, id)));
    assert!(had.iter().all(|id| has(&cluster, id) && partition(&cluster, *id).epoch == 1));
    let status = cluster.status();
    let health = |id: &PartitionId| status.partitions.iter().find(|it| it.id == id.0).unwrap().health;
    assert!(had.iter().all(|id| health(id) == Health::Reduced), "puts and gets continue");
    cluster.start(dead);
    cluster.run_until_ready(9000);
}

/// R14: answers of members in different epochs are not counted together. So a member that needs
/// answers in one epoch requests a new epoch.
#[test]
fn quorum_member_gets_an_epoch_at_once_but_not_too_often() {
    let mut cluster = Cluster::new(mixed(), 1);
    cluster.run_until_ready(3000);
    let fence = |cluster: &mut Cluster, id: PartitionId, epoch: u32| {
        let node = partition(cluster, id).members[1].node;
        let incarnation = cluster.nodes[&node].running.as_ref().unwrap().process.incarnation;
        let report =
            Report { node, incarnation, partition: id, epoch: Epoch(epoch), kind: ReportKind::Fence };
        let now = Now { boot_ns: cluster.now_ns, unix_ms: 0 };
        cluster.core().handle_datagram(now, address(node), &encode(|out| report.encode(out)));
        cluster.run(20);
    };
    cluster.run(3000);
    let (by_primary, by_quorum) = (of(&cluster, 0)[0], of(&cluster, 1)[0]);
    fence(&mut cluster, by_primary, 1);
    assert_eq!(partition(&cluster, by_primary).epoch, 1, "multicast keyspaces have no fences");
    fence(&mut cluster, by_quorum, 1);
    let fenced = partition(&cluster, by_quorum);
    assert_eq!((fenced.epoch, fenced.activated, fenced.is_whole()), (2, true, true));
    fence(&mut cluster, by_quorum, 1);
    fence(&mut cluster, by_quorum, 2);
    assert_eq!(
        partition(&cluster, by_quorum).epoch,
        2,
        "the first request is already satisfied, the second comes too soon"
    );
    cluster.run(3000);
    assert_eq!(partition(&cluster, by_quorum).epoch, 3);
}

#[test]
fn new_configured_keyspace_is_created_later() {
    let mut cluster = Cluster::new(config(4, 3), 1);
    cluster.run_until_ready(3000);
    let before = cluster.state().unwrap();
    cluster.kill_metadata();
    cluster.config.keyspaces.push(sessions());
    for id in cluster.config.switches.clone() {
        cluster.restart_switch(id);
    }
    cluster.kill(NodeId(3));
    cluster.start_metadata();
    cluster.run(1000);
    assert_eq!(cluster.status().keyspaces.len(), 1);
    assert_eq!(cluster.status().why_not_ready.unwrap(), "keyspace sessions waits for node-3");
    cluster.start(NodeId(3));
    cluster.run_until_ready(9000);
    assert_eq!(cluster.status().keyspaces.len(), 2);
    assert_eq!(of(&cluster, 1).len(), PARTITIONS as usize);
    assert!(before.partitions().map(|(id, _)| id).eq(of(&cluster, 0)));
}

#[test]
fn keyspace_settings_cannot_change() {
    let mut cluster = Cluster::new(mixed(), 1);
    cluster.run_until_ready(3000);
    let stored = cluster.stored.as_deref().unwrap();
    let start = |config: Config| Metadata::new(config, Some(stored), Now::default()).err();
    assert_eq!(start(mixed()), None);
    let (stored, none) = (sessions().to_string(), "none of this id".into());
    let dropped = StateError::KeyspaceChanged { stored: stored.clone(), configured: none };
    assert_eq!(start(config(4, 3)), Some(dropped));
    let mut changed = mixed();
    changed.keyspaces[1].protocol = Protocol::Quorum { write_set: 3 };
    let configured = changed.keyspaces[1].to_string();
    assert_eq!(start(changed), Some(StateError::KeyspaceChanged { stored, configured }));
    let mut shared = mixed();
    shared.keyspaces[1].unicast = [10, 11, 0, 0].into();
    let Some(StateError::Config(ConfigError::Keyspaces(error))) = start(shared) else { panic!("refused") };
    let reason = Refusal::RingTwice { ring: [10, 11, 0, 0].into() };
    let name = "sessions".into();
    assert_eq!(error, nicekv_proto::placement::KeyspaceError::Refused { name, reason });
}
