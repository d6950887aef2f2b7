//! Tests of splits and merges at a node that is the only member of its partitions (R17).

use crate::harness;

use harness::reshaped::{
    Engine, HIGH, KEYS, LOW, Member, PARENT, acks, child, child_of, epoch, half, halves, other_half, reports,
};
use harness::{DAMAGED, Node, answer};
use nicekv_proto::control::{Assign, Member as WireMember, MemberState, Parent, ReportKind};
use nicekv_proto::{ClientId, Duration, MatchRange, OpId, Operation, PartitionId, Status};
use nicekv_replica::DiskSpace;

#[test]
fn child_gets_stored_entries_and_concurrent_writes() {
    let mut member = Member::filled();
    assert_eq!(
        member.apply(OpId { client: ClientId(9), sequence: 1 }, b"f", Operation::Delete),
        Some(Status::Ok)
    );
    assert_eq!(reports(&member.form()), [(PARENT, ReportKind::Formed)]);
    assert!(member.is_formed_as_it_is() && member.values(PARENT).len() == 5);
    member.set(b"a", b"new");
    member.set(b"g", b"new");
    member.apply(OpId { client: ClientId(9), sequence: 2 }, b"b", Operation::Delete);
    assert!(member.is_formed_as_it_is() && member.values(PARENT).len() == 5);
    // The report is repeated at heartbeats.
    assert_eq!(reports(&member.pass(Duration::from_millis(40))), [(PARENT, ReportKind::Formed)]);
}

#[test]
fn page_does_not_overwrite_newer_writes() {
    let mut member = Member::filled();
    member.holds_pages = true;
    assert_eq!(reports(&member.form()), []);
    member.set(b"a", b"new");
    member.apply(OpId { client: ClientId(9), sequence: 1 }, b"b", Operation::Delete);
    member.holds_pages = false;
    member.bring_pages();
    member.run_storage();
    assert_eq!(reports(&member.sent()), [(PARENT, ReportKind::Formed)]);
    assert!(member.is_formed_as_it_is(), "{:?}", member.engine);
    assert!(member.restarted().is_formed_as_it_is());
}

#[test]
fn formed_child_is_reported_when_synced() {
    let mut member = Member::filled();
    member.holds_syncs = true;
    assert_eq!(reports(&member.form()), []);
    assert_eq!(reports(&member.pass(Duration::from_millis(40))), []);
    member.holds_syncs = false;
    member.sync();
    assert_eq!(reports(&member.sent()), [(PARENT, ReportKind::Formed)]);
}

#[test]
fn epoch_without_children_voids_them() {
    for restarts in [false, true] {
        let mut member = Member::filled();
        member.form();
        let log = member.log.len();
        member = if restarts { member.restarted() } else { member };
        member.assign(&epoch(PARENT, MatchRange::ALL, 7));
        assert_eq!((member.values(LOW).len(), member.values(HIGH).len()), (0, 0));
        member.set(b"a", b"new");
        assert_eq!(member.values(child_of(b"a")).len(), 0);
        assert!(member.log.len() > log);
        let mut member = member.restarted();
        assert_eq!((member.values(LOW).len(), member.values(HIGH).len()), (0, 0));
        // Other children, with other ids, may be formed afterwards.
        let range = MatchRange::ALL;
        let children = vec![child(PartitionId(9), range)];
        member.assign(&Assign { children, ..epoch(PARENT, range, 8) });
        assert_eq!(member.values(PartitionId(9)), member.values(PARENT));
    }
}

#[test]
fn sealed_epoch_takes_no_ops_and_answers_gets() {
    let mut member = Member::filled();
    member.form();
    assert_eq!(member.seal(), KEYS.len() as u64);
    assert_eq!(member.set(b"a", b"new"), None);
    assert_eq!(member.get(b"a").as_deref(), Some(&b"old"[..]));
    // Results of earlier ops are still returned.
    let first = OpId { client: ClientId::new(2, 2), sequence: 1 };
    assert_eq!(member.apply(first, b"a", Operation::Increment(1)), Some(Status::Ok));
    assert_eq!(reports(&member.pass(Duration::from_millis(40))), [(PARENT, ReportKind::Drained(6))]);
}

