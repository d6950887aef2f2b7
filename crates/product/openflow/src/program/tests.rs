//! Programs on a model of an OpenFlow switch, against the fixtures of all data planes.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use nicekv_switch::{HostId, MemberSet, MulticastEntry, Table, TableSet};
use nicekv_switch_fixtures::{
    Fixture, PORTS, ROUTER_MAC, cases, frames, headers_only, host, tables, trunks, vrings,
};
use proptest::prelude::*;

use super::*;
use crate::model::ModelSwitch;

fn fabric(trunks: &[u16]) -> Fabric {
    Fabric {
        vrings: vrings(),
        router_mac: ROUTER_MAC,
        ports: PORTS.collect(),
        trunks: trunks.iter().copied().collect(),
        requests_per_second: None,
        learns: false,
    }
}

fn compiled(fabric: &Fabric, tables: &TableSet, generation: Generation, previous: &Program) -> Program {
    compile(fabric, tables, &BTreeMap::new(), generation, previous).unwrap()
}

fn installed(program: &Program, generation: Generation) -> ModelSwitch {
    let mut switch = ModelSwitch::default();
    let changes = Changes::between(&Program::default(), program, generation);
    for message in changes.prepare.iter().chain(&changes.flip).chain(&changes.clean) {
        switch.change(message).unwrap();
    }
    switch
}

fn outcome(fixture: &Fixture, fabric: &Fabric, tables: &TableSet) -> Result<(), String> {
    let empty = TableSet::default();
    let tables = if fixture.installed { tables } else { &empty };
    let stations = fixture.learned.iter().map(|(port, mac)| (*mac, *port)).collect();
    let program = compile(fabric, tables, &stations, Generation::Bundled, &Program::default()).unwrap();
    let mut switch = installed(&program, Generation::Bundled);
    let frames = switch.process(fixture.ingress, &fixture.frame);
    let is_for_vring =
        headers_only::destination(fixture).is_some_and(|address| fabric.vrings.contains(address));
    let is_unchanged =
        |(port, frame): &(u16, Vec<u8>)| *frame == fixture.frame && !fabric.trunks.contains(port);
    match headers_only::exception(fixture, tables) {
        None if frames != headers_only::expected(fixture, tables) => Err(format!(
            "{}: {:?}\n  sent     {frames:02x?}\n  expected {:02x?}",
            fixture.name, fixture.counters, fixture.expected.frames
        )),
        // Whatever it is, a datagram for a vring does not go by its Ethernet address (R12).
        Some(reason) if is_for_vring && frames.iter().any(is_unchanged) => {
            Err(format!("{}: {reason}, but it is forwarded", fixture.name))
        }
        _ => Ok(()),
    }
}

