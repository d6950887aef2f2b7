//! `record`: a range of match values of a keyspace → partition, the host of its gets, the group of its puts (TurboKV §4.1.3).
//!
//! ```text
//!   (rings of the keyspace, keyspace, first ≤ value ≤ last)  ─▶  get: host, unless a division claims the source      put: group
//! ```
//!
//! One record serves both, as both ask by the same value. Of a keyspace that has records nothing else is believed than its header: not which vnode a
//! datagram is addressed to. The borders belong to the range, so that the last value of all has one that is its own.

use serde::{Deserialize, Serialize};

use super::multicast_vring::validate_members;
use super::{Action, Chain, Entry, HostId, Match, MemberSet, Table, TableError};
use crate::{Prefix, VringSet};

/// An entry of `record`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordEntry {
    /// The unicast ring of the keyspace; it stands for both of the pair.
    pub ring: Prefix,
    /// What headers must name, to be matched at these rings.
    pub keyspace: u16,
    /// The smallest match value.
    pub first: u128,
    /// The largest one.
    pub last: u128,
    /// Partition, the scope in which `division` looks.
    pub partition: u32,
    /// Receives the gets that no division claims.
    pub host: HostId,
    /// Who receives a copy of puts.
    pub members: MemberSet,
    /// Of a partition that is replicated along a chain: `host` is its tail, its head the only member.
    pub chain: Option<Chain>,
}

impl Entry for RecordEntry {
    const NAME: &'static str = "record";
    const HITS: &'static str = "record_hits";
    const CAPACITY: usize = 10240;

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
