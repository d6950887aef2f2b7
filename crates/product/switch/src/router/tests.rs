//! Tests of matching, trunks, and refused datagrams and tables.

use alloc::vec;

use super::*;
use crate::{DivisionEntry, Hop, MemberSet, MulticastEntry, Prefix, UnicastEntry, VringConfig};

fn tables(generation: u64) -> TableSet {
    let unicast = |address, length, partition, host| UnicastEntry {
        destination: Prefix::new(address, length),
        partition,
        host: HostId(host),
        chain: None,
    };
    TableSet {
        generation,
        hosts: (1..=4).map(Host::node).collect(),
        trunks: vec![],
        unicast: vec![unicast([10, 10, 0, 0], 17, 0, 1), unicast([10, 10, 1, 0], 24, 1, 2)],
        division: vec![DivisionEntry {
            partition: 1,
            source: Prefix::new([10, 0, 9, 0], 24),
            host: HostId(3),
        }],
        multicast: vec![MulticastEntry {
            destination: Prefix::new([10, 11, 0, 0], 17),
            members: MemberSet::new([1, 2, 3].map(HostId)),
            chain: None,
            places: None,
        }],
        record: vec![],
    }
}

fn router() -> Router {
    let mut router = Router::new(VringConfig::DEFAULT).unwrap();
    router.install(&tables(1)).unwrap();
    router
}

#[track_caller]
fn check(router: &mut Router, source: [u8; 4], destination: [u8; 4], expected: Option<u16>) {
    match (router.route(source, destination, None), expected) {
        (Route::Unicast(hop), Some(expected)) => assert_eq!(hop, Some(Hop::Host(HostId(expected)))),
        (Route::Miss, None) => {}
        (route, expected) => panic!("{route:?}, expected {expected:?}"),
    }
}

#[test]
fn longest_prefix_then_division_decide() {
    let mut router = router();
    check(&mut router, [10, 0, 8, 1], [10, 10, 0, 7], Some(1));
    check(&mut router, [10, 0, 9, 1], [10, 10, 0, 7], Some(1));
    check(&mut router, [10, 0, 8, 1], [10, 10, 1, 7], Some(2));
    check(&mut router, [10, 0, 9, 1], [10, 10, 1, 7], Some(3));
    check(&mut router, [10, 0, 9, 1], [10, 10, 128, 0], None);
    assert!(matches!(router.route([10, 0, 9, 1], [10, 12, 0, 1], None), Route::NotVring));
    assert_eq!(router.entry_hits(Table::Unicast).unwrap(), [2, 2]);
    assert_eq!(router.entry_hits(Table::Division).unwrap(), [1]);
    assert_eq!(router.counters().unwrap().get(Counter::VringMiss), 1);
    assert_eq!(router.counters().unwrap().get(Counter::Hits(Table::Unicast)), 4);
}

#[test]
fn sender_gets_no_copy() {
    let mut router = router();
    for (ingress, expected) in [(None, vec![1, 2, 3]), (Some(2), vec![1, 3]), (Some(4), vec![1, 2, 3])] {
        let expected: Vec<_> = expected.into_iter().map(|id| Hop::Host(HostId(id))).collect();
        assert_eq!(copies(&mut router, ingress), expected);
    }
    assert_eq!(router.counters().unwrap().get(Counter::MulticastCopies), 8);
}

fn copies(router: &mut Router, ingress: Option<u16>) -> Vec<Hop> {
    match router.route([10, 0, 0, 2], [10, 11, 5, 5], ingress) {
        Route::Multicast(copies) => copies.collect(),
        route => panic!("{route:?}"),
    }
}

