//! The match-action stage: which hosts receive a datagram for a vring address; and what the stages keep: tables, counters,
//! registers. Used by the reference pipeline on frames, and by [`Router::process`] on datagrams.
//!
//! ```text
//!  destination ∈ unicast ring:    unicast_vring ─ partition, default host ─▶ division ─▶ host
//!                                      │ no match: miss
//!  destination ∈ multicast ring:  multicast_vring ─ members ─▶ the port of each, once, but the ingress
//! ```
//!
//! **Trunks.** What is for hosts behind a trunk leaves by it *as it is*, once, and the switch at its other end matches it anew, by its own tables.
//! Nothing leaves by the trunk by which it came (split horizon). Switches form a tree, so a datagram comes to each switch at most once, crosses each
//! trunk at most once, and reaches each host at most once, by the switch where that hangs; also while switches have different generations: then it may end
//! on the way.
//!
//! [`Router::install`] is make-before-break: the new generation is validated and compiled beside the old one
//! and takes its place by one assignment; a refused generation changes nothing. Hits of an entry that the new
//! generation still has (same match) go on counting. Before the first install every vring address is a miss:
//! an empty switch fails closed (R12).

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::generation::{Generation, Way};
use crate::plant::Plant;
use crate::registers::Registers;
use crate::{
    Backend, BackendError, Counter, Counters, Host, HostId, HostIndex, Ingress, Register, Ring, Table,
    TableError, TableSet, TableStatus, TableUpdate, VringSet,
};

/// Where a datagram goes from a switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Hop {
    /// To this host, rewritten for it.
    Host(HostId),
    /// By this port to another switch, as it is.
    Trunk(u16),
}

/// Where a datagram goes.
#[derive(Clone, Debug)]
pub enum Route<'a> {
    /// There; `None`: it would go back by the trunk by which it came.
    Unicast(Option<Hop>),
    /// To each of these.
    Multicast(Copies<'a>),
    /// For a vring, but no entry covers it: drop.
    Miss,
    /// Not for a vring: none of our business.
    NotVring,
}

/// Where the copies of a multicast go: each port once that leads to members of the group, but the one by which it came. Hosts in ascending order, then
/// trunks.
#[derive(Clone, Debug)]
pub struct Copies<'a> {
    ways: core::slice::Iter<'a, Way>,
    ingress: Option<u16>,
}

impl Iterator for Copies<'_> {
    type Item = Hop;

    fn next(&mut self) -> Option<Hop> {
        let ingress = self.ingress;
        self.ways.by_ref().find(|way| Some(way.port) != ingress).map(|way| way.hop)
    }
}

/// The match-action stage with its tables and counters.
#[derive(Clone, Debug)]
pub struct Router {
    vrings: VringSet,
    current: Option<Box<Generation>>,
    counters: Counters,
    registers: Registers,
    /// Always `None` outside tests.
    plant: Option<Plant>,
}

impl Router {
    /// A router without tables: every vring address is a miss.
    pub fn new<V: TryInto<VringSet>>(vrings: V) -> Result<Self, TableError>
    where
        TableError: From<V::Error>,
    {
        Ok(Self {
            vrings: vrings.try_into()?,
            current: None,
            counters: Counters::default(),
            registers: Registers::new(),
            plant: None,
        })
    }

    /// Breaks a rule from now on.
    #[cfg(any(test, feature = "exploration"))]
    pub fn plant(&mut self, plant: Plant) {
        self.plant = Some(plant);
    }

    /// The rings that this router serves.
    pub fn vrings(&self) -> &VringSet {
        &self.vrings
    }

    /// The installed tables, if any.
    pub fn tables(&self) -> Option<&TableSet> {
        self.current.as_deref().map(|current| &current.tables)
    }

    /// The servers of the installed tables.
    pub fn hosts(&self) -> Option<&HostIndex> {
        self.current.as_deref().map(|current| &current.hosts)
    }

    /// A host of the installed tables.
    pub fn host(&self, id: HostId) -> Option<&Host> {
        self.current.as_deref()?.hosts.get(id)
    }

    /// Matches one datagram and counts the hit. `ingress` is the port by which it came, or that of the server that sent it: no copy
    /// of a multicast leaves by it, and nothing that came by a trunk. Allocates nothing.
    pub fn route(&mut self, source: [u8; 4], destination: [u8; 4], ingress: Option<u16>) -> Route<'_> {
        let is_of_host = |port| self.hosts().is_some_and(|hosts| hosts.at_port(port).is_some());
        let ingress = ingress.filter(|port| self.plant != Some(Plant::TrunkEchoes) || is_of_host(*port));
        let Some(ring) = self.vrings.ring_of(destination) else { return Route::NotVring };
        let Some(current) = self.current.as_deref_mut() else {
            self.counters.add(Counter::VringMiss, 1);
            return Route::Miss;
        };
        let counters = &mut self.counters;
        let route = match ring {
            Ring::Unicast => {
                let host = route_unicast(current, source, destination, counters);
                host.map(|host| Route::Unicast(hop_to(current, host, ingress, counters)))
            }
            Ring::Multicast => route_multicast(current, destination, ingress, counters).map(Route::Multicast),
        };
        route.unwrap_or_else(|| {
            counters.add(Counter::VringMiss, 1);
            Route::Miss
        })
    }

    pub(crate) fn count(&mut self, counter: Counter) {
        self.counters.add(counter, 1);
    }

    /// Counts what admission has refused.
    pub(crate) fn refuse(&mut self, ingress: Ingress, counter: Counter) {
        self.count(counter);
        if let Ingress::Port { port, .. } = ingress {
            self.registers.add(Register::RefusedByPort, port.into());
        }
    }
}

