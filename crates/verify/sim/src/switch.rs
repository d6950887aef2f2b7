//! The switch: the reference pipeline behind the real agent. Checks that the tables which the agent has acknowledged are those that
//! the pipeline uses.

use crate::chain_room;
use crate::cluster::Scenario;
use crate::node::Clock;
use nicekv_proto::scan::{PIECES_MAX, ScanLayout};
use nicekv_proto::{HeaderLayout, Opcode};
use nicekv_switch::control::{ControlReply, ControlRequest, SwitchAgent};
use nicekv_switch::{
    Backend as _, Counter, DatagramVerdict, Hop, HostId, HotEntry, Ingress, RecordEntry, Router, ScanRest,
    TableSet, VringSet,
};
use nicekv_testkit::Random;
use std::net::SocketAddrV4;
use std::sync::Arc;

/// Ports of storage nodes have the numbers of the nodes; this is the metadata service's.
pub const METADATA_PORT: u16 = 1_000;
/// The port of every client: the model asks no more of a port without a server.
pub const CLIENT_PORT: u16 = 1_001;
/// The ports of trunks have the numbers of the neighbours above this.
pub const TRUNK_PORT: u16 = 2_000;
/// The metadata service in the tables.
pub const METADATA_MAC: [u8; 6] = [2, 0, 0, 0, 3, 232];

/// Clocks of switches are drawn apart.
const CLOCKS: u64 = 0x636c_6f63_6b73;

/// See the module.
#[derive(Clone)]
pub struct Switch {
    agent: SwitchAgent<Router>,
    vrings: VringSet,
    clock: Clock,
    /// Names its life (H9).
    nonce: u64,
    /// What it must go by: the tables that it has acknowledged last since it started.
    acknowledged: Option<Arc<TableSet>>,
    /// The newest term of a request that it has not refused.
    obeyed_term: u64,
    violation: Option<String>,
}

/// Where a datagram goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Forward {
    /// To its destination address.
    Plain,
    /// To these storage hosts, or by these trunks, instead.
    Hops(Vec<Hop>),
    /// Back to its sender: the switch has answered it, in so many bytes (H9).
    Answered(usize),
    /// A scan, each piece to one of these.
    Pieces(Vec<(Hop, Vec<u8>)>),
}

impl Switch {
    /// Without tables; the `index`th of them.
    pub fn new(vrings: VringSet, scenario: &Scenario, seed: u64, index: usize) -> Self {
        let mut random = Random::new(seed ^ CLOCKS ^ index as u64);
        let clock = Clock::draw(&scenario.faults, &mut random);
        let nonce = (index as u64 + 1) << 32;
        let router = Router::new(vrings.clone()).expect("the rings are sound");
        let agent = new_agent(router, nonce, 0);
        Self { agent, vrings, clock, nonce, acknowledged: None, obeyed_term: 0, violation: None }
    }

    /// Starts again: the tables are gone, the newest term is remembered.
    pub fn restart(&mut self) {
        let router = Router::new(self.vrings.clone()).expect("as before");
        self.nonce += 1;
        self.agent = new_agent(router, self.nonce, self.agent.term());
        self.acknowledged = None;
    }

    /// Serves the metadata service, and notes what is acknowledged.
    pub fn handle(&mut self, request: ControlRequest) -> ControlReply {
        let term = request.term();
        let tables = match &request {
            ControlRequest::Install { tables, .. } => Some(Arc::new(tables.clone())),
            _ => None,
        };
        let reply = self.agent.handle(request);
        if matches!(reply, ControlReply::Refused { .. }) {
            return reply;
        }
        if term < self.obeyed_term {
            self.violate(format!(
                "a switch carries out a request of term {term} after one of {}",
                self.obeyed_term
            ));
        }
        self.obeyed_term = self.obeyed_term.max(term);
        if let (ControlReply::Installed { .. }, Some(tables)) = (&reply, tables) {
            self.acknowledged = Some(tables);
        }
        reply
    }

