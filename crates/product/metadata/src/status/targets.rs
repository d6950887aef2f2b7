//! Builds the status of chunks from the persisted state and from what targets report.

use alloc::vec::Vec;

use nicekv_proto::NodeId;

use super::{ChunksStatus, TargetStatus};
use crate::decide::rounds;
use crate::leader::Metadata;

impl Metadata {
    pub(super) fn chunks_status(&self) -> Option<ChunksStatus> {
        let chunks = self.committed.chunks.as_ref()?;
        let target = |group: usize, node: NodeId| TargetStatus {
            name: self.name(node),
            group,
            live: self.observations.membership.live(node).is_some(),
            report: self.observations.chunks.of(node).copied(),
        };
        let groups = 0..chunks.layout.groups.len();
        let targets: Vec<_> = groups
            .flat_map(|group| chunks.layout.members(group).map(move |node| (group, node)))
            .map(|(group, node)| target(group, node))
            .collect();
        let reports = || targets.iter().filter(|target| target.live).filter_map(|target| target.report);
        let under_replicated = reports().map(|report| report.under_replicated).sum();
        let unsettled = reports().map(|report| report.unsettled).sum();
        let is_adopted = rounds::names_have_adopted(&self.situation());
        let (version, round, is_moving) = (chunks.version, chunks.round, chunks.before.is_some());
        Some(ChunksStatus { version, round, is_adopted, is_moving, under_replicated, unsettled, targets })
    }
}
