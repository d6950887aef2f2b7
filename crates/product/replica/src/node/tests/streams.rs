//! Tests of which frames of a copy are accepted.

use crate::StreamPeer;
use crate::node::tests::recorder::{EPOCH, METADATA, Node, PARTITION, address, assign};
use nicekv_proto::control::Assign;
use nicekv_proto::recovery::{CopyFrame, CopySection};
use nicekv_proto::{Epoch, MatchRange, NodeId, PartitionId};

fn handle(node: &mut Node, peer: StreamPeer, frame: &CopyFrame<'_>) {
    let mut bytes = Vec::new();
    frame.append(&mut bytes);
    node.core.handle_stream(node.now, peer, &bytes);
}

fn request(partition: PartitionId, epoch: Epoch, joiner: u16) -> CopyFrame<'static> {
    CopyFrame::Request {
        joiner: NodeId(joiner),
        partition,
        epoch,
        section: CopySection::Entries,
        since: 3,
        after: b"",
    }
}

fn chunk(partition: PartitionId, epoch: Epoch) -> CopyFrame<'static> {
    CopyFrame::Chunk { partition, epoch, section: CopySection::Clients, more: false, payload: b"payload" }
}

#[test]
fn copy_request_is_accepted_from_a_member_on_its_own_connection() {
    let mut node = Node::member();
    let accepted = StreamPeer::Accepted(8);
    handle(&mut node, accepted, &request(PARTITION, EPOCH, 3));
    assert_eq!((node.told(), node.turned_away().0), (vec!["copy request Accepted(8) since 3".into()], 0));
    for (refused, (peer, frame)) in (1..).zip([
        (StreamPeer::Dialed(address(3)), request(PARTITION, EPOCH, 3)),
        (accepted, request(PARTITION, Epoch(4), 3)),
        (accepted, request(PARTITION, EPOCH, 9)),
        (accepted, request(PartitionId(5), EPOCH, 3)),
    ]) {
        handle(&mut node, peer, &frame);
        assert_eq!((node.told(), node.turned_away().0), (vec![], refused), "{peer:?} {frame:?}");
    }
}

#[test]
fn copy_chunk_is_accepted_from_a_member_asked_in_this_epoch() {
    let mut node = Node::member();
    let asked = StreamPeer::Dialed(address(2));
    handle(&mut node, asked, &chunk(PARTITION, EPOCH));
    assert_eq!(node.told(), [format!("copy chunk {asked:?} of 7 bytes")]);
    assert_eq!(node.turned_away(), (0, 0, 0));
    for (refused, (peer, frame)) in (1..).zip([
        (StreamPeer::Accepted(2), chunk(PARTITION, EPOCH)),
        (StreamPeer::Dialed(address(9)), chunk(PARTITION, EPOCH)),
        (asked, chunk(PARTITION, Epoch(4))),
        (asked, chunk(PARTITION, Epoch(6))),
        (asked, chunk(PartitionId(5), EPOCH)),
    ]) {
        handle(&mut node, peer, &frame);
        assert_eq!((node.told(), node.turned_away().0), (vec![], refused), "{peer:?} {frame:?}");
    }
    node.core.handle_stream(node.now, asked, b"noise");
    assert_eq!((node.told(), node.turned_away()), (vec![], (5, 1, 0)));
}

#[test]
fn frame_is_a_batch_of_its_own() {
    let mut node = Node::member();
    node.receive(METADATA, |out| {
        Assign { epoch: Epoch(6), ..assign(PARTITION, MatchRange::ALL) }.encode(out);
    });
    crate::node::tests::recorder::book(PARTITION, |book| book.syncs_copies = true);
    handle(&mut node, StreamPeer::Dialed(address(2)), &chunk(PARTITION, Epoch(6)));
    assert_eq!(node.asked(), ["Sync"]);
    node.act(|host, _| {
        host.send_frame(StreamPeer::Accepted(1), &request(PARTITION, EPOCH, 3));
        host.send_frame(StreamPeer::Accepted(2), &chunk(PARTITION, EPOCH));
    });
    let sent: Vec<_> = std::iter::from_fn(|| node.core.poll_stream()).collect();
    let peers: Vec<_> = sent.iter().map(|(peer, _)| *peer).collect();
    assert_eq!(peers, [StreamPeer::Accepted(1), StreamPeer::Accepted(2)]);
    assert_eq!(CopyFrame::decode(&sent[1].1), Ok(chunk(PARTITION, EPOCH)));
}
