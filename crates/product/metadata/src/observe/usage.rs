//! Usage that nodes report, for operators. No decision depends on it.
//!
//! Rates are computed from two reports of the same process. Reports of a process that is no longer
//! live are dropped, and old reports are not shown, because the new primaries of its partitions
//! report them.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use nicekv_proto::control::{KeyspaceUsage, Usage};
use nicekv_proto::{KeyspaceId, NodeId};

use super::Membership;

/// Reports older than this are not shown; a node sends about one per second.
const SHOWN_NS: u64 = 5_000_000_000;
const SECOND_NS: u128 = 1_000_000_000;

/// The reports of all nodes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Usages {
    by_node: BTreeMap<NodeId, Told>,
}

#[derive(Clone, Debug)]
struct Told {
    incarnation: u64,
    sent_ns: u64,
    heard_ns: u64,
    keyspaces: Vec<(KeyspaceUsage, Rates)>,
}

/// Requests per second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rates {
    pub(crate) gets: u64,
    pub(crate) updates: u64,
}

impl Usages {
    /// Records a report of a live process. An outdated report changes nothing.
    pub(crate) fn handle(&mut self, now_ns: u64, usage: &Usage) {
        let before = self.by_node.get(&usage.node).filter(|told| told.incarnation == usage.incarnation);
        if before.is_some_and(|told| told.sent_ns >= usage.sent_ns) {
            return;
        }
        let with_rates = |new: &KeyspaceUsage| {
            let old = before.and_then(|told| told.of(new.keyspace).map(|old| (old, told.sent_ns)));
            (
                *new,
                old.map_or(Rates::default(), |(old, sent_ns)| Rates::of(old, new, usage.sent_ns - sent_ns)),
            )
        };
        let keyspaces = usage.keyspaces.iter().map(with_rates).collect();
        let Usage { incarnation, sent_ns, .. } = *usage;
        self.by_node.insert(usage.node, Told { incarnation, sent_ns, heard_ns: now_ns, keyspaces });
    }

    /// Recent reports of live nodes about a keyspace.
    pub(crate) fn of(
        &self,
        keyspace: KeyspaceId,
        membership: &Membership,
        now_ns: u64,
    ) -> impl Iterator<Item = (&KeyspaceUsage, Rates)> {
        let is_shown = move |(node, told): &(&NodeId, &Told)| told.is_shown(**node, membership, now_ns);
        let told = self.by_node.iter().filter(is_shown).flat_map(|(_, told)| &told.keyspaces);
        told.filter(move |(usage, _)| usage.keyspace == keyspace).map(|(usage, rates)| (usage, *rates))
    }
}

impl Usages {
    /// Recent gets of a node per second.
    pub(crate) fn gets_of(&self, node: NodeId, membership: &Membership, now_ns: u64) -> u64 {
        let told = self.by_node.get(&node).filter(|told| told.is_shown(node, membership, now_ns));
        told.map_or(0, |told| told.keyspaces.iter().map(|(_, rates)| rates.gets).sum())
    }
}

impl Told {
    fn is_shown(&self, node: NodeId, membership: &Membership, now_ns: u64) -> bool {
        membership.is_live(node, self.incarnation) && now_ns < self.heard_ns + SHOWN_NS
    }

    fn of(&self, keyspace: KeyspaceId) -> Option<&KeyspaceUsage> {
        self.keyspaces.iter().map(|(usage, _)| usage).find(|usage| usage.keyspace == keyspace)
    }
}

impl Rates {
    /// The rates between two reports. `elapsed_ns` must not be zero.
    fn of(old: &KeyspaceUsage, new: &KeyspaceUsage, elapsed_ns: u64) -> Self {
        let rate = |old: u64, new: u64| {
            let more = u128::from(new.saturating_sub(old)) * SECOND_NS;
            (more / u128::from(elapsed_ns)).try_into().unwrap_or(u64::MAX)
        };
        Self { gets: rate(old.gets, new.gets), updates: rate(old.updates, new.updates) }
    }
}
