//! Keyspaces are created and dropped in a running cluster (R16).

use nicekv_proto::{KeyspaceId, NodeId};

use super::cluster::{Cluster, config};
use super::scenarios::{puts_go_on, ready};
use crate::{Config, ConfigError, KeyspaceChange, KeyspacePlan, Refused};

fn create(text: &str) -> KeyspaceChange {
    KeyspaceChange::Create { text: text.into() }
}

fn dropped(name: &str) -> KeyspaceChange {
    KeyspaceChange::Drop { name: name.into() }
}

/// Requests a change. Repeats the request while another step is being persisted, and waits until an
/// accepted change is persisted.
fn change(cluster: &mut Cluster, wanted: &KeyspaceChange) -> Result<KeyspacePlan, Refused> {
    for _ in 0..100 {
        match cluster.core().change_keyspace(wanted) {
            Err(Refused::Busy) => cluster.run(1),
            outcome => {
                cluster.run(if outcome.is_ok() { 20 } else { 0 });
                return outcome;
            }
        }
    }
    panic!("the change was refused as busy for too long");
}

fn names(cluster: &Cluster) -> Vec<String> {
    cluster.status().keyspaces.into_iter().map(|keyspace| keyspace.name).collect()
}

fn refused(cluster: &mut Cluster, wanted: &KeyspaceChange, why: &str) {
    let before = cluster.state().unwrap().keyspaces;
    assert_eq!(change(cluster, wanted).unwrap_err().to_string(), why);
    assert_eq!(cluster.state().unwrap().keyspaces, before, "a refused change has no effect");
}

#[test]
fn a_keyspace_is_created_survives_a_restart_and_is_dropped() {
    let mut cluster = ready(3, 3);
    let plan = cluster.core().plan_keyspace(&create("carts=replicas=2,partitions=4")).unwrap();
    assert_eq!((plan.id, plan.replicas.iter().map(|(_, count)| count).sum::<usize>()), (16, 8));
    assert_eq!(change(&mut cluster, &create("carts=replicas=2,partitions=4")).unwrap(), plan);
    cluster.run_until_ready(3000);
    assert_eq!(names(&cluster), ["default", "carts"]);
    puts_go_on(&mut cluster);
    // The configuration of the new leader does not have the keyspace.
    cluster.kill_metadata();
    cluster.start_metadata();
    cluster.run_until_ready(3000);
    assert_eq!(names(&cluster), ["default", "carts"]);
    let known = cluster.core().cluster_info();
    assert!(known.keyspace(16).is_some_and(|carts| carts.unicast == core::net::Ipv4Addr::new(10, 60, 0, 0)));
    change(&mut cluster, &dropped("carts")).unwrap();
    cluster.run_until(3000, "nobody holds it", |cluster| cluster.status().dropped.is_empty());
    assert_eq!(names(&cluster), ["default"]);
    let is_routed = |octet: u8| {
        let tables = cluster.switches.values().filter_map(|switch| switch.tables.as_ref());
        tables.flat_map(|tables| &tables.unicast).any(|entry| entry.destination.address[1] == octet)
    };
    assert!(is_routed(10) && !is_routed(60));
    puts_go_on(&mut cluster);
    // A new keyspace gets the rings of the dropped one, but not its id.
    assert_eq!(change(&mut cluster, &create("carts")).unwrap().id, 17);
    assert!(
        cluster
            .core()
            .cluster_info()
            .keyspace(17)
            .is_some_and(|it| it.unicast == core::net::Ipv4Addr::new(10, 60, 0, 0))
    );
}

#[test]
fn names_of_objects_bring_groups_of_targets_which_stay() {
    let mut cluster = ready(4, 3);
    assert_eq!(cluster.core().cluster_info().chunks, None);
    let masked = |cluster: &Cluster| {
        let tables = cluster.switches.values().filter_map(|switch| switch.tables.as_ref());
        let entries = tables.flat_map(|tables| &tables.multicast).filter(|entry| entry.places.is_some());
        entries.map(|entry| (entry.destination, entry.members.as_slice().len())).collect::<Vec<_>>()
    };
    assert_eq!(masked(&cluster), []);
    change(&mut cluster, &create("objects=partitions=4,chunks=multicast")).unwrap();
    cluster.run_until_ready(3000);
    let told = cluster.core().cluster_info();
    let chunks = told.chunks.clone().unwrap();
    assert_eq!(
        (chunks.version, chunks.round, chunks.layout.groups),
        (1, 2, vec![(1..=4).map(Some).collect()])
    );
    assert_eq!(told.keyspace(16).unwrap().chunks.as_deref(), Some("multicast"));
    let group = (nicekv_switch::Prefix::new([10, 64, 0, 0], 20), 4);
    assert_eq!(masked(&cluster), vec![group; cluster.switches.len()]);
    // A second keyspace shares the groups, and the groups stay when a keyspace is dropped.
    change(&mut cluster, &create("others=partitions=4,chunks=unicast")).unwrap();
    change(&mut cluster, &dropped("objects")).unwrap();
    cluster.kill_metadata();
    cluster.start_metadata();
    cluster.run_until_ready(3000);
    assert_eq!(cluster.core().cluster_info().chunks, told.chunks);
}

