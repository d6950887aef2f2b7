//! Whose a key is: the partition that has its match value, who leads that, and who answers its gets anyway.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use nicekv_hotkeys::HotKey;
use nicekv_proto::{KeyspaceId, NodeId};
use nicekv_switch::HOT_USUAL_TURNS_MAX;

use crate::config::Balancing;
use crate::policy::Policy;
use crate::state::{Partition, Standing, State};

/// The partitions of keyspaces whose hot keys are spread, to be searched.
pub(super) struct Owners<'a> {
    /// By keyspace, ascending by their first match values.
    partitions: BTreeMap<KeyspaceId, Vec<&'a Partition>>,
    /// Whether members take turns in answering gets, by the clients' addresses.
    gets_are_divided: bool,
}

/// Who has to do with a key, whatever a switch does.
#[derive(Clone, Copy)]
pub(super) struct Owned<'a> {
    partition: &'a Partition,
    gets_are_divided: bool,
    /// How many turns of the round robin go the usual way.
    pub(super) usual_turns: u8,
}

impl<'a> Owned<'a> {
    /// Who holds the key anyway.
    pub(super) fn members(&self) -> impl Iterator<Item = NodeId> + use<'a> {
        self.partition.members.iter().map(|member| member.node)
    }

    /// Who orders its updates, and pushes copies.
    pub(super) fn primary(&self) -> NodeId {
        self.partition.primary
    }

    /// Whether gets that go the usual way come there.
    pub(super) fn answers(&self, node: NodeId) -> bool {
        let member = self.partition.member(node);
        node == self.primary()
            || self.gets_are_divided && member.is_some_and(|member| member.standing == Standing::Serving)
    }

    /// Whether a node holds the key already.
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

    /// `None`: there is no such keyspace any more, or it is made up.
    pub(super) fn find(&self, key: &HotKey) -> Option<Owned<'a>> {
        let (all, value) = (self.partitions.get(&key.keyspace)?, key.digest.match_value());
        let place = all.partition_point(|one| one.range.first() <= value).checked_sub(1)?;
        let partition = all.get(place).copied().filter(|one| one.range.contains(value))?;
        let answering = partition.members.iter().filter(|member| member.standing == Standing::Serving);
        let turns = if self.gets_are_divided { answering.count() } else { 1 };
        let usual_turns = turns.clamp(1, HOT_USUAL_TURNS_MAX.into()) as u8;
        Some(Owned { partition, gets_are_divided: self.gets_are_divided, usual_turns })
    }
}
