//! Tests of a primary at the start of its epoch: what it asks for, adopts, resends and grants
//! before and after recovery. The test plays the other members.

use crate::harness;

use harness::pair::{
    OTHER, OTHER_ADDRESS, PARTITION, Sent, ack, decide, decisions, increment, op, other, prepare_ack,
    primary, progress, recover, send_acks, send_decisions,
};
use harness::{CLIENT, LEASE_NS, METADATA, Node, update};
use nicekv_proto::control::{Member, MemberRole, MemberState, ReportKind};
use nicekv_proto::recovery::{CopyFrame, CopySection, UndecidedOp, Wanted};
use nicekv_proto::replication::{Acks, PrepareAck, Progress, Resend, Watermark};
use nicekv_proto::{Datagram, Duration, Entries, Epoch, NodeId, OpId, Operation, Status, Term, Update};
use nicekv_replica::{DiskSpace, StreamPeer};
use std::net::{Ipv4Addr, SocketAddrV4};

const JOINER: NodeId = NodeId(3);
const JOINER_ADDRESS: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 4), 7400);

/// The ops that the node fetches from the other member.
fn fetched(sent: &Sent) -> Vec<Wanted> {
    let fetch = |(to, bytes): &(SocketAddrV4, Vec<u8>)| match Datagram::decode(bytes).unwrap().1 {
        Datagram::Fetch(fetch) if *to == OTHER_ADDRESS => Some(fetch.wanted),
        _ => None,
    };
    sent.iter().filter_map(fetch).collect()
}

/// How often the node asks the other member what it holds.
fn asked(sent: &Sent) -> usize {
    let is_request = |bytes: &[u8]| matches!(Datagram::decode(bytes).unwrap().1, Datagram::RecoverRequest(_));
    sent.iter().filter(|(to, bytes)| *to == OTHER_ADDRESS && is_request(bytes)).count()
}

/// Whether the node reports the other member as silent.
fn accused(sent: &Sent) -> bool {
    sent.iter().any(|(to, bytes)| {
        let accuses = |report: nicekv_proto::control::Report| report.kind == ReportKind::Accuse(OTHER);
        *to == METADATA
            && matches!(Datagram::decode(bytes).unwrap().1, Datagram::Report(report) if accuses(report))
    })
}

fn pass(node: &mut Node) -> Sent {
    node.pass(Duration::from_millis(1_000));
    node.sent()
}

#[test]
fn primary_asks_until_answered_with_nothing_open() {
    let mut node = Node::started();
    node.grant_lease(Term(3));
    assert_eq!(asked(&node.assign_with(Term(3), Epoch(5), &[other()])), 1);
    for _ in 0..3 {
        assert_eq!(asked(&pass(&mut node)), 1);
    }
    recover(&mut node, 5, 0, Vec::new());
    assert_eq!(asked(&pass(&mut node)), 0);
}

/// The primary adopts the longest sequence among the members before it decides anything.
#[test]
fn primary_adopts_a_members_decisions() {
    let mut node = Node::started();
    node.grant_lease(Term(3));
    node.assign_under(Term(3), Epoch(1), OTHER, &[other()]);
    increment(&mut node, 1);
    increment(&mut node, 2);
    node.assign_with(Term(3), Epoch(6), &[other()]);
    let undecided = vec![UndecidedOp { op: op(2), contended: false }];
    let sent = recover(&mut node, 6, 1, undecided);
    assert_eq!(fetched(&sent), [Wanted::DecisionsAfter(0)]);
    assert_eq!(
        fetched(&pass(&mut node)),
        [Wanted::DecisionsAfter(0)],
        "fetched again, because the answer was lost"
    );
    assert_eq!(
        decisions(&decide(&mut node, 6, 2, op(1))),
        [],
        "a decision that would leave a gap is not adopted"
    );
    let sent = decide(&mut node, 6, 1, op(1));
    let decided = decisions(&sent);
    assert_eq!(decided, [(op(2), true, Status::Ok, 2)], "after adopting, the primary decides its own op");
    assert_eq!(node.engine.len(), 1);
}

