//! How the frames of a chunk go: once to all that were chosen, or to one after the other (Replicast-M, Replicast-H).

use super::shared::Shared;
use crate::reservation::{Config, Delivery as How, Window};
use alloc::vec::Vec;
use nicekv_proto::chunk::{ChunkAccept, ChunkId, frame_of};
use nicekv_proto::large::{Chunk, RECEIVERS_ALL, TransferReport};
use nicekv_proto::limits::CHUNK_BYTES;
use nicekv_proto::{KeyDigest, KeyspaceId};
use nicekv_transport::{CHUNKS_PER_SECOND_MAX, Event, Report, Sender, SenderConfig, Transmit};

/// Frames that leave together, at most: as a train they cost hosts and switches little more than one does, and a link holds so many in a queue.
const TRAIN_FRAMES: u32 = 16;
const SECOND_NS: u64 = 1_000_000_000;

/// A rendezvous transfer: to whom, and when.
#[derive(Clone, Debug)]
pub(super) struct Delivery {
    window: Window,
    sender: Sender,
    frames: u32,
    /// A second, as windows are made for them.
    frames_per_second: u32,
    /// All before have left.
    next: u32,
    is_over: bool,
}

impl Delivery {
    /// Those of a chunk that goes to these places, in these windows: one for all where they share it.
    pub(super) fn of(config: &Config, frames: u32, picks: &[(u8, Window)]) -> Vec<Self> {
        let new = |window: Window, mask: u16| {
            let per_second = config.data_bits_per_second / 8 / CHUNK_BYTES as u64;
            let chunks_per_second = per_second.min(CHUNKS_PER_SECOND_MAX.into()) as u32;
            // Receivers have memory for all of it.
            let transfer = SenderConfig { chunks: frames, first_flight: frames, chunks_per_second };
            let mut sender = Sender::new(window.left_ns, transfer);
            sender.set_members(window.left_ns, mask, mask.count_ones() as usize);
            let frames_per_second = chunks_per_second;
            Self { window, sender, frames, frames_per_second, next: 0, is_over: false }
        };
        match config.delivery {
            How::Multicast => {
                let mask = picks.iter().fold(0, |mask, (place, _)| mask | 1 << place);
                picks.first().map(|(_, window)| new(*window, mask)).into_iter().collect()
            }
            How::Unicast => picks.iter().map(|(place, window)| new(*window, 1 << place)).collect(),
        }
    }

    /// A target has said how it ended, or cannot take it.
    pub(super) fn leave_out(&mut self, place: u8) {
        self.sender.drop_member(place);
    }

    /// Whether the link is free of it, repairs apart.
    pub(super) fn has_left(&self) -> bool {
        self.next == self.frames || self.is_over
    }

    /// A target lacks some. Nothing is sent faster than the window is made for.
    pub(super) fn on_report(&mut self, now_ns: u64, place: u8, said: &TransferReport) {
        let report = Report {
            prefix: said.prefix,
            end: said.end,
            limit: said.limit,
            arrived: said.arrived,
            asked: said.asked,
            held_ns: said.held_ns,
            chunks_per_second: match said.chunks_per_second {
                0 => self.frames_per_second,
                bound => bound.min(self.frames_per_second),
            },
            missing: said.missing.iter().map(|hole| hole.start..hole.end).collect(),
        };
        self.sender.handle_report(now_ns, place, &report);
    }

    /// When the last of the next train is due.
    pub(super) fn next_deadline(&self) -> u64 {
        let others = (self.frames - self.next).min(TRAIN_FRAMES).saturating_sub(1);
        let train_ns = SECOND_NS * u64::from(others) / u64::from(self.frames_per_second.max(1));
        self.sender.next_deadline().max(self.window.left_ns).saturating_add(train_ns)
    }

    /// Sends what may leave now, if anything: a frame, or the accept once more, which asks what is there.
    pub(super) fn poll(
        &mut self,
        now_ns: u64,
        (id, chunk): (&ChunkId, &[u8]),
        accept: &ChunkAccept,
        shared: &mut Shared,
    ) {
        if now_ns < self.window.left_ns {
            return;
        }
        while let Some(event) = self.sender.poll_event() {
            self.is_over |= matches!(event, Event::Finished | Event::NoAnswer);
        }
        let Some(transmit) = self.sender.poll_transmit(now_ns) else { return };
        let (number, mask) = match transmit {
            Transmit::Multicast(number, mask) => {
                self.next = self.next.max(number + 1);
                (number, mask)
            }
            Transmit::Unicast(number, place) => {
                shared.counters.repairs += 1;
                (number, 1 << place)
            }
            Transmit::Probe(mask) => {
                shared.counters.probes += 1;
                return shared.send(id, mask, |out| accept.encode(out));
            }
        };
        let Some((start, length)) = frame_of(chunk.len() as u32, number) else { return };
        shared.counters.frames += 1;
        let frame = Chunk {
            keyspace: KeyspaceId::DEFAULT,
            op: accept.op,
            digest: KeyDigest::default(),
            number,
            mask: RECEIVERS_ALL,
            bytes: &chunk[start as usize..][..length as usize],
        };
        shared.send(id, mask, |out| frame.encode(out));
    }
}
