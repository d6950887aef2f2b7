//! Tests of validation, diffs and updates.

use alloc::vec;

use super::*;
use crate::{Prefix, VringConfig, VringSet};

fn vrings() -> VringSet {
    VringConfig::DEFAULT.try_into().unwrap()
}

fn valid() -> TableSet {
    TableSet {
        generation: 1,
        hosts: vec![Host::node(1), Host::node(2), Host { role: HostRole::Metadata, ..Host::node(3) }],
        trunks: vec![],
        unicast: vec![UnicastEntry {
            destination: Prefix::new([10, 10, 0, 0], 17),
            partition: 0,
            host: HostId(1),
            chain: None,
        }],
        division: vec![DivisionEntry {
            partition: 0,
            source: Prefix::new([10, 0, 1, 0], 24),
            host: HostId(2),
        }],
        multicast: vec![MulticastEntry {
            destination: Prefix::new([10, 11, 0, 0], 17),
            members: MemberSet::new([HostId(2), HostId(1)]),
            chain: None,
            places: None,
        }],
        record: vec![],
    }
}

#[track_caller]
fn refused(change: impl Fn(&mut TableSet)) -> TableError {
    let mut tables = valid();
    change(&mut tables);
    tables.validate(&vrings()).expect_err("must be refused")
}

#[test]
fn every_refusal_names_its_entry() {
    use TableError as E;
    assert_eq!(valid().validate(&vrings()), Ok(()));
    let (unknown, prefix) = (HostId(9), Prefix::new([10, 10, 0, 0], 17));
    let group = Prefix::new([10, 11, 0, 0], 17);
    let [matches, of_group] = [prefix, group].map(|prefix| Match::Address { scope: None, prefix });
    assert_eq!(
        refused(|t| t.unicast[0].host = unknown),
        E::UnknownHost { table: Table::Unicast, matches, host: unknown }
    );
    assert!(matches!(refused(|t| t.unicast[0].host = HostId(3)), E::UnknownHost { .. }), "no storage node");
    assert!(matches!(refused(|t| t.division[0].host = unknown), E::UnknownHost { .. }));
    assert!(matches!(
        refused(|t| t.multicast[0].members = MemberSet::new([unknown])),
        E::UnknownHost { table: Table::Multicast, .. }
    ));
    assert_eq!(
        refused(|t| t.unicast.push(t.unicast[0])),
        E::DuplicateEntry { table: Table::Unicast, matches }
    );
    let twice = refused(|t| t.division.push(t.division[0])).to_string();
    assert_eq!(twice, "entry (0, 10.0.1.0/24) appears twice in division");
    assert!(matches!(refused(|t| t.multicast.push(t.multicast[0].clone())), E::DuplicateEntry { .. }));
    assert!(matches!(refused(|t| t.unicast[0].destination = group), E::OutsideVring { .. }));
    assert!(matches!(refused(|t| t.multicast[0].destination = prefix), E::OutsideVring { .. }));
    assert!(matches!(refused(|t| t.unicast[0].destination.length = 15), E::OutsideVring { .. }));
    assert!(matches!(refused(|t| t.unicast[0].destination.address[3] = 1), E::BadPrefix { .. }));
    assert!(matches!(refused(|t| t.division[0].source.length = 33), E::BadPrefix { .. }));
    assert!(matches!(refused(|t| t.hosts.push(t.hosts[0])), E::DuplicateHost { .. }));
    assert!(matches!(refused(|t| t.hosts[1].port = 1), E::DuplicatePort { port: 1, .. }));
    assert!(
        matches!(
            refused(|t| t.hosts[1] = Host { port: 1, is_remote: true, ..t.hosts[1] }),
            E::DuplicatePort { port: 1, .. }
        ),
        "a host and a trunk"
    );
    assert!(matches!(refused(|t| t.hosts[1].ip = t.hosts[0].ip), E::DuplicateAddress { host: HostId(2) }));
    assert!(matches!(refused(|t| t.hosts[1].mac = t.hosts[0].mac), E::DuplicateAddress { host: HostId(2) }));
    assert!(matches!(refused(|t| t.hosts[1].ip = [10, 11, 0, 1]), E::HostInsideVring { .. }));
    assert_eq!(
        refused(|t| t.multicast[0].members = MemberSet::unchecked(&[])),
        E::GroupSize { table: Table::Multicast, matches: of_group, members: 0 }
    );
    assert!(matches!(
        refused(|t| t.multicast[0].members = MemberSet::unchecked(&[1; 17])),
        E::GroupSize { members: 17, .. }
    ));
    assert_eq!(
        refused(|t| t.multicast[0].members = MemberSet::unchecked(&[2, 1])),
        E::MembersNotSorted { table: Table::Multicast, matches: of_group }
    );
    let mut elsewhere = valid();
    elsewhere.hosts[0].port = 7;
    assert_eq!(elsewhere.validate_ports(|port| port < 4), Err(E::UnknownPort { host: HostId(1), port: 7 }));
}