#[test]
fn link_rate_is_published() {
    let of = |link_bits_per_second| Config { link_bits_per_second, ..config(4, 3) };
    let mut cluster = Cluster::new(of(200_000_000), 7);
    cluster.run_until_ready(3000);
    change(&mut cluster, &create("objects=partitions=4,chunks=multicast")).unwrap();
    cluster.run_until_ready(3000);
    assert_eq!(cluster.core().cluster_info().chunks.unwrap().link_bits_per_second, 200_000_000);
    for bits_per_second in [0, 9_999_999, 1_000_000_000_001] {
        assert_eq!(of(bits_per_second).validate(), Err(ConfigError::Link { bits_per_second }));
    }
}

#[test]
fn drop_waits_for_nodes_that_may_hold_data() {
    let mut cluster = ready(4, 3);
    change(&mut cluster, &create("carts=replicas=3,partitions=4")).unwrap();
    cluster.run_until_ready(3000);
    let away = NodeId(2);
    cluster.kill(away);
    cluster.run(2000);
    change(&mut cluster, &dropped("carts")).unwrap();
    cluster.run(3000);
    let status = cluster.status();
    let carts = &status.dropped[0];
    assert!(carts.quiet && carts.waits_for == (vec![], vec!["node-2".into()]), "{carts:?}");
    // Until then the dropped keyspace keeps its rings.
    change(&mut cluster, &create("next=replicas=3,partitions=1")).unwrap_err();
    cluster.start(away);
    cluster.run_until(3000, "nobody holds it", |cluster| cluster.status().dropped.is_empty());
    cluster.run_until_ready(3000);
}

#[test]
fn dropped_configured_keyspace_is_not_created_again() {
    let mut config = config(3, 3);
    config.keyspaces.push(nicekv_proto::placement::KeyspaceSpec {
        id: KeyspaceId(1),
        name: "sessions".into(),
        unicast: [10, 12, 0, 0].into(),
        multicast: [10, 13, 0, 0].into(),
        ..super::cluster::keyspace(3)
    });
    let mut cluster = Cluster::new(config, 1);
    cluster.run_until_ready(3000);
    change(&mut cluster, &dropped("sessions")).unwrap();
    cluster.run_until(3000, "nobody holds it", |cluster| cluster.status().dropped.is_empty());
    cluster.kill_metadata();
    cluster.start_metadata();
    cluster.run_until_ready(3000);
    assert_eq!(names(&cluster), ["default"]);
    assert!(cluster.core().cluster_info().keyspace(1).is_none());
}

#[test]
fn invalid_change_is_refused() {
    let mut cluster = ready(3, 3);
    refused(&mut cluster, &dropped("carts"), "there is no keyspace \"carts\"; see `nicekv keyspace list`");
    refused(
        &mut cluster,
        &dropped("default"),
        "keyspace \"default\" cannot be dropped: requests that name no keyspace use it",
    );
    let in_use = "keyspace \"default\": there is another keyspace of this name";
    refused(&mut cluster, &create("default"), in_use);
    let too_few = "keyspace \"wide\": 4 replicas need at least as many nodes, there are 3";
    refused(&mut cluster, &create("wide=replicas=4"), too_few);
    let given = "keyspace \"mine\": leave out its id and its rings; the cluster assigns them";
    refused(&mut cluster, &create("mine=id=3"), given);
    refused(&mut cluster, &create("mine=unicast=10.99.0.0/16"), given);
    for number in 0..15 {
        change(&mut cluster, &create(&format!("k{number}=partitions=1"))).unwrap();
    }
    let full = "all 16 pairs of rings are in use, 0 of them by keyspaces that are being dropped";
    refused(&mut cluster, &create("one-more=partitions=1"), full);
    cluster.kill(NodeId(3));
    cluster.run(500);
    change(&mut cluster, &dropped("k0")).unwrap();
    cluster.run(500);
}
