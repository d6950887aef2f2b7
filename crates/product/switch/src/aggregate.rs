//! Aggregation of table entries (TurboKV §6): neighbouring entries whose requests leave by the same
//! trunks share one entry.
//!
//! ```text
//!   all records             at a core: trunks only             at the ToR of node-0 and node-1
//!   0–9   head 0  tail 4    0–19  puts ▶ 2   gets ▶ 3          0–9   head 0 (chain 0 1 4)   gets ▶ 3
//!   10–19 head 1  tail 5                                       10–19 head 1 (chain 1 2 5)   gets ▶ 3
//!   20–29 head 4  tail 0    20–39 puts ▶ 3   gets ▶ 2          20–29 tail 0 (chain 4 5 0)   puts ▶ 3
//!   30–39 head 5  tail 1                                       30–39 tail 1 (chain 5 6 1)   puts ▶ 3
//! ```
//!
//! An entry is *transit* at a switch if every host that it may lead to, including those of
//! divisions, is behind a trunk. A datagram crosses a trunk unchanged, so only the ports of such an
//! entry matter. Adjacent transit entries with the same ports are merged into one, which has no
//! chain and no division, and names the host with the lowest id behind each port. All others stay
//! exact: chain headers are written by the switch that the receiver is attached to.
//!
//! The gain depends on the placement. With ordered keys whose neighbours are kept in the same rack,
//! a core switch has one entry for each run; with hashed keys almost nothing is merged.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use crate::{HostId, HostIndex, MemberSet, MulticastEntry, Prefix, RecordEntry, TableSet, UnicastEntry};

/// The trunk ports of a transit entry: for gets, and for everything else.
#[derive(Clone, Debug, PartialEq, Eq)]
struct TransitPorts {
    gets: u16,
    others: BTreeSet<u16>,
}

/// An entry with its ports, if it is a transit entry.
type Candidate<E> = (E, Option<TransitPorts>);

/// Merges entries of one switch's tables without changing where it sends any datagram.
pub(crate) fn aggregated(mut tables: TableSet) -> TableSet {
    let trunks = Trunks::of(&tables);
    tables.record = trunks.merge_records(core::mem::take(&mut tables.record));
    // The multicast table ends with the groups of storage targets, which have no entry for gets.
    // They stay exact, because their places assign the bits of addresses.
    let of_groups = tables.multicast.split_off(tables.unicast.len().min(tables.multicast.len()));
    let vnodes = core::mem::take(&mut tables.unicast).into_iter().zip(core::mem::take(&mut tables.multicast));
    (tables.unicast, tables.multicast) = trunks.merge_vnodes(vnodes.collect());
    tables.multicast.extend(of_groups);
    // All requests of a transit partition leave by trunks, so its divisions need no lookup.
    tables.division.retain(|entry| !trunks.transit.contains(&entry.partition));
    tables
}

struct Trunks {
    hosts: HostIndex,
    /// The hosts of each partition's divisions.
    divided: BTreeMap<u32, Vec<HostId>>,
    /// Partitions that have only transit entries.
    transit: BTreeSet<u32>,
    /// The host with the lowest id behind each trunk port; merged entries name it.
    first_behind: BTreeMap<u16, HostId>,
}

impl Trunks {
    fn of(tables: &TableSet) -> Self {
        let mut divided: BTreeMap<u32, Vec<HostId>> = BTreeMap::new();
        for entry in &tables.division {
            divided.entry(entry.partition).or_default().push(entry.host);
        }
        let mut trunks = Self {
            hosts: HostIndex::new(&tables.hosts, &tables.trunks),
            divided,
            transit: BTreeSet::new(),
            first_behind: BTreeMap::new(),
        };
        let named = tables
            .record
            .iter()
            .flat_map(|entry| core::iter::once(entry.host).chain(entry.members.as_slice().iter().copied()));
        let named = named.chain(tables.unicast.iter().map(|entry| entry.host));
        let named =
            named.chain(tables.multicast.iter().flat_map(|entry| entry.members.as_slice().iter().copied()));
        for host in named.collect::<BTreeSet<_>>() {
            if let Some(port) = trunks.port(host) {
                trunks.first_behind.entry(port).or_insert(host);
            }
        }
        let of_records = tables.record.iter().map(|entry| (entry.partition, entry.host, &entry.members));
        let of_vnodes = tables.unicast.iter().zip(&tables.multicast);
        let of_vnodes = of_vnodes.map(|(gets, others)| (gets.partition, gets.host, &others.members));
        for (partition, host, members) in of_records.chain(of_vnodes) {
            if trunks.transit_ports(partition, host, members).is_some() {
                trunks.transit.insert(partition);
            }
        }
        trunks
    }

