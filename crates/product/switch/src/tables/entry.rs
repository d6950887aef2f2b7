//! The common form of all tables' entries: a match key, an action, and validation rules.

use core::fmt;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::chain::Chain;
use super::error::TableError;
use super::members::MemberSet;
use super::rule::{Action, Match};
use super::table::Table;
use crate::{GROUP_MEMBERS_MAX, Prefix, VringSet};

/// An entry of a table.
pub trait Entry: Clone + fmt::Debug + PartialEq + Serialize + DeserializeOwned {
    /// The table of these entries.
    const TABLE: Table;

    /// The match key. It is unique in the table.
    fn matches(&self) -> Match;

    /// The action.
    fn action(&self) -> Action<'_>;

    /// The chain of the entry's partition, if it is replicated along one.
    fn chain(&self) -> Option<&Chain> {
        None
    }

    /// Checks the rules of this table. [`TableSet::validate`](super::TableSet::validate) checks the
    /// rules of all tables: canonical prefixes, known hosts, distinct matches.
    fn validate(&self, vrings: &VringSet) -> Result<(), TableError>;
}

/// Checks that a destination lies in one of `rings`.
pub(super) fn validate_destination(
    table: Table,
    destination: Prefix,
    mut rings: impl Iterator<Item = Prefix>,
) -> Result<(), TableError> {
    if rings.any(|ring| ring.covers(&destination)) {
        Ok(())
    } else {
        Err(TableError::OutsideVring { table, destination })
    }
}

/// Checks the multicast group of an entry.
pub(super) fn validate_members(table: Table, matches: Match, members: &MemberSet) -> Result<(), TableError> {
    let members = members.as_slice();
    if members.is_empty() || members.len() > GROUP_MEMBERS_MAX {
        return Err(TableError::GroupSize { table, matches, members: members.len() });
    }
    // A set that was decoded has not passed the constructor, which sorts it.
    if members.windows(2).any(|pair| pair[0] >= pair[1]) {
        return Err(TableError::MembersNotSorted { table, matches });
    }
    Ok(())
}
