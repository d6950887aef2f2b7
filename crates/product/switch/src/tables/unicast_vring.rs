//! `unicast_vring`: destination prefix → partition and its default host (the primary) (NICE §3.2).

use serde::{Deserialize, Serialize};

use super::{Action, Chain, Entry, HostId, Match, Table, TableError, validate_destination};
use crate::{Prefix, VringSet};

/// An entry of `unicast_vring`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnicastEntry {
    /// Vnodes of the partition, inside a unicast ring.
    pub destination: Prefix,
    /// Partition, the scope in which `division` looks.
    pub partition: u32,
    /// Receives what no division claims.
    pub host: HostId,
    /// Of a partition that is replicated along a chain; `host` is its tail.
    pub chain: Option<Chain>,
}

impl Entry for UnicastEntry {
    const NAME: &'static str = "unicast_vring";
    const HITS: &'static str = "unicast_hits";
    const CAPACITY: usize = 4096;

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
