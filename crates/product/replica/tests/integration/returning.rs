//! Tests of what a returning member is sent: the changes made while it was away, without a scan of
//! the partition. The test plays the member.

use crate::harness;

use harness::pair::{OTHER, OTHER_ADDRESS, PARTITION, ack, increment, position, primary, progress, recover};
use harness::{CLIENT, Node, update};
use nicekv_proto::bytes::Reader;
use nicekv_proto::control::{Member, MemberRole, MemberState};
use nicekv_proto::recovery::{CopyFrame, CopySection, Entry, read_keyed_entry};
use nicekv_proto::{ClientId, Epoch, Expiry, Form, OpId, Operation, Term};
use nicekv_replica::StreamPeer;
use std::collections::BTreeMap;

/// The epoch in which the decisions were made that the member held when it left.
const BEFORE: u32 = 5;

/// A restarted node that leads alone in epoch 6. Its engine holds the effects of decisions up to
/// `through`, and its log has no records of them.
fn alone_after(engine: BTreeMap<Vec<u8>, Vec<u8>>, through: u64) -> Node {
    let mut node = Node::restarted_on(engine, &[position(through, BEFORE)]);
    node.replicas = 2;
    node.grant_lease(Term(3));
    node.assign(Term(3), Epoch(6));
    node
}

fn op(sequence: u64) -> OpId {
    OpId { client: ClientId::new(2, 7), sequence }
}

fn put(node: &mut Node, sequence: u64, key: &[u8], operation: Operation<'_>) {
    let update = update(op(sequence), key, operation);
    node.receive(CLIENT, |out| update.encode(out));
}

fn set<'a>(value: &'a [u8]) -> Operation<'a> {
    Operation::Set { value, expiry: Expiry::Never }
}

/// The other member joins in this epoch, and has synced that the epoch begins after decision
/// `base`.
fn come_back(node: &mut Node, epoch: u32, base: u64) {
    let (state, role) = (MemberState::Joining, MemberRole::Original);
    node.assign_with(Term(3), Epoch(epoch), &[Member { node: OTHER, state, role, address: OTHER_ADDRESS }]);
    recover(node, epoch, 0, Vec::new());
    progress(node, epoch, base);
}

/// Requests a part of the copy from the node. Returns whether there is more, and the part.
fn ask(node: &mut Node, epoch: u32, section: CopySection, since: u64, after: &[u8]) -> (bool, Vec<u8>) {
    let (partition, epoch) = (PARTITION, Epoch(epoch));
    let request = CopyFrame::Request { joiner: OTHER, partition, epoch, section, since, after };
    let frames = node.receive_frame(StreamPeer::Accepted(1), &request);
    let [frame] = &frames[..] else { panic!("{} frames", frames.len()) };
    match CopyFrame::decode(frame).unwrap() {
        CopyFrame::Chunk { more, payload, .. } => (more, payload.to_vec()),
        other => panic!("{other:?}"),
    }
}

/// Up to which decision member and node agree, if the member has logged up to `logged`.
fn begin(node: &mut Node, epoch: u32, logged: u64) -> u64 {
    let mut former = logged.to_be_bytes().to_vec();
    former.extend(1u64.to_be_bytes());
    former.extend(BEFORE.to_be_bytes());
    let (_, begun) = ask(node, epoch, CopySection::Begin, 0, &former);
    u64::from_be_bytes(begun[..8].try_into().unwrap())
}

/// The keys that the node sends, each with the decision that wrote it, in order.
fn copy(node: &mut Node, epoch: u32, mut since: u64) -> Vec<(Vec<u8>, u64)> {
    let (mut copied, mut after, mut more) = (Vec::new(), Vec::new(), true);
    while more {
        let part;
        (more, part) = ask(node, epoch, CopySection::Entries, since, &after);
        let number = |at: usize| u64::from_be_bytes(part[at..at + 8].try_into().unwrap());
        since = number(8).max(since);
        let length = usize::from(u16::from_be_bytes([part[16], part[17]]));
        after = part[18..18 + length].to_vec();
        let mut entries = Reader::new(&part[18 + length..]);
        while !entries.is_empty() {
            let (key, entry) = read_keyed_entry(&mut entries).unwrap();
            copied.push((key.to_vec(), Entry::decode(entry).unwrap().index));
        }
    }
    copied
}