#[test]
fn programs_pass_every_fixture_that_they_can() {
    let mut failures = Vec::new();
    let tables = headers_only::supported(&tables());
    failures.extend(cases::all().iter().filter_map(|fixture| outcome(fixture, &fabric(&[]), &tables).err()));
    let tables = headers_only::supported(&trunks::tables());
    failures
        .extend(trunks::all().iter().filter_map(|fixture| outcome(fixture, &fabric(&[3, 4]), &tables).err()));
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn tables_that_need_the_header_of_the_store_are_refused() {
    let refusal = |change: &dyn Fn(&mut TableSet)| {
        let mut tables = headers_only::supported(&tables());
        change(&mut tables);
        compile(&fabric(&[]), &tables, &BTreeMap::new(), Generation::Bundled, &Program::default()).err()
    };
    let all = tables();
    let chained = |entry: &&MulticastEntry| entry.chain.is_some();
    let masked = |entry: &&MulticastEntry| entry.places.is_some();
    assert_eq!(refusal(&|_| {}), None);
    assert_eq!(refusal(&|tables| tables.record = all.record.clone()), Some(Unsupported::Records));
    assert_eq!(refusal(&|tables| tables.unicast = all.unicast.clone()), Some(Unsupported::Chain));
    assert_eq!(
        refusal(&|tables| tables.multicast.extend(all.multicast.iter().find(chained).cloned())),
        Some(Unsupported::Chain)
    );
    assert_eq!(
        refusal(&|tables| tables.multicast.extend(all.multicast.iter().find(masked).cloned())),
        Some(Unsupported::Masks)
    );
}

#[test]
fn change_of_an_entry_is_a_handful_of_messages_and_keeps_counts() {
    let before = headers_only::supported(&tables());
    let old = compiled(&fabric(&[]), &before, Generation::Bundled, &Program::default());
    let change = |change: &dyn Fn(&mut TableSet)| {
        let mut after = before.clone();
        change(&mut after);
        let new = compiled(&fabric(&[]), &after, Generation::Bundled, &old);
        let changes = Changes::between(&old, &new, Generation::Bundled);
        assert!(changes.prepare.is_empty() && changes.clean.is_empty());
        (new, changes.flip)
    };
    assert_eq!(change(&|_| {}).1, []);
    assert_eq!(change(&|tables| tables.unicast[0].host = HostId(2)).1.len(), 1);
    assert_eq!(change(&|tables| tables.division.truncate(1)).1.len(), 1);
    // A group, its flow for clients and its flow for nodes; the old group goes.
    let members = MemberSet::new([HostId(1), HostId(3)]);
    let (new, messages) = change(&|tables| tables.multicast[1].members = members.clone());
    assert_eq!(messages.len(), 4, "{messages:?}");
    let mut switch = installed(&old, Generation::Bundled);
    let put = cases::all().into_iter().find(|fixture| fixture.name == "multicast to two").unwrap().frame;
    assert_eq!(switch.process(0, &put).iter().map(|(port, _)| *port).collect::<Vec<_>>(), [1, 2]);
    messages.iter().for_each(|message| switch.change(message).unwrap());
    assert_eq!(switch.process(0, &put).iter().map(|(port, _)| *port).collect::<Vec<_>>(), [1, 3]);
    let counted = new.flows.iter().find(|(key, flow)| {
        let entry = Meaning::Entry { table: Table::Multicast, position: 1, is_from_node: false };
        flow.meaning == entry && key.table == layout::VRING
    });
    let key = counted.unwrap().0;
    assert_eq!(switch.flows[&(key.table, Reverse(key.priority), key.matches.clone())].packets, 2);
}

#[test]
fn ports_without_a_server_are_metered() {
    let limited = Fabric { requests_per_second: Some(1000), ..fabric(&[4]) };
    let tables = headers_only::supported(&trunks::tables());
    let program = compiled(&limited, &tables, Generation::Bundled, &Program::default());
    let servers: BTreeSet<u32> = tables.hosts.iter().map(|host| u32::from(host.port) + 1).collect();
    let clients =
        PORTS.map(|port| u32::from(port) + 1).filter(|meter| !servers.contains(meter) && *meter != 5);
    assert_eq!(program.meters, clients.map(|meter| (meter, 1000)).collect());
    let mut slower = program.clone();
    slower.meters.values_mut().for_each(|rate| *rate = 10);
    slower.meters.pop_last();
    let changes = Changes::between(&program, &slower, Generation::Bundled);
    assert_eq!(
        (changes.prepare.len(), changes.flip.len(), changes.clean.len()),
        (program.meters.len() - 1, 0, 1)
    );
    let mut switch = installed(&program, Generation::Bundled);
    changes.prepare.iter().chain(&changes.clean).for_each(|message| switch.change(message).unwrap());
    assert_eq!(switch.meters, slower.meters);
}

#[test]
fn unknown_stations_go_to_the_controller_once_learned_no_more() {
    let learning = Fabric { learns: true, ..fabric(&[]) };
    let tables = headers_only::supported(&tables());
    let station = [2, 0, 0, 0, 8, 7];
    let frame = frames::ethernet([0xff; 6], station, frames::TYPE_EXPERIMENT);
    let after = |stations: &[([u8; 6], u16)]| {
        let stations = stations.iter().copied().collect();
        let program =
            compile(&learning, &tables, &stations, Generation::Bundled, &Program::default()).unwrap();
        let mut switch = installed(&program, Generation::Bundled);
        assert_eq!(switch.process(4, &frame).len(), PORTS.len() - 1, "it is sent on, too");
        switch.to_controller.len()
    };
    assert_eq!(after(&[]), 1);
    assert_eq!(after(&[(station, 4)]), 0);
    assert_eq!(after(&[(station, 0)]), 1, "it is at another port now");
}

#[test]
fn other_addresses_at_a_servers_port_reach_no_vring() {
    let tables = headers_only::supported(&tables());
    let program = compiled(&fabric(&[]), &tables, Generation::Bundled, &Program::default());
    let mut switch = installed(&program, Generation::Bundled);
    let stranger =
        frames::Udp { source_mac: [2, 0, 0, 0, 7, 7], source: [10, 0, 7, 7], ..frames::Udp::default() };
    let server = host(1);
    for destination in [[10, 10, 0, 7], [10, 11, 0, 7]] {
        let sent = frames::Udp { destination, ..stranger.clone() }.build();
        assert_eq!(switch.process(server.port, &sent), [], "to {destination:?}");
        assert!(!switch.process(0, &sent).is_empty(), "from a client's port");
    }
    let to_server = |destination_port| {
        let (destination, destination_mac) = (host(2).ip, host(2).mac);
        frames::Udp { destination, destination_mac, destination_port, ..stranger.clone() }.build()
    };
    assert_eq!(switch.process(server.port, &to_server(frames::STORE_PORT)), []);
    assert_eq!(switch.process(server.port, &to_server(9)).len(), 1, "other traffic passes");
}

/// Tables in which entries have other hosts, other members, or are gone.
fn varied(tables: &TableSet, changes: &[u8]) -> TableSet {
    let mut varied = tables.clone();
    let host = |change: u8| HostId(1 + u16::from(change % 3));
    let at = |index: usize| changes[index % changes.len()];
    for (index, entry) in varied.unicast.iter_mut().enumerate() {
        entry.host = host(at(index));
    }
    for (index, entry) in varied.multicast.iter_mut().enumerate() {
        entry.members = MemberSet::new([host(at(index)), host(at(index + 1))]);
    }
    varied.multicast.retain(|entry| at(entry.destination.address[2].into()) % 5 != 0);
    varied.division.retain(|entry| at(entry.source.address[3].into()) % 4 != 0);
    varied
}

fn outputs(switch: &mut ModelSwitch, probes: &[Fixture]) -> Vec<Vec<(u16, Vec<u8>)>> {
    probes.iter().map(|probe| switch.process(probe.ingress, &probe.frame)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8))]

    /// Without bundles: at every step the packets follow one program as a whole.
    #[test]
    fn no_step_of_a_change_mixes_two_programs(one: [u8; 7], other: [u8; 7]) {
        let tables = headers_only::supported(&tables());
        let [first, second] = [Generation::Numbered(1), Generation::Numbered(2)];
        let old = compiled(&fabric(&[]), &varied(&tables, &one), first, &Program::default());
        let new = compiled(&fabric(&[]), &varied(&tables, &other), second, &old);
        let probes: Vec<Fixture> = cases::all().into_iter().step_by(5).collect();
        let (before, after) =
            (outputs(&mut installed(&old, first), &probes), outputs(&mut installed(&new, second), &probes));
        let changes = Changes::between(&old, &new, second);
        prop_assert_eq!(changes.flip.len(), 1);
        let mut switch = installed(&old, first);
        for some in changes.prepare.chunks(40) {
            some.iter().for_each(|message| switch.change(message).unwrap());
            prop_assert_eq!(&outputs(&mut switch, &probes), &before);
        }
        switch.change(&changes.flip[0]).unwrap();
        prop_assert_eq!(&outputs(&mut switch, &probes), &after);
        for message in &changes.clean {
            switch.change(message).unwrap();
        }
        prop_assert_eq!(&outputs(&mut switch, &probes), &after);
        prop_assert!(switch.state() == installed(&new, second).state());
    }

    /// With bundles: all changes together make the program.
    #[test]
    fn changes_make_the_new_program(one: [u8; 7], other: [u8; 7]) {
        let tables = headers_only::supported(&tables());
        let old = compiled(&fabric(&[]), &varied(&tables, &one), Generation::Bundled, &Program::default());
        let new = compiled(&fabric(&[]), &varied(&tables, &other), Generation::Bundled, &old);
        let mut switch = installed(&old, Generation::Bundled);
        let changes = Changes::between(&old, &new, Generation::Bundled);
        changes.flip.iter().for_each(|message| switch.change(message).unwrap());
        prop_assert!(switch.state() == installed(&new, Generation::Bundled).state());
    }
}
