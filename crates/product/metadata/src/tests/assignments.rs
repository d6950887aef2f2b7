//! The contents of assignments that nodes get.

use nicekv_proto::quorum::Quorum;
use nicekv_proto::{KeyspaceId, NodeId, Replication};

use nicekv_proto::placement::{KeyspaceSpec, Protocol};

use super::cluster::{Cluster, config, keyspace, partitions};
use crate::Config;

/// A configuration with three replicas, of which `write_set` store a put.
fn by_quorum(write_set: u8) -> Config {
    let keyspace = KeyspaceSpec { protocol: Protocol::Quorum { write_set }, ..keyspace(3) };
    Config { keyspaces: vec![keyspace], ..config(3, 3) }
}

#[test]
fn assignments_are_complete() {
    let told = |config: Config| {
        let mut cluster = Cluster::new(config, 3);
        cluster.run_until_ready(1000);
        let running = cluster.nodes[&NodeId(2)].running.as_ref().unwrap();
        running.assigned.values().cloned().collect::<Vec<_>>()
    };
    let assigned = told(config(3, 3));
    let mut next = Some(0);
    for assign in &assigned {
        assert_eq!((assign.keyspace, assign.replicas), (KeyspaceId::DEFAULT, 3));
        assert_eq!(assign.replication, Replication::Multicast);
        assert_eq!(Some(assign.range.first()), next);
        next = assign.range.last().checked_add(1);
        // The multicast address is a vnode of the partition.
        let [a, b, c, d] = assign.multicast.ip().octets();
        assert_eq!(([a, b], assign.multicast.port()), ([10, 11], 7400));
        assert!(assign.range.contains(u128::from(u16::from_be_bytes([c, d])) << 112));
    }
    assert_eq!((next, assigned.len()), (None, partitions().count()), "the partitions together own every key");

    let quorum = Quorum::new(3, 2).unwrap();
    let assigned = told(by_quorum(2));
    assert!(assigned.iter().all(|assign| assign.replication == Replication::Quorum(quorum)));
}
