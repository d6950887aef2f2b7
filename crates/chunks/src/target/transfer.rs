//! A chunk that comes.

use alloc::vec::Vec;
use core::net::SocketAddrV4;
use nicekv_reservation::BidId;
use nicekv_transport::{Receiver, Report, WINDOW_MAX};
use nicekv_wire::NodeId;
use nicekv_wire::chunk::{CHUNK_LENGTH_MAX, ChunkId, frames_of};

/// Memory for all of a chunk is promised, so a receiver takes all frames in any order.
const _: () = assert!(frames_of(CHUNK_LENGTH_MAX) <= WINDOW_MAX);

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Transfer {
    pub(super) id: ChunkId,
    pub(super) bytes: u32,
    pub(super) bid: BidId,
    pub(super) initiator: SocketAddrV4,
    pub(super) holders: Vec<NodeId>,
    pub(super) receiver: Receiver,
    /// Questions that were answered.
    told: u32,
    /// When it is to be durable, as far as is known.
    until_ns: u64,
    /// All is here, and the disk has to say whether it is right.
    pub(super) is_ending: bool,
}

impl Transfer {
    pub(super) fn new(
        now_ns: u64,
        (id, bytes): (ChunkId, u32),
        (bid, initiator): (BidId, SocketAddrV4),
        holders: Vec<NodeId>,
        (until_ns, seed): (u64, u64),
    ) -> Self {
        let receiver = Receiver::new(now_ns, frames_of(bytes), WINDOW_MAX, seed);
        Self { id, bytes, bid, initiator, holders, receiver, told: 0, until_ns, is_ending: false }
    }

    /// Until it is durable, as far as is known.
    pub(super) fn left_ns(&self, now_ns: u64) -> u64 {
        self.until_ns.saturating_sub(now_ns)
    }

    /// The initiator asks what is here.
    pub(super) fn ask(&mut self, now_ns: u64) {
        self.receiver.handle_probe(now_ns);
    }

    /// When something is to be said, or may be.
    pub(super) fn next_report_ns(&self) -> u64 {
        if self.is_ending { u64::MAX } else { self.receiver.next_deadline() }
    }

    /// What is to be said: who has all so far, and was not asked, says nothing. One answer at the end is enough (Replicast §III-G).
    pub(super) fn poll_report(&mut self, now_ns: u64) -> Option<Report> {
        let report = self.receiver.poll_report(now_ns)?;
        let is_news = !report.missing.is_empty() || report.asked != self.told || self.receiver.is_complete();
        self.told = report.asked;
        is_news.then_some(report)
    }
}