    /// Processes a datagram that has come in at `port` at this time of the simulation; at a switch that hides sources there is none, and it is stamped.
    pub fn forward(
        &mut self,
        at_ns: u64,
        port: Option<u16>,
        (from, to): (SocketAddrV4, SocketAddrV4),
        bytes: &mut [u8],
    ) -> Forward {
        let now_ns = self.clock.now(at_ns).boot_ns;
        let ingress = port.map_or(Ingress::Socket, |port| Ingress::Port { port, mac: None });
        let missed_before = self.missed();
        let was_cut = port.is_some_and(|port| port >= TRUNK_PORT) && is_cut(bytes);
        let (hops, mut rest) = match self.agent.backend_mut().process(now_ns, ingress, from, to, bytes) {
            DatagramVerdict::NotVring => return Forward::Plain,
            DatagramVerdict::Answered(length) => return Forward::Answered(length),
            passed => hops_of(passed),
        };
        self.check_passed(to, bytes, &hops, missed_before);
        if rest.is_none() {
            return Forward::Hops(hops);
        }
        let mut pieces: Vec<_> = hops.into_iter().map(|hop| (hop, bytes.to_vec())).collect();
        while let Some(left) = rest {
            let missed_before = self.missed();
            let hops;
            (hops, rest) =
                hops_of(self.agent.backend_mut().process_scan_rest(ingress, from, to, bytes, &left));
            self.check_passed(to, bytes, &hops, missed_before);
            pieces.extend(hops.into_iter().map(|hop| (hop, bytes.to_vec())));
        }
        self.check_pieces(&pieces);
        if was_cut {
            self.violate(format!("a switch cuts a piece that another one has made, into {}", pieces.len()));
        }
        Forward::Pieces(pieces)
    }

    /// No two pieces have a match value in common, and none is made that a node would be asked twice for.
    fn check_pieces(&mut self, pieces: &[(Hop, Vec<u8>)]) {
        let ranges: Vec<_> = pieces.iter().filter_map(|(_, piece)| range_of(piece)).collect();
        let is_sound = ranges.is_sorted_by(|one, next| one.1 < next.0) && ranges.len() == pieces.len();
        if !is_sound || pieces.len() > usize::from(PIECES_MAX) {
            self.violate(format!("a switch splits a scan into {ranges:?}"));
        }
    }

    fn check_passed(&mut self, to: SocketAddrV4, bytes: &[u8], hops: &[Hop], missed_before: u64) {
        if !goes_by_hot_entry(bytes) {
            self.check(vnode_of(to, bytes), value_of(bytes), hops);
        }
        if hops.iter().any(|hop| matches!(hop, Hop::Host(_)))
            && let Some(what) =
                self.acknowledged.as_deref().and_then(|tables| chain_room::foreign_to(tables, bytes))
        {
            self.violate(what);
        }
        if self.missed() > missed_before {
            self.check_missed(to, value_of(bytes));
        }
    }

    /// Removes instances of hot keys, and installs entries; whether it could.
    pub fn change_hot(&mut self, removed: &[u64], set: &[HotEntry]) -> bool {
        self.agent.backend_mut().change_hot(false, removed, set).is_ok()
    }

    /// What it has counted of an instance; 0: it is not there.
    pub fn hot_seen(&self, instance: u64) -> u64 {
        self.agent.backend().hot().seen(instance).unwrap_or(0)
    }

    /// Whether it goes by tables that have the trunk at a port open.
    pub fn has_open(&self, port: u16) -> bool {
        self.agent.backend().tables().is_some_and(|tables| tables.trunks.contains(&port))
    }

    /// Records that it has.
    pub fn records(&self) -> usize {
        self.agent.backend().tables().map_or(0, |tables| tables.record.len())
    }

    /// What it has dropped as it would have gone back by the trunk by which it came.
    pub fn turned_back(&self) -> u64 {
        self.agent.backend().counters().map_or(0, |counters| counters.get(Counter::SamePortDropped))
    }

    fn missed(&self) -> u64 {
        self.agent.backend().counters().map_or(0, |counters| counters.get(Counter::VringMiss))
    }

    /// What a record covers is no miss, with either border.
    fn check_missed(&mut self, to: SocketAddrV4, value: Option<(u16, u128)>) {
        let tables = self.agent.backend().tables();
        let covers = |record: &RecordEntry| holds(record, value);
        if tables.is_some_and(|tables| of_ring(tables, to).any(covers)) {
            self.violate(format!("a switch drops what is for {}, though a record covers it", to.ip()));
        }
    }

    /// What the switch did that it must never do.
    pub fn violation(&self) -> Option<&str> {
        self.violation.as_deref()
    }

    /// Notes what must never happen.
    pub fn violate(&mut self, what: String) {
        self.violation.get_or_insert(what);
    }

    /// A datagram goes to no host that the acknowledged tables do not name for its destination (R6, R12), and by no trunk behind which there is none.
    fn check(&mut self, to: SocketAddrV4, value: Option<(u16, u128)>, hops: &[Hop]) {
        let acknowledged = self.acknowledged.as_deref();
        let is_named = |hop: &Hop| acknowledged.is_some_and(|tables| leads(tables, to, value, *hop));
        if let Some(hop) = hops.iter().find(|hop| !is_named(hop)) {
            let what = format!("a switch sends to {hop:?} what is for {}, other than by its tables", to.ip());
            self.violate(what);
        }
    }
}

