//! A chunk that comes.

use crate::reservation::BidId;
use alloc::vec::Vec;
use core::net::SocketAddrV4;
use nicekv_proto::NodeId;
use nicekv_proto::chunk::{CHUNK_LENGTH_MAX, ChunkId, frames_of};
use nicekv_transport::{Receiver, Report, WINDOW_MAX};

/// Memory for all of a chunk is promised, so a receiver takes all frames in any order.
const _: () = assert!(frames_of(CHUNK_LENGTH_MAX) <= WINDOW_MAX);

/// A question may overtake frames that left before it, as copies for several hosts take longer within a switch than what is for one; what it finds missing counts as lost. So it is put to
/// the receiver a little later.
const OVERTAKEN_NS: u64 = 1_000_000;

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
    /// When the last question is put to the receiver.
    question_ns: u64,
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
        let (told, question_ns, is_ending) = (0, u64::MAX, false);
        Self { id, bytes, bid, initiator, holders, receiver, told, question_ns, until_ns, is_ending }
    }

    /// Until it is durable, as far as is known.
    pub(super) fn left_ns(&self, now_ns: u64) -> u64 {
        self.until_ns.saturating_sub(now_ns)
    }

    /// The initiator asks what is here.
    pub(super) fn ask(&mut self, now_ns: u64) {
        self.question_ns = self.question_ns.min(now_ns.saturating_add(OVERTAKEN_NS));
    }

    /// When something is to be said, or may be.
    pub(super) fn next_report_ns(&self) -> u64 {
        if self.is_ending { u64::MAX } else { self.receiver.next_deadline().min(self.question_ns) }
    }

    /// What is to be said: who has all so far, and was not asked, says nothing. One answer at the end is enough (Replicast §III-G).
    pub(super) fn poll_report(&mut self, now_ns: u64) -> Option<Report> {
        if self.question_ns <= now_ns {
            self.question_ns = u64::MAX;
            self.receiver.handle_probe(now_ns);
        }
        let report = self.receiver.poll_report(now_ns)?;
        let is_news = !report.missing.is_empty() || report.asked != self.told || self.receiver.is_complete();
        self.told = report.asked;
        is_news.then_some(report)
    }
}
