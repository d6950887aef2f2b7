//! Rounds of garbage collection among the chunks of objects (P8): begun here, by command or when it is time.
//!
//! ```text
//!   round g is persisted ──▶ each partition of names begins an epoch that carries g: from then on it refuses stamps below g
//!                        ──▶ all of these are in force: names "have adopted" g ──▶ each target lists all names, marks what they need, and deletes what has neither mark nor stamp of g
//! ```
//!
//! Targets ask what there is to know, and say with that how far they are; nothing waits for one that is away: it goes by the newest round when it is back.

use nicekv_wire::NodeId;

use crate::change::Refused;
use crate::leader::Metadata;
use crate::observations::TargetReport;
use crate::plant::Plant;
use crate::state::{ChunkGroups, Partition};
use crate::view::{Situation, all_acknowledged};

impl Metadata {
    /// Begins a round, which is returned; as [`Metadata::change`].
    ///
    /// # Errors
    /// Why it is refused.
    pub fn collect_chunks(&mut self) -> Result<u64, Refused> {
        self.begin_change(|metadata| {
            metadata.check_begun()?;
            let mut next = metadata.committed.clone();
            let chunks = next.chunks.as_mut().ok_or(Refused::NoNamesOfObjects)?;
            chunks.round += 1;
            Ok((chunks.round, next))
        })
    }

    /// A target says how far it is. Whatever is no target says nothing.
    pub fn handle_target_report(&mut self, report: &TargetReport) {
        let is_target = |chunks: &ChunkGroups| chunks.has(NodeId(report.node));
        if self.committed.chunks.as_ref().is_some_and(is_target) {
            self.observations.chunks.note(report);
        }
    }
}

/// Whether a round begins by itself.
pub(crate) fn is_due(situation: &Situation<'_>) -> bool {
    let Situation { config, state, observations, now_ns, .. } = situation;
    let interval = config.timing.collect_interval.filter(|_| state.chunks.is_some());
    interval.is_some_and(|interval| observations.chunks.has_lasted(*now_ns, interval))
}

/// Whether every partition of names goes by the newest round, and nobody decides by an older one any more: whatever is decided from now on has its stamp, and what was decided
/// before shows when names are listed.
pub(crate) fn names_have_adopted(situation: &Situation<'_>) -> bool {
    let state = situation.state;
    if situation.observations.has(Plant::AdoptedUnheard) {
        return true;
    }
    state.partitions().all(|(id, partition): (_, &Partition)| {
        let is_in_force = || {
            partition.activated
                && partition.parents.is_empty()
                && all_acknowledged(partition, &situation.view(id, partition))
        };
        let newest = state.round_of(partition.keyspace);
        newest == 0 || (partition.round == newest && is_in_force())
    })
}
