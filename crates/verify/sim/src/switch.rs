//! The switch: the reference pipeline behind the real agent. Checks that the pipeline uses the
//! tables which the agent has acknowledged.

use crate::chain_room;
use crate::cluster::Scenario;
use crate::node::Clock;
use nicekv_proto::scan::{PIECES_MAX, ScanLayout};
use nicekv_proto::{HeaderLayout, Opcode};
use nicekv_switch::control::{ControlReply, ControlRequest, SwitchAgent};
use nicekv_switch::{
    Backend as _, Counter, DatagramVerdict, Hop, HostId, HotEntry, Ingress, Matching, RecordEntry, Router,
    ScanRest, TableSet, VringSet,
};
use nicekv_testkit::Random;
use std::net::SocketAddrV4;
use std::sync::Arc;

/// The port of the metadata service. A node's port has the node's number.
pub const METADATA_PORT: u16 = 1_000;
/// The port of every client: the model treats all ports without a server alike.
pub const CLIENT_PORT: u16 = 1_001;
/// The port of a trunk is this plus the index of the neighbour.
pub const TRUNK_PORT: u16 = 2_000;
/// MAC address of the metadata service in the tables.
pub const METADATA_MAC: [u8; 6] = [2, 0, 0, 0, 3, 232];

/// Separates the random sequence of switch clocks from all others.
const CLOCKS: u64 = 0x636c_6f63_6b73;
/// How long a switch that matches only headers keeps using old tables after it has acknowledged new
/// ones. The longest is twice the time in which Open vSwitch renews its cache.
const CACHED_NS: [u64; 3] = [1_000_000, 100_000_000, 1_000_000_000];

#[derive(Clone)]
pub struct Switch {
    agent: SwitchAgent<Router>,
    vrings: VringSet,
    clock: Clock,
    /// Identifies the switch's incarnation (H9).
    nonce: u64,
    /// The tables that the switch has acknowledged last since it started. It must use these.
    acknowledged: Option<Arc<TableSet>>,
    /// The newest term of a request that the switch has executed.
    obeyed_term: u64,
    matching: Matching,
    cached: Option<Cached>,
    random: Random,
    violation: Option<String>,
}

/// The tables before the last change, by which a switch that matches only headers may still forward
/// packets.
#[derive(Clone)]
struct Cached {
    router: Router,
    until_ns: u64,
    /// Whether it has decisions about gets, and about other messages: it renews each by itself.
    has_gets: bool,
    has_others: bool,
}

/// Where a switch sends a datagram.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Forward {
    /// Unchanged, to its destination address.
    Plain,
    /// To these storage hosts, or over these trunks.
    Hops(Vec<Hop>),
    /// Back to its sender: the switch has answered it, with this number of bytes (H9).
    Answered(usize),
    /// The pieces of a scan, each with its next hop.
    Pieces(Vec<(Hop, Vec<u8>)>),
}

impl Switch {
    /// The switch with this index, without tables.
    pub fn new(vrings: VringSet, scenario: &Scenario, seed: u64, index: usize) -> Self {
        let mut random = Random::new(seed ^ CLOCKS ^ index as u64);
        let clock = Clock::draw(&scenario.faults, &mut random);
        let nonce = (index as u64 + 1) << 32;
        let router = Router::new(vrings.clone()).expect("the rings are sound");
        let agent = new_agent(router, nonce, 0);
        Self {
            agent,
            vrings,
            clock,
            nonce,
            acknowledged: None,
            obeyed_term: 0,
            matching: scenario.matching,
            cached: None,
            random,
            violation: None,
        }
    }

    /// Restarts the switch: its tables are gone, the newest term is remembered.
    pub fn restart(&mut self) {
        let router = Router::new(self.vrings.clone()).expect("as before");
        self.nonce += 1;
        self.agent = new_agent(router, self.nonce, self.agent.term());
        (self.acknowledged, self.cached) = (None, None);
    }

