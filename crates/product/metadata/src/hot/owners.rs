//! Finds the owner of a key: the partition to which the key belongs, its primary, and the members
//! that answer its gets.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use nicekv_hotkeys::HotKey;
use nicekv_proto::{KeyspaceId, NodeId};
use nicekv_switch::HOT_OWNER_TURNS_MAX;

use crate::config::Balancing;
use crate::policy::Policy;
use crate::state::{Partition, Standing, State};

/// The partitions of keyspaces that spread their hot keys, for lookup.
pub(super) struct Owners<'a> {
    /// Partitions of each keyspace, ascending by first match value.
    partitions: BTreeMap<KeyspaceId, Vec<&'a Partition>>,
    /// Whether gets are divided among members, by client address.
    gets_are_divided: bool,
}

/// The partition of a key.
#[derive(Clone, Copy)]
pub(super) struct Owned<'a> {
    partition: &'a Partition,
    gets_are_divided: bool,
    /// Number of turns of the round robin that take the default route.
    pub(super) owner_turns: u8,
}

impl<'a> Owned<'a> {
    /// The members, which hold the key without a copy.
    pub(super) fn members(&self) -> impl Iterator<Item = NodeId> + use<'a> {
        self.partition.members.iter().map(|member| member.node)
    }

    /// The primary, which orders updates of the key and pushes copies.
    pub(super) fn primary(&self) -> NodeId {
        self.partition.primary
    }

    /// Whether gets on the default route may go to this node.
    pub(super) fn answers(&self, node: NodeId) -> bool {
        let member = self.partition.member(node);
        node == self.primary()
            || self.gets_are_divided && member.is_some_and(|member| member.standing == Standing::Serving)
    }

    /// Whether a node is a member.
    pub(super) fn is_member(&self, node: NodeId) -> bool {
        self.partition.member(node).is_some()
    }
}

impl<'a> Owners<'a> {
    pub(super) fn of(state: &'a State, keyspaces: &[u16], balancing: Balancing) -> Self {
        let mut partitions: BTreeMap<KeyspaceId, Vec<&Partition>> = BTreeMap::new();
        for (_, partition) in state.partitions() {
            if keyspaces.binary_search(&partition.keyspace.0).is_ok() {
                partitions.entry(partition.keyspace).or_default().push(partition);
            }
        }
        partitions.values_mut().for_each(|all| all.sort_unstable_by_key(|one| one.range.first()));
        let spread = |spec: &nicekv_proto::placement::KeyspaceSpec| Policy::of(spec).gets_are_spread;
        let gets_are_divided = balancing != Balancing::None && state.keyspaces.iter().any(spread);
        Self { partitions, gets_are_divided }
    }

    /// The partition of a key. `None`: the keyspace no longer exists, or the key is forged.
    pub(super) fn find(&self, key: &HotKey) -> Option<Owned<'a>> {
        let (all, value) = (self.partitions.get(&key.keyspace)?, key.digest.match_value());
        let place = all.partition_point(|one| one.range.first() <= value).checked_sub(1)?;
        let partition = all.get(place).copied().filter(|one| one.range.contains(value))?;
        let answering = partition.members.iter().filter(|member| member.standing == Standing::Serving);
        let turns = if self.gets_are_divided { answering.count() } else { 1 };
        let owner_turns = turns.clamp(1, HOT_OWNER_TURNS_MAX.into()) as u8;
        Some(Owned { partition, gets_are_divided: self.gets_are_divided, owner_turns })
    }
}
