//! A node under test, and helpers that play the other member of its partition.

use super::{CLIENT, Node, update};
use nicekv_proto::control::{DiskSpace, Member, MemberRole, MemberState};
use nicekv_proto::recovery::{RecoverReply, UndecidedOp};
use nicekv_proto::replication::{Acks, Decision, Decisions, Effect, PrepareAck, Progress, Watermark};
use nicekv_proto::{
    ClientId, Datagram, Entries, Epoch, Form, NodeId, OpId, Operation, PartitionId, Status, Term,
};
use std::net::{Ipv4Addr, SocketAddrV4};

pub(crate) const OTHER: NodeId = NodeId(2);
pub(crate) const OTHER_ADDRESS: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 3), 7400);
pub(crate) const PARTITION: PartitionId = PartitionId(0);

pub(crate) fn other() -> Member {
    Member { node: OTHER, state: MemberState::Consistent, role: MemberRole::Original, address: OTHER_ADDRESS }
}

pub(crate) fn op(client: u64) -> OpId {
    OpId { client: ClientId::new(2, client), sequence: 1 }
}

pub(crate) type Sent = Vec<(SocketAddrV4, Vec<u8>)>;

/// A new client increments the key "n"; returns the datagrams that the node sends.
pub(crate) fn increment(node: &mut Node, client: u64) -> Sent {
    let increment = update(op(client), b"n", Operation::Increment(1));
    node.receive(CLIENT, |out| increment.encode(out))
}

/// The acks of prepares among these datagrams.
pub(crate) fn acks(sent: &Sent) -> Vec<PrepareAck> {
    let decoded = sent.iter().filter_map(|(_, bytes)| match Datagram::decode(bytes).unwrap().1 {
        Datagram::Acks(acks) => Some(acks.prepares.iter().collect::<Vec<_>>()),
        _ => None,
    });
    decoded.flatten().collect()
}

/// The decisions among these datagrams: op, whether contended, status, and integer of each.
pub(crate) fn decisions(sent: &Sent) -> Vec<(OpId, bool, Status, i64)> {
    let mut decided = Vec::new();
    for (_, bytes) in sent {
        if let Datagram::Decisions(decisions) = Datagram::decode(bytes).unwrap().1 {
            let told = |d: Decision<'_>| (d.op, d.contended, d.status, d.integer);
            decided.extend(decisions.decisions.iter().map(told));
        }
    }
    decided
}

/// The other member acknowledges an op, as contended or not.
pub(crate) fn ack(node: &mut Node, epoch: u32, client: u64, contended: bool) -> Sent {
    send_acks(node, &[PrepareAck { contended, ..prepare_ack(epoch, op(client)) }])
}

/// An uncontended ack of an op.
pub(crate) fn prepare_ack(epoch: u32, op: OpId) -> PrepareAck {
    let (partition, epoch) = (PARTITION, Epoch(epoch));
    PrepareAck { partition, epoch, op, contended: false, refused: false, receiving: false }
}

/// The other member sends these acks.
pub(crate) fn send_acks(node: &mut Node, acks: &[PrepareAck]) -> Sent {
    let (prepares, progress) = (Entries::Values(acks), Entries::Values(&[]));
    node.receive(OTHER_ADDRESS, |out| Acks { sender: OTHER, prepares, progress }.encode(out))
}

/// The other member is the primary, and sends an uncontended decision of an increment.
pub(crate) fn decide(node: &mut Node, epoch: u32, index: u64, op: OpId) -> Sent {
    decide_as(node, epoch, index, op, false)
}

/// The other member is the primary, and sends a decision of an increment.
pub(crate) fn decide_as(node: &mut Node, epoch: u32, index: u64, op: OpId, contended: bool) -> Sent {
    send_decision(node, Decision { contended, ..decision(epoch, index, op) })
}

/// An uncontended decision of an increment.
pub(crate) fn decision(epoch: u32, index: u64, op: OpId) -> Decision<'static> {
    Decision {
        form: Form::Plain,
        partition: PARTITION,
        epoch: Epoch(epoch),
        index,
        origin: Epoch(epoch),
        op,
        contended: false,
        effect: Effect::Store,
        status: Status::Ok,
        version: op,
        expiry_ms: 0,
        integer: 1,
        value: b"1",
        value_is_result: false,
    }
}

/// The other member is the primary, and sends this decision.
pub(crate) fn send_decision(node: &mut Node, decision: Decision<'_>) -> Sent {
    send_decisions(node, &[], &[decision])
}

/// The other member is the primary, and reports that its epoch begins after decision `base` and
/// that all members hold the decisions up to there.
pub(crate) fn watermark(node: &mut Node, epoch: u32, base: u64) -> Sent {
    let (partition, epoch) = (PARTITION, Epoch(epoch));
    let watermark = Watermark { partition, epoch, base, synced: base, recovered: true, working: false };
    send_decisions(node, &[watermark], &[])
}

/// The other member is the primary, and sends these watermarks and decisions.
pub(crate) fn send_decisions(node: &mut Node, watermarks: &[Watermark], decisions: &[Decision<'_>]) -> Sent {
    let decisions = Decisions {
        keyspace: nicekv_proto::KeyspaceId::DEFAULT,
        digest: nicekv_proto::KeyDigest::default(),
        sender: OTHER,
        watermarks: Entries::Values(watermarks),
        decisions: Entries::Values(decisions),
    };
    node.receive(OTHER_ADDRESS, |out| decisions.encode(out))
}

/// The other member reports that it has logged and synced the decisions up to this one.
pub(crate) fn progress(node: &mut Node, epoch: u32, synced: u64) -> Sent {
    let (partition, epoch) = (PARTITION, Epoch(epoch));
    let progress =
        Progress { partition, epoch, logged: synced, synced, gap: false, space: DiskSpace::Enough };
    let (prepares, progress) = (Entries::Values(&[]), Entries::Values(&[progress]));
    node.receive(OTHER_ADDRESS, |out| Acks { sender: OTHER, prepares, progress }.encode(out))
}

/// The other member reports what it held when the epoch began.
pub(crate) fn recover(node: &mut Node, epoch: u32, logged: u64, undecided: Vec<UndecidedOp>) -> Sent {
    let (sender, partition, epoch) = (OTHER, PARTITION, Epoch(epoch));
    let (cursor, next, synced) = (0, 0, logged);
    let reply =
        RecoverReply { sender, partition, epoch, cursor, next, logged, synced, released: 0, undecided };
    node.receive(OTHER_ADDRESS, |out| reply.encode(out))
}

/// The first record of a log that was trimmed up to decision `through`. All these decisions were
/// made in epoch `origin`, and are released.
pub(crate) fn position(through: u64, origin: u32) -> Vec<u8> {
    let mut record = PARTITION.0.to_be_bytes().to_vec();
    record.extend([9, 0]);
    for number in [0, 0, through, through, 1] {
        record.extend(number.to_be_bytes());
    }
    record.extend(origin.to_be_bytes());
    record
}

/// A primary that has begun epoch 5 without any decisions.
pub(crate) fn primary() -> Node {
    let mut node = Node::started();
    node.grant_lease(Term(3));
    node.assign_with(Term(3), Epoch(5), &[other()]);
    recover(&mut node, 5, 0, Vec::new());
    node
}
