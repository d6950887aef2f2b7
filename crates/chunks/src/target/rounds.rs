//! Garbage collection at a target (P7, P8).
//!
//! ```text
//!   round g is told ──▶ all that is stored or confirmed from now on has stamp g
//!   marks of g, by each partition of names, page by page ──▶ noted at what is held
//!   all partitions have sent their last page ──▶ what has a stamp below g, and no mark of g, is deleted
//! ```

use super::Target;
use super::state::Marking;
use super::told::{Held, Storage};
use crate::plant::Plant;
use alloc::vec::Vec;
use nicekv_wire::PartitionId;
use nicekv_wire::chunk::{ChunkId, Round};

impl Target {
    /// The round is this one; an older one changes nothing. A target that has begun anew has all that it holds stamped with the round that it is told, as it does not know of later stamps (P8).
    pub fn set_round(&mut self, round: Round) {
        if self.round.is_none() && self.plant != Some(Plant::RestartForgetsStamps) {
            self.held.values_mut().for_each(|held| held.stamp = round);
        }
        self.round = self.round.max(Some(round));
    }

    /// The round that it goes by.
    pub fn round(&self) -> Option<Round> {
        self.round
    }

    /// Marks of a round are going to come, from these partitions.
    pub fn expect_marks(&mut self, round: Round, partitions: impl IntoIterator<Item = PartitionId>) {
        if self.round != Some(round) || self.marking.as_ref().is_some_and(|known| known.round >= round) {
            return;
        }
        let open = partitions.into_iter().map(|partition| (partition, 0)).collect();
        self.marking = Some(Marking { round, open });
    }

    /// A page of marks: of all live manifests of a partition, whose chunks lie in this target's group. Returns the page that is to come next, none if these marks are not expected: who sends
    /// them goes on from there. The last one ends the partition's part of the round.
    pub fn handle_marks(
        &mut self,
        round: Round,
        partition: PartitionId,
        page: u32,
        ids: &[ChunkId],
        is_last: bool,
    ) -> Option<u32> {
        let marking = self.marking.as_mut().filter(|marking| marking.round == round)?;
        let Some(next) = marking.open.get_mut(&partition) else {
            // All were here before; the answer was lost.
            return Some(u32::MAX);
        };
        if page != *next {
            return Some(*next);
        }
        *next += 1;
        let next = *next;
        for id in ids {
            if let Some(held) = self.held.get_mut(id) {
                held.marked = round;
            }
        }
        if is_last {
            marking.open.remove(&partition);
        }
        let is_early = self.plant == Some(Plant::SweptBeforeAllMarks) && is_last;
        if marking.open.is_empty() || is_early {
            self.sweep(round);
        }
        Some(if is_last { u32::MAX } else { next })
    }

    /// The round whose marks come, and which pages are the next ones.
    #[cfg(any(test, feature = "exploration"))]
    pub(crate) fn open_marks(&self) -> Option<(Round, Vec<(PartitionId, u32)>)> {
        let marking = self.marking.as_ref()?;
        Some((marking.round, marking.open.iter().map(|(partition, page)| (*partition, *page)).collect()))
    }

    fn sweep(&mut self, round: Round) {
        let dead = |held: &Held| held.stamp < round && held.marked < round;
        let ids: Vec<ChunkId> = self.held.iter().filter(|(_, held)| dead(held)).map(|(id, _)| *id).collect();
        for id in ids {
            self.held.remove(&id);
            self.counters.collected += 1;
            self.storage.push_back(Storage::Remove { id });
        }
    }
}
