//! The reference pipeline: takes a frame and yields frames. It does in plain code what the kernel
//! programs do, and both run the same packet fixtures.
//!
//! Stages: check and learn the source MAC address, parse, admission, then match-action, traffic
//! manager and deparser for a vring, or forwarding by learned MAC address.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use nicekv_proto::hot::Stamp;
use nicekv_proto::route::ChainHeader;

use crate::admission::{self, Ingress};
use crate::hot::stage::{Request, SwitchReply, has_room_for_stamp, is_switch_message};
use crate::mac_table::MacTable;
use crate::parser::{self, Datagram, PacketClass};
use crate::scan_split::{self, ScanRest};
use crate::{
    Backend, BackendError, Counter, Counters, EntryRequests, Hop, Host, HotConfig, HotEntry, HotReading,
    HotTable, LookupKey, Register, Ring, Route, Router, Table, TableError, TableSet, TableStatus,
    TableUpdate, VringSet,
};

/// The verdict on a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The frame is dropped; a counter tells the reason.
    Dropped,
    /// A frame for a unicast vring: rewritten for one host, or sent unchanged by the trunk that
    /// leads to the host.
    Routed,
    /// A frame for a multicast vring: each member except the sender gets a rewritten copy, and each
    /// trunk that leads to members an unchanged one.
    Multicast,
    /// Other traffic, sent to the port of its destination.
    Forwarded,
    /// Other traffic, sent to every port except the ingress port.
    Flooded,
}

/// A verdict, and the frames that leave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    pub verdict: Verdict,
    /// (Egress port, frame), ascending by port.
    pub frames: Vec<(u16, Vec<u8>)>,
}

/// Headers to write into the copies for hosts of this switch.
struct Annotations {
    chain: Option<ChainHeader>,
    stamp: Option<Stamp>,
}

/// A switch with ports.
#[derive(Debug)]
pub struct Pipeline {
    router: Router,
    macs: MacTable,
    /// MAC source address of rewritten frames.
    router_mac: [u8; 6],
    /// Port numbers, ascending.
    ports: Vec<u16>,
    /// Ports that lead to other switches. A trunk is closed unless the tables open it.
    trunks: BTreeSet<u16>,
    /// The boot-time clock.
    now_ns: u64,
}

impl Pipeline {
    /// A switch without tables. `ports`: its port numbers.
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

    /// Declares which ports are trunks.
    #[must_use]
    pub fn with_trunks(mut self, ports: impl IntoIterator<Item = u16>) -> Self {
        self.trunks = ports.into_iter().collect();
        self
    }

    /// Whether a port neither sends nor accepts frames.
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

    /// See [`Router::begin_incarnation`].
    pub fn begin_incarnation(&mut self, nonce: u64) {
        self.router.begin_incarnation(nonce);
    }

    /// Sets the boot-time clock.
    pub fn set_clock(&mut self, now_ns: u64) {
        self.now_ns = now_ns;
    }

    /// Processes one frame that arrived on `ingress_port`.
    pub fn process(&mut self, ingress_port: u16, frame: &[u8]) -> Output {
        if self.is_closed(ingress_port) {
            return Output { verdict: Verdict::Dropped, frames: Vec::new() };
        }
        let Some((destination, source)) = parser::ethernet_addresses(frame) else {
            return self.drop(Counter::Malformed);
        };
        let ingress = Ingress::Port { port: ingress_port, mac: Some(source) };
        if !self.is_mac_of_port(ingress_port, source) {
            return self.refuse(ingress, Counter::SourceRefused);
        }
        if parser::is_station(source) && source != self.router_mac {
            self.macs.learn(source, ingress_port);
        }
        match parser::classify(frame, self.router.vrings()) {
            PacketClass::Drop(counter) => self.drop(counter),
            PacketClass::Other { sender, datagram } => {
                match self.admit_other(ingress_port, ingress, sender, datagram, frame) {
                    Ok(()) => self.forward(ingress_port, destination, frame),
                    Err(counter) => self.refuse(ingress, counter),
                }
            }
            PacketClass::Vring(ring, datagram) => {
                match self.admit_to_vring(ingress_port, ingress, ring, &datagram, frame) {
                    Ok(()) if is_switch_message(datagram.payload(frame)) => {
                        self.handle_switch_message(ingress_port, &datagram, frame)
                    }
                    Ok(()) => self.route(ingress_port, ring, &datagram, frame),
                    Err(counter) => self.refuse(ingress, counter),
                }
            }
        }
    }

    fn is_mac_of_port(&self, port: u16, mac: [u8; 6]) -> bool {
        self.router.hosts().is_none_or(|hosts| admission::is_mac_of_port(hosts, port, mac))
    }

    fn is_ip_of_port(&self, port: u16, ip: [u8; 4]) -> bool {
        self.router.hosts().is_none_or(|hosts| admission::is_ip_of_port(hosts, port, ip))
    }

