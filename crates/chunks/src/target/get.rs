//! Chunks that are read.

use super::Target;
use super::state::Reading;
use super::told::Storage;
use crate::send::{Send, To};
use alloc::vec::Vec;
use core::net::SocketAddrV4;
use nicekv_wire::chunk::{Answer, ChunkId, ChunkRead, READ_FRAMES_MAX, frame_of};
use nicekv_wire::large::{Chunk, RECEIVERS_ALL};
use nicekv_wire::limits::CHUNK_BYTES;
use nicekv_wire::{KeyDigest, KeyspaceId};

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
        let Some(place) = self.place_for(to, read.op, read.version, read.id) else { return };
        if read.token != self.token(to) || read.count > READ_FRAMES_MAX {
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
        if self.readings.len() >= READS_MAX {
            return;
        }
        self.counters.reads += 1;
        let bytes = (u32::from(read.count) * CHUNK_BYTES as u32).min(held.bytes - offset);
        self.readings.push_back(Reading { to, op: read.op, place, id: read.id, first: read.first });
        self.storage.push_back(Storage::Read { id: read.id, offset, bytes });
    }

    /// The disk has read them. What is damaged is not held (P1).
    pub(super) fn on_read_done(&mut self, bytes: Option<Vec<u8>>) {
        let Some(Reading { to, op, place, id, first }) = self.readings.pop_front() else {
            unreachable!("reads are answered once, in order");
        };
        let Some(bytes) = bytes else {
            self.counters.damaged += 1;
            if self.held.remove(&id).is_some() {
                self.storage.push_back(Storage::Remove { id });
            }
            return self.answer(to, op, place, id, Answer::NotFound);
        };
        for (number, bytes) in (first..).zip(bytes.chunks(CHUNK_BYTES)) {
            let (keyspace, digest, mask) = (KeyspaceId::DEFAULT, KeyDigest::default(), RECEIVERS_ALL);
            let mut out = Vec::new();
            Chunk { keyspace, op, digest, number, mask, bytes }.encode(&mut out);
            self.counters.frames_sent += 1;
            self.sends.push_back(Send { to: To::Host(to), bytes: out });
        }
    }
}
