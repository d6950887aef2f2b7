//! Tests of a replica of a quorum keyspace (R14) whose place goes to another node, or that takes
//! another node's place.

use crate::harness;

use harness::{CLIENT, Node};
use nicekv_proto::control::{Member, MemberRole, MemberState, ReportKind};
use nicekv_proto::placement::key_digest;
use nicekv_proto::quorum::{
    Entrust, Entrusted, Quorum, QuorumHeld, QuorumQuery, QuorumStore, Timestamp, TombstoneStage, Tombstones,
};
use nicekv_proto::recovery::{CopyFrame, CopySection, Entry, key_of_cursor, put_keyed_entry};
use nicekv_proto::{
    ClientId, Datagram, Duration, Epoch, Form, KeyspaceId, NodeId, OpId, PartitionId, Replication, Term,
};
use nicekv_replica::{StorageCompletion, StreamPeer};
use std::net::{Ipv4Addr, SocketAddrV4};

const PARTITION: PartitionId = PartitionId(0);
/// The predecessor or successor of the node under test.
const OTHER: NodeId = NodeId(4);

fn address(node: NodeId) -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, node.0 as u8), if node == NodeId(1) { 7400 } else { 7500 })
}

fn member(node: u16, state: MemberState, role: MemberRole) -> Member {
    Member { node: NodeId(node), state, role, address: address(NodeId(node)) }
}

fn original(node: u16) -> Member {
    member(node, MemberState::Consistent, MemberRole::Original)
}

fn leaving(node: u16) -> Member {
    member(node, MemberState::Consistent, MemberRole::Leaving)
}

fn newcomer(node: u16) -> Member {
    member(node, MemberState::Joining, MemberRole::Newcomer)
}

fn quorum() -> Quorum {
    Quorum::new(3, 2).unwrap()
}

fn timestamp(counter: u64) -> Timestamp {
    Timestamp { counter, op: OpId { client: ClientId::new(2, 2), sequence: counter } }
}

fn started() -> Node {
    let mut node = Node::started();
    (node.replicas, node.replication) = (3, Replication::Quorum(quorum()));
    node.grant_lease(Term(3));
    node
}

type Sent = Vec<(SocketAddrV4, Vec<u8>)>;

fn enter(node: &mut Node, epoch: u32, activated: bool, members: &[Member]) -> Sent {
    node.assign_as(activated, Term(3), Epoch(epoch), members[1].node, members.to_vec())
}

/// The reply to a client: epoch, and counter of the version.
fn held(sent: &Sent) -> Option<(u32, u64)> {
    let answers = sent.iter().filter(|(to, _)| *to == CLIENT);
    let mut held = answers.filter_map(|(_, bytes)| match Datagram::decode(bytes).unwrap().1 {
        Datagram::QuorumHeld(QuorumHeld { epoch, timestamp, .. }) => Some((epoch.0, timestamp.counter)),
        _ => None,
    });
    held.next()
}

fn store(node: &mut Node, epoch: u32, counter: u64) -> Sent {
    let (op, key) = (node.op(), b"k".as_slice());
    let store = QuorumStore {
        is_large: false,
        keyspace: KeyspaceId::DEFAULT,
        op,
        digest: key_digest(key),
        reply_to: None,
        timestamp: timestamp(counter),
        epoch: Epoch(epoch),
        quorum: quorum(),
        key,
        value: Some(b"v"),
    };
    node.receive(CLIENT, |out| store.encode(out))
}

fn query(node: &mut Node) -> Option<(u32, u64)> {
    let (op, key) = (node.op(), b"k".as_slice());
    let (keyspace, digest, quorum) = (KeyspaceId::DEFAULT, key_digest(key), quorum());
    let query =
        QuorumQuery { keyspace, op, digest, reply_to: None, quorum, wants_value: true, key, announced: None };
    held(&node.receive(CLIENT, |out| query.encode(out)))
}

/// The versions that the node entrusts to its successor: epoch, serial and counter of each.
fn entrusts(sent: &Sent) -> Vec<(u32, u64, u64)> {
    let to_other = sent.iter().filter(|(to, _)| *to == address(OTHER));
    let entrusted = to_other.filter_map(|(_, bytes)| match Datagram::decode(bytes).unwrap().1 {
        Datagram::Entrust(it) => Some((it.epoch.0, it.serial, it.timestamp.counter)),
        _ => None,
    });
    entrusted.collect()
}

