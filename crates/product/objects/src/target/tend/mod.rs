//! A target looks after what it holds, one chunk after the other, for ever (P11, P12, P13).
//!
//! ```text
//!   of its group     (read)─▶ counted ─┬─ R hold it ─▶ well
//!                       │              ├─ fewer, and this is the first of them ─▶ read, and put again
//!                       │              └─ R that are before this one ─▶ they confirm it ─▶ dropped
//!                       ▼ not what it is: dropped
//!   not of its group  read ─▶ put to that group, until R have said "stored" ─▶ the slot moves: kept, has moved     else: dropped
//! ```
//!
//! To count is to ask as a reader does, and changes nothing; to put or to confirm has everybody stamp the chunk. What is to be done is done only when it was found several times in a row: a chunk that is being put is held by few for a
//! moment, and a reader who has asked some targets before they had a chunk must not find that the others have dropped it meanwhile.
//!
//! Invariants:
//! - A copy is dropped only when R targets that are *before* this one have confirmed it, with stamps not below its own: whoever relies on this copy, by a manifest with its stamp, relies on theirs from then on. That R others hold
//!   it is not enough: each of two might rely on the other. Who is not of the chunk's group is behind all who are.
//! - While a slot moves nothing of it is dropped: readers ask the former members last.
//! - What garbage collection has not decided about is not put again by members, or it would be for ever.
//!
//! What is sent for that is an initiator's, whose datagrams come and go by the target's socket. `agenda`: which chunk is next; `verdict`: what is to be done with it; `silence`, `pace`: whom not to wait for, and
//! how fast; `steps`: what a chunk goes through.

mod agenda;
mod pace;
mod silence;
mod steps;
mod verdict;

use super::Target;
use super::told::{MaintenanceConfig, Progress};
use crate::initiator::{Handle, Initiator, InitiatorConfig};
use crate::reservation::{Config, ConfigError};
use crate::transmit::Transmit;
use agenda::{Agenda, Finding};
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use nicekv_proto::chunk::ChunkId;
use nicekv_proto::{Datagram, OpId};
use pace::Pace;
use silence::Silence;

/// What is being done with a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// It is read through.
    Scrubbing,
    /// Members are asked who holds it.
    Counting(Handle),
    /// It is read, to be put.
    Fetching,
    /// It is put.
    Putting(Handle),
    /// Those before this target are asked to confirm it.
    Confirming(Handle),
}

#[derive(Clone, Copy, Debug)]
struct Job {
    id: ChunkId,
    is_of_pass: bool,
    step: Step,
}

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Maintenance {
    config: MaintenanceConfig,
    initiator: Initiator,
    agenda: Agenda,
    pace: Pace,
    silence: Silence,
    jobs: Vec<Job>,
    /// Held, and neither is this target of the chunk's group nor have enough of those that are confirmed it since the map is this one.
    away: BTreeSet<ChunkId>,
}

impl Maintenance {
    pub(super) fn new(
        config: MaintenanceConfig,
        reservation: Config,
        seed: u64,
    ) -> Result<Self, ConfigError> {
        let MaintenanceConfig { client, copies, timing, .. } = config;
        let initiator = Initiator::new(InitiatorConfig { client, copies, reservation, timing }, seed)?;
        Ok(Self {
            initiator,
            agenda: Agenda::new(config.pass_ns),
            pace: Pace::new(config.chunks_per_second, config.bytes_per_second),
            silence: Silence::new(config.silence_ns),
            jobs: Vec::new(),
            away: BTreeSet::new(),
            config,
        })
    }

    pub(super) fn poll_transmit(&mut self, now_ns: u64) -> Option<Transmit> {
        self.initiator.poll_transmit(now_ns)
    }

    pub(super) fn set_copies(&mut self, copies: usize) {
        self.config.copies = copies;
        self.initiator.set_copies(copies);
    }

    /// It is not held any more.
    pub(super) fn forget(&mut self, id: &ChunkId) {
        self.agenda.settle(id);
        self.away.remove(id);
    }

