//! The reference pipeline: frame in, frames out. What the XDP back end does in the kernel, in plain code.
//!
//! Order of the stages: whose Ethernet address it is, learn it, classify, admit, then match-action and rewrite, or learned
//! forwarding.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use nicekv_proto::hot::Stamp;
use nicekv_proto::route::ChainHeader;

use crate::hot::stage::{Heard, Request, has_room_for_stamp, is_said};
use crate::stages::admit::{self, Ingress};
use crate::stages::learn::MacTable;
use crate::stages::parse::{self, Class, Datagram};
use crate::stages::split;
use crate::{
    Backend, BackendError, Counter, Counters, EntryRequests, Hop, Host, HotConfig, HotEntry, HotReading,
    HotTable, Register, Rest, Ring, Route, Router, Sought, Table, TableError, TableSet, TableStatus,
    TableUpdate, VringSet,
};

/// Ports of one switch.
pub const PORTS_MAX: usize = 256;

/// What became of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Gone; a counter says why.
    Dropped,
    /// For the unicast vring: rewritten and sent to one host, or as it is to the switch that the host is behind.
    Routed,
    /// For the multicast vring: a rewritten copy to each member but the sender, and one as it is by each trunk that leads to others.
    Multicast,
    /// Others' traffic, to the port of its destination.
    Forwarded,
    /// Others' traffic, to every port but the ingress.
    Flooded,
}

/// A verdict with the frames that leave: (port, bytes), ascending by port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    /// What became of the frame.
    pub verdict: Verdict,
    /// What leaves, and where.
    pub frames: Vec<(u16, Vec<u8>)>,
}

/// What is written into the room of a request, for hosts of this switch.
struct Written {
    chain: Option<ChainHeader>,
    stamp: Option<Stamp>,
}

/// A whole switch.
#[derive(Debug)]
pub struct Pipeline {
    router: Router,
    macs: MacTable,
    /// Source address of what the switch rewrites.
    router_mac: [u8; 6],
    /// Ascending.
    ports: Vec<u16>,
    /// Those that lead to other switches: closed, unless the tables say otherwise.
    trunks: BTreeSet<u16>,
    /// What the boot-time clock says.
    now_ns: u64,
}

impl Pipeline {
    /// A switch without tables. `ports`: the indexes of its ports.
    pub fn new(
        vrings: VringSet,
        router_mac: [u8; 6],
        ports: impl IntoIterator<Item = u16>,
    ) -> Result<Self, TableError> {
        let mut ports: Vec<u16> = ports.into_iter().collect();
        ports.sort_unstable();
        ports.dedup();
        Ok(Self {
            router: Router::new(vrings)?,
            macs: MacTable::default(),
            router_mac,
            ports,
            trunks: BTreeSet::new(),
            now_ns: 0,
        })
    }

    /// Whose other ends are switches.
    #[must_use]
    pub fn with_trunks(mut self, ports: impl IntoIterator<Item = u16>) -> Self {
        self.trunks = ports.into_iter().collect();
        self
    }

    /// Whether frames neither leave by a port nor are taken there.
    fn is_closed(&self, port: u16) -> bool {
        self.trunks.contains(&port) && self.tables().is_none_or(|tables| !tables.trunks.contains(&port))
    }

    /// The installed tables, if any.
    pub fn tables(&self) -> Option<&TableSet> {
        self.router.tables()
    }

    /// Table `hot`.
    pub fn hot(&self) -> &HotTable {
        self.router.hot()
    }

    /// See [`crate::Router::begin_life`].
    pub fn begin_life(&mut self, nonce: u64) {
        self.router.begin_life(nonce);
    }

    /// What the boot-time clock says from now on.
    pub fn set_clock(&mut self, now_ns: u64) {
        self.now_ns = now_ns;
    }

    /// Processes one frame that arrived on `ingress_port`.
    pub fn process(&mut self, ingress_port: u16, frame: &[u8]) -> Output {
        if self.is_closed(ingress_port) {
            return Output { verdict: Verdict::Dropped, frames: Vec::new() };
        }
        let Some((destination, source)) = parse::ethernet_addresses(frame) else {
            return self.drop(Counter::Malformed);
        };
        let ingress = Ingress::Port { port: ingress_port, mac: Some(source) };
        if !self.is_mac_of_port(ingress_port, source) {
            return self.refuse(ingress, Counter::SourceRefused);
        }
        if parse::is_station(source) && source != self.router_mac {
            self.macs.learn(source, ingress_port);
        }
        match parse::classify(frame, self.router.vrings()) {
            Class::Drop(counter) => self.drop(counter),
            Class::Others { sender, datagram } => {
                match self.admit_others(ingress_port, ingress, sender, datagram, frame) {
                    Ok(()) => self.forward(ingress_port, destination, frame),
                    Err(counter) => self.refuse(ingress, counter),
                }
            }
            Class::Vring(ring, datagram) => {
                match self.admit_to_vring(ingress_port, ingress, ring, &datagram, frame) {
                    Ok(()) if is_said(datagram.payload(frame)) => self.hear(ingress_port, &datagram, frame),
                    Ok(()) => self.route(ingress_port, ring, &datagram, frame),
                    Err(counter) => self.refuse(ingress, counter),
                }
            }
        }
    }

