//! `division`: (partition, source prefix) → host; overrides the default of `unicast_vring` (NICE §4.5).

use serde::{Deserialize, Serialize};

use super::{Action, Entry, HostId, Match, TableError};
use crate::{Prefix, VringSet};

/// Divisions of a partition: one for each replica but the primary, which has what no division claims.
pub const DIVISIONS_MAX: usize = 8;

/// An entry of `division`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DivisionEntry {
    /// Partition that `unicast_vring` chose.
    pub partition: u32,
    /// Client addresses of the division.
    pub source: Prefix,
    /// The replica that serves them.
    pub host: HostId,
}

impl Entry for DivisionEntry {
    const NAME: &'static str = "division";
    const HITS: &'static str = "division_hits";
    const CAPACITY: usize = 16384;

    fn matches(&self) -> Match {
        Match::Address { scope: Some(self.partition), prefix: self.source }
    }

    fn action(&self) -> Action<'_> {
        Action::Host { host: self.host, scope: 0 }
    }

    fn validate(&self, _vrings: &VringSet) -> Result<(), TableError> {
        Ok(())
    }
}
