//! `multicast_vring`: destination prefix → group (NICE §4.2). A group *is* its member set, so that groups survive a change
//! of tables and no entry can name a group that does not exist.
//!
//! Groups of storage targets, which have a ring of their own, are here, too ([`group`]).

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::{Action, Chain, Entry, HostId, Match, Places, Table, TableError, group, validate_destination};
use crate::{Prefix, VringSet};

/// Distinct member sets.
pub const GROUP_CAPACITY: usize = 1024;
/// Members of one multicast group.
pub const GROUP_MEMBERS_MAX: usize = 16;

/// An entry of `multicast_vring`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MulticastEntry {
    /// Vnodes of the partition, inside a multicast ring; or a group of storage targets, or some of one, inside the ring of groups.
    pub destination: Prefix,
    /// Who receives a copy.
    pub members: MemberSet,
    /// Of a partition that is replicated along a chain; its head is the only member.
    pub chain: Option<Chain>,
    /// Of a group of storage targets whose addresses have masks: which bit each of the members has.
    pub places: Option<Places>,
}

/// The members of a multicast group: ascending, distinct.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct MemberSet(Vec<HostId>);

impl MemberSet {
    /// Sorts `members` and drops duplicates.
    pub fn new(members: impl IntoIterator<Item = HostId>) -> Self {
        Self(members.into_iter().collect::<BTreeSet<_>>().into_iter().collect())
    }

    /// The members, ascending.
    pub fn as_slice(&self) -> &[HostId] {
        &self.0
    }

    #[cfg(test)]
    pub(super) fn unchecked(members: &[u16]) -> Self {
        Self(members.iter().copied().map(HostId).collect())
    }
}

impl MulticastEntry {
    /// The same entry for the members of which `is_reached` is true; `None` if there are none, or if the entry is of a chain and one of its nodes is not reached.
    #[must_use]
    pub fn reaching(&self, is_reached: impl Fn(HostId) -> bool) -> Option<Self> {
        if self.chain.as_ref().is_some_and(|chain| !chain.nodes().iter().all(|host| is_reached(*host))) {
            return None;
        }
        let members =
            MemberSet::new(self.members.as_slice().iter().copied().filter(|host| is_reached(*host)));
        let places = self.places.as_ref().map(|places| places.reaching(&self.members, is_reached));
        (!members.as_slice().is_empty()).then(|| Self { members, places, ..self.clone() })
    }
}

impl Entry for MulticastEntry {
    const NAME: &'static str = "multicast_vring";
    const HITS: &'static str = "multicast_hits";
    const CAPACITY: usize = 4096;

    fn matches(&self) -> Match {
        Match::Address { scope: None, prefix: self.destination }
    }

    fn action(&self) -> Action<'_> {
        Action::Group(&self.members)
    }

    fn chain(&self) -> Option<&Chain> {
        self.chain.as_ref()
    }

    fn validate(&self, vrings: &VringSet) -> Result<(), TableError> {
        if vrings.group_prefix().is_some_and(|ring| ring.covers(&self.destination)) {
            group::validate(self)?;
        } else {
            let rings = vrings.iter().map(|pair| pair.multicast);
            validate_destination(Table::Multicast, self.destination, rings)?;
            if self.places.is_some() {
                return Err(TableError::BadPlaces { matches: self.matches() });
            }
        }
        validate_members(Table::Multicast, self.matches(), &self.members)
    }
}

/// Checks a group of an entry.
pub(super) fn validate_members(table: Table, matches: Match, members: &MemberSet) -> Result<(), TableError> {
    let members = members.as_slice();
    if members.is_empty() || members.len() > GROUP_MEMBERS_MAX {
        return Err(TableError::GroupSize { table, matches, members: members.len() });
    }
    // A decoded set did not go through the constructor.
    if members.windows(2).any(|pair| pair[0] >= pair[1]) {
        return Err(TableError::MembersNotSorted { table, matches });
    }
    Ok(())
}
