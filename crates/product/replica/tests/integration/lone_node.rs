//! Tests of a single replica with a map as its disk: what it answers, and when it does not.

use crate::harness;

use harness::{CLIENT, DAMAGED, LEASE_NS, Node, answer, is_value, update};
use nicekv_proto::Duration;
use nicekv_proto::control::{Member, MemberRole, MemberState};
use nicekv_proto::limits::VALUE_BYTES_MAX;
use nicekv_proto::placement::key_digest;
use nicekv_proto::recovery::{CopyFrame, CopySection, RecoverReply};
use nicekv_proto::{
    ClientId, Condition, Epoch, Expiry, NodeId, OpId, Operation, PartitionId, Status, Term, Update,
};
use nicekv_replica::{CLIENT_BYTES_MAX, CLIENTS_BYTES_MAX};
use nicekv_replica::{DiskSpace, StreamPeer, Timing};

#[test]
fn put_is_answered_when_synced_and_then_read() {
    let mut node = Node::serving();
    assert_eq!(node.get(b"k"), Some((Status::NotFound, None)));
    assert_eq!(node.set(b"k", b"v", Expiry::Never), Some(Status::Ok));
    assert_eq!(node.get(b"k"), Some((Status::Ok, Some(b"v".to_vec()))));
    let mut out = Vec::new();
    let unsynced = update(node.op(), b"k", Operation::Delete);
    unsynced.encode(&mut out);
    node.core.handle_datagram(node.now, CLIENT, &out);
    assert_eq!(node.core.poll_transmit(&mut out), None, "no reply before the sync");
}

#[test]
fn restarted_node_is_silent_until_admitted() {
    let mut node = Node::started();
    node.grant_lease(Term(3));
    assert_eq!(node.get(b"k"), None);
    assert_eq!(node.set(b"k", b"v", Expiry::Never), None);
    node.assign(Term(3), Epoch(5));
    assert_eq!(node.set(b"k", b"v", Expiry::Never), Some(Status::Ok));
}

#[test]
fn gets_end_with_the_lease_and_puts_continue() {
    let mut node = Node::serving();
    node.now.boot_ns += LEASE_NS;
    assert_eq!(node.get(b"k"), None);
    assert_eq!(node.set(b"k", b"v", Expiry::Never), Some(Status::Ok));
    node.grant_lease(Term(3));
    assert_eq!(node.get(b"k"), Some((Status::Ok, Some(b"v".to_vec()))));
}

#[test]
fn older_leader_is_refused() {
    let mut node = Node::serving();
    assert_eq!(node.assign(Term(2), Epoch(9)), []);
    assert_eq!(node.core.status().partitions[0].epoch, Epoch(5));
    node.now.boot_ns += LEASE_NS;
    node.grant_lease(Term(2));
    assert_eq!(node.get(b"k"), None);
    assert_eq!(node.core.status().counters.refused, 2);
}

#[test]
fn row_33_request_of_an_unknown_keyspace_is_dropped() {
    let mut node = Node::serving();
    let records = node.log.len();
    let put = update(node.op(), b"k", Operation::Set { value: b"v", expiry: Expiry::Never });
    let sent = node.receive(CLIENT, |out| {
        put.encode(out);
        out[6..8].copy_from_slice(&9u16.to_be_bytes());
    });
    // The request is not refused, because another member may know the keyspace already and execute
    // it.
    assert_eq!(sent, []);
    assert_eq!((node.log.len(), node.engine.len()), (records, 0));
    assert_eq!(node.core.status().counters.dropped, 1);
}

#[test]
fn update_with_a_wrong_digest_stores_nothing() {
    let mut node = Node::serving();
    let records = node.log.len();
    let lie = Update {
        digest: key_digest(b"another"),
        ..update(node.op(), b"k", Operation::Set { value: b"v", expiry: Expiry::Never })
    };
    assert_eq!(node.receive(CLIENT, |out| lie.encode(out)), []);
    assert_eq!((node.log.len(), node.core.status().counters.malformed), (records, 1));
}

#[test]
fn retry_gets_the_first_result() {
    let mut node = Node::serving();
    let increment = update(node.op(), b"n", Operation::Increment(1));
    for _ in 0..3 {
        let sent = node.receive(CLIENT, |out| increment.encode(out));
        assert_eq!(answer(&sent), Some((Status::Ok, None)));
    }
    assert_eq!(node.get(b"n"), Some((Status::Ok, Some(b"1".to_vec()))));
    // Once the client's watermark has passed the op, a late duplicate is refused.
    let later = Update { watermark: 3, ..update(node.op(), b"n", Operation::Increment(1)) };
    node.receive(CLIENT, |out| later.encode(out));
    let sent = node.receive(CLIENT, |out| increment.encode(out));
    assert_eq!(answer(&sent), Some((Status::Expired, None)));
    assert_eq!(node.get(b"n"), Some((Status::Ok, Some(b"2".to_vec()))));
}

