//! Rounds of garbage collection among the chunks of objects (P8). A command begins one here;
//! `decide::rounds` begins one when it is due.
//!
//! ```text
//!   round g is persisted ──▶ each partition of names begins an epoch that carries g, and then refuses stamps below g − 1
//!                        ──▶ all of these are in force: names "have adopted" g ──▶ each target lists all names, marks the chunks that they
//!                            need, and deletes chunks without a mark of g whose stamp is below g − 1
//! ```
//!
//! Targets report their progress when they request the map of groups. Absent targets are not waited
//! for; a target that returns continues with the newest round.

use nicekv_proto::NodeId;

use crate::change::Refused;
use crate::leader::Metadata;
use crate::observe::TargetReport;
use crate::state::ChunkGroups;

impl Metadata {
    /// Begins a round like [`Metadata::change`], and returns its number.
    ///
    /// # Errors
    /// Why the request is refused.
    pub fn collect_chunks(&mut self) -> Result<u64, Refused> {
        self.begin_change(|metadata| {
            metadata.check_begun()?;
            let mut next = metadata.committed.clone();
            let chunks = next.chunks.as_mut().ok_or(Refused::NoNamesOfObjects)?;
            chunks.round += 1;
            Ok((chunks.round, next))
        })
    }

    /// Records a target's report of its progress. Reports of other nodes are ignored.
    pub fn handle_target_report(&mut self, report: &TargetReport) {
        let is_target = |chunks: &ChunkGroups| chunks.has(NodeId(report.node));
        if self.committed.chunks.as_ref().is_some_and(is_target) {
            self.observations.chunks.note(report);
        }
    }
}
