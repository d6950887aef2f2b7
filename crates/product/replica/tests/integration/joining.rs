//! Tests of a replica that joins: what it shows and logs, and what a restart leaves of what it held
//! before. The test plays its primary.

use crate::harness;

use core::time::Duration;
use harness::pair::{
    OTHER, OTHER_ADDRESS, PARTITION, Sent, acks, decide_as, increment, op, other, watermark,
};
use harness::{NODE, Node};
use nicekv_proto::control::{Member, MemberRole, MemberState, ReportKind};
use nicekv_proto::large::Reference;
use nicekv_proto::recovery::{CopyFrame, CopySection, Entry, put_keyed_entry};
use nicekv_proto::{Datagram, Epoch, Form, NodeId, Term};
use nicekv_replica::{StreamPeer, Timing};

/// Assigns an epoch in which the node joins.
fn join(node: &mut Node, epoch: u32) -> Sent {
    let me =
        Member { node: NodeId(1), state: MemberState::Joining, role: MemberRole::Original, address: NODE };
    node.assign_members(Term(3), Epoch(epoch), OTHER, vec![me, other()])
}

/// The primary's first answer: both hold the same up to `since`, and nothing was decided later.
fn begin(node: &mut Node, epoch: u32, since: u64, origin: u32) {
    let mut payload = Vec::new();
    for number in [since, since, since] {
        payload.extend(number.to_be_bytes());
    }
    payload.extend(OTHER.0.to_be_bytes());
    payload.extend(1u64.to_be_bytes());
    payload.extend(origin.to_be_bytes());
    let (partition, epoch, section) = (PARTITION, Epoch(epoch), CopySection::Begin);
    let chunk = CopyFrame::Chunk { partition, epoch, section, more: false, payload: &payload };
    node.receive_frame(StreamPeer::Dialed(OTHER_ADDRESS), &chunk);
}

/// A member with a contended decision that it has not shown joins again. The primary confirms the
/// decision.
#[test]
fn agreed_decision_is_shown_and_survives_an_earlier_checkpoint() {
    let mut node = Node::started();
    node.assign_under(Term(3), Epoch(1), OTHER, &[other()]);
    assert_eq!(acks(&increment(&mut node, 1)).len(), 1);
    decide_as(&mut node, 1, 1, op(1), true);
    assert_eq!(node.engine.len(), 0, "the decision is contended and not released");
    join(&mut node, 6);
    watermark(&mut node, 6, 1);
    assert_eq!(node.frames().len(), 1, "the joiner sends its first request");
    let before = node.log.len();
    node.core.checkpoint();
    node.run_storage();
    begin(&mut node, 6, 1, 1);
    assert_eq!(node.engine.len(), 1);
    let restarted = Node::restarted_with(&node.log[before..]);
    assert_eq!(restarted.engine, node.engine);
}

/// Decisions that were made since take effect after the agreed ones.
#[test]
fn newer_effects_are_kept_back_until_since_is_known() {
    let mut node = Node::started();
    node.assign_under(Term(3), Epoch(5), OTHER, &[other()]);
    increment(&mut node, 1);
    decide_as(&mut node, 5, 1, op(1), true);
    join(&mut node, 6);
    watermark(&mut node, 6, 1);
    increment(&mut node, 2);
    decide_as(&mut node, 6, 2, op(2), false);
    assert_eq!(node.engine.len(), 0, "the effect is kept back");
    let before = node.log.len();
    begin(&mut node, 6, 1, 5);
    let entry = nicekv_proto::recovery::Entry::decode(&node.engine[b"n".as_slice()]).unwrap().index;
    assert_eq!(entry, 2);
    assert!(node.log.len() > before);
    let restarted = Node::restarted_with(&node.log);
    assert_eq!(restarted.engine, node.engine);
}

/// Until a joiner knows where the epoch begins, it accepts no decision, and reports a gap.
#[test]
fn joiner_takes_no_decision_before_the_base() {
    let mut node = Node::started();
    join(&mut node, 6);
    increment(&mut node, 1);
    decide_as(&mut node, 6, 1, op(1), false);
    let status = &node.core.status().partitions[0];
    assert_eq!(status.logged, 0);
    watermark(&mut node, 6, 0);
    decide_as(&mut node, 6, 1, op(1), false);
    assert_eq!(node.core.status().partitions[0].logged, 1);
}