    fn admit_other(
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
                admission::admit_to_address(hosts, ingress, ends, payload, datagram.is_fragment)
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
        admission::admit_to_vring(self.router.hosts(), ingress, from, ring, payload).map(|_| ())
    }

    fn refuse(&mut self, ingress: Ingress, counter: Counter) -> Output {
        self.router.refuse(ingress, counter);
        Output { verdict: Verdict::Dropped, frames: Vec::new() }
    }

    fn drop(&mut self, counter: Counter) -> Output {
        self.router.count(counter);
        Output { verdict: Verdict::Dropped, frames: Vec::new() }
    }

    /// Handles a message to the switch. A reply leaves by the ingress port.
    fn handle_switch_message(&mut self, ingress_port: u16, datagram: &Datagram, frame: &[u8]) -> Output {
        let payload = datagram.payload(frame);
        let (sender, reply) = self.router.handle_switch_message(Some(ingress_port), payload, self.now_ns);
        let sender = sender.and_then(|sender| self.router.host(sender));
        let (Some(sender), SwitchReply::Reply(reply)) = (sender, reply) else {
            return Output { verdict: Verdict::Dropped, frames: Vec::new() };
        };
        let mut frame = frame.to_vec();
        datagram.edit(&mut frame, |payload| reply.write(payload));
        datagram.swap_ends(&mut frame, sender.mac, self.router_mac);
        Output { verdict: Verdict::Routed, frames: Vec::from([(ingress_port, frame)]) }
    }

    fn route(&mut self, ingress_port: u16, ring: Ring, datagram: &Datagram, frame: &[u8]) -> Output {
        let came_by_switch = self.router.is_trunk(Ingress::Port { port: ingress_port, mac: None });
        let mut frame = frame.to_vec();
        let mut pieces = datagram.edit(&mut frame, |payload| scan_split::pieces_of(payload, came_by_switch));
        let (mut verdict, mut sent) = (Verdict::Dropped, Vec::new());
        loop {
            let key = LookupKey::of(ring, datagram.destination, datagram.payload(&frame));
            let rest = self.split(key, datagram, &mut frame, pieces);
            let of_piece = self.route_piece(ingress_port, key, datagram, &frame, &mut sent);
            // The verdict on a scan is the verdict on its first piece that is not dropped.
            verdict = if verdict == Verdict::Dropped { of_piece } else { verdict };
            let Some(rest) = rest else { break };
            pieces = datagram.edit(&mut frame, |payload| rest.write(payload));
        }
        sent.sort_unstable();
        Output { verdict, frames: sent }
    }

    fn split(
        &mut self,
        key: LookupKey,
        datagram: &Datagram,
        frame: &mut [u8],
        pieces: u8,
    ) -> Option<ScanRest> {
        datagram.edit(frame, |payload| self.router.split(key, payload, pieces))
    }

    fn route_piece(
        &mut self,
        ingress_port: u16,
        key: LookupKey,
        datagram: &Datagram,
        frame: &[u8],
        sent: &mut Vec<(u16, Vec<u8>)>,
    ) -> Verdict {
        let has_room = has_room_for_stamp(datagram.payload(frame));
        let request = Request {
            key,
            has_room,
            from: datagram.ends().0,
            payload: datagram.is_bare(frame).then(|| datagram.payload(frame)),
            now_ns: self.now_ns,
        };
        let (route, stamp) = self.router.route_hot(request, Some(ingress_port));
        let mut annotations = Annotations { chain: None, stamp };
        let (verdict, hops): (_, Vec<Hop>) = match route {
            Route::Unicast(hop) => (Verdict::Routed, hop.into_iter().collect()),
            Route::Chain(hop, header) => {
                annotations.chain = Some(header);
                (Verdict::Routed, hop.into_iter().collect())
            }
            Route::Answered(body) => {
                sent.push((ingress_port, datagram.answered(frame, body, self.router_mac)));
                (Verdict::Routed, Vec::new())
            }
            Route::Multicast(copies) => (Verdict::Multicast, copies.collect()),
            Route::Miss | Route::NotVring => (Verdict::Dropped, Vec::new()),
        };
        let frames = hops.into_iter().map(|hop| self.sent(hop, datagram, frame, &annotations));
        sent.extend(frames.filter(|(port, _)| !self.is_closed(*port)));
        verdict
    }

    fn sent(&self, hop: Hop, datagram: &Datagram, frame: &[u8], annotations: &Annotations) -> (u16, Vec<u8>) {
        match hop {
            Hop::Host(id) => {
                let host = *self.router.host(id).expect("validated tables know every host they name");
                let mut sent = self.rewritten(datagram, frame, &host);
                if let Some(header) = annotations.chain {
                    datagram.write_chain(&mut sent, &header);
                }
                if let Some(stamp) = annotations.stamp {
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
        let learned = if parser::is_station(destination) { self.macs.lookup(destination) } else { None };
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
        let is_rerouted = self.router.tables().is_none_or(|installed| installed.reroutes(tables));
        self.router.install(tables)?;
        // The stations behind a trunk may be behind another one now.
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
