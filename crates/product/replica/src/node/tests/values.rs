//! Tests of missing large values: which members are asked for them.

use crate::node::tests::recorder::{EPOCH, METADATA, Node, PARTITION, address, assign, member, quiet};
use crate::{LargePut, Membership, StorageCompletion, StreamPeer, ValueEnd};
use nicekv_proto::control::{Assign, Member, MemberState};
use nicekv_proto::large::Reference;
use nicekv_proto::recovery::{CopyFrame, Entry};
use nicekv_proto::{ClientId, Datagram, Form, MatchRange, NodeId, OpId};

const VALUE: Reference =
    Reference { name: OpId { client: ClientId(1), sequence: 2 }, length: 5_000, checksum: 7 };
const BYTES: [u8; VALUE.length as usize] = [3; VALUE.length as usize];

/// Node 1 of four members, of which `joiners` are joining. One of its entries names a value that is
/// not on its disk.
fn lacking(joiners: &[u16]) -> Node {
    let mut node = Node::started(quiet());
    let state = |node| if joiners.contains(&node) { MemberState::Joining } else { MemberState::Consistent };
    let members = (1..=4).map(|number| Member { state: state(number), ..member(number) }).collect();
    node.receive(METADATA, |out| {
        Assign { members, primary: NodeId(1), ..assign(PARTITION, MatchRange::ALL) }.encode(out);
    });
    node.act(|host, _| {
        host.storage.write(PARTITION, b"k", |out| {
            let value = VALUE.bytes();
            Entry { index: 1, version: VALUE.name, expiry_ms: 0, form: Form::Large, value: Some(&value) }
                .append(out);
        });
    });
    node
}

/// The members that the node now asks for the value from its first byte on.
fn asked(node: &mut Node) -> Vec<u8> {
    let sent: Vec<_> = std::iter::from_fn(|| node.core.poll_stream()).collect();
    let whom = sent.iter().map(|(peer, frame)| {
        let wanted = CopyFrame::ValueRequest {
            asker: NodeId(1),
            partition: PARTITION,
            epoch: EPOCH,
            reference: VALUE,
            offset: 0,
        };
        assert_eq!(CopyFrame::decode(frame), Ok(wanted));
        let StreamPeer::Dialed(address) = peer else { panic!("the node asks on streams that it has opened") };
        address.ip().octets()[3]
    });
    whom.collect()
}

fn wait(node: &mut Node, milliseconds: u64) {
    node.now.boot_ns += milliseconds * 1_000_000;
    node.core.handle_deadline(node.now);
}

fn answer(node: &mut Node, whom: u8, bytes: &[u8]) {
    let mut frame = Vec::new();
    CopyFrame::ValuePart { name: VALUE.name, offset: 0, bytes }.append(&mut frame);
    node.core.handle_stream(node.now, StreamPeer::Dialed(address(whom)), &frame);
}

fn end(node: &mut Node, end: ValueEnd) {
    assert!(node.asked().last().is_some_and(|request| request.starts_with("EndValue")));
    node.core.handle_storage(node.now, StorageCompletion::ValueEnded { name: VALUE.name, end });
}

#[test]
fn full_members_are_asked_before_joiners() {
    let mut node = lacking(&[2, 4]);
    wait(&mut node, 40);
    assert_eq!(asked(&mut node), [3]);
    answer(&mut node, 3, b"");
    assert_eq!(asked(&mut node), [2]);
    // Member 3 does not answer, as if it were gone.
    wait(&mut node, 200);
    assert_eq!(asked(&mut node), [4]);
    answer(&mut node, 4, &BYTES);
    end(&mut node, ValueEnd::Whole);
    wait(&mut node, 400);
    assert_eq!(asked(&mut node), [0; 0]);
    assert_eq!(node.core.status().values.fetched, 1);
}

#[test]
fn only_full_member_keeps_asking_joiners() {
    let mut node = lacking(&[2, 3, 4]);
    for _ in 0..2 {
        wait(&mut node, 40);
        for joiner in 2..=4 {
            assert_eq!(asked(&mut node), [joiner]);
            answer(&mut node, joiner, b"");
        }
        assert_eq!(asked(&mut node), [0; 0], "nobody is asked before the next heartbeat");
    }
}

