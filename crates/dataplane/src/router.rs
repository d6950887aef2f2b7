//! The match-action stage: which hosts receive a datagram for a vring address. Used by the reference pipeline
//! on frames, and by the user-space switch on datagrams that it got from a socket.
//!
//! ```text
//!  destination ∈ unicast ring:    unicast_vring ─ partition, default host ─▶ division ─▶ host
//!                                      │ no match: miss
//!  destination ∈ multicast ring:  multicast_vring ─ members ─▶ all of them except the ingress host
//! ```
//!
//! [`Router::install`] is make-before-break: the new generation is validated and compiled beside the old one
//! and takes its place by one assignment; a refused generation changes nothing. Hits of an entry that the new
//! generation still has (same match) go on counting. Before the first install every vring address is a miss:
//! an empty switch fails closed (R12).

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

use crate::diff::Keyed;
use crate::lpm::LongestPrefixMatch;
use crate::{
    Backend, BackendError, Counter, Counters, Host, HostId, Prefix, Table, TableError, TableSet, TableStatus,
    VringConfig,
};

/// Where a datagram goes.
#[derive(Clone, Debug)]
pub enum Route<'a> {
    /// To this host.
    Unicast(HostId),
    /// To each of these hosts.
    Multicast(Copies<'a>),
    /// For a vring, but no entry covers it: drop.
    Miss,
    /// Not for a vring: none of our business.
    NotVring,
}

/// The members of a group without the host that sent the datagram. Iterates in ascending order.
#[derive(Clone, Debug)]
pub struct Copies<'a> {
    members: core::slice::Iter<'a, HostId>,
    ingress: Option<HostId>,
}

impl Iterator for Copies<'_> {
    type Item = HostId;

    fn next(&mut self) -> Option<HostId> {
        let ingress = self.ingress;
        self.members.by_ref().copied().find(|&member| Some(member) != ingress)
    }
}

/// Compiled tables of one generation, with their hits.
#[derive(Clone, Debug)]
struct Compiled {
    tables: TableSet,
    /// Ascending by id.
    hosts: Vec<Host>,
    unicast: LongestPrefixMatch,
    division: LongestPrefixMatch,
    multicast: LongestPrefixMatch,
    /// Per table, per entry in the order of `tables`.
    hits: [Vec<u64>; 3],
}

/// The match-action stage with its tables and counters.
#[derive(Clone, Debug)]
pub struct Router {
    vrings: VringConfig,
    current: Option<Box<Compiled>>,
    counters: Counters,
}

impl Router {
    /// A router without tables: every vring address is a miss.
    pub fn new(vrings: VringConfig) -> Result<Self, TableError> {
        vrings.validate()?;
        Ok(Self { vrings, current: None, counters: Counters::default() })
    }

    /// The rings that this router serves.
    pub fn vrings(&self) -> &VringConfig {
        &self.vrings
    }

    /// The installed tables, if any.
    pub fn tables(&self) -> Option<&TableSet> {
        self.current.as_deref().map(|current| &current.tables)
    }

    /// A host of the installed tables.
    pub fn host(&self, id: HostId) -> Option<&Host> {
        let hosts = &self.current.as_deref()?.hosts;
        hosts.binary_search_by_key(&id, |host| host.id).ok().map(|index| &hosts[index])
    }

    /// Matches one datagram and counts the hit. `ingress_host` is the storage host that sent it, if one did:
    /// it gets no copy of its own multicast. Allocates nothing.
    pub fn route(
        &mut self,
        source: [u8; 4],
        destination: [u8; 4],
        ingress_host: Option<HostId>,
    ) -> Route<'_> {
        let unicast = self.vrings.unicast.contains(destination);
        if !unicast && !self.vrings.multicast.contains(destination) {
            return Route::NotVring;
        }
        let Some(current) = self.current.as_deref_mut() else {
            self.counters.add(Counter::VringMiss, 1);
            return Route::Miss;
        };
        let counters = &mut self.counters;
        let route = if unicast {
            current.route_unicast(source, destination, counters).map(Route::Unicast)
        } else {
            current.route_multicast(destination, ingress_host, counters).map(Route::Multicast)
        };
        route.unwrap_or_else(|| {
            counters.add(Counter::VringMiss, 1);
            Route::Miss
        })
    }

    pub(crate) fn count(&mut self, counter: Counter) {
        self.counters.add(counter, 1);
    }
}

impl Compiled {
    fn new(tables: &TableSet) -> Self {
        let mut hosts = tables.hosts.clone();
        hosts.sort_unstable_by_key(|host| host.id);
        let range = |scope: u32, prefix: Prefix| {
            let scope = u64::from(scope) << 32;
            (scope | u64::from(prefix.first()), scope | u64::from(prefix.last()))
        };
        Self {
            hosts,
            unicast: LongestPrefixMatch::new(tables.unicast.iter().map(|entry| range(0, entry.destination))),
            division: LongestPrefixMatch::new(
                tables.division.iter().map(|entry| range(entry.partition, entry.source)),
            ),
            multicast: LongestPrefixMatch::new(
                tables.multicast.iter().map(|entry| range(0, entry.destination)),
            ),
            hits: Table::ALL.map(|table| vec![0; tables.entries(table)]),
            tables: tables.clone(),
        }
    }

