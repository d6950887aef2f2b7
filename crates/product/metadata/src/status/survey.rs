//! Builds the status from the persisted state and the observations.

use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use nicekv_proto::control::{DiskSpace, MemberRole};
use nicekv_proto::placement::{KeyOrder, KeyspaceSpec, LoadBalancing, Protocol};
use nicekv_proto::{KeyspaceId, NodeId, PartitionId};
use nicekv_switch::{Matching, Table};

use super::*;
use crate::announce::divisions;
use crate::config::{Balancing, nanoseconds};
use crate::decide::rounds;
use crate::leader::Metadata;
use crate::observe::Observations;
use crate::policy::Policy;
use crate::state::{DesiredState, Dropped, Layout, Member, Node, Partition, Standing};
use crate::view::{self, Observed};

/// Start of the reason why a cluster is not ready if its state is an older copy. An operator must
/// resolve this.
pub const OLDER_STATE: &str = "the metadata state is an older copy";

impl Metadata {
    /// The status of the cluster at the time of the last input.
    pub fn status(&self) -> Status {
        let why_not_ready = self.why_not_ready();
        let partitions = self.committed.partitions();
        let partitions: Vec<_> =
            partitions.map(|(id, partition)| self.partition_status(id, partition)).collect();
        let nodes: Vec<_> = self.committed.nodes.iter().map(|node| self.node_status(node)).collect();
        let keyspaces = self.committed.keyspaces.iter();
        let keyspaces: Vec<_> = keyspaces
            .map(|spec| KeyspaceStatus {
                ready: self.ready_partitions(spec.id),
                ..keyspace_status(spec, &partitions, self.usage(spec.id))
            })
            .collect();
        let dropped: Vec<_> =
            self.committed.dropped.iter().map(|dropped| self.dropped_status(dropped)).collect();
        let mut usage = UsageStatus::default();
        keyspaces.iter().for_each(|keyspace| usage.add(&keyspace.usage));
        Status {
            cluster: format!("{:032x}", self.committed.cluster),
            term: self.committed.term,
            ready: why_not_ready.is_none(),
            why_not_ready,
            moves: nodes.iter().map(|node| node.missing).sum(),
            nodes,
            health: HealthCounts::of(&partitions),
            usage,
            keyspaces,
            leftovers: self.leftovers() + dropped.iter().map(|dropped| dropped.replicas).sum::<usize>(),
            dropped,
            reshapings: self.reshapings(),
            partitions,
            switches: {
                let mut switches = self.observations.switches.status();
                let missing = switches.iter_mut().flat_map(|switch| &mut switch.missing_ports);
                missing.for_each(|missing| missing.name = self.name(NodeId(missing.node)));
                switches
            },
            taken_back: self.probation.rolled_back().to_vec(),
            tables: self.observations.switches.table_status(),
            balancing: self.balancing_status(),
            migrations: self.migrations(),
            hot: self.hot_status(),
            chunks: self.chunks_status(),
            counters: self.counters,
            control_plane: ControlPlane::default(),
        }
    }

    /// The information for clients.
    pub fn cluster_info(&self) -> ClusterInfo {
        let info = |spec: &KeyspaceSpec| KeyspaceInfo {
            by_range: spec.order == KeyOrder::Range,
            by_vnode: self.config.matching == Matching::Headers,
            id: spec.id.0,
            name: spec.name.clone(),
            unicast: spec.unicast,
            multicast: spec.multicast,
            quorum: spec
                .replication()
                .quorum()
                .map(|quorum| (quorum.replicas() as u8, quorum.write_set() as u8)),
            chain: spec.protocol == Protocol::Chain,
            hot: spec.is_hot(),
            replicas: spec.replicas,
            settings: spec.settings(),
            chunks: spec.chunks.map(|chunks| chunks.name().into()),
            partition_bits: spec.partitions.ilog2(),
            usage: self.usage(spec.id),
        };
        let there = self.committed.keyspaces.iter().chain(self.committed.unfounded(&self.config));
        let mut keyspaces: Vec<_> = there.map(info).collect();
        keyspaces.sort_by_key(|keyspace| keyspace.id);
        let (cluster, port) = (self.committed.cluster, self.config.port);
        ClusterInfo { cluster, port, keyspaces, chunks: self.chunk_info() }
    }

