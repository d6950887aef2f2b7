//! The match-action stage: looks a datagram's fields up in the tables and decides where it goes.
//!
//! ```text
//!  destination ∈ unicast ring:    unicast_vring ─ partition, default host ─▶ division ─▶ host
//!                                      │ no match: miss
//!  destination ∈ multicast ring:  multicast_vring ─ members ─▶ the port of each, once, except the ingress port
//!  destination ∈ ring of groups:  the same, for the members in the address's mask; none of them: miss
//!
//!  entries with a chain:          puts to the head, gets to the tail, with a chain header: partition, epoch, nodes
//!
//!  keyspaces with records:        record ─ first ≤ value of the header ≤ last ─▶ division, host, or members, as above
//! ```

use nicekv_proto::placement::mask_of;

use crate::compiled::CompiledTables;
use crate::forwarding::{LookupKey, Route};
use crate::traffic_manager::{Copies, EgressPort, Hop, Receivers};
use crate::{Chain, Counter, Counters, HostId, Ring, Table, VringSet};

/// The stage's context besides the tables.
pub(crate) struct MatchAction<'a> {
    pub(crate) vrings: &'a VringSet,
    pub(crate) counters: &'a mut Counters,
}

impl MatchAction<'_> {
    pub(crate) fn route<'a>(
        self,
        current: Option<&'a mut CompiledTables>,
        source: [u8; 4],
        LookupKey { address: destination, key, opcode, receivers }: LookupKey,
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

/// The action of `unicast_vring`, or of `division` if a division covers the source.
fn route_unicast<'a>(
    current: &mut CompiledTables,
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
    let host = division_host(current, entry.partition, source, counters).unwrap_or(entry.host);
    Some(Route::Unicast(hop_to(current, host, ingress, counters)))
}

/// Routes a request of a chain: puts go to the head, gets to the tail, from any source.
fn route_by_chain<'a>(
    current: &CompiledTables,
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

/// The host of the partition's division that covers the source, if there is one.
fn division_host(
    current: &mut CompiledTables,
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
    current: &'a mut CompiledTables,
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
        let receivers = Receivers::Hosts(receivers);
        return Route::Multicast(copies(current.record_egress(record), (ingress, receivers), counters));
    }
    let (partition, host) = (current.tables.record[record].partition, current.tables.record[record].host);
    let host = division_host(current, partition, source, counters).unwrap_or(host);
    Route::Unicast(hop_to(current, host, ingress, counters))
}

fn copies<'a>(
    ports: &'a [EgressPort],
    (ingress, receivers): (Option<u16>, Receivers),
    counters: &mut Counters,
) -> Copies<'a> {
    let copies = Copies::new(ports, ingress, receivers);
    counters.add(Counter::MulticastCopies, copies.clone().count() as u64);
    copies
}

/// The hop to a host; `None` if it is the trunk by which the datagram arrived.
fn hop_to(
    current: &CompiledTables,
    host: HostId,
    ingress: Option<u16>,
    counters: &mut Counters,
) -> Option<Hop> {
    let hop = EgressPort::to(&current.hosts, host).hop;
    if hop.is_trunk_at(ingress) {
        counters.add(Counter::SamePortDropped, 1);
        return None;
    }
    Some(hop)
}

/// The action of `multicast_vring` for a partition.
fn route_multicast<'a>(
    current: &'a mut CompiledTables,
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
    let receivers = Receivers::Hosts(receivers);
    Some(Route::Multicast(copies(current.multicast_egress(index), (ingress, receivers), counters)))
}

/// The action of `multicast_vring` for a group of storage targets: copies go to the members in the
/// address's mask, or to all members if the entry is for a subset. Without receivers it is a miss.
/// If all receivers are behind the ingress port, the datagram is dropped.
fn route_group<'a>(
    current: &'a mut CompiledTables,
    destination: [u8; 4],
    ingress: Option<u16>,
    counters: &mut Counters,
) -> Option<Route<'a>> {
    let index = current.find(Table::Multicast, None, destination)?;
    let has_places = current.tables.multicast[index].places.is_some();
    let receivers = Receivers::Places(if has_places { mask_of(destination.into()) } else { u16::MAX });
    current.multicast_egress(index).iter().find(|port| port.reaches(receivers))?;
    current.count_hit(Table::Multicast, index);
    counters.add(Counter::Hits(Table::Multicast), 1);
    let copies = copies(current.multicast_egress(index), (ingress, receivers), counters);
    if copies.clone().next().is_none() {
        counters.add(Counter::SamePortDropped, 1);
    }
    Some(Route::Multicast(copies))
}
