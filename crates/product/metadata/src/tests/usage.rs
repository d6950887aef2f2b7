//! Usage that nodes report: stored data and request counts.

use nicekv_proto::control::{KeyspaceUsage, Usage};
use nicekv_proto::{KeyspaceId, NodeId, Now};

use super::cluster::Cluster;
use super::node::{address, encode};
use super::scenarios::{is_gone, ready};
use crate::UsageStatus;

const SECOND_NS: u64 = 1_000_000_000;

fn of(partitions: u32, keys: u64, gets: u64, updates: u64) -> KeyspaceUsage {
    let (keyspace, bytes, age_ms) = (KeyspaceId::DEFAULT, 100 * keys, partitions * 10);
    // Half of the keys expire. The more keys there are, the later they expire.
    let (expiring, expiry_ms) = (keys / 2, 1_000 * (keys / 2));
    KeyspaceUsage { keyspace, partitions, keys, bytes, expiring, expiry_ms, age_ms, gets, updates }
}

/// A node's process sends a report at `sent_ns` of its clock.
fn tell(cluster: &mut Cluster, node: u16, sent_ns: u64, keyspaces: &[KeyspaceUsage]) {
    let node = NodeId(node);
    let Some(running) = &cluster.nodes[&node].running else { return };
    let incarnation = running.process.incarnation;
    let usage = Usage { node, incarnation, sent_ns, keyspaces: keyspaces.to_vec() };
    let now = Now { boot_ns: cluster.now_ns, unix_ms: 0 };
    cluster.core().handle_datagram(now, address(node), &encode(|out| usage.encode(out)));
}

#[test]
fn usage_is_summed_over_live_nodes_and_rates_need_two_reports() {
    let mut cluster = ready(3, 3);
    assert_eq!(cluster.status().usage, UsageStatus::default());
    tell(&mut cluster, 1, SECOND_NS, &[of(2, 10, 1_000, 50)]);
    tell(&mut cluster, 2, 7 * SECOND_NS, &[of(1, 5, 0, 0)]);
    let mut expected = UsageStatus {
        partitions: 3,
        keys: 15,
        bytes: 1_500,
        expiring: 7,
        // Five keys expire at 5 s, two at 2 s.
        expiry_ms: 29_000 / 7,
        age_ms: 20,
        ..Default::default()
    };
    assert_eq!(cluster.core().cluster_info().keyspaces[0].usage, expected);
    let status = cluster.status();
    assert_eq!((status.usage, status.keyspaces[0].usage), (expected, expected));
    // Two seconds later by the node's own clock. Other nodes' clocks do not matter.
    tell(&mut cluster, 1, 3 * SECOND_NS, &[of(2, 12, 1_600, 90)]);
    (expected.keys, expected.bytes) = (17, 1_700);
    (expected.expiring, expected.expiry_ms) = (8, 40_000 / 8);
    (expected.gets_per_second, expected.updates_per_second) = (300, 20);
    assert_eq!(cluster.status().usage, expected);
    // An outdated report, a repeated one, and one of another process.
    tell(&mut cluster, 1, 2 * SECOND_NS, &[of(9, 9, 9, 9)]);
    tell(&mut cluster, 1, 3 * SECOND_NS, &[of(9, 9, 9, 9)]);
    let stale = Usage { node: NodeId(1), incarnation: 1, sent_ns: u64::MAX, keyspaces: vec![of(9, 9, 9, 9)] };
    let now = Now { boot_ns: cluster.now_ns, unix_ms: 0 };
    cluster.core().handle_datagram(now, address(NodeId(1)), &encode(|out| stale.encode(out)));
    cluster.core().handle_datagram(now, address(NodeId(2)), &encode(|out| stale.encode(out)));
    assert_eq!(cluster.status().usage, expected);
    assert_eq!((cluster.status().counters.stale, cluster.status().counters.forged), (1, 1));
}

#[test]
fn reports_of_absent_nodes_are_dropped() {
    let mut cluster = ready(3, 3);
    tell(&mut cluster, 1, SECOND_NS, &[of(2, 10, 0, 0)]);
    tell(&mut cluster, 2, SECOND_NS, &[of(1, 5, 0, 0)]);
    cluster.kill(NodeId(1));
    cluster.run_until(2000, "removed", |cluster| is_gone(cluster, NodeId(1)));
    assert_eq!(cluster.status().usage.keys, 5);
    // The node returns as another process, which has not reported anything yet and counts from
    // zero.
    cluster.start(NodeId(1));
    cluster.run_until_ready(2000);
    tell(&mut cluster, 1, SECOND_NS, &[of(0, 0, 7, 0)]);
    tell(&mut cluster, 1, 2 * SECOND_NS, &[of(0, 0, 9, 0)]);
    let usage = cluster.status().usage;
    assert_eq!((usage.partitions, usage.keys, usage.gets_per_second), (1, 5, 2));
    cluster.run(6_000);
    assert_eq!(cluster.status().usage, UsageStatus::default(), "no recent reports");
    tell(&mut cluster, 2, 9 * SECOND_NS, &[of(1, 6, 0, 0)]);
    assert_eq!(cluster.status().usage.keys, 6);
}
