//! Tests that invalid and malicious messages about large values are counted, and take no memory.

use crate::large::TRANSFERS_MAX;
use crate::node::tests::recorder::{CLIENT, Node, PARTITION, address, assign};
use crate::{LargePut, Membership, StorageCompletion, ValueEnd};
use nicekv_proto::large::{
    ANY_REPLICA, Chunk, READ_CHUNKS_MAX, RECEIVERS_ALL, ReadChunks, Reference, TransferReport, receiver_bit,
};
use nicekv_proto::limits::CHUNK_BYTES;
use nicekv_proto::{ClientId, Datagram, KeyDigest, KeyspaceId, MatchRange, NodeId, OpId, Status};
use std::net::SocketAddrV4;
use std::ops::Range;

/// A value of four chunks, the last one of 776 bytes.
const VALUE: Reference = value(2, 7);

const fn value(sequence: u64, checksum: u64) -> Reference {
    Reference { name: OpId { client: ClientId(1), sequence }, length: 5_000, checksum: checksum as _ }
}

/// A client at this address announces a large value.
fn begin(node: &mut Node, reference: Reference, from: SocketAddrV4) {
    node.act(move |host, now| {
        let membership = Membership::of(&assign(PARTITION, MatchRange::ALL), NodeId(1));
        let put = LargePut { reference, request: None, from, reply_to: from, has_primary: true };
        host.expect_value(now, &membership, &put);
    });
}

fn chunk(number: u32, mask: u16, bytes: &[u8]) -> Chunk<'_> {
    Chunk { keyspace: KeyspaceId::DEFAULT, op: VALUE.name, digest: KeyDigest([0; 16]), number, mask, bytes }
}

fn take(node: &mut Node, from: SocketAddrV4, chunk: Chunk<'_>) {
    node.receive(from, |out| chunk.encode(out));
}

/// The chunks with these numbers arrive.
fn send(node: &mut Node, numbers: Range<u32>) {
    for number in numbers {
        let bytes = &[1; CHUNK_BYTES][..if number == 3 { 776 } else { CHUNK_BYTES }];
        take(node, CLIENT, chunk(number, RECEIVERS_ALL, bytes));
    }
}

/// A client puts the value, and the disk completes it.
fn put(node: &mut Node) {
    begin(node, VALUE, CLIENT);
    send(node, 0..4);
    let ended = StorageCompletion::ValueEnded { name: VALUE.name, end: ValueEnd::Whole };
    node.core.handle_storage(node.now, ended);
    node.asked();
    node.sent();
}

/// Takes the transfer reports that the node sends.
fn reports(node: &mut Node) -> Vec<(SocketAddrV4, TransferReport)> {
    let sent = node.sent();
    let report = |(to, bytes): (SocketAddrV4, Vec<u8>)| match Datagram::decode(&bytes) {
        Ok((_, Datagram::TransferReport(report))) => Some((to, report)),
        _ => None,
    };
    sent.into_iter().filter_map(report).collect()
}

#[test]
fn chunks_beyond_the_value_are_refused_and_not_written() {
    let mut node = Node::member();
    begin(&mut node, VALUE, CLIENT);
    let whole = [1; CHUNK_BYTES];
    for (number, bytes) in
        [(4, &whole[..]), (u32::MAX, &whole), (3, &whole), (3, &whole[..775]), (0, &whole[1..]), (0, &[])]
    {
        take(&mut node, CLIENT, chunk(number, RECEIVERS_ALL, bytes));
    }
    assert_eq!(node.core.status().values.chunks_refused, 6);
    assert_eq!(node.core.status().values.chunks, 0);
    assert_eq!(node.asked(), [""; 0], "nothing goes to the disk");
}

#[test]
fn chunks_without_a_transfer_change_nothing() {
    let mut node = Node::member();
    let whole = [1; CHUNK_BYTES];
    take(&mut node, CLIENT, chunk(0, RECEIVERS_ALL, &whole));
    assert_eq!(node.turned_away(), (0, 0, 1), "chunks without a transfer are dropped");
    begin(&mut node, VALUE, CLIENT);
    for mask in [0, receiver_bit(NodeId(2)), !receiver_bit(NodeId(1))] {
        take(&mut node, CLIENT, chunk(0, mask, &whole));
    }
    assert_eq!(node.core.status().values.chunks, 0);
    assert_eq!(node.asked(), [""; 0]);
    take(&mut node, CLIENT, chunk(0, receiver_bit(NodeId(1)), &whole));
    assert_eq!(node.core.status().values.chunks, 1);
}

