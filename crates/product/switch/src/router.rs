//! The match-action stage: which hosts receive a datagram for a vring address; and what the stages keep: tables, counters,
//! registers. Used by the reference pipeline on frames, and by [`Router::process`] on datagrams.
//!
//! ```text
//!  destination ∈ unicast ring:    unicast_vring ─ partition, default host ─▶ division ─▶ host
//!                                      │ no match: miss
//!  destination ∈ multicast ring:  multicast_vring ─ members ─▶ the port of each, once, but the ingress
//!  destination ∈ ring of groups:  the same, of those members alone that the address means; of none of them: miss
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

mod matching;

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::net::SocketAddrV4;

use nicekv_proto::hot::Stamp;
use nicekv_proto::large::RECEIVERS_ALL;
use nicekv_proto::route::ChainHeader;

use crate::generation::{Generation, Receivers, Way};
use crate::hot::stage::{Heard, HotStage, Request};
use crate::registers::Registers;
use crate::stages::split::{self, Rest};
use crate::{
    Backend, BackendError, Counter, Counters, EntryRequests, Host, HostId, HostIndex, HotConfig, HotEntry,
    HotReading, HotTable, Ingress, Register, Table, TableError, TableSet, TableStatus, TableUpdate, VringSet,
};
use matching::Matching;

/// What of a datagram for a ring the tables are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sought {
    /// The address of its vnode.
    pub address: [u8; 4],
    /// Keyspace and match value of its header, if it shows one.
    pub key: Option<(u16, u128)>,
    /// Of its header.
    pub opcode: Option<u8>,
    /// Which hosts get copies, if any do: bits, by [`receiver_bit`](nicekv_proto::large::receiver_bit). In the ring of groups the address says who does.
    pub receivers: u16,
}

impl From<[u8; 4]> for Sought {
    /// What shows no header.
    fn from(address: [u8; 4]) -> Self {
        Self { address, key: None, opcode: None, receivers: RECEIVERS_ALL }
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

/// Where a datagram goes.
#[derive(Clone, Debug)]
pub enum Route<'a> {
    /// There; `None`: it would go back by the trunk by which it came.
    Unicast(Option<Hop>),
    /// The same to a node of a chain, with this written into the room that the request has for it.
    Chain(Option<Hop>, ChainHeader),
    /// To each of these.
    Multicast(Copies<'a>),
    /// Back to its sender: the switch answers it, with this behind a reply's header (H9).
    Answered(&'a [u8]),
    /// For a vring, but no entry covers it: drop.
    Miss,
    /// Not for a vring: none of our business.
    NotVring,
}

/// Where the copies of a multicast go: each port once that leads to members of the group that it is for, but the one by which it came. Hosts in ascending
/// order, then trunks.
#[derive(Clone, Debug)]
pub struct Copies<'a> {
    ways: core::slice::Iter<'a, Way>,
    ingress: Option<u16>,
    receivers: Receivers,
}

impl Iterator for Copies<'_> {
    type Item = Hop;

    fn next(&mut self) -> Option<Hop> {
        let (ingress, receivers) = (self.ingress, self.receivers);
        self.ways.by_ref().find(|way| Some(way.port) != ingress && way.is_for(receivers)).map(|way| way.hop)
    }
}

/// The match-action stage with its tables and counters.
#[derive(Clone, Debug)]
pub struct Router {
    vrings: VringSet,
    current: Option<Box<Generation>>,
    counters: Counters,
    registers: Registers,
    hot: HotStage,
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
            hot: HotStage::default(),
        })
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

    /// Where a host gets what was sent to this address of a ring.
    ///
    /// # Panics
    /// If the installed tables do not name the host.
    pub fn place_of(&self, host: HostId, sent_to: SocketAddrV4) -> SocketAddrV4 {
        let host = self.host(host).expect("validated tables know every host they name");
        let target_port = self.vrings.target_port(sent_to.ip().octets());
        SocketAddrV4::new(host.ip.into(), target_port.unwrap_or(host.udp_port))
    }

    /// Matches one datagram and counts the hit. `ingress` is the port by which it came, or that of the server that sent it: no copy
    /// of a multicast leaves by it, and nothing that came by a trunk. Allocates nothing.
    pub fn route(&mut self, source: [u8; 4], sought: impl Into<Sought>, ingress: Option<u16>) -> Route<'_> {
        let Self { vrings, current, counters, .. } = self;
        let matching = Matching { vrings, counters };
        matching.route(current.as_deref_mut(), source, sought.into(), ingress)
    }

    /// The same, then the stage of hot keys; the stamp that is to be written into the room of a request, if it has some, for hosts of this switch.
    pub(crate) fn route_hot(
        &mut self,
        request: Request<'_>,
        ingress: Option<u16>,
    ) -> (Route<'_>, Option<Stamp>) {
        let Self { vrings, current, counters, hot, .. } = self;
        let matching = Matching { vrings, counters: &mut *counters };
        let source = request.from.ip().octets();
        let route = matching.route(current.as_deref_mut(), source, request.sought, ingress);
        if !request.has_room && !hot.detection.is_on() {
            return (route, None);
        }
        hot.pass(request, route, counters)
    }

    /// A life of the switch begins, of which `nonce`, not 0, is the name: no other of its lives has that. Until then it grants no leases, and so answers no gets (H9).
    pub fn begin_life(&mut self, nonce: u64) {
        self.hot.table.begin_life(nonce);
    }

    /// What is said to the switch by who hangs at a port, if it is a node: others are not admitted to say such things.
    pub(crate) fn hear(&mut self, port: Option<u16>, payload: &[u8], now_ns: u64) -> (Option<HostId>, Heard) {
        let hosts = self.current.as_deref().map(|current| &current.hosts);
        let sender = hosts.zip(port).and_then(|(hosts, port)| hosts.at_port(port)).map(|host| host.id);
        (sender, self.hot.hear(sender, payload, now_ns, &mut self.counters))
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
        &self.hot.table
    }

    /// Other hosts may be here.
    fn tell_hosts(&mut self) {
        if let Some(current) = self.current.as_deref() {
            self.hot.set_hosts(&current.hosts, current.tables.hosts.iter().map(|host| host.id));
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

impl Backend for Router {
    fn install(&mut self, tables: &TableSet) -> Result<(), BackendError> {
        tables.validate(&self.vrings)?;
        self.current = Some(Box::new(Generation::new(tables.clone(), self.current.as_deref())));
        self.tell_hosts();
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

    fn set_hot(&mut self, config: &HotConfig) -> Result<(), BackendError> {
        Ok(self.hot.detection.set(config)?)
    }

    fn change_hot(&mut self, clear: bool, removed: &[u64], set: &[HotEntry]) -> Result<(), BackendError> {
        let hosts = self.current.as_deref().map(|current| &current.hosts);
        Ok(self.hot.table.change(clear, removed, set, hosts)?)
    }

    fn read_hot(&mut self) -> Result<HotReading, BackendError> {
        Ok(self.hot.read())
    }

    fn counters(&self) -> Result<Counters, BackendError> {
        Ok(self.counters)
    }
}

#[cfg(test)]
mod tests;
