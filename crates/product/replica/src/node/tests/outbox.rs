//! Tests of what datagrams contain, and of their order.

use crate::node::membership::Membership;
use crate::node::outbox::Outbox;
use crate::node::tests::recorder::{CLIENT, EPOCH, Node, address, member};
use nicekv_proto::control::DiskSpace;
use nicekv_proto::limits::DATAGRAM_BYTES_MAX;
use nicekv_proto::replication::{
    ACKS_MAX, DECISIONS_FIXED_BYTES, Decision, Effect, PrepareAck, Progress, WATERMARK_BYTES, Watermark,
};
use nicekv_proto::{ClientId, Datagram, Form, OpId, PartitionId, Reply, Status};
use std::net::SocketAddrV4;

/// Lets a partition act on the outbox. Returns the destination and contents of each datagram.
fn sent(node: &mut Node, act: impl FnOnce(&mut Outbox) + 'static) -> Vec<String> {
    node.act(|host, _| act(&mut host.outbox));
    node.sent().iter().map(|(to, bytes)| words(*to, bytes)).collect()
}

fn words(to: SocketAddrV4, bytes: &[u8]) -> String {
    assert!(bytes.len() <= DATAGRAM_BYTES_MAX);
    let what = match Datagram::decode(bytes).unwrap().1 {
        Datagram::Reply(reply) => format!("reply {}", reply.op.sequence),
        Datagram::Acks(acks) => {
            let progress: Vec<_> = acks.progress.iter().map(|p| (p.partition.0, p.logged, p.gap)).collect();
            format!("{} prepares, progress {progress:?}", acks.prepares.len())
        }
        Datagram::Decisions(all) => {
            let watermarks: Vec<_> = all.watermarks.iter().map(|w| (w.partition.0, w.synced)).collect();
            let decisions: Vec<_> = all.decisions.iter().map(|d| d.index).collect();
            format!("decisions {decisions:?}, watermarks {watermarks:?}")
        }
        other => panic!("{other:?}"),
    };
    format!("{}: {what}", to.ip().octets()[3])
}

fn reply(outbox: &mut Outbox, sequence: u64) {
    let op = OpId { client: ClientId::new(2, 2), sequence };
    outbox.send(CLIENT, |out| Reply::bare(op, Status::Ok).encode(out));
}

fn watermark(partition: u32, synced: u64) -> Watermark {
    Watermark {
        partition: PartitionId(partition),
        epoch: EPOCH,
        base: 0,
        synced,
        recovered: false,
        working: false,
    }
}

fn decision(partition: u32, index: u64, value: &[u8]) -> Decision<'_> {
    let op = OpId { client: ClientId::new(2, 2), sequence: index };
    Decision {
        form: Form::Plain,
        partition: PartitionId(partition),
        epoch: EPOCH,
        origin: EPOCH,
        effect: Effect::Store,
        status: Status::Ok,
        contended: false,
        value_is_result: false,
        index,
        op,
        version: op,
        expiry_ms: 0,
        integer: 0,
        value,
    }
}

fn progress(partition: u32, logged: u64, gap: bool) -> Progress {
    Progress {
        partition: PartitionId(partition),
        epoch: EPOCH,
        logged,
        synced: logged,
        gap,
        space: DiskSpace::Enough,
    }
}

#[test]
fn lone_client_is_answered_before_members_and_many_after() {
    let told =
        ["2: decisions [], watermarks [(4, 1)]", "3: 0 prepares, progress [(4, 1, false)]"].map(String::from);
    let answers = |count| (1..=count).map(|sequence| format!("200: reply {sequence}")).collect::<Vec<_>>();
    for (replies, answers_first) in [(1, true), (2, true), (3, false), (4, false)] {
        let mut node = Node::member();
        let sent_first = sent(&mut node, move |outbox| {
            outbox.ack_progress(address(3), progress(4, 1, false));
            outbox.unicast_decision(address(2), None, watermark(4, 1));
            (1..=replies).for_each(|sequence| reply(outbox, sequence));
        });
        let [first, second] =
            if answers_first { [answers(replies), told.to_vec()] } else { [told.to_vec(), answers(replies)] };
        assert_eq!(sent_first, [first, second].concat());
        assert_eq!(sent(&mut node, |outbox| reply(outbox, 9)), ["200: reply 9"]);
    }
}

