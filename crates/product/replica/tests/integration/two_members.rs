//! Tests of one replica of two: what it sends to the other one, and how it handles the other one's
//! messages. The test plays the other replica.

use crate::harness;

use harness::pair::{
    OTHER, OTHER_ADDRESS, PARTITION, ack, acks, decide, decision, decisions, increment, op, other, primary,
    progress, recover, send_decision, watermark,
};
use harness::{CLIENT, Node, answer, update};
use nicekv_proto::chunk::Round;
use nicekv_proto::placement::key_digest;
use nicekv_proto::recovery::{RecoverRequest, UndecidedOp};
use nicekv_proto::replication::{Decision, Effect, Resend};
use nicekv_proto::scan::{Scan, ScanWants};
use nicekv_proto::{
    Condition, Datagram, Duration, Epoch, Expiry, Get, KeyDigest, KeyspaceId, MatchRange, NodeId, OpId,
    Operation, Status, Term, Update,
};
use nicekv_replica::{ShiftKind, Step, StorageCompletion, TraceEvent};

#[test]
fn second_op_of_a_key_stays_contended_in_later_epochs() {
    let mut node = Node::started();
    node.assign_under(Term(3), Epoch(1), OTHER, &[other()]);
    let told: Vec<bool> =
        [1, 2].iter().flat_map(|c| acks(&increment(&mut node, *c))).map(|a| a.contended).collect();
    assert_eq!(told, [false, true]);
    node.assign_under(Term(3), Epoch(6), OTHER, &[other()]);
    let request = RecoverRequest { sender: OTHER, partition: PARTITION, epoch: Epoch(6), cursor: 0 };
    let sent = node.receive(OTHER_ADDRESS, |out| request.encode(out));
    let Datagram::RecoverReply(reply) = Datagram::decode(&sent[0].1).unwrap().1 else { panic!("{sent:?}") };
    let expected = [(1, false), (2, true)].map(|(c, contended)| UndecidedOp { op: op(c), contended });
    assert_eq!(reply.undecided, expected);
    // If the ops arrive again, the replica acknowledges them as before.
    for (client, contended) in [(1, false), (2, true)] {
        let again = acks(&increment(&mut node, client));
        assert_eq!((again.len(), again[0].contended, again[0].epoch), (1, contended, Epoch(6)));
    }
}

/// A primary may refuse an op that it does not hold, and decide the next op of the key before all
/// members have synced the refusal. Seed 10950: a member then told the next primary that all had it,
/// and one that lacked it counted as having lost data.
#[test]
fn refusal_is_not_released_by_the_next_decision_of_its_key() {
    let mut node = Node::started();
    node.assign_under(Term(3), Epoch(1), OTHER, &[other()]);
    increment(&mut node, 1);
    increment(&mut node, 2);
    let refusal = Decision {
        status: Status::DiskFull,
        effect: Effect::None,
        contended: true,
        value: b"",
        ..decision(1, 1, op(1))
    };
    send_decision(&mut node, refusal);
    decide(&mut node, 1, 2, op(2));
    assert_eq!(node.engine.len(), 1, "the second op has taken effect");

    node.assign_under(Term(3), Epoch(6), OTHER, &[other()]);
    let request = RecoverRequest { sender: OTHER, partition: PARTITION, epoch: Epoch(6), cursor: 0 };
    let sent = node.receive(OTHER_ADDRESS, |out| request.encode(out));
    let Datagram::RecoverReply(reply) = Datagram::decode(&sent[0].1).unwrap().1 else { panic!("{sent:?}") };
    assert_eq!((reply.logged, reply.released), (2, 0));
}

#[test]
fn uncontended_op_is_decided_and_answered_at_once() {
    let mut node = primary();
    assert_eq!(decisions(&increment(&mut node, 1)), []);
    let sent = ack(&mut node, 5, 1, false);
    assert_eq!(decisions(&sent), [(op(1), false, Status::Ok, 1)]);
    assert_eq!(answer(&sent), Some((Status::Ok, None)));
}

