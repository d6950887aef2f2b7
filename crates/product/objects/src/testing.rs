//! Helpers for tests and model checking: a fingerprint of a target's state, what is promised, and a put in one call.

use crate::Target;
use crate::transmit::Transmit;
use alloc::vec::Vec;
use core::net::{Ipv4Addr, SocketAddrV4};
use nicekv_proto::chunk::{
    Answer, Chosen, ChunkAccept, ChunkAnswer, ChunkId, ChunkRequest, MapVersion, Round, Wanted,
};
use nicekv_proto::large::{Chunk, RECEIVERS_ALL};
use nicekv_proto::{ClientId, Datagram, KeyDigest, KeyspaceId, OpId};

/// A target's answer to a put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PutReply {
    /// The target holds the chunk, with this stamp.
    Stored(Round),
    /// All frames have arrived in this transfer; the disk must confirm that the chunk is durable.
    Arrived(OpId),
}

impl Target {
    /// The state that garbage collection depends on: two targets with equal fingerprints behave alike.
    pub fn collection(&self) -> impl core::hash::Hash + use<> {
        let held: Vec<_> = self.held().map(|(id, held)| (*id, held.stamp, held.marked)).collect();
        (self.round(), held, self.swept())
    }

    /// Promised bytes of memory and of disk, and the number of open bids and transfers: all 0 when nothing is being put.
    pub fn promised(&self) -> (u64, u64, usize) {
        (self.promised_memory(), self.promised_disk(), self.under_way())
    }

    /// Puts a chunk of one frame, by a map of version 1 in which this is the only target: request, bid, accept, frame.
    pub fn put_at_once(&mut self, id: ChunkId, bytes: &[u8]) -> PutReply {
        let op = OpId { client: ClientId(1), sequence: 1 };
        let (version, from) = (MapVersion(1), SocketAddrV4::new(Ipv4Addr::LOCALHOST, 9));
        let wanted = Wanted::Put { bytes: bytes.len() as u32, earliest_ns: 0, except: 0 };
        let mut out = Vec::new();
        ChunkRequest { op, reply_to: None, version, id, wanted }.encode(&mut out);
        self.handle_datagram(0, from, &out);
        let (bid, left_ns, right_ns) = match self.last_answer() {
            Answer::Stored { stamp, .. } => return PutReply::Stored(stamp),
            Answer::Bid { bid, left_ns, right_ns, .. } => (bid, left_ns, right_ns),
            other => panic!("{other:?} to a put"),
        };
        let chosen = [Chosen { place: 0, bid, left_ns, right_ns }].into();
        ChunkAccept { op, reply_to: None, version, id, chosen }.encode(&mut out);
        self.handle_datagram(0, from, &out);
        let (keyspace, digest, mask) = (KeyspaceId::DEFAULT, KeyDigest::default(), RECEIVERS_ALL);
        Chunk { keyspace, op, digest, number: 0, mask, bytes }.encode(&mut out);
        self.handle_datagram(0, from, &out);
        while self.poll_transmit(0).is_some() {}
        PutReply::Arrived(op)
    }

    /// The stamp in its last answer.
    pub fn last_stamp(&mut self) -> Round {
        match self.last_answer() {
            Answer::Stored { stamp, .. } => stamp,
            other => panic!("{other:?} instead of a stamp"),
        }
    }

    fn last_answer(&mut self) -> Answer {
        let sends = core::iter::from_fn(|| self.poll_transmit(0));
        let Transmit { bytes, .. } = sends.last().expect("it has answered");
        match Datagram::decode(&bytes) {
            Ok((_, Datagram::ChunkAnswer(ChunkAnswer { answer, .. }))) => answer,
            other => panic!("{other:?} is no answer"),
        }
    }
}