    /// Executes a request of the metadata service, and records which tables are acknowledged.
    pub fn handle(&mut self, at_ns: u64, request: ControlRequest) -> ControlReply {
        let term = request.term();
        let tables = match &request {
            ControlRequest::Install { tables, .. } => Some(Arc::new(tables.clone())),
            _ => None,
        };
        let before =
            (self.matching == Matching::Headers && tables.is_some()).then(|| self.agent.backend().clone());
        let reply = self.agent.handle(request);
        if matches!(reply, ControlReply::Refused { .. }) {
            return reply;
        }
        if term < self.obeyed_term {
            self.violate(format!(
                "a switch executes a request of term {term} after one of term {}",
                self.obeyed_term
            ));
        }
        self.obeyed_term = self.obeyed_term.max(term);
        if let (ControlReply::Installed { .. }, Some(tables)) = (&reply, tables) {
            self.acknowledged = Some(tables);
            // Older decisions stay until it renews its cache.
            self.cached.take_if(|cached| cached.until_ns <= at_ns);
            let replaced = before.filter(|router| router.tables().is_some() && self.cached.is_none());
            if let Some(router) = replaced {
                let until_ns = at_ns + self.random.pick(&CACHED_NS);
                let (has_gets, has_others) = self.random.pick(&[(true, false), (false, true), (true, true)]);
                self.cached = Some(Cached { router, until_ns, has_gets, has_others });
            }
        }
        reply
    }

    /// Processes a datagram that has arrived at `port` at this simulation time. A switch that
    /// replaces source addresses has no ports.
    pub fn forward(
        &mut self,
        at_ns: u64,
        port: Option<u16>,
        (from, to): (SocketAddrV4, SocketAddrV4),
        bytes: &mut [u8],
    ) -> Forward {
        let now_ns = self.clock.now(at_ns).boot_ns;
        self.cached.take_if(|cached| cached.until_ns <= at_ns);
        let ingress = port.map_or(Ingress::Socket, |port| Ingress::Port { port, mac: None });
        if let Some(cached) = self.cached.as_mut().filter(|cached| cached.decides(bytes)) {
            return match cached.router.process(now_ns, ingress, from, to, bytes) {
                DatagramVerdict::NotVring => Forward::Plain,
                passed => Forward::Hops(hops_of(passed).0),
            };
        }
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
            self.violate(format!("a switch splits a piece from another switch again, into {}", pieces.len()));
        }
        Forward::Pieces(pieces)
    }

    /// The pieces of a scan have disjoint ascending ranges, and there are not too many.
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

    /// Removes instances of hot keys, and installs entries. False if the switch refuses.
    pub fn change_hot(&mut self, removed: &[u64], set: &[HotEntry]) -> bool {
        self.agent.backend_mut().change_hot(false, removed, set).is_ok()
    }

    /// How many updates of an instance the switch has counted; 0 if it does not have the instance.
    pub fn hot_seen(&self, instance: u64) -> u64 {
        self.agent.backend().hot().seen(instance).unwrap_or(0)
    }

    /// Whether the switch's tables have the trunk at this port open.
    pub fn has_open(&self, port: u16) -> bool {
        self.agent.backend().tables().is_some_and(|tables| tables.trunks.contains(&port))
    }

    /// Number of records in its tables.
    pub fn records(&self) -> usize {
        self.agent.backend().tables().map_or(0, |tables| tables.record.len())
    }

    /// Datagrams that it dropped, since they would have gone back over the trunk by which they
    /// came.
    pub fn turned_back(&self) -> u64 {
        self.agent.backend().counters().map_or(0, |counters| counters.get(Counter::SamePortDropped))
    }

    fn missed(&self) -> u64 {
        self.agent.backend().counters().map_or(0, |counters| counters.get(Counter::VringMiss))
    }

    /// A datagram that a record covers must not count as a miss. A record includes both of its
    /// borders.
    fn check_missed(&mut self, to: SocketAddrV4, value: Option<(u16, u128)>) {
        let tables = self.agent.backend().tables();
        let covers = |record: &RecordEntry| holds(record, value);
        if tables.is_some_and(|tables| of_ring(tables, to).any(covers)) {
            self.violate(format!("a switch drops a datagram for {}, though a record covers it", to.ip()));
        }
    }

    /// The first violation.
    pub fn violation(&self) -> Option<&str> {
        self.violation.as_deref()
    }

    /// Records a violation, unless there is one already.
    pub fn violate(&mut self, what: String) {
        self.violation.get_or_insert(what);
    }

    /// A datagram goes only to hosts that the acknowledged tables name for its destination (R6,
    /// R12), and only over trunks that lead to such a host.
    fn check(&mut self, to: SocketAddrV4, value: Option<(u16, u128)>, hops: &[Hop]) {
        let acknowledged = self.acknowledged.as_deref();
        let is_named = |hop: &Hop| acknowledged.is_some_and(|tables| leads(tables, to, value, *hop));
        if let Some(hop) = hops.iter().find(|hop| !is_named(hop)) {
            let what =
                format!("a switch sends a datagram for {} to {hop:?}, which its tables do not name", to.ip());
            self.violate(what);
        }
    }
}