#[test]
fn trunk_gets_one_unchanged_copy_and_nothing_returns_by_it() {
    let mut router = router();
    let mut tables = tables(2);
    // Host 1 is attached to this switch, hosts 2 and 3 are behind one trunk, host 4 behind another.
    for (host, port) in tables.hosts.iter_mut().zip([1, 7, 7, 8]) {
        (host.port, host.is_remote) = (port, port > 1);
    }
    tables.multicast[0].members = MemberSet::new([1, 2, 3, 4].map(HostId));
    router.install(&tables).unwrap();
    let here = Hop::Host(HostId(1));
    for (ingress, expected) in [
        (None, vec![here, Hop::Trunk(7), Hop::Trunk(8)]),
        (Some(1), vec![Hop::Trunk(7), Hop::Trunk(8)]),
        (Some(7), vec![here, Hop::Trunk(8)]),
        (Some(8), vec![here, Hop::Trunk(7)]),
    ] {
        assert_eq!(copies(&mut router, ingress), expected, "from {ingress:?}");
    }
    let mut hop = |destination, ingress| match router.route([10, 0, 8, 1], destination, ingress) {
        Route::Unicast(hop) => hop,
        route => panic!("{route:?}"),
    };
    assert_eq!(hop([10, 10, 1, 7], Some(8)), Some(Hop::Trunk(7)));
    assert_eq!(hop([10, 10, 1, 7], Some(7)), None, "the hop is the ingress trunk");
    assert_eq!(hop([10, 10, 0, 7], Some(1)), Some(here), "the ingress port of a host is allowed");
    assert_eq!(router.counters().unwrap().get(Counter::SamePortDropped), 1);
}

#[test]
fn empty_switch_fails_closed() {
    let mut router = Router::new(VringConfig::DEFAULT).unwrap();
    check(&mut router, [10, 0, 0, 1], [10, 10, 0, 1], None);
    check(&mut router, [10, 0, 0, 1], [10, 11, 0, 1], None);
    assert!(matches!(router.route([10, 0, 0, 1], [10, 0, 0, 2], None), Route::NotVring));
    assert_eq!(router.table_status().unwrap()[0].entries, 0);
}

#[test]
fn refused_generation_changes_nothing_and_hits_survive_an_accepted_one() {
    let mut router = router();
    check(&mut router, [10, 0, 8, 1], [10, 10, 1, 7], Some(2));
    let mut bad = tables(2);
    bad.unicast[1].host = HostId(77);
    assert!(matches!(router.install(&bad), Err(BackendError::Refused(TableError::UnknownHost { .. }))));
    assert_eq!(router.tables().unwrap().generation, 1);
    check(&mut router, [10, 0, 8, 1], [10, 10, 1, 7], Some(2));

    let mut next = tables(3);
    next.unicast.reverse();
    next.unicast[0].host = HostId(4);
    router.install(&next).unwrap();
    check(&mut router, [10, 0, 8, 1], [10, 10, 1, 7], Some(4));
    assert_eq!(router.entry_hits(Table::Unicast).unwrap(), [3, 0]);
    let status = router.table_status().unwrap();
    assert_eq!((status[0].name.as_str(), status[0].entries, status[0].hits), ("unicast_vring", 2, 3));
}

#[test]
fn update_is_atomic_and_keeps_hits_of_all_tables() {
    let mut router = router();
    check(&mut router, [10, 0, 9, 1], [10, 10, 1, 7], Some(3));
    let mut next = tables(2);
    next.unicast[1].host = HostId(4);
    next.unicast[1].partition = 7;
    let update = TableUpdate::between(&tables(1), &next).unwrap();
    router.update(&update).unwrap();
    assert_eq!(router.tables().unwrap().generation, 2);
    check(&mut router, [10, 0, 9, 1], [10, 10, 1, 7], Some(4));
    assert_eq!(router.entry_hits(Table::Unicast).unwrap().iter().sum::<u64>(), 2);
    assert_eq!(router.entry_hits(Table::Division).unwrap(), [1]);

    // A refused update changes nothing, whatever the reason.
    let mut bad = update.clone();
    bad.base = 2;
    let crate::TableChange::Unicast(changes) = &mut bad.change else { panic!("unicast has changed") };
    changes.set[0].host = HostId(77);
    for refused in [&update, &bad] {
        assert!(matches!(router.update(refused), Err(BackendError::Refused(_))));
        assert_eq!(router.tables().unwrap().generation, 2);
    }
    check(&mut router, [10, 0, 9, 1], [10, 10, 1, 7], Some(4));
}
