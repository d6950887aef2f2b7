//! `unicast_vring`: destination prefix → partition and its default host, the primary (NICE §3.2).

use serde::{Deserialize, Serialize};

use super::chain::Chain;
use super::entry::{Entry, validate_destination};
use super::error::TableError;
use super::host::HostId;
use super::rule::{Action, Match};
use super::table::Table;
use crate::{Prefix, VringSet};

/// An entry of `unicast_vring`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnicastEntry {
    /// The vnodes of the partition, inside a unicast ring.
    pub destination: Prefix,
    /// The partition. It is the scope in which `division` is looked up.
    pub partition: u32,
    /// The host that serves gets from sources that no division covers.
    pub host: HostId,
    /// The chain, if the partition is replicated along one; then `host` is its tail.
    pub chain: Option<Chain>,
}

impl Entry for UnicastEntry {
    const TABLE: Table = Table::Unicast;

    fn matches(&self) -> Match {
        Match::Address { scope: None, prefix: self.destination }
    }

    fn action(&self) -> Action<'_> {
        Action::Host { host: self.host, scope: self.partition }
    }

    fn chain(&self) -> Option<&Chain> {
        self.chain.as_ref()
    }

    fn validate(&self, vrings: &VringSet) -> Result<(), TableError> {
        validate_destination(Table::Unicast, self.destination, vrings.iter().map(|pair| pair.unicast))
    }
}