/// A member may have the op before the primary has it. An operator who traces the client sees each
/// member that has synced the op.
#[test]
fn trace_shows_acks_before_and_after_the_op() {
    for is_early in [true, false] {
        let mut node = primary();
        node.core.trace().watch(op(1).client);
        for is_ack in [is_early, !is_early] {
            if is_ack {
                ack(&mut node, 5, 1, false);
            } else {
                increment(&mut node, 1);
            }
        }
        let events = node.core.trace().events(op(1).client);
        let by = |event: &TraceEvent| match event.step {
            Step::Acknowledged(by) => Some(by),
            _ => None,
        };
        let mut by: Vec<NodeId> = events.iter().filter_map(by).collect();
        by.sort();
        assert_eq!(by, [NodeId(1), OTHER], "early: {is_early}: {events:?}");
    }
}

/// If any member reports contention, the reply waits until all have synced the decision.
#[test]
fn contended_op_is_answered_when_all_have_its_decision() {
    let mut node = primary();
    increment(&mut node, 1);
    let sent = ack(&mut node, 5, 1, true);
    assert_eq!((decisions(&sent), answer(&sent)), (vec![(op(1), true, Status::Ok, 1)], None));
    assert_eq!(node.engine.len(), 0);
    assert_eq!(answer(&progress(&mut node, 5, 1)), Some((Status::Ok, None)));
    // This time only the primary itself finds contention.
    increment(&mut node, 2);
    increment(&mut node, 3);
    ack(&mut node, 5, 2, false);
    progress(&mut node, 5, 2);
    assert_eq!(decisions(&ack(&mut node, 5, 3, false)), [(op(3), true, Status::Ok, 3)]);
}

/// An update of an object's name carries a stamp that tells the age of its chunks (P8, P9). A
/// refusal is shown only when both members have it, because the next primary would not refuse an op
/// that is still open (R3).
#[test]
fn object_names_refuse_old_stamps() {
    let mut node = primary_of_names(Round(4));
    let set = Operation::Set { value: b"chunks", expiry: Expiry::Never };
    let mut client = 0;
    let mut decided = |node: &mut Node, operation, condition| {
        client += 1;
        let asked = Update { condition, ..update(op(client), b"name", operation) };
        // The primary does not log an op that it refuses.
        let mut sent = node.receive(CLIENT, |out| asked.encode(out));
        if decisions(&sent).is_empty() {
            sent = ack(node, 5, client, false);
        }
        let [(_, contended, status, _)] = decisions(&sent)[..] else { panic!("{sent:?}") };
        (status, contended, answer(&sent), answer(&progress(node, 5, client)))
    };
    let refused = (Status::StaleStamp, true, None, Some((Status::StaleStamp, None)));
    for condition in [Condition::Always, Condition::Stamped(Round(3)), Condition::IfAbsent] {
        assert_eq!(decided(&mut node, set, condition), refused, "{condition:?}");
    }
    for operation in [Operation::Append(b"x"), Operation::Increment(1)] {
        assert_eq!(decided(&mut node, operation, Condition::Always), refused, "{operation:?}");
    }
    let told = |status| (status, false, Some((status, None)), None);
    let of_none = |stamp| Condition::StampedIfVersion { stamp, version: OpId::NONE };
    assert_eq!(decided(&mut node, set, of_none(Round(4))), told(Status::Ok));
    assert_eq!(decided(&mut node, set, of_none(Round(9))), told(Status::ConditionFailed));
    assert_eq!(decided(&mut node, set, of_none(Round(1))), refused);
    for operation in [
        Operation::Expire { at_ms: 9_000_000, condition: Default::default() },
        Operation::Persist,
        Operation::Delete,
    ] {
        assert_eq!(decided(&mut node, operation, Condition::Always), told(Status::Ok), "{operation:?}");
    }
}

/// An op that was open when its member adopted the round may have been answered, so its stamp is
/// not checked.
#[test]
fn stamp_is_checked_against_the_current_epoch_only() {
    let mut node = Node::started();
    node.stamp_min = Round(4);
    node.assign_with(Term(3), Epoch(5), &[other()]);
    recover(&mut node, 5, 0, Vec::new());
    let put = |client, key| {
        let set = Operation::Set { value: b"chunks", expiry: Expiry::Never };
        Update { condition: Condition::Stamped(Round(4)), ..update(op(client), key, set) }
    };
    node.receive(CLIENT, |out| put(1, b"one").encode(out));
    node.stamp_min = Round(5);
    node.assign_with(Term(3), Epoch(6), &[other()]);
    recover(&mut node, 6, 0, Vec::new());
    assert_eq!(decisions(&ack(&mut node, 6, 1, false)), [(op(1), true, Status::Ok, 0)]);
    let logged = node.log.len();
    let sent = node.receive(CLIENT, |out| put(2, b"other").encode(out));
    assert_eq!(decisions(&sent), [(op(2), true, Status::StaleStamp, 0)]);
    assert_eq!(node.log.len(), logged + 1, "only the decision is logged");
    // No other member logs a refused op either.
    node.assign_under(Term(3), Epoch(7), OTHER, &[other()]);
    let logged = node.log.len();
    let sent = node.receive(CLIENT, |out| put(3, b"third").encode(out));
    assert_eq!(acks(&sent).iter().map(|ack| (ack.op, ack.refused)).collect::<Vec<_>>(), [(op(3), true)]);
    assert_eq!(node.log.len(), logged);
}

