//! Disks are lost at random, or replaced by an earlier copy of themselves (docs/FAULTS.md rows 36
//! and 37).
//!
//! A loss is drawn only while all replicas are complete, and at least one replica of each partition
//! keeps its disk. Until the others are complete again, that replica stays up, and only datagrams
//! and switches fail: data that all live members have lost cannot be recovered.

use super::Cluster;
use crate::faults::Faults;
use crate::keyspace::Shape;
use crate::node::{Kept, Node};
use nicekv_metadata::MemberStanding;
use nicekv_proto::PartitionId;
use nicekv_replica::Standing;

/// Minimum age of a disk that is put back in a run with quorum keyspaces. The metadata service
/// persists a replica's progress every 500 ms; the loss of anything newer cannot be detected.
const REMEMBERED_NS: u64 = 1_000_000_000;
/// Rate of disk snapshots, per million events of a node.
const SNAPSHOTS: u64 = 5_000;
/// Maximum rate of lost datagrams until lost data is restored, per million.
const LOSS_MAX: u64 = 10_000;
/// Maximum delay of datagrams until lost data is restored.
const DELAY_MAX_NS: u64 = 2_000_001;

impl Cluster {
    /// Draws what a crash leaves on the disk of a node.
    pub(super) fn draw_loss(&mut self, node: usize) -> Kept {
        if !self.loses_disks() || self.nodes[node].in_memory || self.most_losses() == 0 {
            return Kept::Any;
        }
        let Some(kept) = self.draw_kept(node) else { return Kept::Any };
        self.begin_losses();
        kept
    }

    /// Draws the nodes that lose synced data when all power is lost, and what is left of each disk.
    pub(super) fn draw_losses(&mut self) -> Vec<(usize, Kept)> {
        let most = if self.loses_disks() { self.most_losses() } else { 0 };
        if most == 0 {
            return Vec::new();
        }
        let (first, count) = (self.random.below(self.nodes.len() as u64) as usize, self.nodes.len());
        let mut losses = Vec::new();
        for node in (first..first + count).map(|node| node % count) {
            if losses.len() < most
                && let Some(kept) = self.draw_kept(node)
            {
                losses.push((node, kept));
            }
        }
        if !losses.is_empty() {
            self.begin_losses();
        }
        losses
    }

    /// Takes a snapshot of a node's disk now and then, if old disks are put back in this run.
    pub(super) fn draw_snapshot(&mut self, node: usize) {
        if self.faults.disk_older > 0 && self.random.chance(SNAPSHOTS) {
            let now_ns = self.queue.now_ns();
            self.nodes[node].take_snapshot(now_ns);
        }
    }

    /// Restores the drawn fault rates once all nodes are known to hold everything.
    pub(super) fn look_at_losses(&mut self) {
        const LOOKED_EVERY: u64 = 16;
        if let Some(faults) = self.losses
            && self.tally.events.is_multiple_of(LOOKED_EVERY)
            && self.all_hold_everything()
        {
            (self.losses, self.faults) = (None, faults);
            self.note(|_| Some("all data that disks had lost is restored".into()));
        }
    }

    fn loses_disks(&self) -> bool {
        self.faults.disk_lost > 0 || self.faults.disk_older > 0
    }

    fn begin_losses(&mut self) {
        self.losses = Some(self.faults);
        let Faults { loss, delay_max_ns, .. } = self.faults;
        (self.faults.loss, self.faults.delay_max_ns) = (loss.min(LOSS_MAX), delay_max_ns.min(DELAY_MAX_NS));
    }

    fn draw_kept(&mut self, node: usize) -> Option<Kept> {
        if self.random.chance(self.faults.disk_lost) {
            self.tally.count("disks lost");
            return Some(Kept::NoDisk);
        }
        let is_older = self.random.chance(self.faults.disk_older);
        let now_ns = self.queue.now_ns();
        let apart_ns = if self.shapes().any(|shape| shape.is_quorum()) { REMEMBERED_NS } else { 0 };
        let snapshot_ns = self.nodes[node].snapshot_ns().filter(|at_ns| at_ns + apart_ns <= now_ns);
        (is_older && snapshot_ns.is_some()).then(|| {
            self.tally.count("older disks put back");
            Kept::Snapshot
        })
    }

    fn shapes(&self) -> impl Iterator<Item = Shape> {
        let created = self.created.there().map(|(number, _)| self.shape(number));
        self.scenario.keyspaces.iter().copied().chain(created)
    }

    /// How many disks may be lost now.
    fn most_losses(&self) -> usize {
        let most = |shape: Shape| match shape.write_set {
            Some(write_set) => usize::from(write_set > 1),
            None => shape.replicas - 1,
        };
        let most = self.shapes().map(most).min().unwrap_or(0);
        if most > 0 && self.all_hold_everything() { most } else { 0 }
    }

    /// Whether every replica is up and complete, and the metadata service knows it.
    fn all_hold_everything(&self) -> bool {
        let now_ns = self.queue.now_ns();
        let is_well = |node: &Node| node.core.is_some() && node.paused_until_ns <= now_ns && !node.is_slow;
        if !self.nodes.iter().all(is_well)
            || self.network.has_cuts()
            || self.is_unsettled()
            || self.has_damage()
        {
            return false;
        }
        let Some(metadata) = self.controllers.at_rest(now_ns) else { return false };
        metadata.status().partitions.iter().all(|partition| {
            let holds = |node: u16| {
                let core = self.nodes[usize::from(node) - 1].core.as_ref();
                let status =
                    core.and_then(|core| core.status().partition(PartitionId(partition.id)).copied());
                status.is_some_and(|known| {
                    known.epoch.0 == partition.epoch && known.standing == Standing::Consistent && known.proven
                })
            };
            partition.members.len() == self.shape(partition.keyspace).replicas
                && partition.members.iter().all(|member| {
                    let is_known =
                        matches!(member.standing, MemberStanding::Promoted | MemberStanding::Serving);
                    is_known && holds(member.node)
                })
        })
    }
}