fn acknowledge(node: &mut Node, epoch: u32, serial: u64) -> Sent {
    let ack = Entrusted { partition: PARTITION, epoch: Epoch(epoch), sender: OTHER, serial };
    node.receive(address(OTHER), |out| ack.encode(out))
}

/// A member that holds version 1, and has been leaving since epoch 6.
fn who_leaves() -> Node {
    let mut node = started();
    enter(&mut node, 5, true, &[original(1), original(2), original(3)]);
    assert_eq!(held(&store(&mut node, 5, 1)), Some((5, 1)));
    enter(&mut node, 6, true, &[leaving(1), original(2), original(3), newcomer(4)]);
    node
}

#[test]
fn departing_member_acknowledges_when_its_successor_holds() {
    let mut node = who_leaves();
    assert_eq!(query(&mut node), Some((6, 1)), "versions acknowledged before are on the pages");
    let sent = store(&mut node, 6, 2);
    assert_eq!((held(&sent), entrusts(&sent)), (None, vec![(6, 1, 2)]));
    assert_eq!(
        query(&mut node),
        Some((6, 1)),
        "a query sees the previous version, as if the store had not arrived"
    );
    assert_eq!(held(&store(&mut node, 6, 2)), None, "a repeated store is not acknowledged either");
    assert_eq!(held(&acknowledge(&mut node, 6, 1)), Some((6, 2)));
    assert_eq!(query(&mut node), Some((6, 2)));
    assert_eq!(held(&store(&mut node, 6, 1)), Some((6, 2)), "an older version is covered by the newer one");
}

#[test]
fn held_version_covers_older_ones() {
    let mut node = who_leaves();
    store(&mut node, 6, 2);
    assert_eq!(entrusts(&store(&mut node, 6, 3)), [(6, 2, 3)]);
    let sent = acknowledge(&mut node, 6, 2);
    assert_eq!(sent.iter().filter(|(to, _)| *to == CLIENT).count(), 2, "both clients are answered");
    assert_eq!(held(&acknowledge(&mut node, 6, 1)), None);
    assert_eq!(query(&mut node), Some((6, 3)));
}

#[test]
fn unacknowledged_entries_are_resent_and_a_silent_successor_accused() {
    let mut node = who_leaves();
    store(&mut node, 6, 2);
    let (mut again, mut accused) = (0, false);
    for _ in 0..200 {
        node.pass(Duration::from_millis(10));
        let sent = node.sent();
        again += entrusts(&sent).len();
        accused |= sent.iter().any(|(_, bytes)| match Datagram::decode(bytes).unwrap().1 {
            Datagram::Report(report) => report.kind == ReportKind::Accuse(OTHER),
            _ => false,
        });
    }
    assert!(again > 3 && accused, "{again}");
}

#[test]
fn fence_keeps_entrusted_versions_and_voids_older_acks() {
    let mut node = who_leaves();
    store(&mut node, 6, 2);
    enter(&mut node, 7, true, &[leaving(1), original(2), original(3), newcomer(4)]);
    assert_eq!(held(&acknowledge(&mut node, 6, 1)), None, "an ack of the previous epoch does not count");
    node.pass(Duration::from_millis(100));
    assert_eq!(entrusts(&node.sent()), [(7, 1, 2)]);
    assert_eq!(held(&acknowledge(&mut node, 7, 1)), Some((7, 2)));
}

#[test]
fn broken_off_succession_acknowledges_synced_versions() {
    let mut node = who_leaves();
    store(&mut node, 6, 2);
    let sent = enter(&mut node, 7, true, &[original(1), original(2), original(3)]);
    assert_eq!(held(&sent), Some((7, 2)), "acknowledged in the epoch without a succession");
    assert_eq!(query(&mut node), Some((7, 2)));
}

#[test]
fn node_outside_answers_nothing() {
    let mut node = who_leaves();
    store(&mut node, 6, 2);
    let sent = enter(&mut node, 7, false, &[original(2), original(3), original(4)]);
    assert_eq!(held(&sent), None);
    assert_eq!((held(&acknowledge(&mut node, 7, 1)), query(&mut node)), (None, None));
}