/// Seed 397: a member had not synced an update when its stamp became too old, and did not report it
/// to the primary, which listed the names; a later primary took the update for one that might have
/// been answered, and executed it. Its chunks may have been deleted by then (P8).
#[test]
fn names_are_not_listed_while_an_update_with_an_old_stamp_is_open() {
    let mut node = primary_of_names(Round(5));
    assert!(is_listed(&mut node));
    assert_eq!(decisions(&ack(&mut node, 5, 1, false)), []);
    assert!(!is_listed(&mut node), "the other member holds an op that is not known here");
    let put = stamped(op(1), Round(4));
    let mut datagram = Vec::new();
    put.encode(&mut datagram);
    let (sender, partition, epoch) = (OTHER, PARTITION, Epoch(5));
    let resend = Resend { partition, epoch, sender, logged: 0, datagram: &datagram };
    let sent = node.receive(OTHER_ADDRESS, |out| resend.encode(out));
    assert_eq!(decisions(&sent), [(op(1), true, Status::StaleStamp, 0)]);
    assert!(!is_listed(&mut node), "the other member may lead without knowing of the refusal");
    progress(&mut node, 5, 1);
    assert!(is_listed(&mut node));
}

#[test]
fn member_of_names_reports_to_a_primary_when_all_its_ops_are_synced() {
    for (stamp_min, reports) in [(Round(0), true), (Round(4), false)] {
        let mut node = Node::started();
        node.stamp_min = stamp_min;
        node.assign_under(Term(3), Epoch(1), OTHER, &[other()]);
        node.syncs_nothing = true;
        let put = stamped(op(1), Round(4));
        node.receive(CLIENT, |out| put.encode(out));
        node.assign_under(Term(3), Epoch(6), OTHER, &[other()]);
        let request = RecoverRequest { sender: OTHER, partition: PARTITION, epoch: Epoch(6), cursor: 0 };
        let undecided = |sent: &harness::pair::Sent| {
            sent.iter().find_map(|(_, bytes)| match Datagram::decode(bytes).unwrap().1 {
                Datagram::RecoverReply(reply) => Some(reply.undecided.len()),
                _ => None,
            })
        };
        let sent = node.receive(OTHER_ADDRESS, |out| request.encode(out));
        assert_eq!(undecided(&sent), reports.then_some(0), "{stamp_min:?}");
        node.syncs_nothing = false;
        let through = node.log.len() as u64;
        node.core.handle_storage(node.now, StorageCompletion::Synced { through });
        let sent = node.receive(OTHER_ADDRESS, |out| request.encode(out));
        assert_eq!(undecided(&sent), Some(1));
    }
}

/// A primary of object names, with a lease, whose epoch accepts no older stamps.
fn primary_of_names(stamp_min: Round) -> Node {
    let mut node = Node::started();
    node.grant_lease(Term(3));
    node.stamp_min = stamp_min;
    node.assign_with(Term(3), Epoch(5), &[other()]);
    recover(&mut node, 5, 0, Vec::new());
    node
}

fn stamped(op: OpId, stamp: Round) -> Update<'static> {
    let set = Operation::Set { value: b"chunks", expiry: Expiry::Never };
    Update { condition: Condition::Stamped(stamp), ..update(op, b"name", set) }
}