/// Whether a get goes to the holder of a copy, or what was said to the switch goes back: no table leads there.
fn goes_by_hot_entry(bytes: &[u8]) -> bool {
    let opcode = HeaderLayout::peek(bytes).and_then(HeaderLayout::opcode);
    let is_told = matches!(opcode, Some(Opcode::HotClosed | Opcode::HotLeased));
    is_told || (opcode == Some(Opcode::Get) && chain_room::is_stamped(bytes))
}

/// Where a datagram goes, and what is left of it.
fn hops_of(passed: DatagramVerdict<'_>) -> (Vec<Hop>, Option<ScanRest>) {
    match passed {
        DatagramVerdict::Unicast(hop) => (vec![hop], None),
        DatagramVerdict::Multicast(hops) => (hops.collect(), None),
        DatagramVerdict::Piece(hop, rest) => (hop.into_iter().collect(), Some(rest)),
        DatagramVerdict::NotVring | DatagramVerdict::Answered(_) | DatagramVerdict::Dropped => {
            (Vec::new(), None)
        }
    }
}

/// Whether a switch has made this piece of a scan.
fn is_cut(piece: &[u8]) -> bool {
    ScanLayout::of(&mut piece.to_vec()).is_some_and(|(_, scan)| scan.is_cut != 0)
}

/// What a scan asks for.
fn range_of(piece: &[u8]) -> Option<(u128, u128)> {
    let mut piece = piece.to_vec();
    let (_, scan) = ScanLayout::of(&mut piece)?;
    Some((u128::from_be_bytes(scan.first), u128::from_be_bytes(scan.last)))
}

fn new_agent(mut router: Router, nonce: u64, term: u64) -> SwitchAgent<Router> {
    router.begin_incarnation(nonce);
    SwitchAgent::new(router, term)
}

/// The vnode's address, where a datagram is sent to the ring's own.
fn vnode_of(to: SocketAddrV4, bytes: &[u8]) -> SocketAddrV4 {
    let ([a, b, c, d], header) = (to.ip().octets(), HeaderLayout::peek(bytes));
    let Some(header) = header.filter(|_| c == 0 && d == 0) else { return to };
    SocketAddrV4::new([a, b, header.digest[0], header.digest[1]].into(), to.port())
}

/// Keyspace and match value of a datagram's header.
fn value_of(bytes: &[u8]) -> Option<(u16, u128)> {
    HeaderLayout::peek(bytes).map(|header| (header.keyspace.get(), u128::from_be_bytes(header.digest)))
}

/// The records of the keyspace of an address: of a pair of rings the unicast one is the even one.
fn of_ring(tables: &TableSet, to: SocketAddrV4) -> impl Iterator<Item = &RecordEntry> {
    let [a, b, ..] = to.ip().octets();
    tables.record.iter().filter(move |record| record.ring.address == [a, b & !1, 0, 0])
}

fn holds(record: &RecordEntry, value: Option<(u16, u128)>) -> bool {
    let is_its =
        |(keyspace, value)| record.keyspace == keyspace && (record.first..=record.last).contains(&value);
    value.is_some_and(is_its)
}

/// Whether an entry that covers `to` leads there.
fn leads(tables: &TableSet, to: SocketAddrV4, value: Option<(u16, u128)>, hop: Hop) -> bool {
    let is_there = |host: &&nicekv_switch::Host| match hop {
        Hop::Host(id) => host.id == id && !host.is_remote,
        Hop::Trunk(port) => host.port == port && host.is_remote,
    };
    tables.hosts.iter().filter(is_there).any(|host| names(tables, to, value, host.id))
}

/// Whether an entry that covers `to` names the host.
fn names(tables: &TableSet, address: SocketAddrV4, value: Option<(u16, u128)>, host: HostId) -> bool {
    let to = address.ip().octets();
    let by_division =
        |partition| tables.division.iter().any(|entry| entry.partition == partition && entry.host == host);
    if of_ring(tables, address).next().is_some() {
        let is_put = to[1] & 1 != 0;
        return of_ring(tables, address).filter(|record| holds(record, value)).any(|record| match is_put {
            true => record.members.as_slice().contains(&host),
            false => record.host == host || by_division(record.partition),
        });
    }
    let covering = tables.unicast.iter().filter(|entry| entry.destination.contains(to));
    covering.into_iter().any(|entry| entry.host == host || by_division(entry.partition))
        || tables
            .multicast
            .iter()
            .any(|entry| entry.destination.contains(to) && entry.members.as_slice().contains(&host))
}