fn filled(count: u32) -> TableSet {
    let entry = |index: u32| UnicastEntry {
        destination: Prefix::new((0x0a0a_0000 + index).to_be_bytes(), 32),
        partition: index,
        host: HostId(1),
        chain: None,
    };
    TableSet { unicast: (0..count).map(entry).collect(), ..valid() }
}

#[test]
fn capacities_are_exact() {
    assert_eq!(filled(4096).validate(&vrings()), Ok(()));
    assert_eq!(
        filled(4097).validate(&vrings()),
        Err(TableError::TableFull { table: Table::Unicast, entries: 4097, capacity: 4096 })
    );
}

#[test]
fn divisions_of_a_partition_are_bounded() {
    let with = |count: u8| {
        let source = |index| Prefix::new([10, 0, index, 0], 24);
        let division = |index| DivisionEntry { partition: 0, source: source(index), host: HostId(2) };
        let other = DivisionEntry { partition: 1, ..division(0) };
        TableSet { division: (0..count).map(division).chain([other]).collect(), ..valid() }
    };
    assert_eq!(with(8).validate(&vrings()), Ok(()));
    let refused = TableError::TooManyDivisions { partition: 0, divisions: 9 };
    assert_eq!(with(9).validate(&vrings()), Err(refused));
}

#[test]
fn hosts_behind_a_trunk_share_its_port() {
    let mut tables = valid();
    tables.hosts[..2].iter_mut().for_each(|host| (host.port, host.is_remote) = (7, true));
    assert_eq!(tables.validate(&vrings()), Ok(()));
    let index = HostIndex::new(&tables.hosts, &[8]);
    assert!(index.is_trunk(7) && index.is_trunk(8) && !index.is_trunk(3));
    assert!(index.at_port(7).is_none() && index.at_port(3).is_some());
    assert_eq!(index.with_ip([10, 0, 0, 2]).map(|host| host.port), Some(7));
}

#[test]
fn groups_are_keyed_by_member_set() {
    let mut tables = valid();
    tables.multicast.push(MulticastEntry {
        destination: Prefix::new([10, 11, 128, 0], 17),
        members: MemberSet::new([HostId(1), HostId(2), HostId(1)]),
        chain: None,
        places: None,
    });
    assert_eq!(tables.groups().len(), 1);
}

#[test]
fn hosts_are_found_by_id_port_ip_and_mac() {
    let index = HostIndex::new(&[Host::node(7), Host::node(2)], &[]);
    for id in [2, 7] {
        let host = Some(Host::node(id));
        assert_eq!(index.get(HostId(id)).copied(), host);
        assert_eq!(index.at_port(id).copied(), host);
        assert_eq!(index.with_ip([10, 0, 0, id as u8]).copied(), host);
        assert_eq!(index.with_mac([2, 0, 0, 0, 0, id as u8]).copied(), host);
    }
    assert!(index.get(HostId(3)).is_none() && index.at_port(3).is_none());
}

fn entry(net: u8, host: u16) -> UnicastEntry {
    UnicastEntry {
        destination: Prefix::new([10, 10, net, 0], 24),
        partition: u32::from(net),
        host: HostId(host),
        chain: None,
    }
}

fn group(net: u8, hosts: [u16; 2]) -> MulticastEntry {
    MulticastEntry {
        destination: Prefix::new([10, 11, net, 0], 24),
        members: MemberSet::new(hosts.map(HostId)),
        chain: None,
        places: None,
    }
}

#[test]
fn diff_separates_added_removed_and_changed() {
    let old = TableSet {
        unicast: vec![entry(1, 1), entry(2, 1), entry(3, 1)],
        multicast: vec![group(1, [1, 2]), group(2, [1, 2])],
        ..TableSet::default()
    };
    let new = TableSet {
        unicast: vec![entry(4, 1), entry(3, 1), entry(2, 2)],
        multicast: vec![group(1, [1, 2]), group(2, [2, 3])],
        ..TableSet::default()
    };
    let diff = TableSet::diff(&old, &new);
    assert_eq!(diff.unicast.added, [entry(4, 1)]);
    assert_eq!(diff.unicast.removed, [entry(1, 1)]);
    assert_eq!(diff.unicast.changed, [(entry(2, 1), entry(2, 2))]);
    assert_eq!(diff.multicast.changed.len(), 1);
    assert_eq!(diff.groups.added, [MemberSet::new([HostId(2), HostId(3)])]);
    assert!(diff.groups.removed.is_empty());
    assert!(diff.division.is_empty() && !diff.is_empty());
    assert!(TableSet::diff(&new, &new).is_empty());
}