/// The primary fetches an op that only another member holds if the client's own datagram does not
/// arrive.
#[test]
fn primary_fetches_ops_that_only_a_member_holds() {
    let mut node = primary();
    assert_eq!(
        fetched(&ack(&mut node, 5, 1, false)),
        [],
        "not fetched at once: the client's datagram may be on its way"
    );
    assert_eq!(fetched(&pass(&mut node)), [Wanted::Op(op(1))]);
    assert_eq!(fetched(&pass(&mut node)), [Wanted::Op(op(1))], "again");
    increment(&mut node, 1);
    assert_eq!(fetched(&pass(&mut node)), []);
}

/// An op that is not acknowledged is resent and counted, and a member that never acknowledges is
/// accused.
#[test]
fn primary_resends_unacknowledged_ops_and_accuses_silent_members() {
    let mut node = primary();
    increment(&mut node, 1);
    let resent = |sent: &Sent| {
        let is_resend = |bytes: &[u8]| matches!(Datagram::decode(bytes).unwrap().1, Datagram::Resend(_));
        sent.iter().filter(|(to, bytes)| *to == OTHER_ADDRESS && is_resend(bytes)).count()
    };
    let mut rounds = 0;
    while !accused(&pass(&mut node)) {
        rounds += 1;
        assert!(rounds < 20, "the silent member was not accused");
        assert_eq!(node.core.status().counters.resent, rounds);
    }
    assert!(rounds >= 1);
    assert_eq!(resent(&pass(&mut node)), 1);
    ack(&mut node, 5, 1, false);
    let sent = pass(&mut node);
    assert_eq!((resent(&sent), accused(&sent)), (0, false));
}

/// A member that cannot acknowledge an op yet, because it is receiving the op's large value, says so
/// each time that the op is resent.
#[test]
fn member_that_receives_a_value_is_not_accused() {
    let mut node = primary();
    increment(&mut node, 1);
    let receiving = PrepareAck { receiving: true, ..prepare_ack(5, op(1)) };
    for _ in 0..20 {
        assert!(!accused(&pass(&mut node)));
        let sent = send_acks(&mut node, &[receiving]);
        assert_eq!(decisions(&sent), [], "this is not an ack");
    }
    let mut rounds = 0;
    while !accused(&pass(&mut node)) {
        rounds += 1;
        assert!(rounds < 20, "the member, silent by now, was not accused");
    }
}

/// A member that waits for a decision accuses a primary that answers without being at work, because
/// its disk may have stopped.
#[test]
fn primary_at_work_is_not_accused() {
    let mut node = Node::started();
    node.assign_under(Term(3), Epoch(1), OTHER, &[other()]);
    increment(&mut node, 1);
    let (mut working, mut rounds) = (true, 0);
    while !accused(&pass(&mut node)) {
        rounds += 1;
        working &= rounds < 20;
        assert!(rounds < 40, "the primary, idle by now, was not accused");
        answer_gap(&mut node, working);
    }
    assert!(rounds > 20, "the primary was at work");
}

/// The other member is the primary, and answers a report of missing decisions.
fn answer_gap(node: &mut Node, working: bool) {
    let watermark =
        Watermark { partition: PARTITION, epoch: Epoch(1), base: 0, synced: 0, recovered: true, working };
    send_decisions(node, &[watermark], &[]);
}

/// An op that was open when the epoch began may have been answered by an earlier primary, so a
/// refusal of it must not count.
#[test]
fn refusals_count_for_new_ops_only() {
    let refuse = |node: &mut Node, epoch, client| {
        send_acks(node, &[PrepareAck { refused: true, ..prepare_ack(epoch, op(client)) }])
    };
    let refused = |sent: &Sent| {
        sent.iter().any(|(_, bytes)| match Datagram::decode(bytes).unwrap().1 {
            Datagram::Decisions(decisions) => {
                decisions.decisions.iter().any(|decision| decision.status == Status::DiskFull)
            }
            _ => false,
        })
    };
    let mut node = primary();
    increment(&mut node, 1);
    assert!(refused(&refuse(&mut node, 5, 1)));
    let mut node = primary();
    increment(&mut node, 1);
    node.assign_with(Term(3), Epoch(6), &[other()]);
    assert!(!refused(&refuse(&mut node, 6, 1)), "the primary has not recovered");
    recover(&mut node, 6, 0, Vec::new());
    assert!(!refused(&refuse(&mut node, 6, 1)), "the op may have been executed");
    assert_eq!(decisions(&ack(&mut node, 6, 1, false)), [(op(1), true, Status::Ok, 1)]);
}

