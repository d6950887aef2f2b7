//! `multicast_vring`: destination prefix → multicast group (NICE §4.2).
//!
//! It also holds the groups of storage targets, whose destinations lie in the ring of groups
//! ([`super::target_group`]).

use serde::{Deserialize, Serialize};

use super::chain::Chain;
use super::entry::{Entry, validate_destination, validate_members};
use super::error::TableError;
use super::host::HostId;
use super::members::{GROUP_LENGTH, MemberSet, Places};
use super::rule::{Action, Match};
use super::table::Table;
use crate::{Prefix, VringSet};

/// An entry of `multicast_vring`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MulticastEntry {
    /// In a multicast ring, the vnodes of a partition; in the ring of groups, a group of storage
    /// targets or a subset of one.
    pub destination: Prefix,
    /// The nodes that receive a copy.
    pub members: MemberSet,
    /// The chain, if the partition is replicated along one; then its head is the only member.
    pub chain: Option<Chain>,
    /// The bit of each member, if this is a group of storage targets that is addressed by masks.
    pub places: Option<Places>,
}

impl MulticastEntry {
    /// The same entry, limited to the members for which `is_reached` is true. `None` if there are
    /// none, or if a node of the entry's chain is not reached.
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

    /// Checks the rules of entries in the ring of groups.
    fn validate_target_group(&self) -> Result<(), TableError> {
        let matches = self.matches();
        if self.chain.is_some() {
            return Err(TableError::BadChain { table: Table::Multicast, matches });
        }
        match (&self.places, self.destination.length) {
            (None, 32) => Ok(()),
            (Some(places), GROUP_LENGTH) if places.fit(&self.members) => Ok(()),
            (Some(_), GROUP_LENGTH) => Err(TableError::BadPlaces { matches }),
            _ => Err(TableError::GroupPrefix { destination: self.destination }),
        }
    }
}

impl Entry for MulticastEntry {
    const TABLE: Table = Table::Multicast;

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
            self.validate_target_group()?;
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