#[test]
fn child_has_its_parents_entries_and_executes_no_op_twice() {
    let mut member = Member::filled();
    member.form();
    let index = member.seal();
    assert_eq!(acks(&member.bear(child_of(b"a"), index)).len(), 1);
    // The other half belongs to the parent until its child takes over, too.
    let other = if child_of(b"a") == LOW { HIGH } else { LOW };
    let theirs = KEYS.into_iter().find(|key| child_of(key) == other).unwrap();
    assert_eq!(member.get(theirs).as_deref(), Some(&b"old"[..]));
    assert!(member.values(PARENT).len() == KEYS.len());
    assert_eq!(acks(&member.bear(other, index)).len(), 1);
    assert_eq!(member.values(PARENT).len(), 0);
    let first = OpId { client: ClientId::new(2, 2), sequence: 1 };
    assert_eq!(
        member.apply(first, b"a", Operation::Delete),
        Some(Status::Ok),
        "a retry gets the result that the parent had returned"
    );
    for key in KEYS {
        assert_eq!(member.get(key).as_deref(), Some(&b"old"[..]));
        assert_eq!(member.set(key, b"new"), Some(Status::Ok));
    }
    let mut member = member.restarted();
    assert_eq!((member.values(PARENT).len(), member.values(LOW).len() + member.values(HIGH).len()), (0, 6));
    member.assign(&epoch(child_of(b"a"), half(), 9));
    assert_eq!(member.values(child_of(b"a"))[&b"a"[..]], b"new");
}

#[test]
fn takeover_is_acknowledged_when_synced_and_late_parent_epochs_are_fenced() {
    let mut member = Member::filled();
    member.form();
    let index = member.seal();
    member.holds_syncs = true;
    let born = [member.bear(LOW, index), member.bear(HIGH, index), member.bear(LOW, index)];
    assert_eq!(born.iter().map(|sent| acks(sent).len()).sum::<usize>(), 0);
    member.holds_syncs = false;
    member.sync();
    let told: Vec<PartitionId> = acks(&member.sent()).iter().map(|ack| ack.partition).collect();
    assert_eq!(told, [LOW, HIGH]);
    for held_up in [5, 6, 7] {
        assert!(
            acks(&member.assign(&epoch(PARENT, MatchRange::ALL, held_up))).iter().all(|ack| ack.discarded)
        );
        assert_eq!(member.get(b"a").as_deref(), Some(&b"old"[..]));
    }
}

#[test]
fn incomplete_child_does_not_take_over() {
    let mut member = Member::filled();
    assert_eq!(acks(&member.bear(LOW, 6)), [], "no child is formed yet");
    member.form();
    let index = member.seal();
    assert_eq!(acks(&member.bear(LOW, index + 1)), []);
    assert_eq!(acks(&member.bear(LOW, index - 1)), []);
    let whole =
        Assign { parents: vec![Parent { partition: PARENT, index }], ..epoch(LOW, MatchRange::ALL, 8) };
    assert_eq!(acks(&member.assign(&whole)), [], "the formed child has another range");
    assert_eq!(member.get(b"a").as_deref(), Some(&b"old"[..]));
    assert_eq!(acks(&member.bear(LOW, index)).len(), 1);
}

#[test]
fn formed_child_takes_over_after_power_loss_and_checkpoint() {
    for checkpoints in [false, true] {
        let mut member = Member::filled();
        member.form();
        member.set(b"a", b"new");
        if checkpoints {
            member.core.checkpoint();
            member.run_storage();
            assert!(member.trimmed > 0);
        }
        member.set(b"b", b"new");
        let index = member.seal();
        let mut member = member.restarted();
        assert_eq!(acks(&member.bear(LOW, index)).len() + acks(&member.bear(HIGH, index)).len(), 2);
        for (key, value) in [(b"a", &b"new"[..]), (b"b", b"new"), (b"c", b"old")] {
            assert_eq!(member.get(key).as_deref(), Some(value));
        }
        let first = OpId { client: ClientId::new(2, 2), sequence: 1 };
        assert_eq!(member.apply(first, b"a", Operation::Delete), Some(Status::Ok));
        assert_eq!(member.get(b"a").as_deref(), Some(&b"new"[..]), "the op was executed once");
    }
}

#[test]
fn unfinished_child_is_void_after_a_restart() {
    let mut member = Member::filled();
    member.holds_pages = true;
    member.form();
    let mut member = member.restarted();
    assert_eq!(acks(&member.bear(LOW, 6)), []);
    let again = Assign { children: halves(), ..epoch(PARENT, MatchRange::ALL, 6) };
    assert_eq!(
        reports(&member.assign(&again)),
        [(PARENT, ReportKind::Formed)],
        "all of the parent is read again"
    );
    assert!(member.is_formed_as_it_is());
}

