//! Switches that are controlled by OpenFlow: the agent's back end is a controller to which the switch
//! connects.
//!
//! ```text
//!   metadata service ◀─ control protocol ─▶ agent ─▶ OpenFlowSwitch ◀─ OpenFlow 1.3 over TCP ─ switch
//! ```
//!
//! Open vSwitch caches what it decides for a flow of packets, and checks its cache again some
//! milliseconds after a change, without telling when it has. So for a while after a BARRIER_REPLY packets
//! may still follow the old tables: the acknowledgement does not fence a removed node, and behind
//! such a switch R6 has to wait for the whole of the node's lease.
//!
//! The switch keeps its last tables while the controller is away. When it is back, it reads what the
//! switch has and sends what differs.

use super::AgentLink;
use crate::{PollFd, Stop, accept, interest, now, readable, wait};
use nicekv_openflow::controller::{Controller, Event, InstallError};
use nicekv_openflow::program::Fabric;
use nicekv_openflow::session::Switch;
use nicekv_openflow::tally::Tally;
use nicekv_openflow::wire::{Field, PacketIn, Port, PortChange, port};
use nicekv_proto::{Duration, Now};
use nicekv_switch::control::{SwitchAgent, TermStore};
use nicekv_switch::{
    Backend, BackendError, Counters, EntryRequests, HotConfig, HotEntry, HotReading, MacTable, Register,
    Table, TableSet, TableStatus, TableUpdate, is_station,
};
use std::collections::BTreeSet;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, SocketAddrV4, TcpListener, TcpStream};

/// How long a change may take, connecting included.
const CHANGE_MAX: Duration = Duration::from_secs(5);
/// Pause between two readings of the flows' counts.
const COUNTS_PAUSE: Duration = Duration::from_millis(500);
/// Pause between two changes for what was learned, so that a storm of unknown senders costs little.
const LEARNING_PAUSE: Duration = Duration::from_millis(50);
/// Most bytes that are read before other work.
const READ_BYTES: usize = 1 << 18;

/// The controller of a switch, which may or may not be connected.
pub struct OpenFlowSwitch {
    listener: TcpListener,
    fabric: Fabric,
    term: u64,
    connection: Option<Connection>,
    /// A later connection. It takes the place of the first if it comes from the same switch.
    candidate: Option<Connection>,
    /// The number of the switch that is controlled.
    datapath: Option<u64>,
    /// The tables in force.
    installed: Option<TableSet>,
    /// Where clients are.
    stations: MacTable,
    learned_from_ns: u64,
    /// Stations or ports have changed since the tables were compiled.
    is_outdated: bool,
    tally: Tally,
    read_counts_at_ns: u64,
    /// The result of the change under way.
    outcome: Option<Result<(), String>>,
    /// Why the last connection has ended.
    last_error: Option<String>,
    /// The number of another switch that has connected here, and was refused.
    refused_datapath: Option<u64>,
}

struct Connection {
    stream: TcpStream,
    controller: Controller,
    /// The term that the switch was last asked to obey.
    term: u64,
    is_ready: bool,
    /// The tables that are being installed.
    changing: Option<TableSet>,
}

impl OpenFlowSwitch {
    /// A controller that waits for its switch at `listener`. The ports of `fabric` are replaced by
    /// those of the switch.
    pub fn new(listener: TcpListener, fabric: Fabric) -> Self {
        Self {
            listener,
            fabric,
            term: 0,
            connection: None,
            candidate: None,
            datapath: None,
            installed: None,
            stations: MacTable::default(),
            learned_from_ns: 0,
            is_outdated: false,
            tally: Tally::default(),
            read_counts_at_ns: 0,
            outcome: None,
            last_error: None,
            refused_datapath: None,
        }
    }

    /// The number of another switch that was refused, because this one is connected: both are told to
    /// connect to the same controller.
    pub fn refused_datapath(&self) -> Option<u64> {
        self.refused_datapath
    }

    /// Where the switch has to connect.
    pub fn address(&self) -> io::Result<SocketAddrV4> {
        match self.listener.local_addr()? {
            SocketAddr::V4(address) => Ok(address),
            SocketAddr::V6(_) => Err(ErrorKind::AddrNotAvailable.into()),
        }
    }

    /// Whether the switch is connected, and what it runs is known.
    pub fn is_ready(&self) -> bool {
        self.connection.as_ref().is_some_and(|connection| connection.is_ready)
    }