#[test]
fn checkpoint_logs_versions_that_wait_for_a_successor() {
    let mut node = who_leaves();
    store(&mut node, 6, 2);
    let before = node.log.len();
    node.core.checkpoint();
    node.run_storage();
    let restarted = Node::restarted_on(node.engine.clone(), &node.log[before..]);
    let entry = Entry::decode(&restarted.engine[b"k".as_slice()]).unwrap();
    assert_eq!(entry.index, 2, "otherwise trimming the log would lose it");
}

/// The successor's request for a page: the member that it asks for, and the key after which to
/// continue.
fn asks(frames: &[Vec<u8>]) -> Option<(NodeId, Option<Vec<u8>>)> {
    frames.iter().find_map(|frame| match CopyFrame::decode(frame).unwrap() {
        CopyFrame::Request { joiner, after, .. } => Some((joiner, key_of_cursor(after).map(<[u8]>::to_vec))),
        _ => None,
    })
}

fn page(node: &mut Node, epoch: u32, floor: u64, versions: &[(&[u8], u64)], more: bool) -> Vec<Vec<u8>> {
    let mut payload = floor.to_be_bytes().to_vec();
    for (key, counter) in versions {
        let Timestamp { counter, op } = timestamp(*counter);
        let mut entry = Vec::new();
        Entry { form: Form::Plain, index: counter, version: op, expiry_ms: 0, value: Some(b"v") }
            .append(&mut entry);
        put_keyed_entry(&mut payload, key, &entry);
    }
    let (epoch, section) = (Epoch(epoch), CopySection::Entries);
    let chunk = CopyFrame::Chunk { partition: PARTITION, epoch, section, more, payload: &payload };
    node.receive_frame(StreamPeer::Dialed(address(OTHER)), &chunk)
}

/// Whether the node reports a complete copy within half a second.
fn is_complete(node: &mut Node) -> bool {
    node.pass(Duration::from_millis(500));
    let sent = node.sent();
    node.grant_lease(Term(3));
    sent.iter().any(|(_, bytes)| match Datagram::decode(bytes).unwrap().1 {
        Datagram::Report(report) => report.kind == ReportKind::CopyDone,
        _ => false,
    })
}

fn coming() -> [Member; 4] {
    [newcomer(1), original(2), original(3), leaving(4)]
}

#[test]
fn successor_merges_one_member_and_is_silent_until_activated() {
    let mut node = started();
    enter(&mut node, 6, true, &coming());
    assert_eq!(asks(&node.frames()), Some((NodeId(1), None)));
    assert_eq!(held(&store(&mut node, 6, 7)), None, "the successor stores it, and is silent");
    assert_eq!(asks(&page(&mut node, 6, 9, &[(b"a", 1)], true)), Some((NodeId(1), Some(b"a".to_vec()))));
    assert!(!is_complete(&mut node));
    page(&mut node, 6, 9, &[(b"k", 3)], false);
    assert!(is_complete(&mut node));
    assert_eq!(query(&mut node), None);
    let counts = [original(1), original(2), original(3)];
    enter(&mut node, 7, false, &counts);
    assert_eq!(
        (query(&mut node), held(&store(&mut node, 7, 8))),
        (None, None),
        "silent, because the predecessor may still answer"
    );
    enter(&mut node, 7, true, &counts);
    assert_eq!(query(&mut node), Some((7, 8)));
    // The same holds if the successor restarts before the activation.
    let mut again = Node::restarted_on(node.engine.clone(), &node.log);
    (again.replicas, again.replication) = (3, Replication::Quorum(quorum()));
    again.grant_lease(Term(3));
    enter(&mut again, 8, false, &counts);
    assert_eq!(query(&mut again), None);
    enter(&mut again, 8, true, &counts);
    assert_eq!(query(&mut again), Some((8, 8)));
}

