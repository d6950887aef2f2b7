//! Tests of a replica that joins behind the tail of a chain: when an entry takes effect there, and
//! until when it keeps an entry for others. The test plays the head, which is also the tail until
//! then.

use crate::harness;

use core::time::Duration;
use harness::pair::{OTHER, OTHER_ADDRESS, PARTITION, Sent, op, other};
use harness::{CLIENT, NODE, Node, update};
use nicekv_proto::chain::{ChainEntry, Forwards};
use nicekv_proto::control::{Member, MemberRole, MemberState};
use nicekv_proto::recovery::{CopyFrame, CopySection, Fetch, RecoverRequest, Wanted};
use nicekv_proto::replication::{Decision, Effect, Progress, Watermark};
use nicekv_proto::{Datagram, Entries, Epoch, Form, NodeId, Operation, Replication, Status, Term};
use nicekv_replica::StreamPeer;

/// The epoch in which the node joins.
const JOINS: u32 = 6;

/// The head's report that it has synced entries up to this one.
fn watermark(synced: u64) -> Watermark {
    Watermark { partition: PARTITION, epoch: Epoch(JOINS), base: 0, synced, recovered: false, working: false }
}

fn forward(node: &mut Node, watermark: Watermark, entries: &[ChainEntry<'_>]) -> Sent {
    let (watermarks, entries) =
        (Entries::Values(core::slice::from_ref(&watermark)), Entries::Values(entries));
    node.receive(OTHER_ADDRESS, |out| Forwards { sender: OTHER, watermarks, entries }.encode(out))
}

/// A node that joins behind the head and knows where the epoch begins. It has synced the first
/// entry, an increment, which the head has not.
fn joined() -> Node {
    let mut node = Node::started();
    (node.replication, node.replicas) = (Replication::Chain, 2);
    node.grant_lease(Term(3));
    let me =
        Member { node: NodeId(1), state: MemberState::Joining, role: MemberRole::Original, address: NODE };
    node.assign_members(Term(3), Epoch(JOINS), OTHER, vec![other(), me]);
    forward(&mut node, watermark(0), &[]);
    let mut prepare = Vec::new();
    let increment = update(op(1), b"n", Operation::Increment(1));
    nicekv_proto::Update { reply_to: Some(CLIENT), ..increment }.encode(&mut prepare);
    let decision = Decision {
        form: Form::Plain,
        partition: PARTITION,
        epoch: Epoch(JOINS),
        index: 1,
        origin: Epoch(JOINS),
        op: op(1),
        contended: true,
        effect: Effect::Store,
        status: Status::Ok,
        version: op(1),
        expiry_ms: 0,
        integer: 1,
        value: b"1",
        value_is_result: false,
    };
    let sent = forward(&mut node, watermark(0), &[ChainEntry { decision, prepare: &prepare }]);
    let told = progress(&sent);
    assert!(
        told.iter().any(|told| (told.logged, told.synced) == (1, 1)),
        "the joiner reports at once, because the tail waits: {told:?}"
    );
    node
}

fn progress(sent: &Sent) -> Vec<Progress> {
    let decoded = sent.iter().filter_map(|(_, bytes)| match Datagram::decode(bytes).unwrap().1 {
        Datagram::Acks(acks) => Some(acks.progress.iter().collect::<Vec<_>>()),
        _ => None,
    });
    decoded.flatten().collect()
}

/// A part of the copy arrives; `payload` has no entries.
fn copy(node: &mut Node, section: CopySection, payload: &[u8]) {
    let (partition, epoch) = (PARTITION, Epoch(JOINS));
    let chunk = CopyFrame::Chunk { partition, epoch, section, more: false, payload };
    node.receive_frame(StreamPeer::Dialed(OTHER_ADDRESS), &chunk);
}

fn copy_all(node: &mut Node) {
    // What both hold; after which decision to copy; the primary's last decision; the source.
    let begun = [&[0; 16][..], &1u64.to_be_bytes(), &OTHER.0.to_be_bytes()].concat();
    copy(node, CopySection::Begin, &begun);
    copy(node, CopySection::Clients, &[0, 0, 0, 0, 0, 0, 0, 0, 1]);
    copy(node, CopySection::Entries, &[&1u64.to_be_bytes()[..], &[0; 10]].concat());
}

fn released(node: &Node) -> u64 {
    node.core.status().partitions[0].released
}

/// An entry that only the joiner has synced might still be decided differently, and would then be
/// wrong in the joiner's engine.
#[test]
fn entry_takes_effect_when_nodes_before_have_synced_it_too() {
    let mut node = joined();
    copy_all(&mut node);
    assert_eq!((released(&node), node.engine.len()), (0, 0));
    forward(&mut node, watermark(1), &[]);
    assert_eq!((released(&node), node.engine.len()), (1, 1));
}

/// The nodes behind the head have acknowledged the entry, so the head sends nothing by itself.
#[test]
fn joiner_asks_when_a_watermark_was_lost() {
    let mut node = joined();
    let asks = |node: &mut Node| {
        node.pass(Duration::from_millis(100));
        progress(&node.sent()).iter().any(|told| told.gap)
    };
    assert!(asks(&mut node) && asks(&mut node), "the joiner asks until it gets an answer");
    forward(&mut node, watermark(1), &[]);
    assert!(!asks(&mut node) && !asks(&mut node), "then it stops asking");
}

/// Seed 1910 of the simulator: the head died before it had synced an entry, and its joiner, by then
/// a full member, had dropped the entry.
#[test]
fn head_recovers_a_lost_entry_from_a_former_joiner() {
    let mut node = joined();
    copy_all(&mut node);
    node.assign_members(Term(3), Epoch(7), OTHER, vec![other(), Node::me()]);
    let (sender, partition, epoch) = (OTHER, PARTITION, Epoch(7));
    let asked = RecoverRequest { sender, partition, epoch, cursor: 0 };
    let sent = node.receive(OTHER_ADDRESS, |out| asked.encode(out));
    let logged = sent.iter().find_map(|(_, bytes)| match Datagram::decode(bytes).unwrap().1 {
        Datagram::RecoverReply(reply) => Some(reply.logged),
        _ => None,
    });
    assert_eq!(logged, Some(1));
    let fetch = Fetch { sender, partition, epoch, wanted: Wanted::DecisionsAfter(0) };
    let sent = node.receive(OTHER_ADDRESS, |out| fetch.encode(out));
    let ops = sent.iter().filter_map(|(_, bytes)| match Datagram::decode(bytes).unwrap().1 {
        Datagram::Forwards(forwards) => Some(forwards.entries.iter().map(|entry| entry.decision.op)),
        _ => None,
    });
    assert_eq!(ops.flatten().collect::<Vec<_>>(), [op(1)]);
}