    fn interests(&mut self) -> Vec<PollFd<'_>> {
        let mut interests = vec![readable(&self.listener)];
        for connection in self.connection.iter_mut().chain(&mut self.candidate) {
            let has_output = !connection.controller.unsent().is_empty();
            interests.push(interest(&connection.stream, true, has_output));
        }
        interests
    }

    fn next_deadline(&self) -> Option<u64> {
        let connections = self.connection.iter().chain(&self.candidate);
        let sessions_ns = connections.filter_map(|connection| connection.controller.next_deadline());
        // While a change is under way, nothing else begins: the switch's reply ends the wait.
        let counts_ns = self.is_idle().then_some(self.read_counts_at_ns);
        let learned_ns = (self.is_idle() && self.has_learned()).then_some(self.learned_from_ns);
        sessions_ns.chain(counts_ns).chain(learned_ns).min()
    }

    /// Whether the tables in force have to be compiled again.
    fn has_learned(&self) -> bool {
        self.is_outdated && self.installed.is_some()
    }

    /// Processes input, and does what is due.
    pub fn turn(&mut self, now: Now) {
        if let Ok(Some(stream)) = accept(&self.listener) {
            let connection = Connection::new(now, stream, self.term);
            match &self.connection {
                None => self.connection = Some(connection),
                Some(_) => self.candidate = Some(connection),
            }
        }
        self.try_candidate(now);
        let Some(connection) = &mut self.connection else { return };
        let ended = connection.exchange(now).err();
        while let Some(event) =
            self.connection.as_mut().and_then(|connection| connection.controller.poll_event())
        {
            self.handle(event);
        }
        self.begin_due_work(now);
        let Some(connection) = &mut self.connection else { return };
        if let Some(reason) = connection.failure(ended) {
            self.disconnect(reason);
        }
    }

    /// Lets a later connection greet. A switch that connects again has lost its connection before,
    /// even if nothing of that has arrived here.
    fn try_candidate(&mut self, now: Now) {
        let Some(candidate) = &mut self.candidate else { return };
        let ended = candidate.exchange(now).err();
        let failure = candidate.failure(ended);
        match candidate.controller.poll_event() {
            Some(Event::Ready(switch)) => {
                let candidate = self.candidate.take();
                if Some(switch.features.datapath) == self.datapath || self.connection.is_none() {
                    self.disconnect("it has connected again".into());
                    self.connection = candidate;
                    self.handle_ready(&switch);
                } else {
                    self.refused_datapath = Some(switch.features.datapath);
                }
            }
            _ if failure.is_some() => self.candidate = None,
            _ => {}
        }
    }

    fn disconnect(&mut self, reason: String) {
        self.connection = None;
        self.outcome = Some(Err(reason.clone()));
        self.last_error = Some(reason);
    }

    fn begin_due_work(&mut self, now: Now) {
        let Some(connection) = self.connection.as_mut().filter(|connection| connection.is_ready) else {
            return;
        };
        // Each fails only with the session, which then says why.
        if connection.term != self.term {
            connection.term = self.term;
            let _ = connection.controller.claim(self.term);
        }
        if now.boot_ns >= self.read_counts_at_ns && connection.controller.is_idle() {
            self.read_counts_at_ns = now.after(COUNTS_PAUSE);
            let _ = connection.controller.read_counts();
        }
        if self.is_outdated
            && now.boot_ns >= self.learned_from_ns
            && connection.controller.is_idle()
            && let Some(tables) = self.installed.clone()
        {
            self.is_outdated = false;
            self.learned_from_ns = now.after(LEARNING_PAUSE);
            let _ = self.begin(tables);
        }
    }

    fn begin(&mut self, tables: TableSet) -> Result<(), InstallError> {
        let Some(connection) = &mut self.connection else { return Err(InstallError::NotReady) };
        connection.controller.set_tables(&self.fabric, &tables, &self.stations.iter().collect())?;
        connection.changing = Some(tables);
        Ok(())
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Ready(switch) => self.handle_ready(&switch),
            Event::Installed => {
                let connection = self.connection.as_mut();
                if let Some(tables) = connection.and_then(|connection| connection.changing.take()) {
                    self.installed = Some(tables);
                }
                self.outcome = Some(Ok(()));
            }
            Event::Refused(reason) => {
                self.outcome = Some(Err(reason));
            }
            Event::Counts(counts) => {
                if let (Some(connection), Some(tables)) = (&self.connection, &self.installed) {
                    self.tally.add(connection.controller.program(), tables, counts);
                }
            }
            Event::Packet(packet) => self.learn(&packet),
            Event::Port { change, port } => self.handle_port(change, &port),
        }
    }

    fn handle_ready(&mut self, switch: &Switch) {
        if let Some(connection) = &mut self.connection {
            connection.is_ready = true;
        }
        self.datapath = Some(switch.features.datapath);
        self.fabric.ports = switch.ports.iter().filter_map(number_of).collect();
        self.last_error = None;
        self.is_outdated = true;
    }

    fn handle_port(&mut self, change: PortChange, port: &Port) {
        let Some(number) = number_of(port) else { return };
        let is_changed = match change {
            PortChange::Deleted => {
                self.stations.forget(number);
                self.fabric.ports.remove(&number)
            }
            _ => self.fabric.ports.insert(number),
        };
        self.is_outdated |= is_changed;
    }

    /// Notes where the sender of a packet is.
    fn learn(&mut self, packet: &PacketIn) {
        let ingress = packet.matches.get(Field::InPort).and_then(|port| u16::try_from(port.value).ok());
        let source = packet.data.get(6..12).and_then(|mac| <[u8; 6]>::try_from(mac).ok());
        let (Some(ingress), Some(source)) = (ingress, source) else { return };
        let is_server = self.installed.iter().flat_map(|tables| &tables.hosts).any(|host| host.mac == source);
        if is_station(source) && source != self.fabric.router_mac && !is_server {
            self.is_outdated |= self.stations.learn(source, ingress);
        }
    }

    /// Works until `is_done`, or until a change has taken too long.
    fn work_until(&mut self, is_done: impl Fn(&Self) -> bool) -> Result<(), BackendError> {
        let until_ns = now().after(CHANGE_MAX);
        loop {
            self.turn(now());
            if is_done(self) {
                return Ok(());
            }
            if now().boot_ns >= until_ns {
                let reason = match (&self.connection, &self.last_error) {
                    (Some(_), _) => "the switch does not answer".to_owned(),
                    (None, Some(reason)) => format!("the switch is not connected: {reason}"),
                    (None, None) => "the switch has not connected to its controller yet".to_owned(),
                };
                // What it does now is found out when it is back.
                self.connection = None;
                return Err(BackendError::Platform(reason));
            }
            let deadline_ns = self.next_deadline().map_or(until_ns, |deadline_ns| deadline_ns.min(until_ns));
            let platform = |error: io::Error| BackendError::Platform(error.to_string());
            wait(&mut self.interests(), Some(deadline_ns)).map_err(platform)?;
        }
    }

    fn is_idle(&self) -> bool {
        self.connection
            .as_ref()
            .is_some_and(|connection| connection.is_ready && connection.controller.is_idle())
    }

    fn refuse<T>(what: &str) -> Result<T, BackendError> {
        Err(BackendError::Platform(format!("an OpenFlow switch {what}")))
    }
}