/// A joiner that became consistent without an op that was open when the epoch began could lose that
/// op.
#[test]
fn copies_wait_for_complete_recovery() {
    let mut node = primary();
    increment(&mut node, 1);
    let joiner = Member {
        node: JOINER,
        state: MemberState::Joining,
        role: MemberRole::Original,
        address: JOINER_ADDRESS,
    };
    node.assign_with(Term(3), Epoch(6), &[other(), joiner]);
    let copies = |node: &mut Node| {
        let (joiner, section) = (JOINER, CopySection::Begin);
        let held = [0; 8];
        let request = CopyFrame::Request {
            joiner,
            partition: PARTITION,
            epoch: Epoch(6),
            section,
            since: 0,
            after: &held,
        };
        node.receive_frame(StreamPeer::Accepted(1), &request).len()
    };
    assert_eq!(copies(&mut node), 0, "the members have not answered yet");
    recover(&mut node, 6, 0, Vec::new());
    recover_joiner(&mut node);
    assert_eq!(copies(&mut node), 0, "the op is still open");
    ack(&mut node, 6, 1, false);
    ack_of_joiner(&mut node);
    assert_eq!(copies(&mut node), 0, "not every member has its decision");
    progress(&mut node, 6, 1);
    progress_of_joiner(&mut node);
    assert_eq!(copies(&mut node), 1);
}

fn recover_joiner(node: &mut Node) {
    let (partition, epoch) = (PARTITION, Epoch(6));
    let reply = nicekv_proto::recovery::RecoverReply {
        sender: JOINER,
        partition,
        epoch,
        cursor: 0,
        next: 0,
        logged: 0,
        synced: 0,
        released: 0,
        undecided: Vec::new(),
    };
    node.receive(JOINER_ADDRESS, |out| reply.encode(out));
}

fn ack_of_joiner(node: &mut Node) {
    let ack = PrepareAck { contended: true, ..prepare_ack(6, op(1)) };
    let (prepares, progress) = (Entries::Values(&[ack]), Entries::Values(&[]));
    node.receive(JOINER_ADDRESS, |out| Acks { sender: JOINER, prepares, progress }.encode(out));
}

fn progress_of_joiner(node: &mut Node) {
    let progress = nicekv_proto::replication::Progress {
        partition: PARTITION,
        epoch: Epoch(6),
        logged: 1,
        synced: 1,
        gap: false,
        space: DiskSpace::Enough,
    };
    let (prepares, progress) = (Entries::Values(&[]), Entries::Values(&[progress]));
    node.receive(JOINER_ADDRESS, |out| Acks { sender: JOINER, prepares, progress }.encode(out));
}

/// The primary decides nothing in an epoch that is not activated, however often the epoch is
/// assigned.
#[test]
fn primary_decides_when_the_epoch_is_activated() {
    let mut node = Node::started();
    node.grant_lease(Term(3));
    let tell = |node: &mut Node, activated| {
        node.assign_as(activated, Term(3), Epoch(6), NodeId(1), vec![Node::me(), other()])
    };
    node.assign_under(Term(3), Epoch(1), OTHER, &[other()]);
    tell(&mut node, false);
    tell(&mut node, false);
    recover(&mut node, 6, 0, Vec::new());
    increment(&mut node, 1);
    assert_eq!(decisions(&ack(&mut node, 6, 1, false)), []);
    assert_eq!(decisions(&tell(&mut node, true)).len(), 1);
}

