//! Chunks that are read.

use super::Target;
use super::state::Reading;
use super::told::Storage;
use crate::transmit::{Destination, Transmit};
use alloc::vec::Vec;
use core::net::SocketAddrV4;
use nicekv_proto::chunk::{Answer, ChunkId, ChunkRead, READ_FRAMES_MAX, frame_of};
use nicekv_proto::large::{Chunk, RECEIVERS_ALL};
use nicekv_proto::limits::CHUNK_BYTES;
use nicekv_proto::{KeyDigest, KeyspaceId, OpId};

/// Reads that wait for the disk, at most; more are dropped, and their initiators ask again.
const READS_MAX: usize = 256;
/// What one of them takes, as far as is told to who chooses among targets.
const READ_NS: u64 = 200_000;

impl Target {
    /// Whether a chunk can be read here.
    pub(super) fn offer_get(&mut self, to: SocketAddrV4, id: &ChunkId) -> Answer {
        self.counters.gets += 1;
        let Some(held) = self.held.get(id) else {
            self.counters.not_found += 1;
            return Answer::NotFound;
        };
        let wait_ns = READ_NS * self.readings.len() as u64;
        Answer::Held { bytes: held.bytes, token: self.token(to), wait_ns }
    }

    /// What an initiator there has to show before it is sent more than it has sent (P10).
    pub(super) fn token(&self, initiator: SocketAddrV4) -> u64 {
        let mut address = [0; 6];
        address[..4].copy_from_slice(&initiator.ip().octets());
        address[4..].copy_from_slice(&initiator.port().to_be_bytes());
        let hash = blake3::keyed_hash(&self.config.secret, &address);
        u64::from_be_bytes(*hash.as_bytes().first_chunk().expect("it is longer"))
    }

    /// Frames are asked for.
    pub(super) fn on_read(&mut self, from: SocketAddrV4, read: &ChunkRead) {
        let to = read.reply_to.unwrap_or(from);
        let own = self.reading_place(&read.id);
        let Some(place) = self.admit(to, read.op, read.version, read.id, own) else { return };
        if read.token != self.token(to) {
            self.counters.reads_unproven += 1;
            return;
        }
        if read.count > READ_FRAMES_MAX {
            self.counters.reads_refused += 1;
            return;
        }
        let Some(held) = self.held.get(&read.id) else {
            return self.answer(to, read.op, place, read.id, Answer::NotFound);
        };
        let Some((offset, _)) = frame_of(held.bytes, read.first).filter(|_| read.count > 0) else {
            self.counters.reads_refused += 1;
            return;
        };
        if !self.may_read() {
            self.counters.reads_dropped += 1;
            return;
        }
        self.counters.reads += 1;
        let bytes = (u32::from(read.count) * CHUNK_BYTES as u32).min(held.bytes - offset);
        let reading = Reading::Frames { to, op: read.op, place, id: read.id, first: read.first };
        self.readings.push_back(reading);
        self.storage.push_back(Storage::Read { id: read.id, offset, bytes });
    }

    /// Whether one more may wait for the disk.
    pub(super) fn may_read(&self) -> bool {
        self.readings.len() < READS_MAX
    }

    /// All of a chunk is read, to be looked at.
    pub(super) fn read_whole(&mut self, id: ChunkId, bytes: u32) {
        self.readings.push_back(Reading::Whole { id });
        self.storage.push_back(Storage::Read { id, offset: 0, bytes });
    }

    /// The disk has read something.
    pub(super) fn on_read_done(&mut self, now_ns: u64, bytes: Option<Vec<u8>>) {
        match self.readings.pop_front() {
            Some(Reading::Frames { to, op, place, id, first }) => match bytes {
                Some(bytes) => self.send_frames((to, op), first, &bytes),
                None => {
                    self.lose(&id);
                    self.answer(to, op, place, id, Answer::NotFound);
                }
            },
            Some(Reading::Whole { id }) => self.on_whole(now_ns, id, bytes),
            None => unreachable!("reads are answered once, in order"),
        }
    }

    /// What is damaged is not held (P1).
    pub(super) fn lose(&mut self, id: &ChunkId) {
        self.counters.damaged += u64::from(self.held.contains_key(id));
        self.drop_copy(id);
    }

    /// It is not held any more, and not looked after.
    pub(super) fn drop_copy(&mut self, id: &ChunkId) {
        if let Some(held) = self.held.remove(id) {
            self.held_bytes -= u64::from(held.bytes);
            self.storage.push_back(Storage::Remove { id: *id });
            if let Some(maintenance) = &mut self.maintenance {
                maintenance.forget(id);
            }
        }
    }

    fn send_frames(&mut self, (to, op): (SocketAddrV4, OpId), first: u32, bytes: &[u8]) {
        for (number, bytes) in (first..).zip(bytes.chunks(CHUNK_BYTES)) {
            let (keyspace, digest, mask) = (KeyspaceId::DEFAULT, KeyDigest::default(), RECEIVERS_ALL);
            let mut out = Vec::new();
            Chunk { keyspace, op, digest, number, mask, bytes }.encode(&mut out);
            self.counters.frames_sent += 1;
            self.counters.bytes_sent += bytes.len() as u64;
            self.sends.push_back(Transmit { to: Destination::Host(to), bytes: out });
        }
    }
}
