//! Builds the status of balancing by migration.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use nicekv_proto::placement::{KeyspaceSpec, LoadBalancing};
use nicekv_proto::{KeyspaceId, NodeId, PartitionId};

use super::{HotKeyStatus, MigrationStatus};
use crate::decide::migration::HotKey;
use crate::leader::Metadata;
use crate::observe::Begun;

impl Metadata {
    pub(super) fn migrations(&self) -> Vec<MigrationStatus> {
        let specs = self.committed.keyspaces.iter();
        specs
            .filter(|spec| spec.balancing == LoadBalancing::Migrate)
            .map(|spec| self.migration(spec))
            .collect()
    }

    fn placed(&self, spec: &KeyspaceSpec) -> Vec<(u32, Vec<u16>)> {
        let is_its =
            |id: &PartitionId| self.committed.partition(*id).is_some_and(|it| it.keyspace == spec.id);
        let numbers = |nodes: &[NodeId]| nodes.iter().map(|node| node.0).collect();
        let placements = self.committed.placements().filter(|(id, _)| is_its(id));
        placements.map(|(id, nodes)| (id.0, numbers(nodes))).collect()
    }

    fn migration(&self, spec: &KeyspaceSpec) -> MigrationStatus {
        let balance = &self.observations.balance;
        let Begun { moves, splits, full, merges } = balance.begun.get(&spec.id).copied().unwrap_or_default();
        let verdict = balance.verdicts.get(&spec.id);
        let hot_key = |hot: &HotKey| HotKeyStatus {
            partition: hot.id.0,
            value: format!("{:032x}", hot.value),
            percent: hot.percent,
        };
        let hottest = verdict.and_then(|verdict| verdict.hottest());
        let is_its = |(_, keyspace, _): &&(u64, KeyspaceId, String)| *keyspace == spec.id;
        let next = match balance.waits_for {
            None => self.judged(spec).steps.iter().map(|step| self.describe_step(step)).collect(),
            Some(_) => Vec::new(),
        };
        MigrationStatus {
            keyspace: spec.id.0,
            name: spec.name.clone(),
            periods: balance.periods,
            moves,
            splits,
            full,
            merges,
            hottest: hottest.map(|(node, percent)| (self.names(&[node]), percent)),
            hot_keys: verdict.iter().flat_map(|verdict| &verdict.hot_keys).map(hot_key).collect(),
            waits_for: balance.waits_for.clone(),
            placed: self.placed(spec),
            next,
            events: balance.events.iter().filter(is_its).map(|(at, _, what)| (*at, what.clone())).collect(),
        }
    }
}
