//! The fixtures for a switch that matches Ethernet, IP and UDP headers only, as an OpenFlow switch
//! does: tables that it supports, and what it does otherwise than others.

use std::collections::BTreeSet;

use nicekv_switch::{Counter, MulticastEntry, Table, TableSet, Verdict, subset_entries};

use crate::{Fixture, RECORD_VRINGS, group_ring};

/// The tables without chains and records. Groups with masks become entries for subsets.
pub fn supported(full: &TableSet) -> TableSet {
    let plain = |entry: &&MulticastEntry| entry.chain.is_none() && entry.places.is_none();
    let mut multicast: Vec<MulticastEntry> = full.multicast.iter().filter(plain).cloned().collect();
    let taken: BTreeSet<_> = multicast.iter().map(|entry| entry.destination).collect();
    for entry in &full.multicast {
        let Some(places) = &entry.places else { continue };
        let masks: Vec<_> = places.masks(&entry.members).collect();
        let at = |place: u32| masks.iter().find(|(_, mask)| *mask == 1 << place).map(|(host, _)| *host);
        let order: Vec<_> = (0..12).map(at).collect();
        let (group, _) = group_ring().group_of(entry.destination.address.into()).expect("a group's entry");
        let subsets = subset_entries(&group_ring(), group, &order);
        multicast.extend(subsets.into_iter().filter(|subset| !taken.contains(&subset.destination)));
    }
    let unicast = full.unicast.iter().filter(|entry| entry.chain.is_none()).copied().collect();
    TableSet { unicast, multicast, record: Vec::new(), ..full.clone() }
}

/// Why such a switch does something else than a fixture expects.
pub fn exception(fixture: &Fixture, tables: &TableSet) -> Option<&'static str> {
    let counts = |counter| fixture.counters.iter().any(|(counted, _)| *counted == counter);
    let is_named = |names: &[&str]| names.iter().any(|name| fixture.name.contains(name));
    let destination = destination(fixture);
    let is_covered = |address| tables.multicast.iter().any(|entry| entry.destination.contains(address));
    if counts(Counter::Chained) || destination.is_some_and(|address| RECORD_VRINGS.contains(address)) {
        return Some("its tables are refused");
    }
    if is_named(&["ring's address"]) {
        return Some("the vnode is in the header of the store");
    }
    if is_named(&["chunk to", "chunk of no bytes", "read of chunks, of one"]) {
        return Some("the receivers are in the header of the store");
    }
    let by_header = is_named(&["place for answers", "another place for", "place for replies"]);
    if counts(Counter::NotOurs) || counts(Counter::OpcodeRefused) || by_header {
        return Some("the sender is refused by the header of the store");
    }
    if counts(Counter::Malformed) {
        return Some("the length of UDP is left to the receiver");
    }
    if counts(Counter::Hits(Table::Multicast)) && destination.is_some_and(|address| !is_covered(address)) {
        return Some("the mask has bits of places that the group does not have");
    }
    if is_named(&["three VLAN tags", "IPv4 that is garbage"]) {
        return Some("it is dropped for what cannot be seen in it");
    }
    None
}

/// The IPv4 destination of an untagged frame.
pub fn destination(fixture: &Fixture) -> Option<[u8; 4]> {
    fixture.frame.get(30..34).and_then(|address| address.try_into().ok())
}

/// The frames that have to leave: those of the fixture, but what is for a server is not flooded.
pub fn expected(fixture: &Fixture, tables: &TableSet) -> Vec<(u16, Vec<u8>)> {
    let server = tables.hosts.iter().find(|host| fixture.frame.starts_with(&host.mac));
    let frames = fixture.expected.frames.iter().cloned();
    match server.filter(|_| fixture.expected.verdict == Verdict::Flooded) {
        Some(server) => frames.filter(|(port, _)| *port == server.port).collect(),
        None => frames.collect(),
    }
}
