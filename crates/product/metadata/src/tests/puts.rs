//! Interactions among nodes, which take no time in this model: puts and copies. The data of a
//! partition are the number of its last put.

use nicekv_proto::control::MemberState;
use nicekv_proto::{NodeId, PartitionId};

use super::cluster::{Cluster, pair};

impl Cluster {
    /// Joiners copy from the primary once all members are in the epoch (R7).
    pub(super) fn copy(&mut self) {
        for partition in self.ids() {
            for id in self.node_ids() {
                let Some((assign, me)) = self.nodes[&id].epoch(partition) else { continue };
                let led = self.nodes[&assign.primary].epoch(partition).map(|(led, _)| led.epoch);
                let in_place = led == Some(assign.epoch) && self.is_assembled(partition, assign.primary);
                if me.state != MemberState::Joining || !in_place {
                    continue;
                }
                let (epoch, value) = (assign.epoch, self.nodes[&assign.primary].value(partition));
                let node = self.nodes.get_mut(&id).unwrap();
                node.values.insert(partition, value);
                node.running.as_mut().unwrap().copied.insert(partition, epoch);
            }
        }
    }

    /// Members form the assigned children, at random times (R17).
    pub(super) fn form(&mut self) {
        for partition in self.ids().into_iter().filter(|_| self.forms).collect::<Vec<_>>() {
            for id in self.node_ids() {
                let is_asked = self.nodes[&id].epoch(partition).is_some_and(|(known, me)| {
                    !known.children.is_empty() && me.state == MemberState::Consistent
                });
                if is_asked && self.random.below(20) == 0 {
                    self.nodes.get_mut(&id).unwrap().form(partition);
                }
            }
        }
    }

    /// One put to each partition whose primary can complete it.
    pub(super) fn put(&mut self) {
        for partition in self.ids() {
            for primary in self.node_ids() {
                let Some((assign, _)) = self.nodes[&primary].epoch(partition) else { continue };
                let has_enough =
                    assign.members.len() >= usize::from(assign.replicas).saturating_sub(1).max(1);
                let leads = assign.primary == primary && assign.activated && has_enough;
                if !leads || !self.is_assembled(partition, primary) {
                    continue;
                }
                if assign.sealed {
                    let epoch = assign.epoch;
                    if self.drains {
                        self.nodes.get_mut(&primary).unwrap().drain(partition, epoch);
                    }
                    continue;
                }
                let members: Vec<_> = assign.members.iter().map(|member| member.node).collect();
                let epoch = assign.epoch;
                self.puts += 1;
                self.acknowledged.insert(partition, self.puts);
                for member in members {
                    let node = self.nodes.get_mut(&member).unwrap();
                    node.values.insert(partition, self.puts);
                    node.logged.insert(partition, epoch);
                }
            }
        }
    }

    /// Whether all members of the primary's epoch are in that epoch, and can communicate with the
    /// primary.
    fn is_assembled(&self, partition: PartitionId, primary: NodeId) -> bool {
        let Some((epoch, _)) = self.nodes[&primary].epoch(partition) else { return false };
        epoch.members.iter().all(|member| {
            let known = self.nodes[&member.node].epoch(partition);
            known.is_some_and(|(known, _)| known.epoch == epoch.epoch)
                && !self.apart.contains(&pair(member.node, primary))
        })
    }
}
