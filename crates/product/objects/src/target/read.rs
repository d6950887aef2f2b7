//! Reads: requests of gets, and the frames that answer them.

use super::Target;
use super::holdings::Reading;
use crate::transmit::{Destination, Transmit};
use alloc::vec::Vec;
use core::net::SocketAddrV4;
use nicekv_proto::chunk::{Answer, ChunkId, ChunkRead, READ_FRAMES_MAX, frame_of};
use nicekv_proto::large::{Chunk, RECEIVERS_ALL};
use nicekv_proto::limits::CHUNK_BYTES;
use nicekv_proto::{KeyDigest, KeyspaceId, OpId};

/// Assumed time of a read, by which initiators choose among targets.
const READ_NS: u64 = 200_000;

impl Target {
    /// Answers whether a chunk can be read here.
    pub(super) fn offer_get(&mut self, to: SocketAddrV4, id: &ChunkId) -> Answer {
        self.counters.gets += 1;
        let Some(held) = self.holdings.held.get(id) else {
            self.counters.not_found += 1;
            return Answer::NotFound;
        };
        let wait_ns = READ_NS * self.holdings.reads() as u64;
        Answer::Held { bytes: held.bytes, token: self.token(to), wait_ns }
    }

    /// The token that an initiator at this address must present: without it, the target sends no
    /// more bytes than it receives (P10).
    pub(super) fn token(&self, initiator: SocketAddrV4) -> u64 {
        let mut address = [0; 6];
        address[..4].copy_from_slice(&initiator.ip().octets());
        address[4..].copy_from_slice(&initiator.port().to_be_bytes());
        let hash = blake3::keyed_hash(&self.config.secret, &address);
        u64::from_be_bytes(*hash.as_bytes().first_chunk().expect("it is longer"))
    }

    /// An initiator requests frames.
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
        let Some(held) = self.holdings.held.get(&read.id) else {
            return self.answer(to, read.op, place, read.id, Answer::NotFound);
        };
        let Some((offset, _)) = frame_of(held.bytes, read.first).filter(|_| read.count > 0) else {
            self.counters.reads_refused += 1;
            return;
        };
        if !self.holdings.may_read() {
            self.counters.reads_dropped += 1;
            return;
        }
        self.counters.reads += 1;
        let bytes = (u32::from(read.count) * CHUNK_BYTES as u32).min(held.bytes - offset);
        let reading = Reading::Frames { to, op: read.op, place, id: read.id, first: read.first };
        self.holdings.read(reading, read.id, offset, bytes);
    }

    /// The disk has answered a read.
    pub(super) fn on_read_done(&mut self, now_ns: u64, bytes: Option<Vec<u8>>) {
        match (self.holdings.end_reading(), bytes) {
            (Reading::Frames { to, op, first, .. }, Some(bytes)) => self.send_frames((to, op), first, &bytes),
            (Reading::Frames { to, op, place, id, .. }, None) => {
                // A damaged chunk is not held (P1).
                self.counters.damaged += u64::from(self.drop_copy(&id));
                self.answer(to, op, place, id, Answer::NotFound);
            }
            (Reading::Whole { id }, bytes) => {
                self.maintain(now_ns, |maintenance, context| maintenance.on_read(now_ns, id, bytes, context));
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