    /// The trunk port that leads to a host; `None` if the host is attached to this switch.
    fn port(&self, host: HostId) -> Option<u16> {
        self.hosts.get(host).filter(|host| host.is_remote).map(|host| host.port)
    }

    fn transit_ports(&self, partition: u32, host: HostId, members: &MemberSet) -> Option<TransitPorts> {
        let gets = self.port(host)?;
        let mut divided = self.divided.get(&partition).into_iter().flatten();
        if divided.any(|host| self.port(*host) != Some(gets)) {
            return None;
        }
        let others = members.as_slice().iter().map(|member| self.port(*member));
        Some(TransitPorts { gets, others: others.collect::<Option<_>>()? })
    }

    /// One host behind each of these ports.
    fn members(&self, ports: &TransitPorts) -> MemberSet {
        MemberSet::new(ports.others.iter().map(|port| self.first_behind[port]))
    }

    fn merge_records(&self, mut records: Vec<RecordEntry>) -> Vec<RecordEntry> {
        records.sort_by_key(|record| (record.ring, record.keyspace, record.first));
        let mut merged: Vec<Candidate<RecordEntry>> = Vec::new();
        for record in records {
            let ports = self.transit_ports(record.partition, record.host, &record.members);
            let Some(ports) = ports else {
                merged.push((record, None));
                continue;
            };
            match merged.last_mut() {
                Some((last, Some(of_last)))
                    if *of_last == ports
                        && (last.ring, last.keyspace) == (record.ring, record.keyspace)
                        && last.last.checked_add(1) == Some(record.first) =>
                {
                    last.last = record.last;
                }
                _ => {
                    let host = self.first_behind[&ports.gets];
                    let coarse = RecordEntry { host, members: self.members(&ports), chain: None, ..record };
                    merged.push((coarse, Some(ports)));
                }
            }
        }
        merged.into_iter().map(|(record, _)| record).collect()
    }

    /// Repeatedly merges the two halves of a block into one entry.
    fn merge_vnodes(
        &self,
        mut vnodes: Vec<(UnicastEntry, MulticastEntry)>,
    ) -> (Vec<UnicastEntry>, Vec<MulticastEntry>) {
        vnodes.sort_by_key(|(gets, _)| gets.destination);
        let mut merged: Vec<Candidate<(UnicastEntry, MulticastEntry)>> = Vec::new();
        for (gets, others) in vnodes {
            let ports = self.transit_ports(gets.partition, gets.host, &others.members);
            merged.push(match ports {
                None => ((gets, others), None),
                Some(ports) => {
                    let gets = UnicastEntry { host: self.first_behind[&ports.gets], chain: None, ..gets };
                    let others = MulticastEntry { members: self.members(&ports), chain: None, ..others };
                    ((gets, others), Some(ports))
                }
            });
            while let [.., (one, Some(of_one)), (other, Some(of_other))] = &merged[..]
                && of_one == of_other
                && let Some(gets) = merged_block(one.0.destination, other.0.destination)
                && let Some(others) = merged_block(one.1.destination, other.1.destination)
            {
                merged.pop();
                let ((of_gets, of_others), _) = merged.last_mut().expect("there were two");
                (of_gets.destination, of_others.destination) = (gets, others);
            }
        }
        merged.into_iter().map(|(both, _)| both).unzip()
    }
}

/// The block that consists of these two halves, unless it would be a whole ring.
fn merged_block(one: Prefix, other: Prefix) -> Option<Prefix> {
    let length = one.length.checked_sub(1).filter(|length| *length > 16 && one.length == other.length)?;
    let parent = Prefix::new(one.address, length);
    (parent.is_canonical() && one != other && parent.covers(&other)).then_some(parent)
}

#[cfg(test)]
mod tests;