/// An op that a member holds, and whose outcome the primary has forgotten, is decided as expired,
/// but only in an activated epoch.
#[test]
fn primary_tells_a_member_to_drop_an_expired_op() {
    let mut node = primary();
    let put = |sequence, watermark| {
        let op = OpId { sequence, ..op(1) };
        Update { watermark, ..update(op, b"n", Operation::Increment(1)) }
    };
    let acknowledge = |node: &mut Node, epoch, sequence, gap| {
        let (partition, epoch) = (PARTITION, Epoch(epoch));
        let op = OpId { sequence, ..op(1) };
        let ack = PrepareAck { partition, epoch, op, contended: false, refused: false, receiving: false };
        let progress = Progress { partition, epoch, logged: 1, synced: 1, gap, space: DiskSpace::Enough };
        let told = if gap { vec![progress] } else { vec![] };
        let (prepares, progress) = (Entries::Values(&[ack]), Entries::Values(&told));
        node.receive(OTHER_ADDRESS, |out| Acks { sender: OTHER, prepares, progress }.encode(out))
    };
    let newer = put(5, 5);
    node.receive(CLIENT, |out| newer.encode(out));
    assert_eq!(decisions(&acknowledge(&mut node, 5, 5, false)).len(), 1);
    node.assign_as(false, Term(3), Epoch(6), NodeId(1), vec![Node::me(), other()]);
    recover(&mut node, 6, 1, Vec::new());
    let expired = |sent: &Sent| {
        sent.iter().any(|(_, bytes)| match Datagram::decode(bytes).unwrap().1 {
            Datagram::Decisions(decisions) => decisions.decisions.iter().any(|d| d.status == Status::Expired),
            _ => false,
        })
    };
    assert!(!expired(&acknowledge(&mut node, 6, 3, true)), "the epoch is not activated");
    node.assign_with(Term(3), Epoch(6), &[other()]);
    assert!(expired(&acknowledge(&mut node, 6, 3, true)));
}

/// A primary with a full disk refuses ops that it cannot log, but not before it may decide.
#[test]
fn full_primary_is_silent_until_it_may_decide() {
    let full = |sent: &Sent| sent.iter().any(|(to, _)| *to != METADATA);
    let mut node = Node::started();
    node.grant_lease(Term(3));
    node.core.set_disk_space(DiskSpace::Exhausted);
    node.assign_with(Term(3), Epoch(5), &[other()]);
    assert!(!full(&increment(&mut node, 1)));
    recover(&mut node, 5, 0, Vec::new());
    assert!(full(&increment(&mut node, 2)));
}

/// Gets of a key without recovered ops do not wait for another key that is recovering. Gets of a
/// recovered key wait until all members have its decision.
#[test]
fn gets_wait_for_their_own_key_only() {
    let mut node = primary();
    increment(&mut node, 1);
    node.assign_with(Term(3), Epoch(6), &[other()]);
    recover(&mut node, 6, 0, Vec::new());
    ack(&mut node, 6, 1, false);
    assert_eq!(node.get(b"n"), None, "decided, but not synced by all members");
    let another = update(op(2), b"m", Operation::Increment(1));
    node.receive(CLIENT, |out| another.encode(out));
    assert_eq!(node.get(b"m"), Some((Status::NotFound, None)));
}

/// A get that was still waiting when the lease ended gets no answer.
#[test]
fn waiting_get_is_not_answered_without_a_lease() {
    let mut node = primary();
    increment(&mut node, 1);
    node.assign_with(Term(3), Epoch(6), &[other()]);
    recover(&mut node, 6, 0, Vec::new());
    assert_eq!(node.get(b"n"), None);
    ack(&mut node, 6, 1, false);
    node.now.boot_ns += 10 * LEASE_NS;
    let dropped = node.core.status().counters.dropped;
    let sent = progress(&mut node, 6, 1);
    assert_eq!(sent.iter().filter(|(to, _)| *to == CLIENT).count(), 1, "only the increment is answered");
    assert_eq!(node.core.status().counters.dropped, dropped + 1);
}

