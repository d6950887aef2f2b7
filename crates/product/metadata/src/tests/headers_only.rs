//! Switches that match only headers, as those of OpenFlow do.

use nicekv_proto::{KeyOrder, NodeId, PartitionId};
use nicekv_switch::{Matching, Prefix};

use super::cluster::{Cluster, config};
use super::scenarios::{is_member, partition};
use crate::{Config, KeyspaceChange, SwitchId};

fn headers_only(nodes: u16, replicas: usize) -> Config {
    Config { matching: Matching::Headers, ..config(nodes, replicas) }
}

#[test]
fn keyspaces_that_such_switches_cannot_serve_are_refused() {
    let mut cluster = Cluster::new(headers_only(3, 3), 1);
    cluster.run_until_ready(200);
    let mut plan = |text: &str| {
        let plan = cluster.core().plan_keyspace(&KeyspaceChange::Create { text: text.into() });
        plan.map(|_| ()).map_err(|error| error.to_string())
    };
    let reasons = [
        (
            "logs=chain",
            "has replication=chain, but an OpenFlow switch cannot write the chain into requests; \
             use replication=multicast or replication=quorum",
        ),
        (
            "logs=range",
            "has partitioning=range, but an OpenFlow switch cannot match ranges of keys; \
             use partitioning=hash",
        ),
        (
            "logs=balancing=hot",
            "has balancing=hot, but an OpenFlow switch cannot match single keys; \
             use balancing=migrate or balancing=none",
        ),
    ];
    for (text, reason) in reasons {
        assert_eq!(plan(text), Err(format!("keyspace \"logs\" {reason}")));
    }
    for text in
        ["logs=replicas=2", "logs=quorum,write-set=2", "logs=balancing=migrate", "logs=chunks=multicast"]
    {
        assert_eq!(plan(text), Ok(()), "{text}");
    }
}

#[test]
fn a_configured_keyspace_that_such_switches_cannot_serve_is_refused() {
    let mut config = headers_only(3, 3);
    config.keyspaces[0].order = KeyOrder::Range;
    let error = config.validate().unwrap_err().to_string();
    assert_eq!(
        error,
        "keyspace \"default\" has partitioning=range, but an OpenFlow switch cannot match ranges of keys; \
         use partitioning=hash"
    );
    config.matching = Matching::Messages;
    assert_eq!(config.validate(), Ok(()));
}

/// Milliseconds from the removal of a node that hears nothing until the epoch without it is
/// activated.
fn wait(config: Config) -> u64 {
    let mut cluster = Cluster::new(config, 1);
    cluster.run_until_ready(200);
    cluster.deaf.insert(NodeId(1));
    let id = PartitionId(0);
    cluster.run_until(2_000, "removed", |cluster| !is_member(cluster, id, NodeId(1)));
    cluster.run_until(400, "activated", |cluster| partition(cluster, id).activated)
}

/// Such a switch may still use old tables after it has acknowledged new ones, so a removed member
/// stops answering for certain only when its lease expires (R6).
#[test]
fn an_epoch_waits_for_the_whole_lease_of_a_removed_member() {
    let (fast, slow) = (wait(config(3, 3)), wait(headers_only(3, 3)));
    assert!((40..=113).contains(&fast) && (fast + 35..=169).contains(&slow), "{fast} and {slow} ms");
}

/// A group of storage targets has an entry for each of its subsets instead of one with masks.
#[test]
fn groups_of_targets_have_an_entry_for_each_subset() {
    let of_groups = |config: Config| {
        let mut cluster = Cluster::new(config, 1);
        cluster.run_until_ready(200);
        let objects = KeyspaceChange::Create { text: "objects=chunks=multicast".into() };
        cluster.core().change_keyspace(&objects).unwrap();
        cluster.run(50);
        cluster.run_until_ready(3_000);
        let ring = cluster.config.group_ring.unwrap();
        let ring = Prefix::new(ring.base.octets(), ring.length);
        let tables = cluster.switches[&SwitchId(0)].tables.clone().unwrap();
        let entries = tables.multicast.iter().filter(|entry| ring.contains(entry.destination.address));
        entries.map(|entry| entry.places.is_some()).collect::<Vec<bool>>()
    };
    let (masked, subsets) = (of_groups(config(3, 3)), of_groups(headers_only(3, 3)));
    assert!(!masked.is_empty() && masked.iter().all(|has_places| *has_places));
    assert!(subsets.len() > masked.len() && !subsets.contains(&true));
}