#[test]
fn overdue_value_is_removed_by_a_logged_delete() {
    let mut node = Node::serving();
    let at_ms = node.now.unix_ms + 50;
    assert_eq!(node.set(b"k", b"v", Expiry::At(at_ms)), Some(Status::Ok));
    assert_eq!(node.get(b"k"), Some((Status::Ok, Some(b"v".to_vec()))));
    node.now.unix_ms = at_ms;
    let records = node.log.len();
    assert_eq!(node.get(b"k"), Some((Status::NotFound, None)));
    assert_eq!(node.log.len(), records + 2, "the delete logs a prepare and a decision");
    assert_eq!(node.engine.len(), 1, "a tombstone stays until the decision is known to be durable");
    node.pass(Duration::from_secs(1));
    assert_eq!(node.engine.len(), 0);
    // A condition, too, must treat the key as absent.
    node.set(b"k", b"v", Expiry::At(at_ms));
    let absent = Update {
        condition: Condition::IfAbsent,
        ..update(node.op(), b"k", Operation::Set { value: b"w", expiry: Expiry::Never })
    };
    let sent = node.receive(CLIENT, |out| absent.encode(out));
    assert_eq!(answer(&sent), Some((Status::Ok, None)));
}

/// A key used as a token must be accepted only once, and not after its expiry, whichever op removes
/// it.
#[test]
fn delete_finds_an_overdue_value_expired() {
    let mut node = Node::serving();
    let at_ms = node.now.unix_ms + 50;
    for (key, return_old) in [(b"a", false), (b"b", true)] {
        node.set(key, b"token", Expiry::At(at_ms));
        node.now.unix_ms = at_ms - 1;
        let take = Update { return_old, ..update(node.op(), key, Operation::Delete) };
        let sent = node.receive(CLIENT, |out| take.encode(out));
        assert_eq!(answer(&sent), Some((Status::Ok, return_old.then(|| b"token".to_vec()))));
        node.set(key, b"token", Expiry::At(at_ms));
        node.now.unix_ms = at_ms;
        let take = Update { return_old, ..update(node.op(), key, Operation::Delete) };
        let sent = node.receive(CLIENT, |out| take.encode(out));
        assert_eq!(answer(&sent), Some((Status::NotFound, None)));
    }
}

#[test]
fn unread_overdue_values_go_at_a_bounded_rate() {
    let mut node = Node::serving();
    let (at_ms, keys) = (node.now.unix_ms + 1_000, 1_000u32);
    for key in 0..keys {
        node.set(&key.to_be_bytes(), b"v", Expiry::At(at_ms));
    }
    node.set(b"stays", b"v", Expiry::Never);
    let timing = Timing::default();
    let values = |node: &Node| node.engine.values().filter(|entry| is_value(entry)).count();
    node.pass(timing.heartbeat);
    assert_eq!(values(&node), keys as usize + 1);
    node.now.unix_ms = at_ms;
    let per_heartbeat = 80;
    assert_eq!(timing.expiry_deletes_per_second / 25, per_heartbeat);
    for beat in 1..=keys.div_ceil(per_heartbeat) {
        node.pass(timing.heartbeat);
        assert_eq!(values(&node), keys.saturating_sub(beat * per_heartbeat) as usize + 1);
    }
}

/// The node's own client was idle in this partition while very many others were active.
#[test]
fn node_renews_its_forgotten_client() {
    let mut node = Node::serving();
    let at_ms = node.now.unix_ms + 50;
    node.set(b"k", b"v", Expiry::At(at_ms));
    for client in 0..CLIENTS_BYTES_MAX as u64 / 160 + 1 {
        let op = OpId { client: ClientId::new(3, client), sequence: 1 };
        let missing = update(op, b"other", Operation::Persist);
        node.receive(CLIENT, |out| missing.encode(out));
    }
    node.now.unix_ms = at_ms;
    node.sequence = 10;
    assert_eq!(node.get(b"k"), Some((Status::NotFound, None)));
}

#[test]
fn row_09_full_disk_refuses_puts_and_nothing_else() {
    let mut node = Node::serving();
    node.set(b"k", b"v", Expiry::Never);
    node.set(b"old", b"v", Expiry::Never);
    node.core.set_disk_space(DiskSpace::Reserve);
    let put = update(node.op(), b"k", Operation::Set { value: b"w", expiry: Expiry::Never });
    let sent = node.receive(CLIENT, |out| put.encode(out));
    assert_eq!(answer(&sent), Some((Status::DiskFull, None)));
    assert_eq!(node.get(b"k"), Some((Status::Ok, Some(b"v".to_vec()))));
    let delete = update(node.op(), b"old", Operation::Delete);
    let sent = node.receive(CLIENT, |out| delete.encode(out));
    assert_eq!(answer(&sent), Some((Status::Ok, None)), "deletes are accepted, because they free space");
    node.core.set_disk_space(DiskSpace::Exhausted);
    let delete = update(node.op(), b"k", Operation::Delete);
    let sent = node.receive(CLIENT, |out| delete.encode(out));
    assert_eq!(answer(&sent), Some((Status::DiskFull, None)));
    node.core.set_disk_space(DiskSpace::Enough);
    let sent = node.receive(CLIENT, |out| put.encode(out));
    assert_eq!(answer(&sent), Some((Status::DiskFull, None)), "a refused op stays refused");
    assert_eq!(node.set(b"k", b"w", Expiry::Never), Some(Status::Ok));
    assert_eq!(node.get(b"k"), Some((Status::Ok, Some(b"w".to_vec()))));
}

