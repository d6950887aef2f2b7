//! Tables of a switch as coarse as it can be (TurboKV §6): neighbours whose requests leave by the same trunks share an entry.
//!
//! ```text
//!   all records             at the Core: trunks only           at the ToR of node-0 and node-1
//!   0–9   head 0  tail 4    0–19  puts ▶ 2   gets ▶ 3          0–9   head 0 (chain 0 1 4)   gets ▶ 3
//!   10–19 head 1  tail 5                                       10–19 head 1 (chain 1 2 5)   gets ▶ 3
//!   20–29 head 4  tail 0    20–39 puts ▶ 3   gets ▶ 2          20–29 tail 0 (chain 4 5 0)   puts ▶ 3
//!   30–39 head 5  tail 1                                       30–39 tail 1 (chain 5 6 1)   puts ▶ 3
//! ```
//!
//! An entry is *passed on* by a switch if every host that it may lead to, those of divisions too, is behind a trunk. There a datagram stays as it was sent, whatever the entry
//! says but the ports. So entries beside each other that are passed on by the same ports are one, which says no chain and no division, and names of each port the host
//! with the lowest number. All others stay exact: chain headers are written where a receiver hangs.
//!
//! What it buys follows from the placement: of ordered keys, neighbours of which are kept in the same rack, a Core has an entry for each run; of hashed ones about as many
//! as there are.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use crate::tables::{HostIndex, MemberSet};
use crate::{HostId, MulticastEntry, Prefix, RecordEntry, TableSet, UnicastEntry};

/// Ports by which what an entry matches is passed on: of gets, and of all else.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Passage {
    gets: u16,
    others: BTreeSet<u16>,
}

/// An entry, and by which ports it is passed on, if it is.
type Piece<E> = (E, Option<Passage>);

/// The same tables, placed at a switch already, with as few entries as do the same there.
pub(crate) fn merged(mut tables: TableSet) -> TableSet {
    let trunks = Trunks::of(&tables);
    tables.record = trunks.merge_records(core::mem::take(&mut tables.record));
    // Groups of storage targets, which have no gets, come behind all vnodes. They stay: whose bit an address has only their places say.
    let of_groups = tables.multicast.split_off(tables.unicast.len().min(tables.multicast.len()));
    let vnodes = core::mem::take(&mut tables.unicast).into_iter().zip(core::mem::take(&mut tables.multicast));
    (tables.unicast, tables.multicast) = trunks.merge_vnodes(vnodes.collect());
    tables.multicast.extend(of_groups);
    // Of a partition that is passed on nobody looks for divisions any more.
    tables.division.retain(|entry| !trunks.passed.contains(&entry.partition));
    tables
}

struct Trunks {
    hosts: HostIndex,
    /// Hosts that divisions of a partition lead to.
    divided: BTreeMap<u32, Vec<HostId>>,
    /// Partitions all of whose entries are passed on.
    passed: BTreeSet<u32>,
    /// Of those behind a port the one with the lowest number.
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
            passed: BTreeSet::new(),
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
            if trunks.passage(partition, host, members).is_some() {
                trunks.passed.insert(partition);
            }
        }
        trunks
    }

    /// The trunk that a host is behind.
    fn port(&self, host: HostId) -> Option<u16> {
        self.hosts.get(host).filter(|host| host.is_remote).map(|host| host.port)
    }

    fn passage(&self, partition: u32, host: HostId, members: &MemberSet) -> Option<Passage> {
        let gets = self.port(host)?;
        let mut divided = self.divided.get(&partition).into_iter().flatten();
        if divided.any(|host| self.port(*host) != Some(gets)) {
            return None;
        }
        let others = members.as_slice().iter().map(|member| self.port(*member));
        Some(Passage { gets, others: others.collect::<Option<_>>()? })
    }

    /// What stands for all hosts behind these ports.
    fn members(&self, passage: &Passage) -> MemberSet {
        MemberSet::new(passage.others.iter().map(|port| self.first_behind[port]))
    }

    fn merge_records(&self, mut records: Vec<RecordEntry>) -> Vec<RecordEntry> {
        records.sort_by_key(|record| (record.ring, record.keyspace, record.first));
        let mut merged: Vec<Piece<RecordEntry>> = Vec::new();
        for record in records {
            let passage = self.passage(record.partition, record.host, &record.members);
            let Some(passage) = passage else {
                merged.push((record, None));
                continue;
            };
            match merged.last_mut() {
                Some((last, Some(of_last)))
                    if *of_last == passage
                        && (last.ring, last.keyspace) == (record.ring, record.keyspace)
                        && last.last.checked_add(1) == Some(record.first) =>
                {
                    last.last = record.last;
                }
                _ => {
                    let host = self.first_behind[&passage.gets];
                    let coarse = RecordEntry { host, members: self.members(&passage), chain: None, ..record };
                    merged.push((coarse, Some(passage)));
                }
            }
        }
        merged.into_iter().map(|(record, _)| record).collect()
    }

    /// Two halves of a block become one, as long as there are such.
    fn merge_vnodes(
        &self,
        mut vnodes: Vec<(UnicastEntry, MulticastEntry)>,
    ) -> (Vec<UnicastEntry>, Vec<MulticastEntry>) {
        vnodes.sort_by_key(|(gets, _)| gets.destination);
        let mut merged: Vec<Piece<(UnicastEntry, MulticastEntry)>> = Vec::new();
        for (gets, others) in vnodes {
            let passage = self.passage(gets.partition, gets.host, &others.members);
            merged.push(match passage {
                None => ((gets, others), None),
                Some(passage) => {
                    let gets = UnicastEntry { host: self.first_behind[&passage.gets], chain: None, ..gets };
                    let others = MulticastEntry { members: self.members(&passage), chain: None, ..others };
                    ((gets, others), Some(passage))
                }
            });
            while let [.., (one, Some(of_one)), (other, Some(of_other))] = &merged[..]
                && of_one == of_other
                && let Some(gets) = whole(one.0.destination, other.0.destination)
                && let Some(others) = whole(one.1.destination, other.1.destination)
            {
                merged.pop();
                let ((of_gets, of_others), _) = merged.last_mut().expect("there were two");
                (of_gets.destination, of_others.destination) = (gets, others);
            }
        }
        merged.into_iter().map(|(both, _)| both).unzip()
    }
}

/// The block of which these are the halves. No block is a whole ring.
fn whole(one: Prefix, other: Prefix) -> Option<Prefix> {
    let length = one.length.checked_sub(1).filter(|length| *length > 16 && one.length == other.length)?;
    let parent = Prefix::new(one.address, length);
    (parent.is_canonical() && one != other && parent.covers(&other)).then_some(parent)
}

#[cfg(test)]
mod tests;
