//! What comes of a chunk, and what is said of it.

use super::Target;
use super::told::{End, Held, Storage};
use super::transfer::Transfer;
use crate::transmit::{Destination, Transmit};
use alloc::vec::Vec;
use nicekv_proto::chunk::{Answer, Round, frame_of};
use nicekv_proto::large::{Chunk, Hole, TransferReport};
use nicekv_proto::{Epoch, NodeId, OpId, PartitionId, Status};
use nicekv_transport::{Received, Report};

impl Target {
    pub(super) fn on_frame(&mut self, now_ns: u64, frame: &Chunk<'_>) {
        let transfer = self.transfers.get_mut(&frame.op).filter(|transfer| !transfer.is_ending);
        let Some(transfer) = transfer else {
            // Of what has lapsed, or is complete.
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
                self.storage.push_back(Storage::Write { op: frame.op, offset, bytes });
            }
            Received::Duplicate => self.counters.frames_known += 1,
            // The window is as long as the chunk.
            Received::Refused(_) => self.counters.frames_refused += 1,
        }
        if transfer.receiver.is_complete() {
            transfer.is_ending = true;
            // The link is free, and memory is the disk's.
            let was_promised = self.book.finish(transfer.bid);
            debug_assert!(was_promised.is_ok(), "{was_promised:?}");
            self.disk.queued(now_ns, transfer.bytes);
            self.storage.push_back(Storage::Finish { op: frame.op });
        }
        self.report(now_ns);
    }

    /// Says what is missing, and what was asked for.
    pub(super) fn report(&mut self, now_ns: u64) {
        for (op, transfer) in &mut self.transfers {
            if transfer.next_report_ns() > now_ns && !transfer.is_ending {
                continue;
            }
            let Some(report) = transfer.poll_report(now_ns) else { continue };
            self.counters.frames_missing +=
                report.missing.iter().map(|hole| u64::from(hole.end - hole.start)).sum::<u64>();
            let mut bytes = Vec::new();
            wired(*op, self.config.node, &report).encode(&mut bytes);
            self.sends.push_back(Transmit { to: Destination::Host(transfer.initiator), bytes });
        }
    }

    /// The disk has looked at a chunk that has come.
    pub(super) fn on_finished(&mut self, now_ns: u64, op: OpId, end: End) {
        let Some(transfer) = self.transfers.get(&op) else { return };
        let (id, bytes) = (transfer.id, transfer.bytes);
        self.disk.finished(now_ns, bytes);
        match end {
            // Groups have changed meanwhile, and nobody counts it.
            End::Whole if self.own_place(&id).is_none() => self.storage.push_back(Storage::Remove { id }),
            End::Whole => {
                self.counters.stored += 1;
                self.disk.used(bytes);
                let (stamp, marked) = (self.round.unwrap_or_default(), Round(0));
                let holders = transfer.holders.clone();
                self.held_bytes += u64::from(bytes);
                self.held.insert(id, Held { bytes, stamp, marked, holders });
                let stored = self.stored();
                self.say(op, stored);
            }
            End::Wrong => {
                self.counters.wrong += 1;
                self.say(op, Answer::Wrong);
            }
            End::NoRoom => {
                self.counters.disk_full += 1;
                self.say(op, Answer::NoSpace);
            }
        }
        self.disk.release(bytes);
        self.transfers.remove(&op);
        self.arriving.remove(&id);
    }

    /// To the initiator of a transfer.
    fn say(&mut self, op: OpId, answer: Answer) {
        let Some(Transfer { id, initiator, .. }) = self.transfers.get(&op) else { return };
        let (id, to) = (*id, *initiator);
        let place = self.own_place(&id);
        // Who is of the group no more still tells: the map's version says that it does not count.
        self.answer(to, op, place.unwrap_or(u8::MAX), id, answer);
    }
}

fn wired(op: OpId, sender: NodeId, report: &Report) -> TransferReport {
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