#[test]
fn wrong_value_is_fetched_again_from_another_member() {
    let mut node = lacking(&[2, 4]);
    wait(&mut node, 40);
    assert_eq!(asked(&mut node), [3]);
    answer(&mut node, 3, &BYTES);
    end(&mut node, ValueEnd::Wrong);
    assert_eq!(asked(&mut node), [2]);
    answer(&mut node, 2, &BYTES);
    end(&mut node, ValueEnd::Whole);
    assert_eq!((asked(&mut node), node.core.status().values.fetched), (vec![], 1));
}

/// The damaged value stays on disk until it is fetched. Otherwise a later process would treat an op
/// that names it as never synced (L2).
#[test]
fn damaged_value_is_condemned_and_fetched() {
    let mut node = lacking(&[2, 4]);
    wait(&mut node, 40);
    assert_eq!(asked(&mut node), [3]);
    answer(&mut node, 3, &BYTES);
    end(&mut node, ValueEnd::Whole);
    let mut frame = Vec::new();
    let (asker, partition, epoch) = (NodeId(4), PARTITION, EPOCH);
    CopyFrame::ValueRequest { asker, partition, epoch, reference: VALUE, offset: 0 }.append(&mut frame);
    node.core.handle_stream(node.now, StreamPeer::Accepted(7), &frame);
    let requests = node.asked();
    assert!(requests.len() == 1 && requests[0].starts_with("ReadValue { token: 1,"), "{requests:?}");
    let read = StorageCompletion::ValueRead { token: 1, bytes: None, is_damaged: true };
    node.core.handle_storage(node.now, read);
    assert_eq!(node.asked(), [format!("CondemnValue {{ name: {:?} }}", VALUE.name)]);
    let peers: Vec<_> = std::iter::from_fn(|| node.core.poll_stream()).map(|(peer, _)| peer).collect();
    assert_eq!(peers, [StreamPeer::Accepted(7)], "the member that asked is told that the value is missing");
    // The fetch starts only when the copy rate allows it.
    wait(&mut node, 40);
    assert_eq!(asked(&mut node), [3]);
    assert_eq!(node.core.status().values.damaged, 1);
}

/// A client announces a value to a member of a quorum keyspace, or stores it by `request`. Returns
/// how often the report says that it was requested; `None`: no report.
fn put(node: &mut Node, request: Option<&'static [u8]>) -> Option<u32> {
    node.act(move |host, now| {
        let membership = Membership::of(&assign(PARTITION, MatchRange::ALL), NodeId(1));
        let (from, reply_to) = (address(200), address(200));
        let put = LargePut { reference: VALUE, request, from, reply_to, has_primary: false };
        host.expect_value(now, &membership, &put);
    });
    wait(node, 10);
    let sent = node.sent();
    sent.iter().rev().find_map(|(_, bytes)| match Datagram::decode(bytes) {
        Ok((_, Datagram::TransferReport(report))) => Some(report.asked),
        _ => None,
    })
}

#[test]
fn value_may_arrive_before_its_request() {
    let mut node = Node::started(quiet());
    node.receive(METADATA, |out| assign(PARTITION, MatchRange::ALL).encode(out));
    assert_eq!(put(&mut node, None), Some(0));
    assert_eq!(put(&mut node, None), Some(1), "announcing it again requests a report");
    assert_eq!(put(&mut node, Some(b"a store")), None, "the first store requests none");
    assert_eq!(put(&mut node, Some(b"a store")), Some(2), "the second store does");
    assert_eq!(put(&mut node, None), Some(3));
    // The store is handled when the value is complete. It is invalid here, so a counter changes.
    let before = node.turned_away();
    let ended = StorageCompletion::ValueEnded { name: VALUE.name, end: ValueEnd::Whole };
    node.core.handle_storage(node.now, ended);
    assert_ne!(node.turned_away(), before);
}

#[test]
fn announced_value_without_a_request_is_not_fetched() {
    for (request, is_wanted) in [(None, false), (Some(&b"a store"[..]), true)] {
        let mut node = Node::started(quiet());
        node.receive(METADATA, |out| {
            let members = (1..=4).map(member).collect();
            Assign { members, primary: NodeId(1), ..assign(PARTITION, MatchRange::ALL) }.encode(out);
        });
        put(&mut node, request);
        wait(&mut node, 5_000);
        wait(&mut node, 100);
        assert_eq!(!asked(&mut node).is_empty(), is_wanted);
    }
}
