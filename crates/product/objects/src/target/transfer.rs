//! A chunk that is being received: its frames, reports of missing frames, and its completion by the
//! disk.

use super::Target;
use super::interface::{End, Held, Storage};
use crate::reservation::BidId;
use crate::transmit::{Destination, Transmit};
use alloc::vec::Vec;
use core::net::SocketAddrV4;
use nicekv_proto::chunk::{Answer, CHUNK_LENGTH_MAX, ChunkId, Round, frame_of, frames_of};
use nicekv_proto::large::{Chunk, Hole, TransferReport};
use nicekv_proto::{Epoch, NodeId, OpId, PartitionId, Status};
use nicekv_transport::{Received, Receiver, Report, WINDOW_MAX};

/// Memory for the whole chunk is promised, so the receiver takes its frames in any order.
const _: () = assert!(frames_of(CHUNK_LENGTH_MAX) <= WINDOW_MAX);

/// A probe may overtake frames that were sent before it, because a switch takes longer to copy a
/// frame for several hosts. Frames that are missing when the probe is processed count as lost, so
/// it is processed with this delay.
const PROBE_DELAY_NS: u64 = 1_000_000;

/// A chunk that is being received.
#[derive(Clone, Debug)]
pub(super) struct Transfer {
    pub(super) id: ChunkId,
    pub(super) bytes: u32,
    pub(super) bid: BidId,
    pub(super) initiator: SocketAddrV4,
    pub(super) holders: Vec<NodeId>,
    pub(super) receiver: Receiver,
    /// Number of probes that were answered.
    answered_probes: u32,
    /// When the pending probe is processed; `u64::MAX`: none is pending.
    probe_ns: u64,
    /// Estimated time when the chunk is durable.
    until_ns: u64,
    /// The chunk is complete, and the disk is verifying it.
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
        let (answered_probes, probe_ns, is_ending) = (0, u64::MAX, false);
        Self { id, bytes, bid, initiator, holders, receiver, answered_probes, probe_ns, until_ns, is_ending }
    }

    /// Estimated time until it is durable.
    pub(super) fn left_ns(&self, now_ns: u64) -> u64 {
        self.until_ns.saturating_sub(now_ns)
    }

    /// The initiator has sent a probe.
    pub(super) fn on_probe(&mut self, now_ns: u64) {
        self.probe_ns = self.probe_ns.min(now_ns.saturating_add(PROBE_DELAY_NS));
    }

    /// When to call [`Self::poll_report`].
    pub(super) fn next_report_ns(&self) -> u64 {
        if self.is_ending { u64::MAX } else { self.receiver.next_deadline().min(self.probe_ns) }
    }

    /// The next report. A target that misses nothing and was not probed does not report: one answer at the end is enough
    /// (Replicast §III-G).
    pub(super) fn poll_report(&mut self, now_ns: u64) -> Option<Report> {
        if self.probe_ns <= now_ns {
            self.probe_ns = u64::MAX;
            self.receiver.handle_probe(now_ns);
        }
        let report = self.receiver.poll_report(now_ns)?;
        let is_news =
            !report.missing.is_empty() || report.asked != self.answered_probes || self.receiver.is_complete();
        self.answered_probes = report.asked;
        is_news.then_some(report)
    }
}