    fn chunk_info(&self) -> Option<ChunkInfo> {
        let (chunks, ring) = (self.committed.chunks.as_ref()?, self.config.group_ring?);
        Some(ChunkInfo {
            version: chunks.version,
            round: chunks.round,
            is_adopted: rounds::names_have_adopted(&self.situation()),
            layout: layout_info(&chunks.layout),
            copies: self.committed.copies(),
            before: chunks.before.as_ref().map(layout_info),
            ring: (ring.base, ring.length, ring.port, ring.target_port),
            link_bits_per_second: self.config.link_bits_per_second,
        })
    }

    fn ready_partitions(&self, keyspace: KeyspaceId) -> usize {
        let of_it = self.committed.partitions().filter(|(_, partition)| partition.keyspace == keyspace);
        of_it.filter(|(id, partition)| self.unfinished(*id, partition).is_none()).count()
    }

    /// Number of replicas on nodes that are not members, and will not become members again.
    fn leftovers(&self) -> usize {
        let is_left =
            |partition: &Partition| partition.left.iter().filter(|left| !partition.has(left.node)).count();
        let reshaped: usize = self.committed.reshaped.values().map(|gone| gone.left.len()).sum();
        reshaped + self.committed.partitions().map(|(_, partition)| is_left(partition)).sum::<usize>()
    }

    fn dropped_status(&self, Dropped { spec, partitions }: &Dropped) -> DroppedStatus {
        let membership = &self.observations.membership;
        let left = || partitions.values().flat_map(|gone| &gone.left);
        let nodes: BTreeSet<NodeId> = left().map(|left| left.node).collect();
        let (there, away): (Vec<_>, Vec<_>) =
            nodes.into_iter().partition(|node| membership.live(*node).is_some());
        let names = |nodes: Vec<NodeId>| nodes.into_iter().map(|node| self.name(node)).collect();
        DroppedStatus {
            id: spec.id.0,
            name: spec.name.clone(),
            quiet: partitions.values().all(|gone| gone.quiet),
            replicas: left().count(),
            waits_for: (names(there), names(away)),
            switches: self.observations.switches.why_not_ready(),
        }
    }

    fn usage(&self, keyspace: KeyspaceId) -> UsageStatus {
        let Observations { usages, membership, .. } = &self.observations;
        let mut sum = UsageStatus::default();
        for (told, rates) in usages.of(keyspace, membership, self.situation().now_ns) {
            sum.add(&UsageStatus {
                partitions: told.partitions.into(),
                keys: told.keys,
                bytes: told.bytes,
                expiring: told.expiring,
                expiry_ms: told.expiry_ms,
                age_ms: told.age_ms,
                gets_per_second: rates.gets,
                updates_per_second: rates.updates,
            });
        }
        sum
    }

    fn target<'a>(&'a self, id: PartitionId, partition: &'a Partition) -> &'a [NodeId] {
        self.situation().targets.of(id).unwrap_or(&partition.originals)
    }

    /// Number of partitions that a node should hold and does not hold.
    fn missing(&self, node: NodeId) -> usize {
        let lacks = |(id, partition): &(PartitionId, &Partition)| {
            let holds = partition.originals.contains(&node) && !partition.is_newcomer(node);
            self.target(*id, partition).contains(&node) && !holds
        };
        self.committed.partitions().filter(lacks).count()
    }

    fn node_status(&self, node: &Node) -> NodeStatus {
        let Node { config: node, desired, .. } = node;
        let id = node.id;
        let state = match (self.observations.membership.live(id), self.observations.membership.is_known(id)) {
            (Some(_), _) => NodeState::Live,
            (None, true) => NodeState::Suspected,
            (None, false) => NodeState::Unknown,
        };
        let disk = match self.observations.membership.space(id) {
            DiskSpace::Enough => DiskState::Enough,
            DiskSpace::Reserve => DiskState::Reserve,
            DiskSpace::Exhausted => DiskState::Exhausted,
        };
        let partitions = || self.committed.partitions();
        NodeStatus {
            id: id.0,
            name: node.name.clone(),
            address: node.address,
            state,
            disk,
            desired: match desired {
                DesiredState::Holds => NodeTarget::Holds,
                DesiredState::Drained => NodeTarget::Drained,
                DesiredState::Removed => NodeTarget::Removed,
            },
            forgotten: partitions().filter(|(_, partition)| partition.emptied.contains(&id)).count(),
            losses: self.committed.storages.get(&id.0).map_or(0, |storage| storage.losses),
            members: partitions().filter(|(_, partition)| partition.member(id).is_some()).count(),
            share: partitions().filter(|(at, partition)| self.target(*at, partition).contains(&id)).count(),
            missing: self.missing(id),
            gets_per_second: {
                let Observations { usages, membership, .. } = &self.observations;
                usages.gets_of(id, membership, self.situation().now_ns)
            },
        }
    }

