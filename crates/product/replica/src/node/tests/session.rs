//! Tests of heartbeats, the lease, probes, and deadlines.

use crate::node::tests::recorder::{
    EPOCH, INCARNATION, METADATA, Node, PARTITION, TERM, assign, book, quiet,
};
use crate::{DiskSpace, Timing};
use nicekv_proto::control::{Assign, Heartbeat, HeartbeatReply, Probe, ProbeReply};
use nicekv_proto::{Datagram, MatchRange, NodeId, PartitionId, Term};

fn heartbeats(node: &mut Node) -> Vec<Heartbeat> {
    let sent = node.sent();
    let heartbeat = |(to, bytes): &(_, Vec<u8>)| match Datagram::decode(bytes) {
        Ok((_, Datagram::Heartbeat(heartbeat))) if *to == METADATA => Some(heartbeat),
        _ => None,
    };
    sent.iter().filter_map(heartbeat).collect()
}

#[test]
fn heartbeat_leaves_on_time_and_counts_unanswered_ones() {
    let mut node = Node::started(quiet());
    let began = node.now.boot_ns;
    for (unanswered, after_ns) in [(0, 0), (1, 40_000_000), (2, 80_000_000)] {
        node.now.boot_ns = began + after_ns;
        node.core.handle_deadline(node.now);
        let sent = heartbeats(&mut node);
        assert_eq!(
            sent.iter().map(|sent| (sent.unanswered, sent.sent_ns)).collect::<Vec<_>>(),
            [(unanswered, node.now.boot_ns)]
        );
        assert_eq!(node.core.next_deadline(), node.now.boot_ns + 40_000_000);
        node.now.boot_ns += 39_999_999;
        node.core.handle_deadline(node.now);
        assert_eq!(heartbeats(&mut node), []);
    }
    node.grant(TERM);
    node.core.set_disk_space(DiskSpace::Reserve);
    node.now.boot_ns += 1;
    node.core.handle_deadline(node.now);
    let [sent] = heartbeats(&mut node)[..] else { panic!("one") };
    assert_eq!((sent.node, sent.incarnation, sent.storage), (NodeId(1), INCARNATION, 9));
    assert_eq!((sent.unanswered, sent.space), (0, DiskSpace::Reserve));
}

#[test]
fn probe_is_answered_unless_its_term_is_older() {
    let mut node = Node::started(quiet());
    node.grant(TERM);
    let answers = |node: &mut Node, term| {
        node.receive(METADATA, |out| Probe { term, nonce: 42 }.encode(out));
        let sent = node.sent();
        sent.iter()
            .map(|(to, bytes)| match Datagram::decode(bytes) {
                Ok((_, Datagram::ProbeReply(reply))) if *to == METADATA => reply,
                other => panic!("{other:?}"),
            })
            .collect::<Vec<_>>()
    };
    let answer = ProbeReply { node: NodeId(1), incarnation: INCARNATION, nonce: 42 };
    assert_eq!(answers(&mut node, TERM), [answer]);
    assert_eq!((answers(&mut node, Term(2)), node.turned_away().0), (vec![], 1));
    assert_eq!((answers(&mut node, Term(4)), node.core.status().term), (vec![answer], Term(4)));
    assert_eq!((answers(&mut node, TERM), node.turned_away().0), (vec![], 2));
}

#[test]
fn sweep_comes_on_time_and_repeats_while_work_is_left() {
    let mut node = Node::member();
    node.core.handle_deadline(node.now);
    assert_eq!(node.told(), Vec::<String>::new());
    let resent_after = Timing::default().resend.as_nanos() as u64;
    let asked = node.now.boot_ns;
    node.now.boot_ns += 1;
    node.act(crate::Host::arm_sweep);
    let due = asked + 1 + resent_after / 2;
    assert_eq!(node.core.next_deadline(), due);
    node.now.boot_ns = due - 1;
    node.core.handle_deadline(node.now);
    assert_eq!(node.told(), Vec::<String>::new());
    book(PARTITION, |book| book.is_work_left = true);
    node.now.boot_ns = due;
    node.core.handle_deadline(node.now);
    assert_eq!((node.told(), node.core.next_deadline()), (vec!["sweep".into()], due + resent_after / 2));
    book(PARTITION, |book| book.is_work_left = false);
    node.now.boot_ns = due + resent_after / 2;
    node.core.handle_deadline(node.now);
    assert_eq!(node.told(), ["sweep"]);
    assert!(node.core.next_deadline() > node.now.boot_ns);
    node.now.boot_ns += resent_after;
    node.core.handle_deadline(node.now);
    assert_eq!(node.told(), Vec::<String>::new());
}

#[test]
fn overdue_values_go_at_a_bounded_rate_in_every_partition() {
    // 81 per second are 3.24 per heartbeat of 40 ms, which is rounded up to 4.
    let mut node = Node::started(Timing { expiry_deletes_per_second: 81, ..quiet() });
    let partitions = [1, 2, 3].map(PartitionId);
    for id in partitions {
        node.receive(METADATA, |out| assign(id, MatchRange::ALL).encode(out));
        book(id, |book| book.overdue = 100);
    }
    let left = || partitions.map(|id| book(id, |book| book.overdue));
    let mut turns = [0; 3];
    for heartbeat in 1..=6 {
        let before = left();
        node.core.handle_deadline(node.now);
        assert_eq!(left().iter().sum::<usize>(), 300 - 4 * heartbeat);
        let served = (0..3).find(|index| left()[*index] != before[*index]).unwrap();
        turns[served] += 1;
        node.now.boot_ns += 40_000_000;
    }
    assert_eq!(turns, [2; 3]);
    // Deletes that the first partition does not need are left for the next ones.
    for id in partitions {
        book(id, |book| book.overdue = 1);
    }
    node.core.handle_deadline(node.now);
    assert_eq!(left(), [0; 3]);
}

#[test]
fn lease_ends_on_time_and_never_shrinks() {
    let mut node = Node::member();
    let sent_ns = node.now.boot_ns;
    let reply = |lease_ns| HeartbeatReply { term: TERM, incarnation: INCARNATION, sent_ns, lease_ns };
    let has_lease = |node: &mut Node| {
        node.receive(METADATA, |out| {
            Assign { epoch: EPOCH, ..assign(PARTITION, MatchRange::ALL) }.encode(out);
        });
        book(PARTITION, |book| book.has_lease)
    };
    assert!(!has_lease(&mut node));
    node.receive(METADATA, |out| reply(1_000).encode(out));
    node.receive(METADATA, |out| reply(10).encode(out));
    for (after_ns, expected) in [(0, true), (999, true), (1_000, false), (1_001, false)] {
        node.now.boot_ns = sent_ns + after_ns;
        assert_eq!(has_lease(&mut node), expected, "{after_ns}");
    }
}
