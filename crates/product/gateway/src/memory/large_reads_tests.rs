//! Tests: which command may read its large value when.

use super::*;
use crate::memory::MemoryGovernor;
use nicekv_client::{ClientCore, Config, Request};
use nicekv_proto::placement::Vrings;
use nicekv_proto::{ClientId, Now};
use std::sync::Arc;

fn origin(command: u64, part: usize) -> Origin {
    Origin { slot: 0, connection: 1, command, part, called: 0, since_ns: 0 }
}

/// Tickets as a client issues them.
fn tickets<const N: usize>() -> [Ticket; N] {
    let mut core = ClientCore::new(Config::new(ClientId(1 << 32), Vrings::on_loopback(7400)));
    let now = Now { boot_ns: 1, unix_ms: 1 };
    let mut submit = || core.submit(now, KeyspaceId::DEFAULT, Request::Get { key: b"k" }, 2).unwrap();
    std::array::from_fn(|_| submit())
}

fn governor() -> Arc<MemoryGovernor> {
    Arc::new(MemoryGovernor::new(0, 200, Vec::new()))
}

#[test]
fn the_oldest_command_waits_and_later_ones_try_once() {
    let [first, second, third] = tickets();
    let governor = governor();
    let mut reads = LargeReads::default();
    for (command, ticket) in [(4, first), (5, second), (6, third)] {
        reads.add(origin(command, 0), ticket, 60);
    }
    let mut tried = Vec::new();
    for oldest in [Some(4), Some(4), None] {
        reads.try_dependent(oldest, |ticket, bytes| {
            tried.push((ticket, bytes));
            governor.try_grant_dependent(bytes)
        });
    }
    assert_eq!(tried, [(second, 60), (third, 60), (first, 60)], "memory suffices for one of them");
    assert_eq!(reads.need(4, 1), Need::Grant { bytes: 60, at_once: false });
    assert_eq!(reads.need(5, 1), Need::Nothing, "its read is granted");
    let mut allowed = Vec::new();
    reads.allow(4, governor.try_grant(60).unwrap(), |ticket, bytes| allowed.push((ticket, bytes)));
    assert_eq!((allowed, reads.need(4, 1)), (vec![(first, 60)], Need::Nothing));
    assert!(reads.take(first).is_some_and(|grant| grant.bytes() == 60) && reads.take(first).is_none());
    assert!(reads.take(third).is_none(), "it had no grant");
    assert_eq!(reads.tickets().collect::<Vec<_>>(), [second]);
    reads.take(second);
    assert!(reads.is_empty() && governor.large_bytes() == 0);
}

#[test]
fn a_command_with_several_reads_requests_memory_once() {
    let [first, second, third] = tickets();
    let governor = governor();
    let mut reads = LargeReads::default();
    reads.add(origin(4, 0), first, 30);
    assert_eq!(reads.need(4, 2), Need::Nothing, "the other value may be large, too");
    reads.add(origin(4, 1), second, 40);
    assert_eq!(reads.need(4, 2), Need::Grant { bytes: 70, at_once: false });
    reads.note_requested(4);
    reads.queued = Some(9);
    assert_eq!(reads.need(4, 2), Need::Nothing, "a request is queued");
    reads.queued = None;
    reads.allow(4, governor.try_grant(70).unwrap(), |_, _| ());
    reads.add(origin(4, 2), third, 5);
    assert_eq!(reads.need(4, 1), Need::Grant { bytes: 5, at_once: true });
    reads.note_requested(5);
    assert_eq!(reads.need(4, 1), Need::Grant { bytes: 5, at_once: false });
}

#[test]
fn a_value_that_has_grown_requests_memory_again() {
    let [ticket] = tickets();
    let governor = governor();
    let mut reads = LargeReads::default();
    reads.add(origin(4, 0), ticket, 30);
    reads.allow(4, governor.try_grant(29).unwrap(), |_, _| panic!("29 bytes are not enough"));
    reads.allow(4, governor.try_grant(40).unwrap(), |_, _| ());
    assert_eq!((governor.large_bytes(), reads.waiting(4).count()), (30, 0));
    reads.add(origin(4, 0), ticket, 50);
    assert_eq!((governor.large_bytes(), reads.need(4, 1)), (0, Need::Grant { bytes: 50, at_once: false }));
    assert_eq!(reads.waiting(4).collect::<Vec<_>>(), [ticket]);
}

#[test]
fn a_deferred_read_begins_when_its_command_is_the_oldest() {
    let mut reads = LargeReads::default();
    reads.defer(origin(5, 0), KeyspaceId(3), b"other".to_vec());
    reads.defer(origin(4, 0), KeyspaceId::DEFAULT, b"key".to_vec());
    assert!(reads.tickets().next().is_none() && reads.need(4, 1) == Need::Nothing && reads.memory() > 0);
    let (origin, keyspace, key) = reads.take_deferred(4).unwrap();
    assert_eq!((origin.command, keyspace, key), (4, KeyspaceId::DEFAULT, b"key".to_vec()));
    assert!(reads.take_deferred(4).is_none() && reads.take_deferred(5).is_some() && reads.is_empty());
}