    fn balancing_status(&self) -> Option<BalancingStatus> {
        if self.config.balancing == Balancing::None {
            return None;
        }
        let (entries, left_out) =
            divisions::entries(&self.config, &self.committed, Table::Division.capacity());
        let mut divided: Vec<u32> = entries.iter().map(|entry| entry.partition).collect();
        divided.dedup();
        let spread = self.committed.keyspaces.iter().filter(|spec| Policy::of(spec).gets_are_spread);
        Some(BalancingStatus {
            divided: divided.len(),
            left_out,
            entries_per_partition: spread.map(|spec| spec.replicas + 1).max().unwrap_or(2),
            sources: self.observations.loads.known(),
            divided_by_load: self.observations.loads.divided,
        })
    }

    fn partition_status(&self, id: PartitionId, partition: &Partition) -> PartitionStatus {
        let view = self.situation().view(id, partition);
        let state = if view::is_lost(partition, &view) {
            PartitionState::Lost
        } else if !view::has_live_consistent(partition, &view) {
            PartitionState::Waiting
        } else if partition.activated {
            PartitionState::Active
        } else {
            PartitionState::Activating
        };
        let away = partition.originals.iter().filter(|node| partition.member(**node).is_none());
        PartitionStatus {
            id: id.0,
            keyspace: partition.keyspace.0,
            first: format!("{:032x}", partition.range.first()),
            last: format!("{:032x}", partition.range.last()),
            epoch: partition.epoch,
            primary: partition.primary.0,
            tail: view.policy().is_chain.then(|| partition.tail().0),
            state,
            health: self.health(partition, state, view.policy()),
            members: {
                let is_chain = view.policy().is_chain;
                let members = partition.members.iter();
                members.map(|member| self.member_status(partition, member, is_chain)).collect()
            },
            away: away.map(|node| self.name(*node)).collect(),
            gets_per_second: {
                let interval_ns = nanoseconds(self.config.timing.divide_interval);
                self.observations.loads.gets_per_second(id, self.situation().now_ns, interval_ns)
            },
            asked_per_second: self.observations.switches.requests.per_second(id, self.situation().now_ns),
        }
    }

    fn member_status(&self, partition: &Partition, member: &Member, is_chain: bool) -> MemberStatus {
        let is_spare = is_chain && partition.is_spare(member);
        MemberStatus {
            node: member.node.0,
            name: self.name(member.node),
            state: if member.standing.is_consistent() {
                MemberStatusState::Consistent
            } else {
                MemberStatusState::Joining
            },
            standing: match member.standing {
                Standing::Joining => MemberStanding::Joining,
                Standing::Copying => MemberStanding::Copying,
                Standing::Promoted => MemberStanding::Promoted,
                Standing::Serving => MemberStanding::Serving,
            },
            handoff: member.handoff || is_spare,
            leaving: partition.role(member) == MemberRole::Leaving && !is_spare,
        }
    }

    pub(super) fn name(&self, node: NodeId) -> String {
        self.config.node(node).map(|node| node.name.clone()).unwrap_or_default()
    }

    fn health(&self, partition: &Partition, state: PartitionState, policy: Policy) -> Health {
        let membership = &self.observations.membership;
        let is_there = |member: &&Member| membership.is_live(member.node, member.process.incarnation);
        let there = partition.members.iter().filter(is_there);
        let is_spare = |member: &&Member| policy.is_chain && partition.is_spare(member);
        let originals = partition.holders().filter(is_there).filter(|member| !is_spare(member)).count();
        let consistent = there.clone().filter(|member| member.standing.is_consistent()).count();
        match state {
            PartitionState::Lost => Health::Lost,
            PartitionState::Waiting => Health::Unavailable,
            PartitionState::Activating => Health::Waiting,
            PartitionState::Active if !policy.takes_puts(partition.members.len(), there.count()) => {
                Health::Waiting
            }
            PartitionState::Active if originals >= policy.replicas => Health::Whole,
            PartitionState::Active if consistent >= policy.replicas => Health::Covered,
            PartitionState::Active => Health::Reduced,
        }
    }