    fn is_mac_of_port(&self, port: u16, mac: [u8; 6]) -> bool {
        self.router.hosts().is_none_or(|hosts| admit::is_mac_of_port(hosts, port, mac))
    }

    fn is_ip_of_port(&self, port: u16, ip: [u8; 4]) -> bool {
        self.router.hosts().is_none_or(|hosts| admit::is_ip_of_port(hosts, port, ip))
    }

    fn admit_others(
        &self,
        port: u16,
        ingress: Ingress,
        sender: Option<[u8; 4]>,
        datagram: Option<Datagram>,
        frame: &[u8],
    ) -> Result<(), Counter> {
        if sender.is_some_and(|sender| !self.is_ip_of_port(port, sender)) {
            return Err(Counter::SourceRefused);
        }
        match (datagram, self.router.hosts()) {
            (Some(datagram), Some(hosts)) => {
                let (ends, payload) = (datagram.ends(), datagram.payload(frame));
                admit::admit_to_address(hosts, ingress, ends, payload, datagram.is_fragment)
            }
            _ => Ok(()),
        }
    }

    fn admit_to_vring(
        &self,
        port: u16,
        ingress: Ingress,
        ring: Ring,
        datagram: &Datagram,
        frame: &[u8],
    ) -> Result<(), Counter> {
        if !self.is_ip_of_port(port, datagram.source) {
            return Err(Counter::SourceRefused);
        }
        let (from, payload) = (datagram.ends().0, datagram.payload(frame));
        admit::admit_to_vring(self.router.hosts(), ingress, from, ring, payload).map(|_| ())
    }

    fn refuse(&mut self, ingress: Ingress, counter: Counter) -> Output {
        self.router.refuse(ingress, counter);
        Output { verdict: Verdict::Dropped, frames: Vec::new() }
    }

    fn drop(&mut self, counter: Counter) -> Output {
        self.router.count(counter);
        Output { verdict: Verdict::Dropped, frames: Vec::new() }
    }

    /// What was said to the switch ends here; an answer goes back by the port where it came in.
    fn hear(&mut self, ingress_port: u16, datagram: &Datagram, frame: &[u8]) -> Output {
        let (sender, heard) = self.router.hear(Some(ingress_port), datagram.payload(frame), self.now_ns);
        let sender = sender.and_then(|sender| self.router.host(sender));
        let (Some(sender), Heard::Answer(answer)) = (sender, heard) else {
            return Output { verdict: Verdict::Dropped, frames: Vec::new() };
        };
        let mut frame = frame.to_vec();
        datagram.edit(&mut frame, |payload| answer.write(payload));
        datagram.turn_round(&mut frame, sender.mac, self.router_mac);
        Output { verdict: Verdict::Routed, frames: Vec::from([(ingress_port, frame)]) }
    }

    fn route(&mut self, ingress_port: u16, ring: Ring, datagram: &Datagram, frame: &[u8]) -> Output {
        let came_by_switch = self.router.is_trunk(Ingress::Port { port: ingress_port, mac: None });
        let mut frame = frame.to_vec();
        let mut pieces = datagram.edit(&mut frame, |payload| split::pieces_of(payload, came_by_switch));
        let (mut verdict, mut sent) = (Verdict::Dropped, Vec::new());
        loop {
            let matched = parse::sought(ring, datagram.destination, datagram.payload(&frame));
            let rest = self.split(matched, datagram, &mut frame, pieces);
            let passed = self.route_piece(ingress_port, matched, datagram, &frame, &mut sent);
            // A scan is what its first piece is.
            verdict = if verdict == Verdict::Dropped { passed } else { verdict };
            let Some(rest) = rest else { break };
            pieces = datagram.edit(&mut frame, |payload| rest.write(payload));
        }
        sent.sort_unstable();
        Output { verdict, frames: sent }
    }

    fn split(&mut self, matched: Sought, datagram: &Datagram, frame: &mut [u8], pieces: u8) -> Option<Rest> {
        datagram.edit(frame, |payload| self.router.split(matched, payload, pieces))
    }