impl Target {
    pub(super) fn on_frame(&mut self, now_ns: u64, frame: &Chunk<'_>) {
        let transfer = self.transfers.get_mut(&frame.op).filter(|transfer| !transfer.is_ending);
        let Some(transfer) = transfer else {
            // The frame's transfer has expired or is complete.
            self.counters.frames_refused += 1;
            return;
        };
        let placed = frame_of(transfer.bytes, frame.number);
        let Some((offset, _)) = placed.filter(|(_, length)| *length as usize == frame.bytes.len()) else {
            self.counters.frames_refused += 1;
            return;
        };
        self.counters.frames += 1;
        match transfer.receiver.handle_chunk(now_ns, frame.number) {
            Received::New => {
                let bytes = frame.bytes.to_vec();
                self.holdings.storage.push_back(Storage::Write { op: frame.op, offset, bytes });
            }
            Received::Duplicate => self.counters.frames_known += 1,
            // Never refused for lack of window: the window is as long as the chunk.
            Received::Refused(_) => self.counters.frames_refused += 1,
        }
        if transfer.receiver.is_complete() {
            transfer.is_ending = true;
            // The time on the link is free now, and the memory counts as the disk's queue.
            let was_promised = self.book.finish(transfer.bid);
            debug_assert!(was_promised.is_ok(), "{was_promised:?}");
            self.disk.queued(now_ns, transfer.bytes);
            self.holdings.storage.push_back(Storage::Finish { op: frame.op });
        }
        self.report(now_ns);
    }

    /// Sends the reports that are due.
    pub(super) fn report(&mut self, now_ns: u64) {
        for (op, transfer) in &mut self.transfers {
            if transfer.next_report_ns() > now_ns && !transfer.is_ending {
                continue;
            }
            let Some(report) = transfer.poll_report(now_ns) else { continue };
            self.counters.frames_missing +=
                report.missing.iter().map(|hole| u64::from(hole.end - hole.start)).sum::<u64>();
            let mut bytes = Vec::new();
            encoded(*op, self.config.node, &report).encode(&mut bytes);
            self.sends.push_back(Transmit { to: Destination::Host(transfer.initiator), bytes });
        }
    }

    /// The disk has verified a chunk, or failed to store it.
    pub(super) fn on_finished(&mut self, now_ns: u64, op: OpId, end: End) {
        let Some(transfer) = self.transfers.get(&op) else { return };
        let (id, bytes) = (transfer.id, transfer.bytes);
        self.disk.finished(now_ns, bytes);
        match end {
            // The groups have changed, and the chunk now belongs to another group.
            End::Whole if self.own_place(&id).is_none() => {
                self.holdings.storage.push_back(Storage::Remove { id });
            }
            End::Whole => {
                self.counters.stored += 1;
                self.disk.used(bytes);
                let (stamp, marked) = (self.stamp(), Round(0));
                let holders = transfer.holders.clone();
                self.holdings.insert(id, Held { bytes, stamp, marked, holders });
                let stored = self.stored();
                self.answer_transfer(op, stored);
            }
            End::Wrong => {
                self.counters.wrong += 1;
                self.answer_transfer(op, Answer::Wrong);
            }
            End::NoRoom => {
                self.counters.disk_full += 1;
                self.answer_transfer(op, Answer::NoSpace);
            }
        }
        self.disk.release(bytes);
        self.transfers.remove(&op);
        self.arriving.remove(&id);
    }

    /// Sends an answer to the initiator of a transfer.
    fn answer_transfer(&mut self, op: OpId, answer: Answer) {
        let Some(Transfer { id, initiator, .. }) = self.transfers.get(&op) else { return };
        let (id, to) = (*id, *initiator);
        let place = self.own_place(&id);
        // A target that has left the group answers, too; by the map version the initiator knows
        // that the answer does not count.
        self.answer(to, op, place.unwrap_or(u8::MAX), id, answer);
    }
}

fn encoded(op: OpId, sender: NodeId, report: &Report) -> TransferReport {
    TransferReport {
        op,
        partition: PartitionId(0),
        epoch: Epoch(0),
        sender,
        status: Status::Ok,
        members: Vec::new(),
        prefix: report.prefix,
        end: report.end,
        limit: report.limit,
        arrived: report.arrived,
        asked: report.asked,
        chunks_per_second: report.chunks_per_second,
        held_ns: report.held_ns,
        missing: report.missing.iter().map(|hole| Hole { start: hole.start, end: hole.end }).collect(),
    }
}
