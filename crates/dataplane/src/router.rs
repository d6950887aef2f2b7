//! The match-action stage: which hosts receive a datagram for a vring address; and what the stages keep: tables, counters,
//! registers. Used by the reference pipeline on frames, and by [`Router::process`] on datagrams.
//!
//! ```text
//!  destination ∈ unicast ring:    unicast_vring ─ partition, default host ─▶ division ─▶ host
//!                                      │ no match: miss
//!  destination ∈ multicast ring:  multicast_vring ─ members ─▶ the port of each, once, but the ingress
//!
//!  entries of chains:             puts to the head, gets to the tail, and into the room that requests have: partition, epoch, nodes
//!
//!  of a keyspace with records:    record ─ first ≤ value of the header ≤ last ─▶ division, host, or members, as above
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

use nicekv_wire::route::ChainHeader;

use crate::generation::{Generation, Way};
use crate::hot::Heat;
use crate::plant::Plant;
use crate::registers::Registers;
use crate::stages::split::{self, Rest};
use crate::{
    Backend, BackendError, Chain, Counter, Counters, EntryRequests, Host, HostId, HostIndex, HotEntry,
    HotError, HotTable, Ingress, Register, Ring, Table, TableError, TableSet, TableStatus, TableUpdate,
    VringSet,
};

/// What of a datagram for a ring the tables are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sought {
    /// The address of its vnode.
    pub address: [u8; 4],
    /// Keyspace and match value of its header, if it shows one.
    pub key: Option<(u16, u128)>,
    /// Of its header.
    pub opcode: Option<u8>,
}

