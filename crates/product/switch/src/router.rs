//! The router: the match-action pipeline on datagrams, with its state: tables, counters, registers,
//! hot keys. Used by the reference [`Pipeline`](crate::Pipeline) on frames, and by
//! [`Router::process`] on datagrams.
//!
//! **Trunks.** A datagram for hosts behind a trunk leaves by it once and unchanged; the switch at
//! the other end matches it by its own tables. No datagram leaves by the trunk by which it arrived
//! (split horizon). Switches form a tree, so a datagram visits each switch at most once, crosses
//! each trunk at most once, and reaches each host at most once, through the switch that the host is
//! attached to. This also holds while switches have different generations; then a datagram may be
//! dropped on the way.
//!
//! [`Router::install`] is make-before-break: the new generation is validated and compiled beside
//! the old one and replaces it in one assignment; a refused generation changes nothing. An entry
//! that is also in the new generation (same match) keeps its hit count. Before the first install
//! every vring address is a miss: an empty switch fails closed (R12).

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::net::SocketAddrV4;

use nicekv_proto::hot::Stamp;

use crate::compiled::CompiledTables;
use crate::hot::stage::{HotStage, Request, SwitchReply};
use crate::match_action::MatchAction;
use crate::registers::Registers;
use crate::scan_split::{self, ScanRest};
use crate::{
    Backend, BackendError, Counter, Counters, EntryRequests, Host, HostId, HostIndex, HotConfig, HotEntry,
    HotReading, HotTable, Ingress, LookupKey, Register, Route, Table, TableError, TableSet, TableStatus,
    TableUpdate, VringSet,
};

/// The match-action pipeline with its tables, counters and registers.
#[derive(Clone, Debug)]
pub struct Router {
    vrings: VringSet,
    current: Option<Box<CompiledTables>>,
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

    /// The address at which `host` receives a datagram that was sent to the ring address `sent_to`.
    ///
    /// # Panics
    /// If the installed tables do not name the host.
    pub fn delivery_address(&self, host: HostId, sent_to: SocketAddrV4) -> SocketAddrV4 {
        let host = self.host(host).expect("validated tables know every host they name");
        let target_port = self.vrings.target_port(sent_to.ip().octets());
        SocketAddrV4::new(host.ip.into(), target_port.unwrap_or(host.udp_port))
    }

    /// Matches one datagram and counts the hit. `ingress`: the port by which the datagram arrived,
    /// or the port of the server that sent it. No copy of a multicast leaves by this port, and if
    /// it is a trunk, nothing does. Does not allocate.
    pub fn route(&mut self, source: [u8; 4], key: impl Into<LookupKey>, ingress: Option<u16>) -> Route<'_> {
        let Self { vrings, current, counters, .. } = self;
        let stage = MatchAction { vrings, counters };
        stage.route(current.as_deref_mut(), source, key.into(), ingress)
    }

    /// The match-action stage, then the stage of hot keys. Also returns the stamp to write into the
    /// copies of the request for hosts of this switch, if the request has room for one.
    pub(crate) fn route_hot(
        &mut self,
        request: Request<'_>,
        ingress: Option<u16>,
    ) -> (Route<'_>, Option<Stamp>) {
        let Self { vrings, current, counters, hot, .. } = self;
        let stage = MatchAction { vrings, counters: &mut *counters };
        let source = request.from.ip().octets();
        let route = stage.route(current.as_deref_mut(), source, request.key, ingress);
        if !request.has_room && !hot.detection.is_on() {
            return (route, None);
        }
        hot.pass(request, route, counters)
    }

    /// Begins an incarnation of the switch. `nonce` identifies it: not 0, and different in each
    /// incarnation. Before the first incarnation the switch grants no leases, so it answers no gets
    /// itself (H9).
    pub fn begin_incarnation(&mut self, nonce: u64) {
        self.hot.table.begin_incarnation(nonce);
    }

    /// Handles a message to the switch itself from the node at `port`; admission lets only nodes
    /// send such messages. Returns the sender and the reply.
    pub(crate) fn handle_switch_message(
        &mut self,
        port: Option<u16>,
        payload: &[u8],
        now_ns: u64,
    ) -> (Option<HostId>, SwitchReply) {
        let hosts = self.current.as_deref().map(|current| &current.hosts);
        let sender = hosts.zip(port).and_then(|(hosts, port)| hosts.at_port(port)).map(|host| host.id);
        (sender, self.hot.handle_switch_message(sender, payload, now_ns, &mut self.counters))
    }

    /// Cuts a scan at the end of the record in which it begins, if the scan goes on behind that and
    /// may be split. Returns the rest.
    pub(crate) fn split(&mut self, key: LookupKey, payload: &mut [u8], pieces: u8) -> Option<ScanRest> {
        let pair = self.vrings.pair_of(key.address).filter(|_| pieces > 1)?;
        let border = self.current.as_deref()?.record_end(pair, key.key?)?;
        let rest = scan_split::cut(payload, border, pieces)?;
        self.count(Counter::ScanSplits);
        Some(rest)
    }

    /// Whether a datagram that arrived this way has passed another switch.
    pub(crate) fn is_trunk(&self, ingress: Ingress) -> bool {
        let Ingress::Port { port, .. } = ingress else { return false };
        self.hosts().is_some_and(|hosts| hosts.is_trunk(port))
    }

    /// Table `hot`. Installing other tables does not change its entries.
    pub fn hot(&self) -> &HotTable {
        &self.hot.table
    }

    /// Tells the stage of hot keys which hosts are attached to this switch.
    fn update_hot_hosts(&mut self) {
        if let Some(current) = self.current.as_deref() {
            self.hot.set_hosts(&current.hosts, current.tables.hosts.iter().map(|host| host.id));
        }
    }

    pub(crate) fn count(&mut self, counter: Counter) {
        self.counters.add(counter, 1);
    }

    /// Counts a datagram that admission has refused.
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
        self.current = Some(Box::new(CompiledTables::new(tables.clone(), self.current.as_deref())));
        self.update_hot_hosts();
        Ok(())
    }

    fn update(&mut self, update: &TableUpdate) -> Result<(), BackendError> {
        let tables = update.applied_to(self.tables())?;
        tables.validate(&self.vrings)?;
        let current = self.current.as_deref().expect("an update applies only to installed tables");
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