#[test]
fn acks_to_one_primary_share_a_datagram_while_they_fit() {
    let mut node = Node::member();
    let ack = |sequence| PrepareAck {
        partition: PartitionId(4),
        epoch: EPOCH,
        op: OpId { client: ClientId::new(2, 2), sequence },
        contended: false,
        refused: false,
        receiving: false,
    };
    let acked = sent(&mut node, move |outbox| {
        (0..ACKS_MAX as u64 - 2).for_each(|sequence| outbox.ack_prepare(address(2), ack(sequence)));
        outbox.ack_progress(address(2), progress(4, 1, true));
        outbox.ack_progress(address(3), progress(4, 2, false));
        // A later report of a partition replaces its earlier one, but keeps that one's gap. Reports
        // of other partitions stay.
        outbox.ack_progress(address(2), progress(4, 3, false));
        outbox.ack_progress(address(2), progress(5, 4, false));
        outbox.ack_prepare(address(2), ack(1_000));
    });
    let full = format!("2: {} prepares, progress [(4, 3, true), (5, 4, false)]", ACKS_MAX - 2);
    assert_eq!(acked, [&full, "3: 0 prepares, progress [(4, 2, false)]", "2: 1 prepares, progress []"]);
    let acked = sent(&mut node, |outbox| {
        outbox.ack_progress(address(2), progress(4, 5, false));
        outbox.ack_progress(address(2), progress(4, 6, true));
    });
    assert_eq!(acked, ["2: 0 prepares, progress [(4, 6, true)]"]);
}

#[test]
fn decisions_for_the_same_members_share_a_datagram_in_order() {
    let (one, other) = (address(11), address(12));
    let of = |multicast, ids: &[u16]| Membership {
        multicast,
        members: ids.iter().map(|id| member(*id)).collect(),
        ..Membership::outside(PartitionId(4))
    };
    let mut node = Node::member();
    let decided = sent(&mut node, move |outbox| {
        outbox.multicast_decision(&of(one, &[1, 2]), Some(&decision(4, 1, b"a")), watermark(4, 1));
        outbox.multicast_decision(&of(other, &[1, 2]), Some(&decision(5, 7, b"b")), watermark(5, 2));
        outbox.multicast_decision(&of(other, &[1, 3]), None, watermark(6, 3));
        outbox.multicast_decision(&of(one, &[1, 2]), None, watermark(4, 4));
    });
    assert_eq!(
        decided,
        ["11: decisions [1, 7], watermarks [(4, 4), (5, 2)]", "12: decisions [], watermarks [(6, 3)]"]
    );
    // The second decision does not fit behind the first. The third would, but must not overtake the
    // second.
    let decided = sent(&mut node, move |outbox| {
        let large = vec![b'v'; 900];
        for (index, value) in [(1, &large[..]), (2, &large), (3, b"v")] {
            outbox.unicast_decision(one, Some(&decision(4, index, value)), watermark(4, index));
        }
    });
    assert_eq!(
        decided,
        ["11: decisions [1], watermarks [(4, 1)]", "11: decisions [2, 3], watermarks [(4, 3)]"]
    );
}

#[test]
fn datagram_is_filled_to_the_last_byte() {
    let fixed = DECISIONS_FIXED_BYTES + WATERMARK_BYTES + 2 * decision(4, 1, b"").bytes();
    let room = DATAGRAM_BYTES_MAX - fixed;
    // The watermark of another partition takes additional room.
    for (second_bytes, second_partition, datagrams) in [
        (room - room / 2, 4, 1),
        (room - room / 2 + 1, 4, 2),
        (room - room / 2, 5, 2),
        (room - room / 2 - WATERMARK_BYTES, 5, 1),
    ] {
        let decided = sent(&mut Node::member(), move |outbox| {
            let value = vec![b'v'; room];
            outbox.unicast_decision(address(2), Some(&decision(4, 1, &value[..room / 2])), watermark(4, 1));
            let second = decision(second_partition, 2, &value[..second_bytes]);
            outbox.unicast_decision(address(2), Some(&second), watermark(second_partition, 2));
        });
        assert_eq!(decided.len(), datagrams, "{second_bytes} bytes of partition {second_partition}");
    }
}