impl Connection {
    fn new(now: Now, stream: TcpStream, term: u64) -> Self {
        let controller = Controller::new(now, term);
        Self { stream, controller, term, is_ready: false, changing: None }
    }

    /// Sends what waits, and tells why the connection has ended, if it has.
    fn failure(&mut self, ended: Option<io::Error>) -> Option<String> {
        let sent = self.send().err();
        let failed = self.controller.error().map(ToString::to_string);
        failed.or_else(|| ended.or(sent).map(|error| error.to_string()))
    }

    /// Reads the stream and handles deadlines.
    fn exchange(&mut self, now: Now) -> io::Result<()> {
        let mut bytes = [0; 16 << 10];
        let mut received = 0;
        while received < READ_BYTES {
            match self.stream.read(&mut bytes) {
                Ok(0) => return Err(io::Error::new(ErrorKind::UnexpectedEof, "it closed the connection")),
                Ok(count) => {
                    received += count;
                    self.controller.handle_bytes(now, &bytes[..count]);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.controller.handle_deadline(now);
        Ok(())
    }

    fn send(&mut self) -> io::Result<()> {
        let unsent = self.controller.unsent();
        let mut sent = 0;
        let result = loop {
            if sent == unsent.len() {
                break Ok(());
            }
            match self.stream.write(&unsent[sent..]) {
                Ok(count) => sent += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => break Err(error),
            }
        };
        unsent.drain(..sent);
        result
    }
}

/// The number of a port, unless it is one of the switch's own.
fn number_of(port: &Port) -> Option<u16> {
    u16::try_from(port.number).ok().filter(|_| port.number <= port::MAX)
}

impl Backend for OpenFlowSwitch {
    fn obey(&mut self, term: u64) {
        self.term = term;
    }

    fn install(&mut self, tables: &TableSet) -> Result<(), BackendError> {
        tables.validate(&self.fabric.vrings)?;
        self.work_until(Self::is_idle)?;
        let ports: &BTreeSet<u16> = &self.fabric.ports;
        tables.validate_ports(|port| ports.contains(&port))?;
        self.is_outdated = false;
        self.begin(tables.clone()).map_err(|error| BackendError::Platform(error.to_string()))?;
        self.outcome = None;
        // A change that is empty is done already.
        self.work_until(|switch| switch.outcome.is_some())?;
        match self.outcome.take() {
            Some(Err(reason)) => Err(BackendError::Platform(reason)),
            _ => Ok(()),
        }
    }

    fn update(&mut self, update: &TableUpdate) -> Result<(), BackendError> {
        let tables = update.applied_to(self.installed.as_ref())?;
        self.install(&tables)
    }

    fn table_status(&self) -> Result<Vec<TableStatus>, BackendError> {
        Ok(TableStatus::list(self.installed.as_ref(), self.tally.counters()))
    }

    fn entry_hits(&self, table: Table) -> Result<Vec<u64>, BackendError> {
        Ok(self.installed.as_ref().map(|tables| self.tally.hits(tables, table)).unwrap_or_default())
    }

    fn native_entry(&self, table: Table, position: usize) -> Option<String> {
        self.connection.as_ref()?.controller.program().describe_entry(table, position)
    }

    fn entry_requests(&self, table: Table) -> Result<Vec<EntryRequests>, BackendError> {
        Ok(self.installed.as_ref().map(|tables| self.tally.requests(tables, table)).unwrap_or_default())
    }

    fn ports(&self) -> Option<Vec<u16>> {
        Some(self.fabric.ports.iter().copied().collect())
    }

    fn read_register(&self, register: Register) -> Result<Vec<u64>, BackendError> {
        Self::refuse(&format!("has no register {}", register.name()))
    }

    fn write_register(&mut self, register: Register, _cell: u32, _value: u64) -> Result<(), BackendError> {
        Self::refuse(&format!("has no register {}", register.name()))
    }

    fn reset_register(&mut self, register: Register) -> Result<(), BackendError> {
        Self::refuse(&format!("has no register {}", register.name()))
    }

    fn set_hot(&mut self, config: &HotConfig) -> Result<(), BackendError> {
        match config.keyspaces.is_empty() {
            true => Ok(()),
            false => Self::refuse("cannot find hot keys: choose another balancing"),
        }
    }

    fn change_hot(&mut self, _clear: bool, _removed: &[u64], set: &[HotEntry]) -> Result<(), BackendError> {
        if set.is_empty() { Ok(()) } else { Self::refuse("cannot match single keys") }
    }

    fn read_hot(&mut self) -> Result<HotReading, BackendError> {
        Ok(HotReading::default())
    }

    fn counters(&self) -> Result<Counters, BackendError> {
        Ok(*self.tally.counters())
    }
}

/// Serves the metadata service and the switch until `stop`.
pub fn run_openflow<M: TermStore>(
    mut link: AgentLink,
    agent: &mut SwitchAgent<OpenFlowSwitch, M>,
    stop: &Stop,
) -> io::Result<()> {
    let waker = link.begin(stop)?;
    while !stop.is_stopped() {
        let deadlines = link.next_deadline().into_iter().chain(agent.backend().next_deadline());
        let deadline_ns = deadlines.min();
        {
            let mut descriptors: Vec<PollFd<'_>> =
                std::iter::once(readable(&waker)).chain(link.interests()).collect();
            descriptors.extend(agent.backend_mut().interests());
            wait(&mut descriptors, deadline_ns)?;
        }
        waker.clear();
        agent.backend_mut().turn(now());
        link.answer(agent);
        link.turn(now(), agent);
    }
    Ok(())
}
