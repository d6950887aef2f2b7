//! Invariants that are checked after every event.

use std::collections::BTreeMap;

use nicekv_proto::control::Assign;
use nicekv_proto::{Datagram, NodeId, PartitionId};
use nicekv_switch::HostId;
use nicekv_switch::control::ControlRequest;

use super::cluster::Cluster;
use crate::Config;
use crate::state::{Partition, State};

#[derive(Default)]
pub(super) struct Checks {
    primaries: BTreeMap<(PartitionId, u32), NodeId>,
    pub(super) stale_checks: u64,
    pub(super) leases: u64,
}

fn decode(stored: Option<&[u8]>, config: &Config) -> State {
    State::resume(config, stored.expect("no message is sent before the first step is persisted")).unwrap()
}

impl Checks {
    /// R13: a message contains nothing newer than the persisted state.
    pub(super) fn sent(&mut self, datagram: &Datagram<'_>, stored: Option<&[u8]>, config: &Config) {
        let state = decode(stored, config);
        match datagram {
            Datagram::HeartbeatReply(reply) => {
                assert_eq!(reply.term, state.term());
                self.leases += u64::from(reply.lease_ns > 0);
            }
            Datagram::Probe(probe) => assert_eq!(probe.term, state.term()),
            Datagram::Assign(assign) => self.sent_assign(assign, &state),
            Datagram::HotAssign(assign) => assert_eq!(assign.term, state.term()),
            other => panic!("a metadata service does not send {other:?}"),
        }
    }

    fn sent_assign(&mut self, assign: &Assign, state: &State) {
        assert_eq!(assign.term, state.term());
        let Some(partition) = state.partition(assign.partition) else {
            // An assignment without members is for a partition that was dropped, split or merged.
            assert_eq!(Some(assign.epoch.0), state.newest_epoch(assign.partition), "not persisted");
            assert!(assign.members.is_empty());
            return;
        };
        assert!(!assign.discard || partition.is_whole());
        assert_eq!(
            (assign.epoch, assign.activated),
            (partition.epoch(), partition.activated),
            "not persisted"
        );
        let sent = assign.members.iter().map(|member| (member.node, member.state, member.role));
        let persisted = partition.members.iter();
        let persisted =
            persisted.map(|member| (member.node, member.standing.announced(), partition.role(member)));
        assert!(sent.eq(persisted), "{assign:?} differs from the persisted state");
        let forming = partition.forming.as_ref();
        let children = forming.map_or(0, |forming| forming.children.len());
        let shape = (assign.children.len(), assign.sealed, assign.parents.len());
        let sealed = forming.is_some_and(|forming| forming.sealed);
        assert_eq!(shape, (children, sealed, partition.parents.len()), "not persisted");
        let primary = self.primaries.entry((assign.partition, assign.epoch.0)).or_insert(assign.primary);
        assert_eq!(*primary, assign.primary, "two primaries in one epoch");
    }

    /// R13; and the unicast ring names only consistent members of the newest epoch.
    pub(super) fn sent_to_switch(&self, request: &ControlRequest, stored: Option<&[u8]>, config: &Config) {
        let state = decode(stored, config);
        let term = request.term();
        assert_eq!(term, state.term);
        let ControlRequest::Install { tables, .. } = request else { return };
        tables.validate(&config.vrings()).expect("the core sends valid tables");
        let consistent = |partition: u32, host: HostId| {
            let partition = state.partition(PartitionId(partition)).expect("a known partition");
            partition.member(NodeId(host.0)).is_some_and(|member| member.standing.is_consistent())
        };
        assert!(tables.unicast.iter().all(|entry| consistent(entry.partition, entry.host)));
        assert!(tables.division.iter().all(|entry| consistent(entry.partition, entry.host)));
    }

