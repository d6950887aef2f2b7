use nicekv_proto::large::RECEIVERS_ALL;

use super::*;
use crate::{
    Backend as _, Chain, DivisionEntry, Hop, Host, LookupKey, Route, Router, VringConfig, VringSet,
    masked_entry,
};
use alloc::vec;
use nicekv_proto::placement::GroupRing;
use nicekv_testkit::Random;

const KEYSPACE: u16 = 7;
const RECORD_VRINGS: VringConfig =
    VringConfig { unicast: Prefix::new([10, 40, 0, 0], 16), multicast: Prefix::new([10, 41, 0, 0], 16) };

fn group_ring() -> GroupRing {
    GroupRing::on_network(7000)
}

fn vrings() -> VringSet {
    let vrings = VringSet::new([VringConfig::DEFAULT, RECORD_VRINGS]);
    vrings.and_then(|vrings| vrings.with_group(group_ring())).unwrap()
}

/// Hosts 1 and 2 are attached to this switch; 3 and 4 are behind trunk 8, 5 and 6 behind trunk 9.
fn hosts() -> Vec<Host> {
    let behind = |id: u16, port| Host { port, is_remote: true, ..Host::node(id) };
    vec![Host::node(1), Host::node(2), behind(3, 8), behind(4, 8), behind(5, 9), behind(6, 9)]
}

/// Tables with one record of ten values for each chain.
fn tables(chains: &[[u16; 3]]) -> TableSet {
    let record = |(number, chain): (u128, &[u16; 3])| RecordEntry {
        ring: RECORD_VRINGS.unicast,
        keyspace: KEYSPACE,
        first: number * 10,
        last: number * 10 + 9,
        partition: number as u32,
        host: HostId(chain[2]),
        members: MemberSet::new([HostId(chain[0])]),
        chain: Some(Chain::new(number as u32, 1, chain.map(HostId))),
    };
    let record = (0..).zip(chains).map(record).collect();
    TableSet { generation: 1, hosts: hosts(), trunks: vec![8, 9], record, ..TableSet::default() }
}

/// The hops of a put and of a get for each of the first `values` values.
fn hops(tables: &TableSet, values: u128) -> Vec<Option<Hop>> {
    let mut router = Router::new(vrings()).unwrap();
    router.install(tables).expect("valid tables");
    let mut hops = Vec::new();
    for value in 0..values {
        for address in [[10, 40, 0, 0], [10, 41, 0, 0]] {
            let key =
                LookupKey { address, key: Some((KEYSPACE, value)), opcode: None, receivers: RECEIVERS_ALL };
            hops.push(match router.route([10, 0, 9, 1], key, Some(0)) {
                Route::Unicast(hop) | Route::Chain(hop, _) => hop,
                Route::Multicast(mut copies) => copies.next(),
                Route::Miss => None,
                Route::NotVring | Route::Answered(_) => {
                    panic!("the address is in a vring, and no key is hot")
                }
            });
        }
    }
    hops
}

#[test]
fn neighbours_that_leave_by_the_same_trunks_are_merged() {
    let exact =
        tables(&[[3, 4, 5], [4, 3, 6], [4, 3, 5], [5, 6, 3], [1, 3, 5], [3, 1, 5], [3, 4, 2], [3, 4, 5]]);
    let coarse = aggregated(exact.clone());
    let shown: Vec<_> =
        coarse.record.iter().map(|entry| (entry.first, entry.last, entry.chain.is_some())).collect();
    assert_eq!(
        shown,
        [(0, 29, false), (30, 39, false), (40, 49, true), (50, 59, false), (60, 69, true), (70, 79, false)]
    );
    assert_eq!(hops(&exact, 80), hops(&coarse, 80));
    // Entries with a gap between them are not merged.
    let mut gap = exact.clone();
    gap.record.remove(1);
    let coarse = aggregated(gap.clone());
    assert_eq!(
        coarse.record[..2].iter().map(|entry| (entry.first, entry.last)).collect::<Vec<_>>(),
        [(0, 9), (20, 29)]
    );
    assert_eq!(hops(&gap, 90), hops(&coarse, 90));
}

/// For chains of three random hosts, aggregation changes no hop and saves entries.
#[test]
fn aggregated_tables_are_equivalent_for_random_placements() {
    let mut random = Random::new(7);
    let mut draw = move || random.below(6) as u16;
    let mut saved = 0;
    for _ in 0..200 {
        let chain =
            |start: u16, step: u16| [start, (start + step) % 6, (start + 2 * step) % 6].map(|id| id + 1);
        let chains: Vec<_> = (0..16).map(|_| chain(draw(), if draw() < 3 { 1 } else { 5 })).collect();
        let exact = tables(&chains);
        let coarse = aggregated(exact.clone());
        assert_eq!(hops(&exact, 160), hops(&coarse, 160), "{chains:?}");
        saved += exact.record.len() - coarse.record.len();
    }
    assert!(saved > 100, "{saved}");
}

#[test]
fn blocks_of_vnodes_are_merged_in_both_rings_unless_divisions_differ() {
    let block = |ring: u8, third: u8, length| Prefix::new([10, ring, third, 0], length);
    let gets = |third, partition, id| UnicastEntry {
        destination: block(10, third, 18),
        partition,
        host: HostId(id),
        chain: None,
    };
    let others = |third, members: &[u16]| MulticastEntry {
        destination: block(11, third, 18),
        members: MemberSet::new(members.iter().map(|id| HostId(*id))),
        chain: None,
        places: None,
    };
    let mut tables = TableSet {
        generation: 1,
        hosts: hosts(),
        trunks: vec![8, 9],
        unicast: vec![gets(0, 0, 3), gets(64, 1, 4), gets(128, 2, 4), gets(192, 3, 3)],
        multicast: vec![others(0, &[3, 5]), others(64, &[4, 6]), others(128, &[3, 6]), others(192, &[4, 5])],
        division: vec![DivisionEntry { partition: 2, source: block(0, 0, 24), host: HostId(3) }],
        ..TableSet::default()
    };
    let coarse = aggregated(tables.clone());
    // Two halves of a ring stay separate: a block is smaller than a ring.
    assert_eq!(
        coarse.unicast.iter().map(|entry| entry.destination).collect::<Vec<_>>(),
        [block(10, 0, 17), block(10, 128, 17)]
    );
    assert_eq!(
        coarse.multicast.iter().map(|entry| entry.destination).collect::<Vec<_>>(),
        [block(11, 0, 17), block(11, 128, 17)]
    );
    assert_eq!(coarse.multicast[0].members, MemberSet::new([HostId(3), HostId(5)]));
    assert_eq!(coarse.division, [], "the whole partition leaves by one trunk");
    coarse.validate(&vrings()).unwrap();
    // Groups of storage targets stay exact.
    let ring = group_ring();
    let groups = [1, 2].map(|group| masked_entry(&ring, group, &[Some(HostId(6)), Some(HostId(3))]).unwrap());
    let with_groups = TableSet { multicast: [&tables.multicast[..], &groups].concat(), ..tables.clone() };
    let merged_beside = aggregated(with_groups);
    assert_eq!(merged_beside.multicast, [&coarse.multicast[..], &groups].concat());
    merged_beside.validate(&vrings()).unwrap();
    tables.division[0].host = HostId(5);
    let divided = aggregated(tables.clone());
    assert_eq!((divided.unicast.len(), divided.multicast.len(), divided.division.len()), (3, 3, 1));
    assert_eq!(divided.multicast[1].members, tables.multicast[2].members);
}
