//! The match tables of a switch, and their capacities.

use core::fmt;

use serde::{Deserialize, Serialize};

/// The match tables. A new table needs a variant here, a file with its [entry](super::Entry), and a
/// line in [`TableSet`](super::TableSet). Installing, diffing, updating, counting and the loader of
/// the kernel programs iterate over [`Table::ALL`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Table {
    /// Destination prefix → partition and default host.
    Unicast,
    /// (Partition, source prefix) → host.
    Division,
    /// Destination prefix → multicast group.
    Multicast,
    /// Range of match values → partition, host, multicast group.
    Record,
}

/// Number of tables.
pub const TABLE_COUNT: usize = Table::ALL.len();

impl Table {
    /// Every table, in the order of their numbers.
    pub const ALL: [Self; 4] = [Self::Unicast, Self::Division, Self::Multicast, Self::Record];

    /// The table's name in status screens and logs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unicast => "unicast_vring",
            Self::Division => "division",
            Self::Multicast => "multicast_vring",
            Self::Record => "record",
        }
    }

    /// The name of the counter of the table's hits.
    pub const fn hits_name(self) -> &'static str {
        match self {
            Self::Unicast => "unicast_hits",
            Self::Division => "division_hits",
            Self::Multicast => "multicast_hits",
            Self::Record => "record_hits",
        }
    }

    /// The largest number of entries.
    pub const fn capacity(self) -> usize {
        match self {
            Self::Unicast | Self::Multicast => 4096,
            Self::Division => 16384,
            Self::Record => 10240,
        }
    }

    /// Whether the table's entries match updates as well as reads. The entries of other tables
    /// match only reads.
    pub const fn matches_updates(self) -> bool {
        matches!(self, Self::Multicast | Self::Record)
    }
}

impl fmt::Display for Table {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}