#[test]
fn update_turns_the_old_generation_into_the_new() {
    let old = TableSet { generation: 4, unicast: vec![entry(1, 1), entry(2, 1), entry(3, 1)], ..valid() };
    let new = TableSet { generation: 5, unicast: vec![entry(4, 1), entry(3, 1), entry(2, 2)], ..valid() };
    let update = TableUpdate::between(&old, &new).expect("one table differs");
    assert_eq!((update.base, update.generation, update.change.table()), (4, 5, Table::Unicast));
    let applied = update.applied_to(Some(&old)).unwrap();
    assert!(TableSet::diff(&applied, &new).is_empty() && applied.generation == 5);
    assert!(update.is_applied(&applied) && !update.is_applied(&old));
    assert_eq!(update.applied_to(Some(&applied)), Err(TableError::OtherBase { base: 4, installed: Some(5) }));
    assert_eq!(update.applied_to(None), Err(TableError::OtherBase { base: 4, installed: None }));
    let other = TableSet { unicast: vec![entry(2, 1)], ..old.clone() };
    assert!(matches!(update.applied_to(Some(&other)), Err(TableError::NothingToRemove { .. })));

    assert_eq!(TableUpdate::between(&old, &old), None);
    let two = TableSet { multicast: vec![group(1, [1, 2])], ..new.clone() };
    assert_eq!(TableUpdate::between(&old, &two), None, "two tables differ");
    let mut moved = new;
    moved.hosts[0].port = 9;
    assert_eq!(TableUpdate::between(&old, &moved), None, "a host has moved");
}

#[test]
fn update_that_overfills_or_duplicates_fails_validation() {
    let set = |entries: Vec<UnicastEntry>| TableUpdate {
        base: 1,
        generation: 2,
        change: TableChange::Unicast(EntryChanges { removed: vec![], set: entries }),
    };
    let full = filled(4096);
    let validated = |update: TableUpdate| update.applied_to(Some(&full)).unwrap().validate(&vrings());
    assert_eq!(validated(set(vec![full.unicast[7]])), Ok(()));
    let another = UnicastEntry { destination: Prefix::new([10, 10, 255, 0], 32), ..full.unicast[0] };
    assert!(matches!(validated(set(vec![another])), Err(TableError::TableFull { entries: 4097, .. })));
    assert!(matches!(
        validated(set(vec![full.unicast[7], full.unicast[7]])),
        Err(TableError::TableFull { .. })
    ));
    let one = valid();
    let twice = set(vec![one.unicast[0]; 2]).applied_to(Some(&one)).unwrap();
    assert!(matches!(twice.validate(&vrings()), Err(TableError::DuplicateEntry { .. })));
}

fn record(first: u128, last: u128) -> RecordEntry {
    let members = MemberSet::new([HostId(1), HostId(2)]);
    let ring = Prefix::new([10, 10, 0, 0], 16);
    RecordEntry { ring, keyspace: 0, first, last, partition: 0, host: HostId(1), members, chain: None }
}

#[test]
fn records_of_a_ring_neither_overlap_nor_mix_with_vnodes() {
    use TableError as E;
    let with = |record: Vec<RecordEntry>| {
        let tables = TableSet { unicast: vec![], multicast: vec![], record, ..valid() };
        tables.validate(&vrings())
    };
    assert_eq!(with(vec![record(10, u128::MAX), record(0, 4), record(5, 5)]), Ok(()));
    assert!(matches!(with(vec![record(4, 9), record(0, 4)]), Err(E::RecordsOverlap { .. })));
    assert!(matches!(with(vec![record(0, 9), record(3, 4)]), Err(E::RecordsOverlap { .. })));
    assert!(matches!(with(vec![record(0, 4), record(0, 4)]), Err(E::DuplicateEntry { .. })));
    assert!(matches!(with(vec![record(5, 4)]), Err(E::EmptyRecord { .. })));
    let elsewhere = RecordEntry { ring: Prefix::new([10, 11, 0, 0], 16), ..record(0, 4) };
    assert!(matches!(with(vec![elsewhere]), Err(E::OutsideVring { .. })));
    let unknown = RecordEntry { host: HostId(9), ..record(0, 4) };
    assert!(matches!(with(vec![unknown]), Err(E::UnknownHost { table: Table::Record, .. })));
    let nobody = RecordEntry { members: MemberSet::unchecked(&[]), ..record(0, 4) };
    assert!(matches!(with(vec![nobody]), Err(E::GroupSize { table: Table::Record, .. })));
    assert!(matches!(refused(|t| t.record.push(record(0, 4))), E::MixedRing { .. }));
    assert_eq!(
        refused(|t| t.record.push(record(5, 4))).to_string(),
        "the range of record (10.10.0.0/16, \
        00000000000000000000000000000005 to 00000000000000000000000000000004) ends before it begins"
    );
}