    pub(super) fn persisted(&self, before: Option<&[u8]>, after: &[u8], config: &Config) {
        let after = State::resume(config, after).unwrap();
        let Some(before) = before.map(|bytes| State::resume(config, bytes).unwrap()) else { return };
        assert_eq!(after.version, before.version + 1, "compare and swap");
        assert!(after.term >= before.term);
        let mut given_back = BTreeMap::new();
        for (id, old) in before.partitions() {
            let Some(new) = after.partition(id) else { continue };
            check_step(old, new);
            if old.primary != new.primary && old.members == new.members {
                *given_back.entry(new.primary).or_insert(0) += 1;
            }
        }
        assert!(
            given_back.values().all(|count| *count == 1),
            "a node gets more than one partition back at a time"
        );
    }

    pub(super) fn after_event(&mut self, cluster: &Cluster) {
        for partition in cluster.ids() {
            let newest = newest(cluster, partition);
            for (id, node) in &cluster.nodes {
                if node.answers(partition, cluster.now_ns) && is_led_to(cluster, partition, *id) {
                    self.stale_checks += 1;
                    let value = node.value(partition);
                    assert_eq!(value, newest, "{id} serves a stale value of partition {partition}");
                    // For keys of a child that it holds, the node answers as a member of that
                    // child.
                    let others = children(cluster, partition).filter(|id| !node.values.contains_key(id));
                    let gone_on: Vec<_> = others.filter(|child| has_gone_on(cluster, *child)).collect();
                    assert!(
                        gone_on.is_empty(),
                        "{id} answers for {partition}, but its children {gone_on:?} have newer puts"
                    );
                }
            }
        }
    }
}

fn children(cluster: &Cluster, id: PartitionId) -> impl Iterator<Item = PartitionId> {
    cluster.lineage.iter().filter(move |(_, parents)| parents.contains(&id)).map(|(child, _)| *child)
}

/// The last acknowledged put of a partition or, before its first one, of the partitions that it has
/// replaced.
fn newest(cluster: &Cluster, id: PartitionId) -> u64 {
    let of_parents = || cluster.lineage[&id].iter().map(|parent| newest(cluster, *parent)).max();
    cluster.acknowledged.get(&id).copied().or_else(of_parents).unwrap_or(0)
}

fn has_gone_on(cluster: &Cluster, id: PartitionId) -> bool {
    cluster.acknowledged.contains_key(&id) || children(cluster, id).any(|child| has_gone_on(cluster, child))
}

/// Whether a switch routes any get of the partition, or of a child, to the node. Nodes look at
/// keys, so an entry of a child may lead here.
fn is_led_to(cluster: &Cluster, id: PartitionId, node: NodeId) -> bool {
    cluster.is_routed(id, node) || children(cluster, id).any(|child| is_led_to(cluster, child, node))
}

fn check_step(old: &Partition, new: &Partition) {
    assert!(new.epoch == old.epoch || new.epoch == old.epoch + 1, "epochs rise one by one");
    if new.epoch == old.epoch {
        assert!(new.activated >= old.activated, "an epoch is not deactivated");
        let roles = |partition: &Partition| {
            let members =
                partition.members.iter().map(|member| (member.node, member.standing.is_consistent()));
            (partition.primary, members.collect::<Vec<_>>())
        };
        assert_eq!(roles(old), roles(new), "roles belong to the epoch");
    }
    assert!(
        new.holders().any(|member| member.node == new.primary),
        "the primary does not have all data: {new:?}"
    );
    let kept = new.holders().filter(|member| {
        old.member(member.node).is_some_and(|before| {
            before.standing.is_consistent() && before.process.storage == member.process.storage
        })
    });
    assert!(kept.count() > 0, "no consistent member remains: {old:?} to {new:?}");
    let serves = |partition: &Partition, node| {
        partition.member(node).is_some_and(|member| member.standing.is_consistent())
    };
    let removed = old.members.iter().any(|member| serves(old, member.node) && !serves(new, member.node));
    assert!(!removed || !new.activated, "activated together with a removal: {old:?} to {new:?}");
    let recruited = new.handoffs().any(|member| old.member(member.node).is_none());
    assert!(!removed || !recruited, "a handoff joins together with a removal: {old:?} to {new:?}");
}