#[test]
fn child_that_joins_begins_empty() {
    let mut member = Member::filled();
    member.form();
    let index = member.seal();
    let joins = Assign {
        members: vec![WireMember { state: MemberState::Joining, ..Node::me() }],
        parents: vec![Parent { partition: PARENT, index }],
        ..epoch(LOW, half(), 9)
    };
    assert_eq!(acks(&member.assign(&joins)).len(), 1);
    assert_eq!(member.values(LOW).len(), 0);
    assert!(!member.values(HIGH).is_empty());
    // A late assignment of an earlier epoch is answered with the current epoch.
    let epochs: Vec<_> = acks(&member.bear(LOW, index)).iter().map(|ack| ack.epoch.0).collect();
    assert_eq!(epochs, [9]);
    assert_eq!(member.values(LOW).len(), 0);
    assert_eq!(acks(&member.bear(HIGH, index)).len(), 1);
}

#[test]
fn merge_unites_client_records() {
    let mut member = Member::started(Engine::new(), Vec::new());
    let united = vec![child(PartitionId(9), MatchRange::ALL)];
    member.assign(&epoch(LOW, half(), 5));
    member.assign(&epoch(HIGH, other_half(), 15));
    let first: Vec<OpId> = KEYS
        .iter()
        .map(|key| {
            let op = member.next_op();
            member.apply(op, key, Operation::Increment(1));
            op
        })
        .collect();
    let formed = |member: &mut Member, sealed| {
        let add = 1 + u32::from(sealed);
        let mut sent =
            member.assign(&Assign { children: united.clone(), sealed, ..epoch(LOW, half(), 5 + add) });
        sent.extend(member.assign(&Assign {
            children: united.clone(),
            sealed,
            ..epoch(HIGH, other_half(), 15 + add)
        }));
        reports(&sent)
    };
    assert_eq!(formed(&mut member, false), [(LOW, ReportKind::Formed), (HIGH, ReportKind::Formed)]);
    let (ReportKind::Drained(low), ReportKind::Drained(high)) = (match formed(&mut member, true)[..] {
        [(LOW, low), (HIGH, high)] => (low, high),
        ref other => panic!("{other:?}"),
    }) else {
        panic!("the parent was not drained")
    };
    assert_eq!(low + high, KEYS.len() as u64);
    let parents = vec![Parent { partition: LOW, index: low }, Parent { partition: HIGH, index: high }];
    let one = Assign { parents, ..epoch(PartitionId(9), MatchRange::ALL, 18) };
    let mut member = member.restarted();
    assert_eq!(acks(&member.assign(&one)).len(), 1);
    for (op, key) in first.into_iter().zip(KEYS) {
        assert_eq!(member.apply(op, key, Operation::Increment(1)), Some(Status::Ok));
        assert_eq!(member.get(key).as_deref(), Some(&b"1"[..]), "each op was executed once");
    }
    assert_eq!((member.values(LOW).len(), member.values(HIGH).len()), (0, 0));
}

#[test]
fn get_waits_for_the_repair_of_a_damaged_value() {
    let mut member = Member::filled();
    member.engine.insert((PARENT, b"c".to_vec()), DAMAGED.to_vec());
    assert_eq!(reports(&member.form()), []);
    assert_eq!(reports(&member.pass(Duration::from_millis(40))), []);
    member.set(b"c", b"new");
    assert_eq!(reports(&member.pass(Duration::from_millis(40))), [(PARENT, ReportKind::Formed)]);
    assert!(member.is_formed_as_it_is());
}

#[test]
fn full_disk_stops_forming() {
    let mut member = Member::filled();
    member.core.set_disk_space(DiskSpace::Reserve);
    member.form();
    assert_eq!(reports(&member.pass(Duration::from_millis(40))), []);
    member.core.set_disk_space(DiskSpace::Enough);
    assert_eq!(reports(&member.pass(Duration::from_millis(40))), [(PARENT, ReportKind::Formed)]);
}

#[test]
fn parent_ends_when_idle_and_takes_no_requests_until_then() {
    let mut member = Member::filled();
    let all = vec![child(LOW, MatchRange::ALL)];
    member.assign(&Assign { children: all.clone(), ..epoch(PARENT, MatchRange::ALL, 6) });
    member.assign(&Assign { children: all, sealed: true, ..epoch(PARENT, MatchRange::ALL, 7) });
    member.holds_reads = true;
    assert_eq!(member.get(b"a"), None);
    let one = Assign {
        parents: vec![Parent { partition: PARENT, index: KEYS.len() as u64 }],
        ..epoch(LOW, MatchRange::ALL, 8)
    };
    assert_eq!(acks(&member.assign(&one)), []);
    assert_eq!((member.get(b"b"), member.reads.len()), (None, 1));
    member.holds_reads = false;
    member.bring_reads();
    member.run_storage();
    let sent = member.sent();
    assert_eq!(answer(&sent).and_then(|(_, value)| value).as_deref(), Some(&b"old"[..]));
    assert_eq!(acks(&sent).len(), 1);
    assert_eq!(member.get(b"b").as_deref(), Some(&b"old"[..]));
}