impl From<[u8; 4]> for Sought {
    /// What shows no header.
    fn from(address: [u8; 4]) -> Self {
        Self { address, key: None, opcode: None }
    }
}

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
    /// The same to a node of a chain, with this written into the room that the request has for it.
    Chain(Option<Hop>, ChainHeader),
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
    hot: HotTable,
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
            hot: HotTable::default(),
            plant: None,
        })
    }

    /// Breaks a rule from now on.
    #[cfg(any(test, feature = "exploration", feature = "fixtures"))]
    pub fn plant(&mut self, plant: Plant) {
        self.plant = Some(plant);
    }

    /// Whether what a client wrote where the chain header belongs is left there, as a test has planted.
    pub(crate) fn believes_clients(&self) -> bool {
        self.plant == Some(Plant::ChainHeaderBelieved)
    }

    /// Whether what another switch has cut is cut again, as a test has planted.
    pub(crate) fn cuts_again(&self) -> bool {
        self.plant == Some(Plant::PiecesCutAgain)
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
    pub fn route(&mut self, source: [u8; 4], sought: impl Into<Sought>, ingress: Option<u16>) -> Route<'_> {
        let Sought { address: destination, key, opcode } = sought.into();
        let is_of_host = |port| self.hosts().is_some_and(|hosts| hosts.at_port(port).is_some());
        let ingress = ingress.filter(|port| self.plant != Some(Plant::TrunkEchoes) || is_of_host(*port));
        let Some(ring) = self.vrings.ring_of(destination) else { return Route::NotVring };
        let Some(current) = self.current.as_deref_mut() else {
            self.counters.add(Counter::VringMiss, 1);
            return Route::Miss;
        };
        let counters = &mut self.counters;
        let by_records = !current.tables.record.is_empty();
        let pair = by_records.then(|| self.vrings.pair_of(destination)).flatten();
        let pair = pair.filter(|pair| current.has_records(*pair));
        if let Some(pair) = pair {
            let key = match self.plant {
                Some(Plant::RecordOfAddress) => key.map(|(keyspace, _)| (keyspace, vnode_value(destination))),
                _ => key,
            };
            let ends_early = self.plant == Some(Plant::RecordEndsEarly);
            let record = key.and_then(|key| current.find_record(pair, key, ends_early));
            return match record {
                Some(record) => {
                    current.count_request(Table::Record, record, ring, opcode);
                    route_by_record(current, record, ring, source, ingress, counters)
                }
                None => {
                    counters.add(Counter::VringMiss, 1);
                    Route::Miss
                }
            };
        }
        let route = match ring {
            Ring::Unicast => route_unicast(current, source, destination, ingress, counters),
            Ring::Multicast => route_multicast(current, destination, opcode, ingress, counters),
        };
        route.unwrap_or_else(|| {
            counters.add(Counter::VringMiss, 1);
            Route::Miss
        })
    }

    /// Cuts a scan at the end of the record in which it begins, if it goes on behind that and may be split; what is left of it then.
    pub(crate) fn split(&mut self, sought: Sought, payload: &mut [u8], pieces: u8) -> Option<Rest> {
        let pair = self.vrings.pair_of(sought.address).filter(|_| pieces > 1)?;
        let border = self.current.as_deref()?.border(pair, sought.key?)?;
        let rest = split::cut(payload, border, pieces)?;
        self.count(Counter::ScanSplits);
        Some(rest)
    }

    /// Whether another switch has seen what has come in there.
    pub(crate) fn is_trunk(&self, ingress: Ingress) -> bool {
        let Ingress::Port { port, .. } = ingress else { return false };
        self.hosts().is_some_and(|hosts| hosts.is_trunk(port))
    }

    /// Table `hot`: its entries outlive generations of the others.
    pub fn hot(&self) -> &HotTable {
        &self.hot
    }

    /// The same, to tell it the time and its lease.
    pub fn hot_mut(&mut self) -> &mut HotTable {
        &mut self.hot
    }

    /// Removes instances of hot keys and installs others ([`HotTable::change`]).
    pub fn change_hot(&mut self, removed: &[u64], set: &[HotEntry]) -> Result<(), HotError> {
        self.hot.change(removed, set, self.current.as_deref().map(|current| &current.hosts))
    }

    /// Of what is concerned ([`is_concerned`](crate::hot::is_concerned)): fills the room for a stamp. The hop of what does not go its usual way; `None` in it: nowhere.
    pub(crate) fn heat(
        &mut self,
        ring: Ring,
        sender: Option<u16>,
        payload: &mut [u8],
    ) -> Option<Option<Hop>> {
        let current = self.current.as_deref()?;
        let sender = sender.and_then(|port| current.hosts.at_port(port)).map(|host| host.id);
        match self.hot.process(ring, sender, payload, self.plant) {
            Heat::Usual => None,
            Heat::Ends => Some(None),
            Heat::To(host) => {
                let is_here = current.hosts.get(host).is_some_and(|host| !host.is_remote);
                Some(is_here.then_some(Hop::Host(host)))
            }
        }
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
    ingress: Option<u16>,
    counters: &mut Counters,
) -> Route<'a> {
    counters.add(Counter::Hits(Table::Record), 1);
    if let Some(chain) = current.tables.record[record].chain {
        return route_by_chain(current, &chain, ring, ingress, counters);
    }
    if ring == Ring::Multicast {
        return Route::Multicast(copies(current.ways_of_record(record), ingress, counters));
    }
    let (partition, host) = (current.tables.record[record].partition, current.tables.record[record].host);
    let host = divided(current, partition, source, counters).unwrap_or(host);
    Route::Unicast(hop_to(current, host, ingress, counters))
}

fn copies<'a>(ways: &'a [Way], ingress: Option<u16>, counters: &mut Counters) -> Copies<'a> {
    let copies = Copies { ways: ways.iter(), ingress };
    counters.add(Counter::MulticastCopies, copies.clone().count() as u64);
    copies
}

/// The first match value of a vnode's address.
fn vnode_value([_, _, c, d]: [u8; 4]) -> u128 {
    u128::from(u16::from_be_bytes([c, d])) << 112
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
    opcode: Option<u8>,
    ingress: Option<u16>,
    counters: &mut Counters,
) -> Option<Route<'a>> {
    let index = current.lookup(Table::Multicast, None, destination)?;
    current.count_request(Table::Multicast, index, Ring::Multicast, opcode);
    counters.add(Counter::Hits(Table::Multicast), 1);
    if let Some(chain) = current.tables.multicast[index].chain {
        return Some(route_by_chain(current, &chain, Ring::Multicast, ingress, counters));
    }
    Some(Route::Multicast(copies(current.ways(index), ingress, counters)))
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

    fn entry_requests(&self, table: Table) -> Result<Vec<EntryRequests>, BackendError> {
        Ok(self.current.as_deref().map(|current| current.requests(table)).unwrap_or_default())
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
mod tests;