/// A target lists all names; returns whether it gets an answer.
fn is_listed(node: &mut Node) -> bool {
    let scan = Scan {
        keyspace: KeyspaceId::DEFAULT,
        op: node.op(),
        digest: KeyDigest::default(),
        reply_to: None,
        forwarded: None,
        wants: ScanWants::Values,
        pieces: 1,
        is_cut: false,
        range: MatchRange::ALL,
        after: None,
        padding: 1_000,
    };
    let sent = node.receive(CLIENT, |out| scan.encode(out));
    sent.iter().any(|(to, bytes)| {
        *to == CLIENT && matches!(Datagram::decode(bytes).unwrap().1, Datagram::ScanPiece(_))
    })
}

/// An op is contended if an earlier contended op of its key is not released yet: that one has to be
/// released first.
#[test]
fn op_after_an_unreleased_decision_is_contended() {
    let mut node = primary();
    increment(&mut node, 1);
    ack(&mut node, 5, 1, true);
    increment(&mut node, 2);
    let sent = ack(&mut node, 5, 2, false);
    assert_eq!((decisions(&sent), answer(&sent)), (vec![(op(2), true, Status::Ok, 2)], None));
    // The other member has synced only up to the first decision.
    assert_eq!(answer(&progress(&mut node, 5, 1)), Some((Status::Ok, None)));
    assert_eq!(node.engine.len(), 1);
    assert_eq!(answer(&progress(&mut node, 5, 1)), None);
    assert_eq!(answer(&progress(&mut node, 5, 2)), Some((Status::Ok, None)));
}

/// In whatever order the network delivers decisions, they take effect in index order. If an earlier
/// one is late or lost, the primary is notified of the gap at once.
#[test]
fn early_decision_waits_for_earlier_ones() {
    let mut node = Node::started();
    node.assign_under(Term(3), Epoch(5), OTHER, &[other()]);
    watermark(&mut node, 5, 0);
    for client in 1..=3 {
        node.receive(CLIENT, |out| update(op(client), &[client as u8], Operation::Increment(1)).encode(out));
    }
    let gaps = |sent: &harness::pair::Sent| -> Vec<(u64, bool)> {
        let acks = sent.iter().filter_map(|(_, bytes)| match Datagram::decode(bytes).unwrap().1 {
            Datagram::Acks(acks) => Some(acks.progress.iter().map(|p| (p.logged, p.gap)).collect::<Vec<_>>()),
            _ => None,
        });
        acks.flatten().collect()
    };
    assert_eq!(gaps(&decide(&mut node, 5, 3, op(3))), [(0, true)]);
    assert_eq!(node.engine.len(), 0);
    decide(&mut node, 5, 1, op(1));
    assert_eq!(node.engine.len(), 1);
    decide(&mut node, 5, 2, op(2));
    assert_eq!(node.engine.len(), 3);
}

/// An op that was open when an epoch began may have been answered. So it is decided as contended,
/// in the old order, and needs acks of this epoch.
#[test]
fn recovered_op_is_contended_and_needs_new_acks() {
    let mut node = primary();
    increment(&mut node, 1);
    increment(&mut node, 2);
    ack(&mut node, 5, 2, false);
    node.assign_with(Term(3), Epoch(6), &[other()]);
    let sent = recover(&mut node, 6, 0, Vec::new());
    assert_eq!(decisions(&sent), [], "acks of epoch 5 are void");
    assert_eq!(decisions(&ack(&mut node, 5, 1, false)), [], "late acks of epoch 5 do not count either");
    assert_eq!(decisions(&ack(&mut node, 6, 2, false)), [], "the older op has to be decided first");
    let decided = decisions(&ack(&mut node, 6, 1, false));
    assert_eq!(decided, [(op(1), true, Status::Ok, 1), (op(2), true, Status::Ok, 2)]);
    assert_eq!(answer(&progress(&mut node, 6, 2)), Some((Status::Ok, None)));
}

/// The undecided ops that a member reports at the start of the epoch count as acknowledged by it.
#[test]
fn recovery_counts_held_ops_and_waits_for_the_rest() {
    let mut node = primary();
    increment(&mut node, 1);
    increment(&mut node, 2);
    node.assign_with(Term(3), Epoch(6), &[other()]);
    let held = vec![UndecidedOp { op: op(1), contended: false }];
    assert_eq!(decisions(&recover(&mut node, 6, 0, held)), [(op(1), true, Status::Ok, 1)]);
    assert_eq!(decisions(&ack(&mut node, 6, 2, false)), [(op(2), true, Status::Ok, 2)]);
}

