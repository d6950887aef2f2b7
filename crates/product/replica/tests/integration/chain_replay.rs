//! Replaying the log of a node in a chain.

use crate::harness;

use harness::{CLIENT, Node, answer, update};
use nicekv_proto::{Epoch, Expiry, Operation, Replication, Status, Term};
use nicekv_replica::DiskSpace;

fn lead_chain(mut node: Node, epoch: Epoch) -> Node {
    node.replication = Replication::Chain;
    node.grant_lease(Term(3));
    node.assign(Term(3), epoch);
    node
}

/// A full head logs a stub in place of an op that it refuses. Seed 2397: the refusal was lost in a
/// power failure, the op was sent again and stored, and after the next restart the stub's empty
/// value stood in place of the op's.
#[test]
fn op_that_is_taken_in_again_after_a_lost_refusal_keeps_its_value() {
    let mut node = lead_chain(Node::started(), Epoch(5));
    let op = node.op();
    let put = update(op, b"k", Operation::Set { value: b"value", expiry: Expiry::Never });
    node.core.set_disk_space(DiskSpace::Reserve);
    let sent = node.receive(CLIENT, |out| put.encode(out));
    assert_eq!(answer(&sent), Some((Status::DiskFull, None)));

    let (refusal, before) = node.log.split_last().expect("the stub and its refusal");
    assert!(!refusal.is_empty());
    let mut node = lead_chain(Node::restarted_with(before), Epoch(6));
    let sent = node.receive(CLIENT, |out| put.encode(out));
    assert_eq!(answer(&sent), Some((Status::Ok, None)));
    assert_eq!(node.get(b"k"), Some((Status::Ok, Some(b"value".to_vec()))));

    let mut node = lead_chain(Node::restarted_with(&node.log), Epoch(7));
    assert_eq!(node.get(b"k"), Some((Status::Ok, Some(b"value".to_vec()))));
}
