//! Builds the status of splits and merges (R17): their progress, and what they wait for.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use nicekv_proto::{NodeId, PartitionId};

use super::{ReshapingPhase, ReshapingStatus};
use crate::decide::reshaping::{self, Obstacle};
use crate::leader::Metadata;
use crate::state::{Forming, Gone, Partition, Reshaping};
use crate::view::Observed;

impl Metadata {
    /// Pending requests in their order, then completed ones whose children are not whole yet.
    pub(super) fn reshapings(&self) -> Vec<ReshapingStatus> {
        let reshapings = self.committed.reshapings.iter().map(|reshaping| self.reshaping_status(reshaping));
        let mut young = BTreeMap::<&[PartitionId], (Vec<PartitionId>, &Gone)>::new();
        for (id, gone) in self.committed.reshaped.iter().filter(|(_, gone)| !gone.quiet) {
            young.entry(&gone.children).or_insert((Vec::new(), gone)).0.push(*id);
        }
        let young = young.into_iter().map(|(children, (parents, gone))| ReshapingStatus {
            keyspace: gone.keyspace.0,
            parents: numbers(&parents),
            children: numbers(children),
            phase: ReshapingPhase::Succeeding,
            waits_for: self.young_waits_for(children),
        });
        reshapings.chain(young).collect()
    }

    fn reshaping_status(&self, reshaping: &Reshaping) -> ReshapingStatus {
        let parent = self.committed.partition(reshaping.parents[0]);
        let forming = parent.and_then(|parent| parent.forming.as_ref());
        let children: Vec<_> =
            forming.iter().flat_map(|forming| &forming.children).map(|child| child.partition).collect();
        let (phase, waits_for) = match forming {
            None => (ReshapingPhase::Waiting, self.obstacle(reshaping)),
            Some(Forming { sealed: false, .. }) => {
                (ReshapingPhase::Forming, self.forming_waits_for(reshaping))
            }
            Some(_) => (ReshapingPhase::Sealed, "open ops to be decided".into()),
        };
        let keyspace = parent.map_or(0, |parent| parent.keyspace.0);
        let (parents, children) = (numbers(&reshaping.parents), numbers(&children));
        ReshapingStatus { keyspace, parents, children, phase, waits_for }
    }

    fn obstacle(&self, reshaping: &Reshaping) -> String {
        let Some(obstacle) = reshaping::obstacle(&self.situation(), &self.committed, reshaping) else {
            return "the next step to be persisted".into();
        };
        match obstacle {
            Obstacle::NotWhole(id) => {
                let why = self.committed.partition(id).and_then(|partition| self.unfinished(id, partition));
                format!("partition {id}, {}", why.unwrap_or_else(|| "whose members are changing".into()))
            }
            Obstacle::Moves(id) => format!("partition {id} to move to its target nodes"),
            Obstacle::Young(id) => format!("partition {id}, whose own split or merge is not complete"),
            Obstacle::Full(id) => format!("disk space on the nodes of partition {id}"),
            Obstacle::BrokenOff => "a delay after it was broken off".into(),
            Obstacle::Apart => "both partitions to have the same members".into(),
            Obstacle::Others => "other splits and merges in progress".into(),
            Obstacle::NoIds => "partition ids, which are exhausted".into(),
        }
    }

    fn forming_waits_for(&self, reshaping: &Reshaping) -> String {
        let (mut members, mut left) = (0, Vec::new());
        for id in &reshaping.parents {
            let Some(parent) = self.committed.partition(*id) else { continue };
            let watch = self.observations.watch(*id);
            for member in &parent.members {
                members += 1;
                if !watch.has_formed(member.node, member.process.incarnation, parent.epoch) {
                    left.push(format!("{} (partition {id})", self.name(member.node)));
                }
            }
        }
        let done = members - left.len();
        format!("{done} of {members} replicas have formed the children; missing: {}", left.join(", "))
    }

    fn young_waits_for(&self, children: &[PartitionId]) -> String {
        let unfinished = |id: &PartitionId| {
            let why = self.unfinished(*id, self.committed.partition(*id)?)?;
            Some(format!("partition {id}, {why}"))
        };
        children.iter().find_map(unfinished).unwrap_or_else(|| "the next step to be persisted".to_string())
    }

    /// A member of a child that has not taken over yet.
    pub(super) fn not_taken_over(&self, id: PartitionId, partition: &Partition) -> Option<NodeId> {
        let view = self.situation().view(id, partition);
        let is_behind = |member: &&crate::state::Member| {
            view.acknowledged(member.node, member.process.incarnation) != partition.epoch
        };
        partition.members.iter().find(is_behind).map(|member| member.node)
    }
}

fn numbers(ids: &[PartitionId]) -> Vec<u32> {
    ids.iter().map(|id| id.0).collect()
}