    fn route_piece(
        &mut self,
        ingress_port: u16,
        matched: Sought,
        datagram: &Datagram,
        frame: &[u8],
        sent: &mut Vec<(u16, Vec<u8>)>,
    ) -> Verdict {
        let has_room = has_room_for_stamp(datagram.payload(frame));
        let request = Request {
            sought: matched,
            has_room,
            from: datagram.ends().0,
            payload: datagram.is_bare(frame).then(|| datagram.payload(frame)),
            now_ns: self.now_ns,
        };
        let (route, stamp) = self.router.route_hot(request, Some(ingress_port));
        let mut written = Written { chain: None, stamp };
        let (verdict, hops): (_, Vec<Hop>) = match route {
            Route::Unicast(hop) => (Verdict::Routed, hop.into_iter().collect()),
            Route::Chain(hop, header) => {
                written.chain = Some(header);
                (Verdict::Routed, hop.into_iter().collect())
            }
            Route::Answered(body) => {
                sent.push((ingress_port, datagram.answered(frame, body, self.router_mac)));
                (Verdict::Routed, Vec::new())
            }
            Route::Multicast(copies) => (Verdict::Multicast, copies.collect()),
            Route::Miss | Route::NotVring => (Verdict::Dropped, Vec::new()),
        };
        let frames = hops.into_iter().map(|hop| self.sent(hop, datagram, frame, &written));
        sent.extend(frames.filter(|(port, _)| !self.is_closed(*port)));
        verdict
    }

    fn sent(&self, hop: Hop, datagram: &Datagram, frame: &[u8], written: &Written) -> (u16, Vec<u8>) {
        match hop {
            Hop::Host(id) => {
                let host = *self.router.host(id).expect("validated tables know every host they name");
                let mut sent = self.rewritten(datagram, frame, &host);
                if let Some(header) = written.chain {
                    datagram.write_chain(&mut sent, &header);
                }
                if let Some(stamp) = written.stamp {
                    datagram.write_stamp(&mut sent, stamp);
                }
                (host.port, sent)
            }
            Hop::Trunk(port) => (port, frame.to_vec()),
        }
    }

    fn rewritten(&self, datagram: &Datagram, frame: &[u8], host: &Host) -> Vec<u8> {
        let mut frame = frame.to_vec();
        datagram.rewrite_ethernet(&mut frame, host.mac, self.router_mac);
        datagram.rewrite_destination(&mut frame, host.ip);
        datagram.update_ipv4_checksum(&mut frame, host.ip);
        datagram.update_udp_checksum(&mut frame, host.ip);
        if let Some(port) = self.router.vrings().target_port(datagram.destination) {
            datagram.rewrite_port(&mut frame, port);
        }
        frame
    }

    fn forward(&mut self, ingress_port: u16, destination: [u8; 6], frame: &[u8]) -> Output {
        let learned = if parse::is_station(destination) { self.macs.lookup(destination) } else { None };
        let (verdict, counter, ports) = match learned {
            Some(port) if port == ingress_port => return self.drop(Counter::SamePortDropped),
            Some(port) => (Verdict::Forwarded, Counter::LearnedForwarded, Vec::from([port])),
            None => {
                let others = self.ports.iter().copied();
                let others = others.filter(|&port| port != ingress_port && !self.is_closed(port));
                (Verdict::Flooded, Counter::Flooded, others.collect())
            }
        };
        self.router.count(counter);
        Output { verdict, frames: ports.into_iter().map(|port| (port, frame.to_vec())).collect() }
    }
}

impl Backend for Pipeline {
    fn install(&mut self, tables: &TableSet) -> Result<(), BackendError> {
        tables.validate_ports(|port| self.ports.binary_search(&port).is_ok())?;
        let is_rerouted = self.router.tables().is_none_or(|installed| installed.leads_otherwise(tables));
        self.router.install(tables)?;
        // Who was behind a trunk may be behind another one.
        if is_rerouted {
            self.trunks.iter().for_each(|port| self.macs.forget(*port));
        }
        Ok(())
    }

    fn update(&mut self, update: &TableUpdate) -> Result<(), BackendError> {
        self.router.update(update)
    }

    fn ports(&self) -> Option<Vec<u16>> {
        Some(self.ports.clone())
    }

    fn table_status(&self) -> Result<Vec<TableStatus>, BackendError> {
        self.router.table_status()
    }

    fn entry_hits(&self, table: Table) -> Result<Vec<u64>, BackendError> {
        self.router.entry_hits(table)
    }

    fn entry_requests(&self, table: Table) -> Result<Vec<EntryRequests>, BackendError> {
        self.router.entry_requests(table)
    }

    fn read_register(&self, register: Register) -> Result<Vec<u64>, BackendError> {
        self.router.read_register(register)
    }

    fn write_register(&mut self, register: Register, cell: u32, value: u64) -> Result<(), BackendError> {
        self.router.write_register(register, cell, value)
    }

    fn reset_register(&mut self, register: Register) -> Result<(), BackendError> {
        self.router.reset_register(register)
    }

    fn set_hot(&mut self, config: &HotConfig) -> Result<(), BackendError> {
        self.router.set_hot(config)
    }

    fn change_hot(&mut self, clear: bool, removed: &[u64], set: &[HotEntry]) -> Result<(), BackendError> {
        self.router.change_hot(clear, removed, set)
    }

    fn read_hot(&mut self) -> Result<HotReading, BackendError> {
        self.router.read_hot()
    }

    fn counters(&self) -> Result<Counters, BackendError> {
        self.router.counters()
    }
}