#[test]
fn row_10_damaged_value_is_never_served_and_may_be_overwritten() {
    let mut node = Node::serving();
    node.set(b"k", b"v", Expiry::Never);
    node.engine.insert(b"k".to_vec(), DAMAGED.to_vec());
    assert_eq!(node.get(b"k"), None, "there is no other member to repair it from");
    let put = update(node.op(), b"k", Operation::Set { value: b"w", expiry: Expiry::Never });
    let sent = node.receive(CLIENT, |out| put.encode(out));
    assert_eq!(answer(&sent), Some((Status::Ok, None)), "the put is answered before the get that waited");
    assert_eq!(node.get(b"k"), Some((Status::Ok, Some(b"w".to_vec()))));
    assert_eq!((node.core.status().counters.corrupt, node.core.status().counters.repaired), (1, 1));
}

#[test]
fn replaying_the_log_restores_the_state() {
    let mut node = Node::serving();
    node.set(b"k", b"v", Expiry::Never);
    let increment = update(node.op(), b"n", Operation::Increment(4));
    node.receive(CLIENT, |out| increment.encode(out));
    let mut again = Node::started();
    for record in &node.log {
        again.core.replay(again.now, record).unwrap();
    }
    again.log.clone_from(&node.log);
    again.run_storage();
    again.grant_lease(Term(3));
    again.assign(Term(3), Epoch(6));
    assert_eq!(again.engine, node.engine);
    let sent = again.receive(CLIENT, |out| increment.encode(out));
    assert_eq!(answer(&sent), Some((Status::Ok, None)));
    again.sequence = 10;
    assert_eq!(again.get(b"n"), Some((Status::Ok, Some(b"4".to_vec()))));
}

/// One op of a client hangs in another partition while the client sends many others. Its results
/// are kept up to a bound, and copied in pieces that fit into a log record and a frame.
#[test]
fn results_of_one_client_are_copied_in_pieces() {
    const PIECE_BYTES_MAX: usize = 200 << 10;
    let mut node = Node::serving();
    node.set(b"k", &[7; VALUE_BYTES_MAX], Expiry::Never);
    for _ in 0..2 * CLIENT_BYTES_MAX / VALUE_BYTES_MAX {
        let put = Update {
            condition: Condition::IfAbsent,
            return_old: true,
            ..update(node.op(), b"k", Operation::Set { value: b"", expiry: Expiry::Never })
        };
        let sent = node.receive(CLIENT, |out| put.encode(out));
        assert_eq!(answer(&sent), Some((Status::ConditionFailed, Some(vec![7; VALUE_BYTES_MAX]))));
    }
    let before = node.log.len();
    node.core.checkpoint();
    node.run_storage();
    let written = &node.log[before..];
    assert!(written.iter().all(|record| record.len() < PIECE_BYTES_MAX));
    let bytes: usize = written.iter().map(Vec::len).sum();
    assert!((CLIENT_BYTES_MAX / 2..CLIENT_BYTES_MAX + PIECE_BYTES_MAX).contains(&bytes), "{bytes}");

    let joiner =
        Member { node: NodeId(2), state: MemberState::Joining, role: MemberRole::Original, address: CLIENT };
    node.assign_with(Term(3), Epoch(6), &[joiner]);
    let (sender, partition, epoch) = (NodeId(2), PartitionId(0), Epoch(6));
    let undecided = Vec::new();
    let (cursor, next, logged, synced) = (0, 0, 0, 0);
    let reply =
        RecoverReply { sender, partition, epoch, cursor, next, logged, synced, released: 0, undecided };
    node.receive(CLIENT, |out| reply.encode(out));
    let section = CopySection::Clients;
    let request = CopyFrame::Request { joiner: sender, partition, epoch, section, since: 0, after: &[] };
    let mut frame = Vec::new();
    request.append(&mut frame);
    node.core.handle_stream(node.now, StreamPeer::Accepted(1), &frame);
    let (_, chunk) = node.core.poll_stream().expect("the primary is recovered");
    let Ok(CopyFrame::Chunk { more: true, payload, .. }) = CopyFrame::decode(&chunk) else {
        panic!("expected the first of several pieces, not {:?}", CopyFrame::decode(&chunk))
    };
    assert!(payload.len() < PIECE_BYTES_MAX);
}
