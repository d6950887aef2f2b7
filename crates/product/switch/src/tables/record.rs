//! `record`: range of match values of a keyspace → partition, host for gets, multicast group for
//! puts (TurboKV §4.1.3).
//!
//! ```text
//!   (rings of the keyspace, keyspace, first ≤ value ≤ last)  ─▶  get: host, unless a division covers the source      put: group
//! ```
//!
//! One record serves gets and puts, because both match by the same value. In a keyspace that has
//! records, the switch matches the value in the header and ignores the vnode that the datagram is
//! addressed to. A range includes its last value, so that a range can end at the largest value.

use serde::{Deserialize, Serialize};

use super::chain::Chain;
use super::entry::{Entry, validate_members};
use super::error::TableError;
use super::host::HostId;
use super::members::MemberSet;
use super::rule::{Action, Match};
use super::table::Table;
use crate::{Prefix, VringSet};

/// An entry of `record`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordEntry {
    /// The unicast ring of the keyspace; it identifies both rings of the pair.
    pub ring: Prefix,
    /// The keyspace that a header must name.
    pub keyspace: u16,
    /// The smallest match value.
    pub first: u128,
    /// The largest match value.
    pub last: u128,
    /// The partition. It is the scope in which `division` is looked up.
    pub partition: u32,
    /// The host that serves gets from sources that no division covers.
    pub host: HostId,
    /// The nodes that receive a copy of puts.
    pub members: MemberSet,
    /// The chain, if the partition is replicated along one; then `host` is its tail, and its head
    /// is the only member.
    pub chain: Option<Chain>,
}

impl Entry for RecordEntry {
    const TABLE: Table = Table::Record;

    fn matches(&self) -> Match {
        Match::Values { ring: self.ring, first: self.first, last: self.last }
    }

    fn action(&self) -> Action<'_> {
        Action::Record { host: self.host, members: &self.members }
    }

    fn chain(&self) -> Option<&Chain> {
        self.chain.as_ref()
    }

    fn validate(&self, vrings: &VringSet) -> Result<(), TableError> {
        if !vrings.iter().any(|pair| pair.unicast == self.ring) {
            return Err(TableError::OutsideVring { table: Table::Record, destination: self.ring });
        }
        if self.first > self.last {
            return Err(TableError::EmptyRecord { matches: self.matches() });
        }
        validate_members(Table::Record, self.matches(), &self.members)
    }
}