#[test]
fn successor_holds_entrusted_versions() {
    let mut node = started();
    enter(&mut node, 6, true, &coming());
    let op = timestamp(5).op;
    let entrust = |sender, serial| Entrust {
        partition: PARTITION,
        epoch: Epoch(6),
        sender: NodeId(sender),
        serial,
        timestamp: Timestamp { counter: 5, op },
        is_large: false,
        key: b"k",
        value: Some(b"v"),
    };
    let told = |sent: &Sent| {
        let told = sent.iter().filter_map(|(to, bytes)| match Datagram::decode(bytes).unwrap().1 {
            Datagram::Entrusted(it) => Some((*to, it.serial)),
            _ => None,
        });
        told.collect::<Vec<_>>()
    };
    node.syncs_nothing = true;
    assert_eq!(
        told(&node.receive(address(OTHER), |out| entrust(4, 1).encode(out))),
        [],
        "not confirmed before it is durable"
    );
    node.syncs_nothing = false;
    let through = node.log.len() as u64;
    node.core.handle_storage(node.now, StorageCompletion::Synced { through });
    node.run_storage();
    assert_eq!(told(&node.sent()), [(address(OTHER), 1)]);
    assert_eq!(told(&node.receive(address(OTHER), |out| entrust(4, 2).encode(out))), [(address(OTHER), 2)]);
    // Only the departing member may entrust versions.
    assert_eq!(told(&node.receive(address(NodeId(2)), |out| entrust(2, 3).encode(out))), []);
}

#[test]
fn successor_begins_empty_each_time() {
    let mut node = started();
    enter(&mut node, 5, true, &[original(1), original(2), original(3)]);
    store(&mut node, 5, 1);
    enter(&mut node, 6, true, &[original(2), original(3), original(4)]);
    assert!(!node.engine.is_empty());
    enter(&mut node, 7, true, &coming());
    assert!(node.engine.is_empty());
    page(&mut node, 7, 0, &[(b"a", 1)], false);
    assert!(is_complete(&mut node));
    // A fence changes nothing. After an epoch in which the node is not a member, it begins empty
    // again.
    enter(&mut node, 8, true, &coming());
    assert!(is_complete(&mut node) && !node.engine.is_empty());
    enter(&mut node, 9, true, &[original(2), original(3), original(4)]);
    enter(&mut node, 10, true, &coming());
    assert!(!is_complete(&mut node) && node.engine.is_empty());
    // The log, too, says that the replica is empty.
    let restarted = Node::restarted_with(&node.log);
    assert!(restarted.engine.is_empty());
}

#[test]
fn replica_without_a_complete_merge_is_not_consistent() {
    let mut node = started();
    enter(&mut node, 6, true, &coming());
    let refused = node.core.status().counters.refused;
    enter(&mut node, 7, true, &[original(1), original(2), original(3)]);
    assert_eq!(node.core.status().counters.refused, refused + 1);
    assert_eq!(node.core.status().partitions[0].epoch, Epoch(6));
}

#[test]
fn successor_of_a_lost_member_merges_a_read_set() {
    let mut node = started();
    let members = [newcomer(1), original(2), original(4)];
    enter(&mut node, 6, true, &members);
    empty_page_of(&mut node, NodeId(2));
    assert!(!is_complete(&mut node));
    empty_page_of(&mut node, OTHER);
    assert!(is_complete(&mut node));
    assert_eq!(query(&mut node), None, "silent until an epoch assigns it as counting");
    enter(&mut node, 7, true, &[original(1), original(2), original(4)]);
    assert_eq!(query(&mut node), Some((7, 0)));
}

/// The node gets an empty page from this member.
fn empty_page_of(node: &mut Node, member: NodeId) {
    let payload = 0u64.to_be_bytes();
    let (epoch, section) = (Epoch(6), CopySection::Entries);
    let chunk = CopyFrame::Chunk { partition: PARTITION, epoch, section, more: false, payload: &payload };
    node.receive_frame(StreamPeer::Dialed(address(member)), &chunk);
}

#[test]
fn nothing_is_forgotten_during_a_succession() {
    let mut node = who_leaves();
    let tombstones = Tombstones {
        sender: NodeId(2),
        partition: PARTITION,
        epoch: Epoch(6),
        stage: TombstoneStage::Hold,
        round: 1,
        listed: &[],
    };
    let sent = node.receive(address(NodeId(2)), |out| tombstones.encode(out));
    assert_eq!(sent, [], "the tombstones are not acknowledged");
}
