//! A storage target: the chunks that it holds, the windows that it promises, and the chunks that arrive.
//!
//! ```text
//!   request ──▶ bid ──accept──▶ transfer ──all frames──▶ disk: verified, synced ──▶ held, answers "stored"
//!                │ not chosen, or no accept             │ nothing arrives: expired    │ wrong id, disk full: answers so
//!                ▼ cancelled, expired                   ▼                             ▼ nothing is kept
//! ```
//!
//! Reading order: `interface` (settings, requests to the disk), `holdings` (chunks held), `negotiation` (requests, bids,
//! accepts), `transfer` (frames that arrive), `disk_load` (how long the disk takes), `read` (gets), `garbage` (garbage
//! collection), `maintenance` (verifying, repairing and moving chunks), `counters` (what operators see).

mod counters;
mod disk_load;
mod garbage;
mod holdings;
mod interface;
mod maintenance;
mod negotiation;
mod read;
mod transfer;

use crate::map::Map;
use crate::random::Random;
use crate::reservation::{BidId, Book, ConfigError};
use crate::transmit::{Destination, Transmit};
use alloc::collections::{BTreeMap, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::SocketAddrV4;
pub use counters::{TargetCounters, TargetUsage};
use disk_load::DiskLoad;
use garbage::GarbageCollector;
use holdings::Holdings;
pub use interface::{End, Held, MaintenanceConfig, Progress, Storage, StorageDone, TargetConfig};
use maintenance::{Context, Maintenance};
use negotiation::Negotiation;
use nicekv_proto::chunk::{Answer, ChunkAnswer, ChunkId, MapVersion, Round};
use nicekv_proto::{Datagram, NodeId, OpId};
use transfer::Transfer;

/// A storage target without I/O: its driver owns the socket, the disk and the clock.
///
/// Input is `handle_*`, with the time in nanoseconds; output is `poll_*`. Call [`Self::handle_deadline`] by
/// [`Self::next_deadline`], poll after each input, and carry out [`Self::poll_storage`] in order. The driver also announces
/// the map ([`Self::set_map`]), the round of garbage collection ([`Self::set_round`]) and the free space
/// ([`Self::set_free`]).
#[derive(Clone, Debug)]
pub struct Target {
    config: TargetConfig,
    map: Option<Arc<Map>>,
    book: Book,
    holdings: Holdings,
    negotiations: BTreeMap<OpId, Negotiation>,
    transfers: BTreeMap<OpId, Transfer>,
    /// The transfer of each chunk that is arriving.
    arriving: BTreeMap<ChunkId, OpId>,
    disk: DiskLoad,
    garbage: GarbageCollector,
    maintenance: Option<Maintenance>,
    random: Random,
    sends: VecDeque<Transmit>,
    /// Counts for operators.
    pub counters: TargetCounters,
}

impl Target {
    /// A target that holds the chunks on its disk: id, length and rendezvous set. It is silent until it has a map and a round
    /// (P14).
    ///
    /// # Errors
    /// A parameter of [`TargetConfig::reservation`] is out of bounds.
    pub fn new(
        config: TargetConfig,
        on_disk: impl IntoIterator<Item = (ChunkId, u32, Vec<NodeId>)>,
    ) -> Result<Self, ConfigError> {
        // Bid ids differ from those of earlier processes.
        let book = Book::new(config.reservation, BidId(config.process << 32))?;
        let random = u64::from_be_bytes(*config.secret.first_chunk().expect("32 bytes"));
        let maintenance =
            config.maintenance.map(|maintenance| Maintenance::new(maintenance, config.reservation, random));
        Ok(Self {
            maintenance: maintenance.transpose()?,
            disk: DiskLoad::new(config.disk_bytes_per_second),
            holdings: Holdings::new(on_disk),
            config,
            map: None,
            book,
            negotiations: BTreeMap::new(),
            transfers: BTreeMap::new(),
            arriving: BTreeMap::new(),
            garbage: GarbageCollector::default(),
            random: Random::new(random),
            sends: VecDeque::new(),
            counters: TargetCounters::default(),
        })
    }

    /// Sets the map; an older version changes nothing.
    pub fn set_map(&mut self, now_ns: u64, map: Map) {
        if self.map.as_ref().is_some_and(|known| known.version() >= map.version()) {
            return;
        }
        let map = Arc::new(map);
        self.map = Some(map.clone());
        self.give_up_for_map(now_ns);
        if let Some(maintenance) = &mut self.maintenance {
            maintenance.set_map(now_ns, map, self.config.node, &self.holdings.held);
        }
    }

    /// Sets how many targets should hold a chunk.
    pub fn set_copies(&mut self, copies: usize) {
        if let Some(maintenance) = &mut self.maintenance {
            maintenance.set_copies(copies);
        }
    }

    /// Sets the free space of the disk, in bytes; space that is promised counts as free.
    pub fn set_free(&mut self, bytes: u64) {
        self.disk.free_bytes = bytes;
    }

    /// A datagram arrived.
    pub fn handle_datagram(&mut self, now_ns: u64, from: SocketAddrV4, bytes: &[u8]) {
        let Ok((header, datagram)) = Datagram::decode(bytes) else {
            self.counters.malformed += 1;
            return;
        };
        if self.map.is_none() || self.garbage.round().is_none() {
            return;
        }
        self.lapse(now_ns);
        match datagram {
            Datagram::ChunkRequest(request) => self.on_request(now_ns, from, &request),
            Datagram::ChunkAccept(accept) => self.on_accept(now_ns, from, &accept),
            Datagram::Chunk(frame) => self.on_frame(now_ns, &frame),
            Datagram::ChunkRead(read) => self.on_read(from, &read),
            Datagram::ChunkAnswer(_) | Datagram::TransferReport(_) => {
                self.counters.malformed += u64::from(self.maintenance.is_none());
                self.maintain(now_ns, |maintenance, _| maintenance.on_answer(now_ns, header.op, &datagram));
            }
            _ => self.counters.malformed += 1,
        }
    }

    /// The disk has answered a request.
    pub fn handle_storage(&mut self, now_ns: u64, done: StorageDone) {
        match done {
            StorageDone::Finished { op, end } => self.on_finished(now_ns, op, end),
            StorageDone::Read { bytes } => self.on_read_done(now_ns, bytes),
        }
    }

    /// The time of [`Self::next_deadline`] has come.
    pub fn handle_deadline(&mut self, now_ns: u64) {
        self.lapse(now_ns);
        self.report(now_ns);
        self.maintain(now_ns, |_, _| ());
    }

    /// When to call [`Self::handle_deadline`] and [`Self::poll_transmit`] at the latest.
    pub fn next_deadline(&self) -> u64 {
        let reports = self.transfers.values().map(Transfer::next_report_ns).min();
        let next_ns = self.book.next_lapse_ns().unwrap_or(u64::MAX).min(reports.unwrap_or(u64::MAX));
        let is_ready = self.map.is_some() && self.garbage.round().is_some();
        let maintenance = self.maintenance.as_ref().filter(|_| is_ready);
        next_ns.min(maintenance.map_or(u64::MAX, Maintenance::next_deadline))
    }

    /// The next datagram that may leave now.
    pub fn poll_transmit(&mut self, now_ns: u64) -> Option<Transmit> {
        self.sends.pop_front().or_else(|| self.maintenance.as_mut()?.poll_transmit(now_ns))
    }

    /// The next request to the disk.
    pub fn poll_storage(&mut self) -> Option<Storage> {
        self.holdings.storage.pop_front()
    }

    /// The chunks held, in the order of ids.
    pub fn held(&self) -> impl Iterator<Item = (&ChunkId, &Held)> {
        self.holdings.held.iter()
    }

    /// Its place in a chunk's group, if it is a member.
    fn own_place(&self, id: &ChunkId) -> Option<u8> {
        self.map.as_ref()?.group_of(id).1.place_of(self.config.node)
    }

    /// The place under which readers know this target: in the chunk's group, or, for a former
    /// member of that group, in its current group (P13).
    fn reading_place(&self, id: &ChunkId) -> Option<u8> {
        self.own_place(id).or_else(|| {
            let map = self.map.as_ref()?;
            let own = map.place_of(self.config.node)?;
            map.former(id).any(|former| former == own).then_some(own.1)
        })
    }

    /// Returns `place` if the message names this version of the map; otherwise the sender is
    /// informed of this target's version.
    fn admit(
        &mut self,
        to: SocketAddrV4,
        op: OpId,
        version: MapVersion,
        id: ChunkId,
        place: Option<u8>,
    ) -> Option<u8> {
        if version != self.map.as_ref()?.version() {
            self.counters.other_map += 1;
            self.answer(to, op, place.unwrap_or_default(), id, Answer::OtherMap);
            return None;
        }
        if place.is_none() {
            self.counters.refused += 1;
        }
        place
    }

    fn answer(&mut self, to: SocketAddrV4, op: OpId, place: u8, id: ChunkId, answer: Answer) {
        let version = self.map.as_ref().map(|map| map.version()).unwrap_or_default();
        let answer = ChunkAnswer { op, version, node: self.config.node, place, answer, id };
        let mut bytes = Vec::new();
        answer.encode(&mut bytes);
        self.sends.push_back(Transmit { to: Destination::Host(to), bytes });
    }

    fn stored(&self) -> Answer {
        Answer::Stored { stamp: self.stamp(), process: self.config.process }
    }

    /// The stamp for chunks that are stored or confirmed now (P7).
    fn stamp(&self) -> Round {
        self.garbage.round().unwrap_or_default()
    }

    /// Deletes a chunk. Returns false if it is not held.
    fn drop_copy(&mut self, id: &ChunkId) -> bool {
        if let Some(maintenance) = &mut self.maintenance {
            maintenance.forget(id);
        }
        self.holdings.remove(id)
    }

    /// Calls `act`, and lets maintenance continue. Nothing is done before there are a map and a
    /// round (P14).
    fn maintain(&mut self, now_ns: u64, act: impl FnOnce(&mut Maintenance, &mut Context<'_>)) {
        let Self { maintenance, map, garbage, config, holdings, counters, .. } = self;
        let (Some(maintenance), Some(map), Some(round)) = (maintenance, map, garbage.round()) else { return };
        let mut context = Context { node: config.node, map, round, holdings, counters };
        act(maintenance, &mut context);
        maintenance.run(now_ns, &mut context);
    }

    /// Bytes of memory promised to bids and transfers, or waiting for the disk.
    pub fn promised_memory(&self) -> u64 {
        self.book.bytes() + self.disk.queued_bytes()
    }

    /// Bytes of the disk promised to bids and transfers.
    pub fn promised_disk(&self) -> u64 {
        self.disk.promised_bytes
    }

    /// Open bids and transfers.
    pub fn under_way(&self) -> usize {
        self.negotiations.len() + self.transfers.len()
    }

    /// Resources that are promised now, and the rounds of garbage collection.
    pub fn usage(&self) -> TargetUsage {
        TargetUsage {
            disk_free_bytes: self.disk.free_bytes,
            disk_promised_bytes: self.promised_disk(),
            memory_promised_bytes: self.promised_memory(),
            memory_bytes_max: self.config.reservation.bytes_max,
            bids: self.negotiations.len(),
            transfers: self.transfers.len(),
            reads: self.holdings.reads(),
            round: self.stamp(),
            listed: self.garbage.listed(),
            swept: self.garbage.swept(),
        }
    }

    /// How far maintenance and garbage collection are. Without maintenance: garbage collection only.
    pub fn progress(&self) -> Progress {
        let Some(map) = &self.map else { return Progress::default() };
        let mut progress = Progress {
            version: map.version(),
            swept: self.garbage.swept(),
            chunks: self.holdings.held.len(),
            bytes: self.holdings.bytes,
            ..Progress::default()
        };
        if let Some(maintenance) = &self.maintenance {
            maintenance.add_to(&mut progress);
        }
        progress
    }
}

/// Garbage collection.
impl Target {
    /// Announces a round; an older one changes nothing. After a restart all chunks get the stamp of the first round that is
    /// announced (P8).
    pub fn set_round(&mut self, round: Round) {
        self.garbage.set_round(round, &mut self.holdings.held);
    }

    /// The present round.
    pub fn round(&self) -> Option<Round> {
        self.garbage.round()
    }

    /// Marks chunks that names need, by a listing of names that have all adopted `round`. False: it is not the present
    /// round, so the listing is of no use.
    pub fn mark(&mut self, round: Round, ids: &[ChunkId]) -> bool {
        self.garbage.mark(round, ids, &mut self.holdings.held)
    }

    /// All names of `round` are listed: deletes a part of the garbage. Call it until it returns true.
    pub fn sweep(&mut self, round: Round) -> bool {
        let (dead, has_ended) = self.garbage.sweep(round, &self.holdings.held);
        for id in dead {
            self.counters.collected += 1;
            self.drop_copy(&id);
        }
        has_ended
    }

    /// The last round whose garbage was all deleted.
    pub fn swept(&self) -> Round {
        self.garbage.swept()
    }
}

#[cfg(test)]
mod tests;