impl Cached {
    fn decides(&self, bytes: &[u8]) -> bool {
        let opcode = HeaderLayout::peek(bytes).and_then(HeaderLayout::opcode);
        if opcode == Some(Opcode::Get) { self.has_gets } else { self.has_others }
    }
}

/// Whether a datagram is routed by a hot entry instead of the tables: a get to the holder of a
/// copy, or the switch's reply to a message about hot keys.
fn goes_by_hot_entry(bytes: &[u8]) -> bool {
    let opcode = HeaderLayout::peek(bytes).and_then(HeaderLayout::opcode);
    let is_told = matches!(opcode, Some(Opcode::HotClosed | Opcode::HotLeased));
    is_told || (opcode == Some(Opcode::Get) && chain_room::is_stamped(bytes))
}

/// The next hops of a datagram, and the part of a scan that is still to be processed.
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

/// Whether a switch has cut this piece from a scan.
fn is_cut(piece: &[u8]) -> bool {
    ScanLayout::of(&mut piece.to_vec()).is_some_and(|(_, scan)| scan.is_cut != 0)
}

/// The range of a scan: its first and its last match value.
fn range_of(piece: &[u8]) -> Option<(u128, u128)> {
    let mut piece = piece.to_vec();
    let (_, scan) = ScanLayout::of(&mut piece)?;
    Some((u128::from_be_bytes(scan.first), u128::from_be_bytes(scan.last)))
}

fn new_agent(mut router: Router, nonce: u64, term: u64) -> SwitchAgent<Router> {
    router.begin_incarnation(nonce);
    SwitchAgent::new(router, term)
}

/// The destination by vnode, if the datagram is addressed to the ring as a whole.
fn vnode_of(to: SocketAddrV4, bytes: &[u8]) -> SocketAddrV4 {
    let ([a, b, c, d], header) = (to.ip().octets(), HeaderLayout::peek(bytes));
    let Some(header) = header.filter(|_| c == 0 && d == 0) else { return to };
    SocketAddrV4::new([a, b, header.digest[0], header.digest[1]].into(), to.port())
}

/// Keyspace and match value in a datagram's header.
fn value_of(bytes: &[u8]) -> Option<(u16, u128)> {
    HeaderLayout::peek(bytes).map(|header| (header.keyspace.get(), u128::from_be_bytes(header.digest)))
}

/// The records for the keyspace of a ring address. Of a pair of rings, the unicast one has the even
/// address.
fn of_ring(tables: &TableSet, to: SocketAddrV4) -> impl Iterator<Item = &RecordEntry> {
    let [a, b, ..] = to.ip().octets();
    tables.record.iter().filter(move |record| record.ring.address == [a, b & !1, 0, 0])
}

fn holds(record: &RecordEntry, value: Option<(u16, u128)>) -> bool {
    let is_its =
        |(keyspace, value)| record.keyspace == keyspace && (record.first..=record.last).contains(&value);
    value.is_some_and(is_its)
}

/// Whether an entry that covers `to` leads over this hop.
fn leads(tables: &TableSet, to: SocketAddrV4, value: Option<(u16, u128)>, hop: Hop) -> bool {
    let is_there = |host: &&nicekv_switch::Host| match hop {
        Hop::Host(id) => host.id == id && !host.is_remote,
        Hop::Trunk(port) => host.port == port && host.is_remote,
    };
    tables.hosts.iter().filter(is_there).any(|host| names(tables, to, value, host.id))
}

/// Whether an entry that covers `to` names this host.
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
