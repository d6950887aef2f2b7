//! Gets: the holders of a chunk report their backlog, and one of them sends it (Replicast §II-C).
//! There are no windows, as an initiator gets one chunk at a time.

use super::control::ANSWER_TIMEOUT_NS;
use super::simulation::{Chunk, Event, Simulation, Target};
use crate::replicast_sim::setup::REPLICAS;

/// With losses, a get is repeated after this time plus this number of disk reads: longer than any
/// that was not lost takes.
const MISSED_NS: u64 = 2_000_000;
const MISSED_READS: u64 = 8;

impl Simulation<'_> {
    /// Requests a chunk from a group, three of whose members hold it.
    pub(super) fn get(&mut self, chunk: Chunk) {
        let (now_ns, hop_ns, members) = (self.events.now_ns(), self.config.hop_ns(), self.members(chunk.who));
        let mut holders: Vec<u16> = members.collect();
        while holders.len() > REPLICAS {
            let at = self.random.below(holders.len() as u32);
            holders.swap_remove(at as usize);
        }
        self.initiator(chunk.who).holders = holders;
        self.events.enter(now_ns + hop_ns, Event::GetRequest(chunk));
        if self.is_lossy() {
            self.events
                .enter(now_ns + MISSED_NS + MISSED_READS * self.setup.write_ns(), Event::GetMissed(chunk));
        }
    }

    /// Holders bid; the initiator accepts the earliest bid.
    pub(super) fn get_request(&mut self, chunk: Chunk) {
        let (now_ns, hop_ns) = (self.events.now_ns(), self.config.hop_ns());
        let Some(initiator) = self.at(chunk) else { return };
        let holders = initiator.holders.clone();
        // Either the request or the bid may be lost.
        let bidders: Vec<u16> = holders.iter().copied().filter(|_| !self.loses() && !self.loses()).collect();
        let queued = |target: &u16| self.targets[usize::from(*target)].disk.backlog(now_ns).queued_ns;
        let Some(target) = bidders.iter().copied().min_by_key(queued) else { return };
        let timeout_ns = if bidders.len() < holders.len() { ANSWER_TIMEOUT_NS } else { 0 };
        if !self.loses() {
            self.events.enter(now_ns + 2 * hop_ns + timeout_ns, Event::GetAccept { chunk, target });
        }
    }

    pub(super) fn get_accept(&mut self, chunk: Chunk, target: u16) {
        let (now_ns, config, left_bytes) = (self.events.now_ns(), self.config, self.setup.chunk_bytes());
        let Target { disk, egress, .. } = self.target(target);
        let begins_ns = egress.send(now_ns, disk, config.data_ns(left_bytes));
        let at_ns = begins_ns + config.data_ns(left_bytes.min(config.frame_bytes)) + config.trip_ns;
        self.events.enter(at_ns, Event::Part { chunk, left_bytes, is_whole: true });
    }

    /// A frame reaches the initiator.
    pub(super) fn part(&mut self, chunk: Chunk, left_bytes: u32, is_whole: bool) {
        let (now_ns, config) = (self.events.now_ns(), self.config);
        let is_whole = !self.loses() && is_whole;
        let left_bytes = left_bytes.saturating_sub(config.frame_bytes);
        if left_bytes > 0 {
            let at_ns = now_ns + config.data_ns(left_bytes.min(config.frame_bytes));
            self.events.enter(at_ns, Event::Part { chunk, left_bytes, is_whole });
            return;
        }
        if let Some(begun_ns) = self.at(chunk).filter(|_| is_whole).map(|initiator| initiator.begun_ns) {
            self.metrics.done(now_ns, begun_ns);
            self.begin(chunk.who);
        }
    }

    pub(super) fn get_missed(&mut self, chunk: Chunk) {
        let Some(initiator) = self.at(chunk) else { return };
        // Frames of the old attempt are ignored.
        initiator.chunk += 1;
        let number = initiator.chunk;
        self.metrics.missed += 1;
        self.get(Chunk { number, ..chunk });
    }
}