/// A listener that shows entries outside of the core must have closed them before the op is
/// acknowledged, and before the node leaves the epoch.
#[test]
fn datagrams_wait_for_visibility_to_be_polled() {
    let mut node = primary();
    node.core.tell_visibility();
    let key = || b"n".as_slice().into();
    // Changes of keys that no get has asked for are not reported.
    increment(&mut node, 1);
    ack(&mut node, 5, 1, false);
    assert_eq!(node.shifts(), []);
    let get = Get {
        keyspace: KeyspaceId::DEFAULT,
        op: op(9),
        digest: key_digest(b"n"),
        reply_to: None,
        forwarded: None,
        key: b"n",
        padding: 0,
    };
    assert_eq!(node.receive(CLIENT, |out| get.encode(out)), [], "the reply waits for the polled changes");
    let stored = node.engine[b"n".as_slice()].clone();
    assert_eq!(node.shifts(), [ShiftKind::Read(key(), stored)]);
    node.sent();
    assert_eq!(increment(&mut node, 2), []);
    assert_eq!(node.shifts(), [ShiftKind::Locked(key())]);
    assert_eq!(ack(&mut node, 5, 2, false), [], "the reply waits for the polled changes");
    let stored = node.engine[b"n".as_slice()].clone();
    assert_eq!(node.shifts(), [ShiftKind::Changed(key(), Some(stored)), ShiftKind::Unlocked(key())]);
    assert_eq!(answer(&node.sent()), Some((Status::Ok, None)));
    // Two ops of one key lock it only once.
    increment(&mut node, 3);
    increment(&mut node, 4);
    assert_eq!(node.shifts(), [ShiftKind::Locked(key())]);
    assert_eq!(
        node.assign_members(Term(3), Epoch(6), OTHER, vec![other()]),
        [],
        "the acknowledgement of the epoch waits, too"
    );
    assert_eq!(node.shifts(), [ShiftKind::Unknown]);
    assert_eq!(node.sent().len(), 1);
}

/// An op below its client's watermark was given up by the client. A member still accepts it if the
/// primary holds it undecided: without this member's ack it would stay open there.
#[test]
fn member_takes_in_an_expired_op_that_is_open_at_the_primary() {
    let mut node = Node::started();
    node.assign_under(Term(3), Epoch(1), OTHER, &[other()]);
    let put = |sequence, watermark| {
        let op = OpId { sequence, ..op(1) };
        Update { watermark, ..update(op, b"n", Operation::Increment(1)) }
    };
    let newer = put(5, 5);
    assert_eq!(acks(&node.receive(CLIENT, |out| newer.encode(out))).len(), 1);
    decide(&mut node, 1, 1, newer.op);
    assert_eq!(node.engine.len(), 1);
    let older = put(3, 3);
    assert_eq!(
        acks(&node.receive(CLIENT, |out| older.encode(out))),
        [],
        "refused: the op may have been executed"
    );
    let mut resend = |logged| {
        let mut datagram = Vec::new();
        older.encode(&mut datagram);
        let resend =
            Resend { partition: PARTITION, epoch: Epoch(1), sender: OTHER, logged, datagram: &datagram };
        acks(&node.receive(OTHER_ADDRESS, |out| resend.encode(out)))
    };
    assert_eq!(resend(0), [], "refused: the op may have been decided since");
    assert_eq!(resend(1).len(), 1);
}

#[test]
fn node_outside_takes_in_nothing_and_a_primary_sends_no_acks() {
    let mut node = Node::started();
    node.assign_members(Term(3), Epoch(5), OTHER, vec![other()]);
    let dropped = node.core.status().counters.dropped;
    assert_eq!(increment(&mut node, 1), []);
    assert_eq!(node.core.status().counters.dropped, dropped + 1);
    let mut node = primary();
    assert_eq!(acks(&increment(&mut node, 1)), []);
    assert_eq!(acks(&increment(&mut node, 1)), [], "no ack when the op arrives again either");
}

/// An op that arrives again before it is synced, or whose ack is due again, is not acknowledged.
#[test]
fn unsynced_op_is_not_acknowledged() {
    let mut node = Node::started();
    node.assign_under(Term(3), Epoch(5), OTHER, &[other()]);
    node.syncs_nothing = true;
    assert_eq!(acks(&increment(&mut node, 1)), []);
    assert_eq!(acks(&increment(&mut node, 1)), []);
    node.pass(Duration::from_millis(1_000));
    assert_eq!(acks(&node.sent()), []);
}