    fn why_not_ready(&self) -> Option<String> {
        if self.is_overdue() {
            return Some("another metadata service may lead".into());
        }
        if !self.is_leading() {
            return Some("the metadata term is not yet persisted".into());
        }
        if let Some(shown) = &self.observations.contradiction {
            let node = self.config.node(shown.node()).map_or("a node", |node| &node.name);
            return Some(format!(
                "{OLDER_STATE}: {node} has been in epochs of partition {} that this state does not contain; stop the cluster and put back the \
                 newest metadata state, or begin with empty data directories and `nicekv restore` a backup",
                shown.partition()
            ));
        }
        let absent =
            self.config.nodes.iter().find(|node| self.observations.membership.live(node.id).is_none());
        let missing = self.committed.unfounded(&self.config).next();
        if let (Some(node), false) = (absent, self.committed.is_bootstrapped()) {
            return Some(format!("waiting for {} to start for the first time", node.name));
        }
        let ring = self.committed.ring().len();
        match (missing, absent) {
            (None, _) => {}
            (Some(KeyspaceSpec { name, replicas, .. }), _) if *replicas > ring => {
                let line =
                    format!("keyspace {name} needs {replicas} nodes that hold data; the cluster has {ring}");
                return Some(line);
            }
            (Some(spec), Some(node)) => {
                return Some(format!("keyspace {} waits for {}", spec.name, node.name));
            }
            (Some(_), None) => return Some("the placement is being persisted".into()),
        }
        for (id, partition) in self.committed.partitions() {
            if let Some(reason) = self.unfinished(id, partition) {
                return Some(format!("partition {id}: {reason}"));
            }
        }
        self.observations.switches.why_not_ready()
    }

    pub(crate) fn unfinished(&self, id: PartitionId, partition: &Partition) -> Option<String> {
        let view = self.situation().view(id, partition);
        if view::is_lost(partition, &view) {
            return Some("its data are lost: no member kept its storage".into());
        }
        let is_spare = |member: &&Member| view.policy().is_chain && partition.is_spare(member);
        let holders = partition.holders().filter(|member| !is_spare(member));
        let (consistent, replicas) = (holders.count(), view.policy().replicas);
        let outside = partition.originals.iter().filter(|node| partition.member(**node).is_none());
        if let Some(full) = { outside }.find(|node| view.live(**node).is_some() && !view.has_space(**node)) {
            return Some(format!("{} is barred until its disk has space", self.name(*full)));
        }
        if consistent < replicas {
            return Some(format!("{consistent} of {replicas} members are consistent"));
        }
        for member in &partition.members {
            match view.live(member.node) {
                None => return Some(format!("{} is not live", member.node)),
                // The node may have returned without its storage. Its data count when that is
                // decided.
                Some(live) if live != member.process => {
                    return Some(format!("{} has been restarted", member.node));
                }
                Some(_) => {}
            }
        }
        if let (Some(parent), Some(node)) = (partition.parents.first(), self.not_taken_over(id, partition)) {
            return Some(format!(
                "{} has not taken over from partition {}",
                self.name(node),
                parent.partition
            ));
        }
        if !partition.activated {
            return Some("a removed member may still answer".into());
        }
        if let Some(member) = partition.members.iter().find(|member| member.standing != Standing::Serving) {
            return Some(format!("{} is not yet in the unicast ring", member.node));
        }
        let waits = partition.members.iter().find(|member| !view.is_informed(member));
        waits.map(|member| format!("{} has not acknowledged epoch {}", member.node, partition.epoch))
    }
}

fn keyspace_status(
    spec: &KeyspaceSpec,
    partitions: &[PartitionStatus],
    usage: UsageStatus,
) -> KeyspaceStatus {
    let (replication, write_set) = match spec.protocol {
        Protocol::Multicast => ("multicast", None),
        Protocol::Chain => ("chain", None),
        Protocol::Quorum { write_set } => ("quorum", Some(write_set)),
    };
    let of_it = || partitions.iter().filter(|partition| partition.keyspace == spec.id.0);
    KeyspaceStatus {
        id: spec.id.0,
        name: spec.name.clone(),
        replication: replication.into(),
        write_set,
        balancing: (spec.balancing != LoadBalancing::None).then(|| spec.balancing.name().into()),
        replicas: spec.replicas,
        partitions: of_it().count(),
        ready: 0,
        unicast: spec.unicast,
        multicast: spec.multicast,
        health: HealthCounts::of(of_it()),
        usage,
    }
}

fn layout_info(layout: &Layout) -> LayoutInfo {
    LayoutInfo { groups: layout.groups.clone(), slots: layout.slots.clone() }
}
