//! Sends the frames of a chunk: once to all chosen targets, or to one after the other (Replicast-M, Replicast-H).

use super::shared::Shared;
use crate::reservation::{Config, Delivery as How, Window};
use alloc::vec::Vec;
use nicekv_proto::chunk::{ChunkAccept, ChunkId, frame_of};
use nicekv_proto::large::{Chunk, RECEIVERS_ALL, TransferReport};
use nicekv_proto::limits::CHUNK_BYTES;
use nicekv_proto::{KeyDigest, KeyspaceId};
use nicekv_transport::{CHUNKS_PER_SECOND_MAX, Event, Report, Sender, SenderConfig, Transmit};

/// Frames in a GSO batch: it costs hosts and switches little more than one frame, and fits into a link's queue.
const BATCH_FRAMES: u32 = 16;
const SECOND_NS: u64 = 1_000_000_000;

/// A transfer to one or more targets in one window.
#[derive(Clone, Debug)]
pub(super) struct Delivery {
    window: Window,
    sender: Sender,
    frames: u32,
    /// The frame rate for which the window is sized.
    frames_per_second: u32,
    /// The first frame that was not sent yet.
    next: u32,
    is_over: bool,
}

impl Delivery {
    /// The deliveries of a chunk to these places in these windows; with multicast, a single one.
    pub(super) fn of(config: &Config, frames: u32, picks: &[(u8, Window)]) -> Vec<Self> {
        let new = |window: Window, mask: u16| {
            let per_second = config.data_bits_per_second / 8 / CHUNK_BYTES as u64;
            let chunks_per_second = per_second.min(CHUNKS_PER_SECOND_MAX.into()) as u32;
            // Receivers have memory for the whole chunk.
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

    /// Removes a target that has acknowledged, or cannot take the chunk.
    pub(super) fn drop_target(&mut self, place: u8) {
        self.sender.drop_member(place);
    }

    /// Whether all frames were sent, except for repairs.
    pub(super) fn has_left(&self) -> bool {
        self.next == self.frames || self.is_over
    }

    /// A target reports which frames it misses. They are not sent faster than the window's rate.
    pub(super) fn on_report(&mut self, now_ns: u64, place: u8, message: &TransferReport) {
        let report = Report {
            prefix: message.prefix,
            end: message.end,
            limit: message.limit,
            arrived: message.arrived,
            asked: message.asked,
            held_ns: message.held_ns,
            chunks_per_second: match message.chunks_per_second {
                0 => self.frames_per_second,
                bound => bound.min(self.frames_per_second),
            },
            missing: message.missing.iter().map(|hole| hole.start..hole.end).collect(),
        };
        self.sender.handle_report(now_ns, place, &report);
    }

    /// When the next GSO batch may be sent.
    pub(super) fn next_deadline(&self) -> u64 {
        let others = (self.frames - self.next).min(BATCH_FRAMES).saturating_sub(1);
        let batch_ns = SECOND_NS * u64::from(others) / u64::from(self.frames_per_second.max(1));
        self.sender.next_deadline().max(self.window.left_ns).saturating_add(batch_ns)
    }

    /// Sends what may leave now: a frame, or the accept again as a probe.
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
