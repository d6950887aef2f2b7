//! Rounds of garbage collection, driven by the metadata service (P8).
//!
//! ```text
//!   round g is persisted ──▶ targets are notified
//!                        ──▶ each partition of names adopts it ──▶ when all have: each target lists all names,
//!                            page by page, and deletes chunks that no name refers to
//! ```

use super::names::PARTITIONS;
use super::world::{Event, MS, World};
use nicekv_proto::chunk::Round as Number;

/// Names per page.
const PAGE: usize = 2;

impl World {
    pub(super) fn next_round(&mut self) {
        if self.is_healed {
            return;
        }
        let round_ms = self.shape.faults.round_ms;
        self.begin_round();
        let at_ns = self.queue.now_ns() + self.random.between(round_ms / 2, 2 * round_ms) * MS;
        self.queue.at(at_ns, Event::NextRound);
    }

    pub(super) fn begin_round(&mut self) {
        self.round = Number(self.round.0 + 1);
        self.report.rounds += 1;
        self.tell_all();
        for partition in 0..PARTITIONS {
            let at_ns = self.queue.now_ns() + self.random.below(8 * MS);
            self.queue.at(at_ns, Event::Adopt { partition, round: self.round });
        }
    }

    pub(super) fn tell(&mut self, target: usize, life: u64) {
        let (map, round, now_ns) = (self.map.clone(), self.round, self.queue.now_ns());
        let host = &mut self.targets[target];
        let Some(core) = host.core.as_mut().filter(|_| host.life == life) else { return };
        core.set_map(now_ns, (*map).clone());
        core.set_round(round);
        let is_swept = core.swept() == round;
        if self.names.have_adopted(round) && !is_swept {
            let at_ns = self.queue.now_ns() + self.random.below(self.shape.listing_ms * MS);
            self.queue.at(at_ns, Event::List { target, life, round, after: None });
        }
        self.drain_target(target);
    }

    pub(super) fn adopt(&mut self, partition: u64, round: Number) {
        self.names.adopt(partition, round);
        if self.names.have_adopted(round) {
            self.tell_all();
        }
    }

    /// A target reads a page of the names as they are now.
    pub(super) fn list(&mut self, (target, life): (usize, u64), round: Number, after: Option<u64>) {
        let page = self.names.page(after, PAGE);
        let ids: Vec<_> = page.iter().flat_map(|(_, ids)| ids.iter().copied()).collect();
        let host = &mut self.targets[target];
        let Some(core) = host.core.as_mut().filter(|_| host.life == life) else { return };
        if !core.mark(round, &ids) {
            return;
        }
        match page.last() {
            Some((name, _)) => {
                let at_ns = self.queue.now_ns() + self.random.below(MS);
                self.queue.at(at_ns, Event::List { target, life, round, after: Some(*name) });
            }
            None => while !core.sweep(round) {},
        }
        self.drain_target(target);
    }
}