/// The action of `unicast_vring`, and of `division` if it claims the source.
fn route_unicast(
    current: &mut Generation,
    source: [u8; 4],
    destination: [u8; 4],
    counters: &mut Counters,
) -> Option<HostId> {
    let index = current.lookup(Table::Unicast, None, destination)?;
    counters.add(Counter::Hits(Table::Unicast), 1);
    let entry = current.tables.unicast[index];
    let Some(index) = current.lookup(Table::Division, Some(entry.partition), source) else {
        return Some(entry.host);
    };
    counters.add(Counter::Hits(Table::Division), 1);
    Some(current.tables.division[index].host)
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

impl Hop {
    /// The host, where that hangs at this switch.
    pub fn host(self) -> Option<HostId> {
        match self {
            Self::Host(host) => Some(host),
            Self::Trunk(_) => None,
        }
    }

    fn is_trunk_at(self, port: Option<u16>) -> bool {
        matches!(self, Self::Trunk(own) if Some(own) == port)
    }
}

fn route_multicast<'a>(
    current: &'a mut Generation,
    destination: [u8; 4],
    ingress: Option<u16>,
    counters: &mut Counters,
) -> Option<Copies<'a>> {
    let index = current.lookup(Table::Multicast, None, destination)?;
    counters.add(Counter::Hits(Table::Multicast), 1);
    let copies = Copies { ways: current.ways(index).iter(), ingress };
    counters.add(Counter::MulticastCopies, copies.clone().count() as u64);
    Some(copies)
}

impl Backend for Router {
    fn install(&mut self, tables: &TableSet) -> Result<(), BackendError> {
        tables.validate(&self.vrings)?;
        self.current = Some(Box::new(Generation::new(tables.clone(), self.current.as_deref())));
        Ok(())
    }

    fn update(&mut self, update: &TableUpdate) -> Result<(), BackendError> {
        let tables = update.applied_to(self.tables())?;
        tables.validate(&self.vrings)?;
        let current = self.current.as_deref().expect("an update applies to installed tables alone");
        self.current = Some(Box::new(current.updated(tables, update.change.table())));
        Ok(())
    }

    fn table_status(&self) -> Result<Vec<TableStatus>, BackendError> {
        Ok(TableStatus::list(self.tables(), &self.counters))
    }

    fn entry_hits(&self, table: Table) -> Result<Vec<u64>, BackendError> {
        Ok(self.current.as_deref().map(|current| current.hits(table).to_vec()).unwrap_or_default())
    }

    fn read_register(&self, register: Register) -> Result<Vec<u64>, BackendError> {
        Ok(self.registers.read(register).to_vec())
    }

    fn write_register(&mut self, register: Register, cell: u32, value: u64) -> Result<(), BackendError> {
        let written = self.registers.write(register, cell as usize, value);
        written.then_some(()).ok_or(BackendError::NoCell { register, cell })
    }

    fn reset_register(&mut self, register: Register) -> Result<(), BackendError> {
        self.registers.reset(register);
        Ok(())
    }

    fn counters(&self) -> Result<Counters, BackendError> {
        Ok(self.counters)
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;
    use crate::{DivisionEntry, HostRole, MemberSet, MulticastEntry, Prefix, UnicastEntry, VringConfig};

    fn tables(generation: u64) -> TableSet {
        let host = |id: u16| Host {
            id: HostId(id),
            role: HostRole::Node,
            ip: [10, 0, 0, id as u8],
            udp_port: 7000,
            mac: [2, 0, 0, 0, 0, id as u8],
            port: id,
            is_remote: false,
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
            (Route::Unicast(hop), Some(expected)) => assert_eq!(hop, Some(Hop::Host(HostId(expected)))),
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
        assert_eq!(router.counters().unwrap().get(Counter::Hits(Table::Unicast)), 4);
    }

    #[test]
    fn the_sender_gets_no_copy() {
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
    fn a_trunk_takes_one_copy_as_it_is_and_gives_none_back() {
        let mut router = router();
        let mut tables = tables(2);
        // Host 1 hangs here, hosts 2 and 3 behind one trunk, host 4 behind another.
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
        assert_eq!(hop([10, 10, 1, 7], Some(7)), None, "it would go back");
        assert_eq!(hop([10, 10, 0, 7], Some(1)), Some(here), "to the port of a host it may");
        assert_eq!(router.counters().unwrap().get(Counter::SamePortDropped), 1);
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
    #[test]
    fn an_update_is_atomic_like_an_install_and_keeps_the_hits_of_all_tables() {
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

        // Refused, whatever the reason: nothing changes.
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
}