    fn next_deadline(&self) -> u64 {
        let mut next_ns = self.initiator.next_deadline();
        if self.jobs.len() < self.config.chunks_at_once {
            next_ns = next_ns.min(self.agenda.next_ns().max(self.pace.next_ns()));
        }
        next_ns
    }
}

impl Target {
    /// Goes on, if there is something to do.
    pub(super) fn tend(&mut self, now_ns: u64) {
        self.with_tending(|maintenance, target| maintenance.go_on(now_ns, target));
    }

    /// An answer to what was asked for that.
    pub(super) fn on_told(&mut self, now_ns: u64, op: OpId, datagram: &Datagram<'_>) {
        if self.maintenance.is_none() {
            self.counters.malformed += 1;
        }
        self.with_tending(|maintenance, target| {
            maintenance.initiator.handle(now_ns, op, datagram);
            maintenance.go_on(now_ns, target);
        });
    }

    /// All of a chunk was read, or it is damaged.
    pub(super) fn on_whole(&mut self, now_ns: u64, id: ChunkId, bytes: Option<Vec<u8>>) {
        self.with_tending(|maintenance, target| {
            maintenance.on_read(now_ns, id, bytes, target);
            maintenance.go_on(now_ns, target);
        });
    }

    /// Groups are others: whatever is under way is given up, and a new pass begins, first with what has lost somebody, or belongs to others now.
    pub(super) fn tend_by_map(&mut self, now_ns: u64) {
        self.with_tending(|maintenance, target| {
            let Some(map) = target.map.clone() else { return };
            let own_group = map.place_of(target.config.node).map(|(group, _)| group);
            let urgent = target.held.iter().filter_map(|(id, held)| {
                let is_away = own_group != Some(map.group_of(id).0);
                let has_lost = held.holders.iter().any(|node| map.place_of(*node).is_none());
                let finding = if is_away { Finding::Away } else { Finding::Unseen };
                (is_away || has_lost).then_some((*id, finding))
            });
            maintenance.agenda.begin_anew(now_ns, urgent);
            let away = target.held.keys().filter(|id| own_group != Some(map.group_of(id).0));
            maintenance.away = away.copied().collect();
            maintenance.silence.retain(|node| map.place_of(node).is_some());
            maintenance.jobs.clear();
            maintenance.initiator.give_up();
            maintenance.initiator.set_map(now_ns, map);
        });
    }

    /// When there is something to do.
    pub(super) fn next_tending(&self) -> u64 {
        let is_ready = self.map.is_some() && self.round.is_some();
        let maintenance = self.maintenance.as_ref().filter(|_| is_ready);
        maintenance.map_or(u64::MAX, Maintenance::next_deadline)
    }

    /// How far it is. Of one that does not look after what it holds, only that.
    pub fn progress(&self) -> Progress {
        let Some(map) = &self.map else { return Progress::default() };
        let mut progress = Progress {
            version: map.version(),
            swept: self.swept(),
            chunks: self.held.len(),
            bytes: self.held_bytes,
            ..Progress::default()
        };
        if let Some(maintenance) = &self.maintenance {
            progress.has_moved = maintenance.away.is_empty();
            progress.passes = maintenance.agenda.passes();
            for finding in maintenance.agenda.findings() {
                match finding {
                    Finding::Lacking { is_first: true } => progress.lacking += 1,
                    Finding::Surplus => {}
                    Finding::Undecided => progress.undecided += 1,
                    _ => progress.unsettled += 1,
                }
            }
        }
        progress
    }

    /// Only who has a map and a round says or asks anything (P14).
    fn with_tending(&mut self, act: impl FnOnce(&mut Maintenance, &mut Self)) {
        if let Some(mut maintenance) = self.maintenance.take() {
            act(&mut maintenance, self);
            self.maintenance = Some(maintenance);
        }
    }
}

#[cfg(test)]
mod tests;