    fn route_unicast(
        &mut self,
        source: [u8; 4],
        destination: [u8; 4],
        counters: &mut Counters,
    ) -> Option<HostId> {
        let index = self.unicast.lookup(u32::from_be_bytes(destination).into())?;
        self.hit(Table::Unicast, index, counters);
        let entry = self.tables.unicast[index as usize];
        let key = u64::from(entry.partition) << 32 | u64::from(u32::from_be_bytes(source));
        let Some(index) = self.division.lookup(key) else { return Some(entry.host) };
        self.hit(Table::Division, index, counters);
        Some(self.tables.division[index as usize].host)
    }

    fn route_multicast(
        &mut self,
        destination: [u8; 4],
        ingress: Option<HostId>,
        counters: &mut Counters,
    ) -> Option<Copies<'_>> {
        let index = self.multicast.lookup(u32::from_be_bytes(destination).into())?;
        self.hit(Table::Multicast, index, counters);
        let members = self.tables.multicast[index as usize].members.as_slice().iter();
        let copies = Copies { members, ingress };
        counters.add(Counter::MulticastCopies, copies.clone().count() as u64);
        Some(copies)
    }

    fn hit(&mut self, table: Table, index: u32, counters: &mut Counters) {
        self.hits[table as usize][index as usize] += 1;
        counters.add(table.hits_counter(), 1);
    }

    /// Goes on from the counts of the entries that `old` had already.
    fn inherit_hits(&mut self, old: &Compiled) {
        fn inherit<T: Keyed>(new: &[T], hits: &mut [u64], old: &[T], old_hits: &[u64]) {
            let before: BTreeMap<_, u64> = old.iter().map(Keyed::key).zip(old_hits.iter().copied()).collect();
            for (entry, hits) in new.iter().zip(hits) {
                *hits = before.get(&entry.key()).copied().unwrap_or(0);
            }
        }
        let (new, [unicast, division, multicast]) = (&self.tables, &mut self.hits);
        inherit(&new.unicast, unicast, &old.tables.unicast, &old.hits[0]);
        inherit(&new.division, division, &old.tables.division, &old.hits[1]);
        inherit(&new.multicast, multicast, &old.tables.multicast, &old.hits[2]);
    }
}

impl Backend for Router {
    fn install(&mut self, tables: &TableSet) -> Result<(), BackendError> {
        tables.validate(&self.vrings)?;
        let mut next = Compiled::new(tables);
        if let Some(old) = self.current.as_deref() {
            next.inherit_hits(old);
        }
        self.current = Some(Box::new(next));
        Ok(())
    }

    fn table_status(&self) -> Result<Vec<TableStatus>, BackendError> {
        Ok(TableStatus::list(self.tables(), &self.counters))
    }

    fn entry_hits(&self, table: Table) -> Result<Vec<u64>, BackendError> {
        Ok(self.current.as_deref().map(|current| current.hits[table as usize].clone()).unwrap_or_default())
    }

    fn counters(&self) -> Result<Counters, BackendError> {
        Ok(self.counters)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DivisionEntry, MemberSet, MulticastEntry, UnicastEntry};

    fn tables(generation: u64) -> TableSet {
        let host = |id: u16| Host {
            id: HostId(id),
            ip: [10, 0, 0, id as u8],
            mac: [2, 0, 0, 0, 0, id as u8],
            port: id,
        };
        let unicast = |address, length, partition, host| UnicastEntry {
            destination: Prefix::new(address, length),
            partition,
            host: HostId(host),
        };
        TableSet {
            generation,
            hosts: (1..=4).map(host).collect(),
            unicast: vec![unicast([10, 10, 0, 0], 17, 0, 1), unicast([10, 10, 1, 0], 24, 1, 2)],
            division: vec![DivisionEntry {
                partition: 1,
                source: Prefix::new([10, 0, 9, 0], 24),
                host: HostId(3),
            }],
            multicast: vec![MulticastEntry {
                destination: Prefix::new([10, 11, 0, 0], 17),
                members: MemberSet::new([1, 2, 3].map(HostId)),
            }],
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
            (Route::Unicast(host), Some(expected)) => assert_eq!(host, HostId(expected)),
            (Route::Miss, None) => {}
            (route, expected) => panic!("{route:?}, expected {expected:?}"),
        }
    }

    #[test]
    fn the_longest_prefix_then_the_division_decide() {
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
        assert_eq!(router.counters().unwrap().get(Counter::UnicastHits), 4);
    }

    #[test]
    fn the_sender_gets_no_copy() {
        let mut router = router();
        for (ingress, expected) in
            [(None, vec![1, 2, 3]), (Some(HostId(2)), vec![1, 3]), (Some(HostId(4)), vec![1, 2, 3])]
        {
            let Route::Multicast(copies) = router.route([10, 0, 0, 2], [10, 11, 5, 5], ingress) else {
                panic!("not multicast")
            };
            assert_eq!(copies.map(|host| host.0).collect::<Vec<_>>(), expected);
        }
        assert_eq!(router.counters().unwrap().get(Counter::MulticastCopies), 8);
    }

    #[test]
    fn an_empty_switch_fails_closed() {
        let mut router = Router::new(VringConfig::DEFAULT).unwrap();
        check(&mut router, [10, 0, 0, 1], [10, 10, 0, 1], None);
        check(&mut router, [10, 0, 0, 1], [10, 11, 0, 1], None);
        assert!(matches!(router.route([10, 0, 0, 1], [10, 0, 0, 2], None), Route::NotVring));
        assert_eq!(router.table_status().unwrap()[0].entries, 0);
    }

    #[test]
    fn a_refused_generation_changes_nothing_and_hits_survive_an_accepted_one() {
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
}
