//! Rounds of garbage collection among the chunks of objects (P8): begun here by command, and by `decide::rounds` when it is time.
//!
//! ```text
//!   round g is persisted ──▶ each partition of names begins an epoch that carries g: from then on it refuses stamps below g − 1
//!                        ──▶ all of these are in force: names "have adopted" g ──▶ each target lists all names, marks what they need, and deletes what has no mark of g and a stamp below g − 1
//! ```
//!
//! Targets ask what there is to know, and say with that how far they are; nothing waits for one that is away: it goes by the newest round when it is back.

use nicekv_proto::NodeId;

use crate::change::Refused;
use crate::leader::Metadata;
use crate::observations::TargetReport;
use crate::state::ChunkGroups;

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
