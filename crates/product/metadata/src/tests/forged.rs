//! Datagrams that claim to be from a node and are not, and replies from switches that are not
//! connected.

use nicekv_proto::control::{AssignAck, DiskSpace, Heartbeat, Probe, ProbeReply, Report, ReportKind};
use nicekv_proto::{Epoch, NodeId, Now, PartitionId, Term};
use nicekv_switch::control::ControlReply;

use super::cluster::Cluster;
use super::node::{address, encode};
use super::scenarios::{partition, ready};
use crate::SwitchId;

/// The node that forged datagrams name as their sender.
const NAMED: NodeId = NodeId(1);
const PARTITION: PartitionId = PartitionId(0);

/// All harmful datagrams that a node could send, forged by a sender that knows everything there is
/// to know.
fn forgeries(cluster: &Cluster) -> Vec<Vec<u8>> {
    let (partition, node) = (PARTITION, NAMED);
    let process = cluster.nodes[&NAMED].running.as_ref().unwrap().process;
    let (incarnation, storage) = (process.incarnation, process.storage);
    let epoch = Epoch(super::scenarios::partition(cluster, PARTITION).epoch);
    let report = |kind| encode(|out| Report { node, incarnation, partition, epoch, kind }.encode(out));
    let deaf = Heartbeat {
        node,
        incarnation,
        storage,
        sent_ns: 1,
        unanswered: 9,
        space: DiskSpace::Exhausted,
        opened: 0,
        durable: 0,
    };
    let restarted = Heartbeat { incarnation: incarnation + 1, unanswered: 0, ..deaf };
    let ack = AssignAck {
        node,
        incarnation,
        partition,
        epoch: Epoch(epoch.0 + 1),
        activated: true,
        discarded: false,
    };
    vec![
        encode(|out| deaf.encode(out)),
        encode(|out| restarted.encode(out)),
        encode(|out| ack.encode(out)),
        encode(|out| ProbeReply { node, incarnation: incarnation + 1, nonce: 1 << 32 }.encode(out)),
        report(ReportKind::CopyDone),
        report(ReportKind::Accuse(NodeId(2))),
        report(ReportKind::Fence),
    ]
}

#[test]
fn datagram_from_a_wrong_address_is_ignored() {
    let mut cluster = ready(3, 3);
    // Lets the durable log positions of storages be persisted first.
    cluster.run(1000);
    let stored = cluster.stored.clone();
    let forgeries = forgeries(&cluster);
    let mut elsewhere = address(NAMED);
    elsewhere.set_port(7401);
    let sources = [address(NodeId(2)), address(NodeId(9)), elsewhere];
    for _ in 0..100 {
        let now = Now { boot_ns: cluster.now_ns, unix_ms: 0 };
        for (bytes, from) in forgeries.iter().flat_map(|bytes| sources.map(|from| (bytes, from))) {
            cluster.core().handle_datagram(now, from, bytes);
        }
        cluster.run(10);
    }
    let status = cluster.status();
    assert!(status.ready, "{:?}", status.why_not_ready);
    assert_eq!(cluster.stored, stored, "no decision was made");
    assert_eq!(status.counters.forged, 100 * 3 * forgeries.len() as u64);
}

#[test]
fn messages_of_other_roles_are_counted_as_foreign() {
    let mut cluster = ready(3, 3);
    let now = Now { boot_ns: cluster.now_ns, unix_ms: 0 };
    let probe = encode(|out| Probe { term: Term(99), nonce: 1 }.encode(out));
    cluster.core().handle_datagram(now, address(NAMED), &probe);
    assert_eq!(cluster.status().counters.foreign, 1);
}

/// R6: a reply from a switch that is not connected does not count as an acknowledgement that a
/// removed member is out of its tables.
#[test]
fn a_switch_that_is_not_connected_acknowledges_nothing() {
    let mut cluster = ready(3, 3);
    let switch = SwitchId(1);
    cluster.disconnect(switch);
    let term = cluster.status().term;
    let removed = partition(&cluster, PARTITION).members.iter().map(|member| member.node).max().unwrap();
    cluster.kill(removed);
    // The member is removed, but its lease may not have ended.
    cluster.run_until(1000, "removed", |cluster| partition(cluster, PARTITION).member(removed).is_none());
    let generation = cluster.switches[&SwitchId(0)].tables.as_ref().unwrap().generation;
    let now = Now { boot_ns: cluster.now_ns, unix_ms: 0 };
    for id in [switch, SwitchId(7)] {
        for generation in generation..generation + 3 {
            cluster.core().handle_switch(now, id, ControlReply::Installed { term, generation });
        }
    }
    assert_eq!(cluster.status().counters.forged, 6);
    assert!(!cluster.status().switches[1].current);
}