/// A joiner that copies at a limited rate waits before it requests more.
#[test]
fn copy_keeps_to_its_rate() {
    let timing =
        Timing { copy_bytes_per_second: 10_000, scrub_interval: Duration::ZERO, ..Timing::default() };
    let mut node = Node::started_with(timing);
    join(&mut node, 6);
    watermark(&mut node, 6, 0);
    begin(&mut node, 6, 0, 5);
    let chunk = |section, payload: &[u8], node: &mut Node| {
        let (partition, epoch, more) = (PARTITION, Epoch(6), section == CopySection::Entries);
        let chunk = CopyFrame::Chunk { partition, epoch, section, more, payload };
        node.receive_frame(StreamPeer::Dialed(OTHER_ADDRESS), &chunk)
    };
    let no_clients = [0, 0, 0, 0, 0, 0, 0, 0, 1];
    assert_eq!(chunk(CopySection::Clients, &no_clients, &mut node).len(), 1, "the joiner requests entries");
    // The source's last decision, how far the copy has come by decisions and by keys, and the
    // entries.
    let mut payload = [[0; 8], [0; 8]].concat();
    payload.extend([0, 2, b'k', b'9']);
    for number in 0..10 {
        let value = [number; 180];
        let entry = Entry { form: Form::Plain, index: 1, version: op(1), expiry_ms: 0, value: Some(&value) };
        let mut stored = Vec::new();
        entry.append(&mut stored);
        put_keyed_entry(&mut payload, &[b'k', b'0' + number], &stored);
    }
    assert!((2_000..3_000).contains(&payload.len()), "{}", payload.len());
    assert_eq!(chunk(CopySection::Entries, &payload, &mut node), Vec::<Vec<u8>>::new());
    assert_eq!(node.engine.len(), 10);
    node.pass(Duration::from_millis(190));
    assert_eq!(node.frames().len(), 0, "the rate does not allow a request yet");
    node.pass(Duration::from_millis(110));
    let asked = node.frames();
    assert!(asked.len() == 1 && asked[0].ends_with(b"k9"), "{asked:?}");
}

/// The large values that a joiner's entries name must be on disk before it reports a complete copy
/// (L3).
#[test]
fn joiner_is_incomplete_while_it_lacks_a_large_value() {
    let mut node = Node::started();
    join(&mut node, 6);
    watermark(&mut node, 6, 0);
    begin(&mut node, 6, 0, 5);
    let (partition, epoch) = (PARTITION, Epoch(6));
    let from = StreamPeer::Dialed(OTHER_ADDRESS);
    let payload = [0, 0, 0, 0, 0, 0, 0, 0, 1];
    let clients =
        CopyFrame::Chunk { partition, epoch, section: CopySection::Clients, more: false, payload: &payload };
    node.receive_frame(from, &clients);
    let value = Reference { name: op(1), length: 5_000, checksum: 7 };
    let (reference, mut stored) = (value.bytes(), Vec::new());
    Entry { form: Form::Large, index: 1, version: op(1), expiry_ms: 0, value: Some(&reference) }
        .append(&mut stored);
    let mut payload = [[0; 8], [0; 8]].concat();
    payload.extend([0, 0]);
    put_keyed_entry(&mut payload, b"k", &stored);
    let entries =
        CopyFrame::Chunk { partition, epoch, section: CopySection::Entries, more: false, payload: &payload };
    node.receive_frame(from, &entries);
    assert_eq!(node.engine.len(), 1);
    for _ in 0..5 {
        assert!(!is_complete(&mut node), "the value is still missing");
    }
    let bytes = [1; 5_000];
    node.receive_frame(from, &CopyFrame::ValuePart { name: value.name, offset: 0, bytes: &bytes });
    assert!(is_complete(&mut node));
}

/// Whether the node reports within half a second that its copy is complete.
fn is_complete(node: &mut Node) -> bool {
    node.pass(Duration::from_millis(500));
    let sent = node.sent();
    sent.iter().any(|(_, bytes)| {
        matches!(Datagram::decode(bytes), Ok((_, Datagram::Report(report))) if report.kind == ReportKind::CopyDone)
    })
}
