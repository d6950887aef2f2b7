//! Frames and acknowledgements.

use super::simulation::{Chunk, Event, Simulation, Target, Transfer};
use crate::replicast_sim::setup::REPLICAS;

impl Simulation<'_> {
    /// Sends a frame, and schedules the next one for when this one has left.
    pub(super) fn send(&mut self, chunk: Chunk, transfer: u8) {
        let (now_ns, config, bytes) = (self.events.now_ns(), self.config, self.setup.chunk_bytes());
        let Some(initiator) = self.at(chunk) else { return };
        let sending = &mut initiator.transfers[usize::from(transfer)];
        let frame_bytes = config.frame_bytes.min(bytes - sending.sent_bytes);
        sending.sent_bytes += frame_bytes;
        let is_last = sending.sent_bytes == bytes;
        let sent_ns = now_ns + config.data_ns(frame_bytes);
        self.events.enter(sent_ns + config.trip_ns, Event::Frame { chunk, transfer, bytes: frame_bytes });
        if !is_last {
            self.events.enter(sent_ns, Event::Send { chunk, transfer });
        }
    }

    /// A frame reaches its targets, which write the chunk when it is complete.
    pub(super) fn frame(&mut self, chunk: Chunk, transfer: u8, bytes: u32) {
        let (now_ns, hop_ns, chunk_bytes) =
            (self.events.now_ns(), self.config.hop_ns(), self.setup.chunk_bytes());
        let Some(initiator) = self.at(chunk) else { return };
        let Transfer { first, count, .. } = initiator.transfers[usize::from(transfer)];
        for number in first..first + count {
            if self.loses() {
                continue;
            }
            let delivery = &mut self.initiators[usize::from(chunk.who)].deliveries[usize::from(number)];
            // A target that does not know that it was chosen drops it.
            delivery.received_bytes += if delivery.is_known { bytes } else { 0 };
            if delivery.received_bytes < chunk_bytes || delivery.written_ns.is_some() {
                continue;
            }
            let Target { book, disk, .. } = &mut self.targets[usize::from(delivery.target)];
            let finished = book.finish(delivery.id);
            let written_ns = disk.queue(now_ns);
            delivery.written_ns = Some(written_ns);
            assert!(finished.is_ok() || self.is_lossy(), "{finished:?}");
            if !self.loses() {
                self.events.enter(written_ns + hop_ns, Event::Ack { chunk, delivery: number });
            }
        }
    }

    pub(super) fn ack(&mut self, chunk: Chunk, delivery: u8) {
        let now_ns = self.events.now_ns();
        let Some(initiator) = self.at(chunk) else { return };
        initiator.deliveries[usize::from(delivery)].is_acked = true;
        if initiator.deliveries.iter().filter(|delivery| delivery.is_acked).count() >= REPLICAS {
            let begun_ns = initiator.begun_ns;
            self.metrics.done(now_ns, begun_ns);
            self.begin(chunk.who);
        }
    }
}