/// Gets of a key whose op an earlier primary may have shown wait for the op's outcome, and do not
/// count as dropped.
#[test]
fn get_waits_for_the_outcome_of_recovered_ops() {
    let mut node = primary();
    increment(&mut node, 1);
    node.assign_with(Term(3), Epoch(6), &[other()]);
    recover(&mut node, 6, 0, Vec::new());
    let dropped = node.core.status().counters.dropped;
    assert_eq!(node.get(b"n"), None);
    assert_eq!(node.core.status().counters.dropped, dropped);
    ack(&mut node, 6, 1, false);
    let sent = progress(&mut node, 6, 1);
    let answers = sent.iter().filter(|(to, _)| *to == CLIENT).count();
    assert_eq!(answers, 2, "the increment and the get are answered");
}

/// The other member passes on an op that is open there.
fn pass_on(node: &mut Node, epoch: u32, update: &Update<'_>) -> Sent {
    let mut datagram = Vec::new();
    update.encode(&mut datagram);
    let (sender, partition, epoch) = (OTHER, PARTITION, Epoch(epoch));
    let resend = Resend { sender, partition, epoch, logged: 0, datagram: &datagram };
    node.receive(OTHER_ADDRESS, |out| resend.encode(out))
}

/// A restarted primary that has not been proven remembers the outcome of an op although its client
/// has gone on. Otherwise it would fetch the op from a member that took it in late, and execute it
/// again.
#[test]
fn op_that_a_restarted_primary_has_decided_is_not_fetched_again() {
    let mut node = Node::started();
    node.assign_under(Term(3), Epoch(1), OTHER, &[other()]);
    let open = update(op(9), b"o", Operation::Increment(1));
    node.receive(CLIENT, |out| open.encode(out));

    let mut node = Node::restarted_with(&node.log);
    node.grant_lease(Term(3));
    node.assign_with(Term(3), Epoch(6), &[other()]);
    let earlier = update(op(1), b"n", Operation::Increment(1));
    let second = OpId { sequence: 2, ..op(1) };
    let later = Update { watermark: 2, ..update(second, b"m", Operation::Increment(1)) };
    let undecided = [earlier.op, later.op].map(|op| UndecidedOp { op, contended: false });
    let sent = recover(&mut node, 6, 0, undecided.to_vec());
    assert_eq!(fetched(&sent), undecided.map(|undecided| Wanted::Op(undecided.op)));
    pass_on(&mut node, 6, &earlier);
    pass_on(&mut node, 6, &later);
    let sent = send_acks(&mut node, &[earlier.op, later.op].map(|op| prepare_ack(6, op)));
    assert_eq!(decisions(&sent).len(), 2);
    progress(&mut node, 6, 2);

    node.assign_with(Term(3), Epoch(7), &[other()]);
    let sent = recover(&mut node, 7, 2, vec![undecided[0]]);
    assert_eq!((fetched(&sent), fetched(&pass(&mut node))), (vec![], vec![]));
}

/// A restarted process may have lost an op that its client knows to be complete. Until it is
/// proven, a later op of that client does not make the earlier one look decided.
#[test]
fn lost_op_is_fetched_although_its_client_has_gone_on() {
    let mut node = Node::restarted_with(&[]);
    node.grant_lease(Term(3));
    node.assign_under(Term(3), Epoch(6), OTHER, &[other()]);
    let lost = op(1);
    let second = OpId { sequence: 2, ..lost };
    let later = Update { watermark: 2, ..update(second, b"m", Operation::Increment(1)) };
    pass_on(&mut node, 6, &later);
    decide(&mut node, 6, 1, second);
    assert_eq!(node.engine.len(), 1, "the later op has taken effect");

    node.assign_with(Term(3), Epoch(7), &[other()]);
    let undecided = UndecidedOp { op: lost, contended: false };
    assert_eq!(fetched(&recover(&mut node, 7, 1, vec![undecided])), [Wanted::Op(lost)]);
}