fn key(number: u64) -> Vec<u8> {
    format!("key-{number:08}").into_bytes()
}

#[test]
fn joiner_gets_the_thousand_written_of_a_million_keys() {
    const KEYS: u64 = 1_000_000;
    const PUTS: u64 = 1_000;
    let stored = |index| {
        let mut bytes = Vec::new();
        Entry { form: Form::Plain, index, version: op(index), expiry_ms: 0, value: Some(b"value") }
            .append(&mut bytes);
        bytes
    };
    let mut node = alone_after((1..=KEYS).map(|number| (key(number), stored(number))).collect(), KEYS);
    // Half of the puts are to existing keys.
    let written = |number: u64| key(if number.is_multiple_of(2) { number * 997 } else { KEYS + number });
    for number in 1..=PUTS {
        put(&mut node, number, &written(number), set(b"new"));
    }
    come_back(&mut node, 7, KEYS + PUTS);
    assert_eq!(begin(&mut node, 7, KEYS), KEYS);
    let begun = std::time::Instant::now();
    let mut copied = copy(&mut node, 7, KEYS);
    eprintln!("{} entries in {:?}", copied.len(), begun.elapsed());
    assert_eq!(node.scans, 0, "the partition is not scanned");
    copied.sort();
    let mut expected: Vec<_> = (1..=PUTS).map(|number| (written(number), KEYS + number)).collect();
    expected.sort();
    assert!(copied == expected, "{} entries of {PUTS}", copied.len());
}

#[test]
fn joiner_gets_recent_entries_and_deletions() {
    let mut node = alone_after(BTreeMap::new(), 10);
    let operations = [
        (b"a", set(b"1")),
        (b"b", set(b"1")),
        (b"c", set(b"1")),
        (b"a", set(b"2")),
        (b"b", Operation::Delete),
        (b"a", set(b"3")),
    ];
    for (number, (key, operation)) in (1..).zip(operations) {
        put(&mut node, number, key, operation);
    }
    come_back(&mut node, 7, 16);
    assert_eq!(copy(&mut node, 7, 10), [(b"c".into(), 13), (b"b".into(), 15), (b"a".into(), 16)]);
    assert_eq!(copy(&mut node, 7, 14), [(b"b".into(), 15), (b"a".into(), 16)]);
    assert_eq!((copy(&mut node, 7, 16), node.scans), (Vec::new(), 0));
    // Decisions from before the log begins are in the engine only, so the copy needs a scan.
    assert_eq!(copy(&mut node, 7, 9).len(), 3);
    assert_eq!(node.scans, 1);
}

/// After a checkpoint, a decision that was shown and not released is in the log again, but its
/// prepare, which contains the written value, is not.
#[test]
fn copy_after_a_restart_includes_trimmed_decisions() {
    let mut node = primary();
    for client in [1, 2] {
        increment(&mut node, client);
        ack(&mut node, 5, client, false);
        if client == 1 {
            progress(&mut node, 5, 1);
        }
    }
    let status = &node.core.status().partitions[0];
    assert_eq!((status.logged, status.released), (2, 1));
    let before = node.log.len();
    node.core.checkpoint();
    node.run_storage();
    let mut node = Node::restarted_on(node.engine.clone(), &node.log[before..]);
    node.grant_lease(Term(3));
    come_back(&mut node, 6, 2);
    assert_eq!(copy(&mut node, 6, 1), [(b"n".to_vec(), 2)]);
}
