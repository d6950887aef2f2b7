//! A storage target: what it holds, what it promises, and what comes.
//!
//! ```text
//!   request ──▶ bid ──accept──▶ transfer ──all frames──▶ disk: verified, forced ──▶ held, "stored"
//!                │ other accept, or none: cancelled, lapsed   │ nothing comes: lapsed      │ not what its id says, no room: told, and gone
//! ```
//!
//! * `put`: bids and accepts; `take`, `transfer`: what comes of them; `get`: reads; `disk`: what the disk has to do, and how long that takes; `rounds`: garbage collection;
//! * `tend`: it looks after what it holds: whether it is what it was, whether as many as are wanted hold it, and whether it is where it belongs;
//! * `state`, `told`, `counts`: what it remembers of these, what it is told and tells, and what operators see of it.

mod counts;
mod disk;
mod get;
mod put;
mod rounds;
mod state;
mod take;
mod tend;
mod told;
mod transfer;

use crate::map::Map;
use crate::random::Random;
use crate::reservation::{BidId, Book, ConfigError};
use crate::transmit::{Destination, Transmit};
use alloc::collections::{BTreeMap, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::SocketAddrV4;
pub use counts::{TargetCounters, TargetUsage};
use disk::Disk;
use nicekv_proto::chunk::{Answer, ChunkAnswer, ChunkId, MapVersion, Round};
use nicekv_proto::{Datagram, NodeId, OpId};
use rounds::Sweep;
use state::{Negotiation, Reading};
use tend::Maintenance;
pub use told::{End, Held, MaintenanceConfig, Progress, Storage, StorageDone, TargetConfig};
use transfer::Transfer;

/// See the module.
#[derive(Clone, Debug)]
pub struct Target {
    config: TargetConfig,
    map: Option<Arc<Map>>,
    round: Option<Round>,
    book: Book,
    held: BTreeMap<ChunkId, Held>,
    held_bytes: u64,
    negotiations: BTreeMap<OpId, Negotiation>,
    transfers: BTreeMap<OpId, Transfer>,
    /// By which transfer a chunk comes.
    arriving: BTreeMap<ChunkId, OpId>,
    disk: Disk,
    readings: VecDeque<Reading>,
    sweep: Sweep,
    maintenance: Option<Maintenance>,
    random: Random,
    sends: VecDeque<Transmit>,
    storage: VecDeque<Storage>,
    /// For operators.
    pub counters: TargetCounters,
}

impl Target {
    /// One that begins with what its disk has. It answers nothing before it has a map and a round (P14).
    ///
    /// # Errors
    /// If the parameters of windows cannot be.
    pub fn new(
        config: TargetConfig,
        on_disk: impl IntoIterator<Item = (ChunkId, u32, Vec<NodeId>)>,
    ) -> Result<Self, ConfigError> {
        // Ids of bids are not those of the process before, as far as chance goes.
        let book = Book::new(config.reservation, BidId(config.process << 32))?;
        let held = on_disk
            .into_iter()
            .map(|(id, bytes, holders)| (id, Held { bytes, stamp: Round(0), marked: Round(0), holders }));
        let held: BTreeMap<ChunkId, Held> = held.collect();
        let random = u64::from_be_bytes(*config.secret.first_chunk().expect("it is longer"));
        let maintenance =
            config.maintenance.map(|maintenance| Maintenance::new(maintenance, config.reservation, random));
        Ok(Self {
            maintenance: maintenance.transpose()?,
            disk: Disk::new(config.disk_bytes_per_second),
            held_bytes: held.values().map(|held| u64::from(held.bytes)).sum(),
            held,
            config,
            map: None,
            round: None,
            book,
            negotiations: BTreeMap::new(),
            transfers: BTreeMap::new(),
            arriving: BTreeMap::new(),
            readings: VecDeque::new(),
            sweep: Sweep::default(),
            random: Random::new(random),
            sends: VecDeque::new(),
            storage: VecDeque::new(),
            counters: TargetCounters::default(),
        })
    }

    /// Groups are as this map says from now on; an older one changes nothing.
    pub fn set_map(&mut self, now_ns: u64, map: Map) {
        if self.map.as_ref().is_some_and(|known| known.version() >= map.version()) {
            return;
        }
        self.map = Some(Arc::new(map));
        self.give_up_for_map(now_ns);
        self.tend_by_map(now_ns);
    }

    /// So many targets are to hold a chunk from now on.
    pub fn set_copies(&mut self, copies: usize) {
        if let Some(maintenance) = &mut self.maintenance {
            maintenance.set_copies(copies);
        }
    }

    /// So much may be written to the disk beside what is promised already.
    pub fn set_free(&mut self, bytes: u64) {
        self.disk.free_bytes = bytes;
    }

    /// A datagram has come.
    pub fn handle_datagram(&mut self, now_ns: u64, from: SocketAddrV4, bytes: &[u8]) {
        let Ok((header, datagram)) = Datagram::decode(bytes) else {
            self.counters.malformed += 1;
            return;
        };
        if self.map.is_none() || self.round.is_none() {
            return;
        }
        self.lapse(now_ns);
        match datagram {
            Datagram::ChunkRequest(request) => self.on_request(now_ns, from, &request),
            Datagram::ChunkAccept(accept) => self.on_accept(now_ns, from, &accept),
            Datagram::Chunk(frame) => self.on_frame(now_ns, &frame),
            Datagram::ChunkRead(read) => self.on_read(from, &read),
            Datagram::ChunkAnswer(_) | Datagram::TransferReport(_) => {
                self.on_told(now_ns, header.op, &datagram);
            }
            _ => self.counters.malformed += 1,
        }
    }

    /// The disk has done something.
    pub fn handle_storage(&mut self, now_ns: u64, done: StorageDone) {
        match done {
            StorageDone::Finished { op, end } => self.on_finished(now_ns, op, end),
            StorageDone::Read { bytes } => self.on_read_done(now_ns, bytes),
        }
    }

    /// The time that was named has come.
    pub fn handle_deadline(&mut self, now_ns: u64) {
        self.lapse(now_ns);
        self.report(now_ns);
        self.tend(now_ns);
    }

    /// When to call [`Self::handle_deadline`] and [`Self::poll_transmit`] at the latest.
    pub fn next_deadline(&self) -> u64 {
        let reports = self.transfers.values().map(Transfer::next_report_ns).min();
        let next_ns = self.book.next_lapse_ns().unwrap_or(u64::MAX).min(reports.unwrap_or(u64::MAX));
        next_ns.min(self.next_tending())
    }

    /// The next datagram that may leave now.
    pub fn poll_transmit(&mut self, now_ns: u64) -> Option<Transmit> {
        self.sends.pop_front().or_else(|| self.maintenance.as_mut()?.poll_transmit(now_ns))
    }

    /// What the disk is to do next.
    pub fn poll_storage(&mut self) -> Option<Storage> {
        self.storage.pop_front()
    }

    /// What is held, in the order of ids.
    pub fn held(&self) -> impl Iterator<Item = (&ChunkId, &Held)> {
        self.held.iter()
    }

    /// Its place in a chunk's group; none if it is not of that group.
    fn own_place(&self, id: &ChunkId) -> Option<u8> {
        self.map.as_ref()?.group_of(id).1.place_of(self.config.node)
    }

    /// The place by which it is read: that in a chunk's group, or, if it is a former member of that, in its own one (P13).
    fn reading_place(&self, id: &ChunkId) -> Option<u8> {
        self.own_place(id).or_else(|| {
            let map = self.map.as_ref()?;
            let own = map.place_of(self.config.node)?;
            map.former(id).any(|former| former == own).then_some(own.1)
        })
    }

    /// Its place, if it has one, and goes by this version of the map. Who goes by another one is told.
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
        Answer::Stored { stamp: self.round.unwrap_or_default(), process: self.config.process }
    }

    /// Bytes of memory that are promised to chunks, or have those that the disk does not have yet.
    pub fn promised_memory(&self) -> u64 {
        self.book.bytes() + self.disk.queued_bytes()
    }

    /// Bytes of the disk that are promised.
    pub fn promised_disk(&self) -> u64 {
        self.disk.promised_bytes
    }

    /// Negotiations and transfers.
    pub fn under_way(&self) -> usize {
        self.negotiations.len() + self.transfers.len()
    }
}

#[cfg(test)]
mod tests;