#[test]
fn first_content_of_a_name_stands() {
    let mut node = Node::member();
    begin(&mut node, VALUE, CLIENT);
    take(&mut node, CLIENT, chunk(0, RECEIVERS_ALL, &[1; CHUNK_BYTES]));
    begin(&mut node, value(2, 8), address(201));
    assert_eq!(node.turned_away(), (0, 1, 0));
    send(&mut node, 1..4);
    let ended = node.asked().pop().expect("the value is complete");
    assert!(ended.starts_with("EndValue") && ended.contains("checksum: 7"), "{ended}");
}

/// A transfer takes little memory, because its chunks are on disk. Transfers beyond the bound take
/// none.
#[test]
fn abandoned_transfers_are_bounded_and_gone_after_five_seconds() {
    let mut node = Node::member();
    for sequence in 0..100_000 {
        begin(&mut node, value(sequence, 7), CLIENT);
        if sequence == 99_999 {
            let (to, last) = reports(&mut node).pop().expect("the client gets a report");
            assert_eq!((to, last.op.sequence, last.status), (CLIENT, sequence, Status::Busy));
        }
        node.sent();
    }
    let values = node.core.status().values;
    assert_eq!(values.transfers, TRANSFERS_MAX as u64);
    assert_eq!(values.transfers_refused, 100_000 - TRANSFERS_MAX as u64);
    node.now.boot_ns += 5_000_000_000;
    node.core.handle_deadline(node.now);
    assert_eq!(node.core.status().values.transfers_abandoned, TRANSFERS_MAX as u64);
    begin(&mut node, VALUE, CLIENT);
    take(&mut node, CLIENT, chunk(0, RECEIVERS_ALL, &[1; CHUNK_BYTES]));
    assert_eq!(node.core.status().values.chunks, 1, "there is room again");
}

/// A read of a value that is not on disk is answered by a datagram shorter than the request. A read
/// of chunks that no value can have counts as malformed.
#[test]
fn invalid_reads_get_shorter_answers() {
    let mut node = Node::member();
    let read = |first, count, replica, token| ReadChunks {
        keyspace: KeyspaceId::DEFAULT,
        op: OpId { client: ClientId(9), sequence: 1 },
        digest: KeyDigest([0; 16]),
        reply_to: None,
        first,
        mask: RECEIVERS_ALL,
        replica,
        reference: VALUE,
        token,
        count,
    };
    let ask = |node: &mut Node, read: ReadChunks| {
        let mut bytes = 0;
        node.receive(CLIENT, |out| {
            read.encode(out);
            bytes = out.len();
        });
        (bytes, node.sent())
    };
    let (asked, sent) = ask(&mut node, read(0, 1, ANY_REPLICA, 0));
    assert!(sent.len() == 1 && sent[0].1.len() <= asked, "{sent:?}");
    let (_, sent) = ask(&mut node, read(0, 1, NodeId(2), 0));
    assert_eq!(sent, [], "the request is for another replica");
    put(&mut node);
    let (asked, sent) = ask(&mut node, read(0, READ_CHUNKS_MAX, ANY_REPLICA, 0));
    assert!(
        sent.len() == 1 && sent[0].1.len() <= 3 * asked,
        "a forged token is answered with the right one, to the request's source address"
    );
    assert_eq!(node.core.status().values.reads_refused, 1);
    assert_eq!(node.asked(), [""; 0], "nothing is read for it");
    let Ok((_, Datagram::Reply(reply))) = Datagram::decode(&sent[0].1) else { panic!("a reply") };
    let token = reply.integer as u64;
    for (first, count) in [(0, READ_CHUNKS_MAX + 1), (4, 1), (u32::MAX, 1)] {
        let before = node.turned_away().1;
        let (_, sent) = ask(&mut node, read(first, count, ANY_REPLICA, token));
        assert_eq!((sent, node.turned_away().1), (vec![], before + 1), "{count} from {first}");
    }
    assert_eq!(node.asked(), [""; 0]);
    ask(&mut node, read(0, 1, ANY_REPLICA, token));
    assert_eq!(node.asked().len(), 1);
}
