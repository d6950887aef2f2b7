//! `division`: (partition, source prefix) → host; overrides the default host of `unicast_vring` and
//! `record` (NICE §4.5).

use serde::{Deserialize, Serialize};

use super::entry::Entry;
use super::error::TableError;
use super::host::HostId;
use super::rule::{Action, Match};
use super::table::Table;
use crate::{Prefix, VringSet};

/// An entry of `division`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DivisionEntry {
    /// The partition, from the table that was matched first.
    pub partition: u32,
    /// The client addresses of the division.
    pub source: Prefix,
    /// The replica that serves these clients.
    pub host: HostId,
}

impl Entry for DivisionEntry {
    const TABLE: Table = Table::Division;

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
