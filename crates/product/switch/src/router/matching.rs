//! The actions of the tables on one datagram.

use nicekv_proto::placement::mask_of;

use super::{Copies, Hop, Route, Sought};
use crate::generation::{Generation, Receivers, Way};
use crate::{Chain, Counter, Counters, HostId, Ring, Table, VringSet};

/// The match-action stage, less the tables.
pub(super) struct Matching<'a> {
    pub(super) vrings: &'a VringSet,
    pub(super) counters: &'a mut Counters,
}

impl Matching<'_> {
    pub(super) fn route<'a>(
        self,
        current: Option<&'a mut Generation>,
        source: [u8; 4],
        Sought { address: destination, key, opcode, receivers }: Sought,
        ingress: Option<u16>,
    ) -> Route<'a> {
        let Self { vrings, counters } = self;
        let Some(ring) = vrings.ring_of(destination) else { return Route::NotVring };
        let Some(current) = current else {
            counters.add(Counter::VringMiss, 1);
            return Route::Miss;
        };
        let by_records = !current.tables.record.is_empty();
        let pair = by_records.then(|| vrings.pair_of(destination)).flatten();
        let pair = pair.filter(|pair| current.has_records(*pair));
        if let Some(pair) = pair {
            let record = key.and_then(|key| current.find_record(pair, key));
            return match record {
                Some(record) => {
                    current.count_request(Table::Record, record, ring, opcode);
                    route_by_record(current, record, ring, source, (ingress, receivers), counters)
                }
                None => {
                    counters.add(Counter::VringMiss, 1);
                    Route::Miss
                }
            };
        }
        let route = match ring {
            Ring::Unicast => route_unicast(current, source, destination, ingress, counters),
            Ring::Multicast => route_multicast(current, destination, opcode, (ingress, receivers), counters),
            Ring::Group => route_group(current, destination, ingress, counters),
        };
        route.unwrap_or_else(|| {
            counters.add(Counter::VringMiss, 1);
            Route::Miss
        })
    }
}

/// The action of `unicast_vring`, and of `division` if it claims the source.
fn route_unicast<'a>(
    current: &mut Generation,
    source: [u8; 4],
    destination: [u8; 4],
    ingress: Option<u16>,
    counters: &mut Counters,
) -> Option<Route<'a>> {
    let index = current.lookup(Table::Unicast, None, destination)?;
    counters.add(Counter::Hits(Table::Unicast), 1);
    let entry = current.tables.unicast[index];
    if let Some(chain) = entry.chain {
        return Some(route_by_chain(current, &chain, Ring::Unicast, ingress, counters));
    }
    let host = divided(current, entry.partition, source, counters).unwrap_or(entry.host);
    Some(Route::Unicast(hop_to(current, host, ingress, counters)))
}

/// Along a chain: puts to its head, gets to its tail, whoever asks.
fn route_by_chain<'a>(
    current: &Generation,
    chain: &Chain,
    ring: Ring,
    ingress: Option<u16>,
    counters: &mut Counters,
) -> Route<'a> {
    let is_put = ring == Ring::Multicast;
    counters.add(Counter::Chained, 1);
    let receiver = chain.receiver(is_put).expect("validated chains have nodes");
    let hop = hop_to(current, receiver, ingress, counters);
    Route::Chain(hop, chain.header(&current.hosts, is_put))
}

/// The host that a division of the partition names for the source.
fn divided(
    current: &mut Generation,
    partition: u32,
    source: [u8; 4],
    counters: &mut Counters,
) -> Option<HostId> {
    let index = current.lookup(Table::Division, Some(partition), source)?;
    counters.add(Counter::Hits(Table::Division), 1);
    Some(current.tables.division[index].host)
}

/// The action of `record`.
fn route_by_record<'a>(
    current: &'a mut Generation,
    record: usize,
    ring: Ring,
    source: [u8; 4],
    (ingress, receivers): (Option<u16>, u16),
    counters: &mut Counters,
) -> Route<'a> {
    counters.add(Counter::Hits(Table::Record), 1);
    if let Some(chain) = current.tables.record[record].chain {
        return route_by_chain(current, &chain, ring, ingress, counters);
    }
    if ring == Ring::Multicast {
        let receivers = Receivers::Named(receivers);
        return Route::Multicast(copies(current.ways_of_record(record), (ingress, receivers), counters));
    }
    let (partition, host) = (current.tables.record[record].partition, current.tables.record[record].host);
    let host = divided(current, partition, source, counters).unwrap_or(host);
    Route::Unicast(hop_to(current, host, ingress, counters))
}

fn copies<'a>(
    ways: &'a [Way],
    (ingress, receivers): (Option<u16>, Receivers),
    counters: &mut Counters,
) -> Copies<'a> {
    let copies = Copies { ways: ways.iter(), ingress, receivers };
    counters.add(Counter::MulticastCopies, copies.clone().count() as u64);
    copies
}

/// The way to a host. `None`: the trunk by which the datagram came.
fn hop_to(current: &Generation, host: HostId, ingress: Option<u16>, counters: &mut Counters) -> Option<Hop> {
    let hop = current.way_to(host).hop;
    if hop.is_trunk_at(ingress) {
        counters.add(Counter::SamePortDropped, 1);
        return None;
    }
    Some(hop)
}

fn route_multicast<'a>(
    current: &'a mut Generation,
    destination: [u8; 4],
    opcode: Option<u8>,
    (ingress, receivers): (Option<u16>, u16),
    counters: &mut Counters,
) -> Option<Route<'a>> {
    let index = current.lookup(Table::Multicast, None, destination)?;
    current.count_request(Table::Multicast, index, Ring::Multicast, opcode);
    counters.add(Counter::Hits(Table::Multicast), 1);
    if let Some(chain) = current.tables.multicast[index].chain {
        return Some(route_by_chain(current, &chain, Ring::Multicast, ingress, counters));
    }
    let receivers = Receivers::Named(receivers);
    Some(Route::Multicast(copies(current.ways(index), (ingress, receivers), counters)))
}

/// The same in the ring of groups: to those whose places the address names, or to all of a subset that is an entry of its own. What is for nobody is a miss, and what all get
/// at the port that it came by is dropped.
fn route_group<'a>(
    current: &'a mut Generation,
    destination: [u8; 4],
    ingress: Option<u16>,
    counters: &mut Counters,
) -> Option<Route<'a>> {
    let index = current.find(Table::Multicast, None, destination)?;
    let has_places = current.tables.multicast[index].places.is_some();
    let receivers = Receivers::Placed(if has_places { mask_of(destination.into()) } else { u16::MAX });
    current.ways(index).iter().find(|way| way.is_for(receivers))?;
    current.count_hit(Table::Multicast, index);
    counters.add(Counter::Hits(Table::Multicast), 1);
    let copies = copies(current.ways(index), (ingress, receivers), counters);
    if copies.clone().next().is_none() {
        counters.add(Counter::SamePortDropped, 1);
    }
    Some(Route::Multicast(copies))
}
