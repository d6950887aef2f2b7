//! One generation of a switch's tables, as the metadata controller compiles and the switch agents install it.
//!
//! A table is a file here: its entry, what it matches, what it does, its own rules, its capacity and names. A new table is a
//! file and a line in the list below; installing, diffing, updating, counting and the loader of the kernel go by the list.
//!
//! ```text
//!   hosts            where each server is: the targets of all other tables, and who may send from which port
//!   unicast_vring    destination prefix           ─▶ host, partition
//!   division         (partition, source prefix)   ─▶ host
//!   multicast_vring  destination prefix           ─▶ group of hosts; of storage targets, those of the address' mask
//!   record           range of match values        ─▶ host, partition, group of hosts
//! ```
//!
//! Invariants that [`TableSet::validate`] establishes, and every back end relies on: each table within its capacity, no two
//! entries with the same match, every prefix canonical and inside its ring, every host known and a storage node, one host
//! per port (the egress stage of multicast rewrites by port) but for trunks (where it does not), member sets sorted, not empty, bounded, at most
//! [`DIVISIONS_MAX`] divisions of a partition, no two records of a keyspace that share a value, and no keyspace with both records and vnodes.

mod chain;
mod diff;
mod division;
mod error;
mod group;
mod hosts;
mod multicast_vring;
mod record;
mod unicast_vring;
mod update;

use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::fmt;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::{Prefix, VringConfig, VringSet};

pub use chain::{CHAIN_NODES_MAX, Chain};
pub use diff::Changes;
pub use division::{DIVISIONS_MAX, DivisionEntry};
pub use error::TableError;
pub use group::{GROUP_LENGTH, Places, masked_entry, subset_entries};
pub use hosts::{HOST_CAPACITY, Host, HostId, HostIndex, HostRole};
pub use multicast_vring::{GROUP_CAPACITY, GROUP_MEMBERS_MAX, MemberSet, MulticastEntry};
pub use record::RecordEntry;
pub use unicast_vring::UnicastEntry;
pub use update::{EntryChanges, TableUpdate};

/// What an entry matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Match {
    /// An address: the longest prefix wins, within a scope if the table has scopes.
    Address {
        /// What must be equal: the partition in `division`; none in tables that match an address alone.
        scope: Option<u32>,
        /// Addresses.
        prefix: Prefix,
    },
    /// The match value in the header of what is for a keyspace.
    Values {
        /// The unicast ring of the keyspace.
        ring: Prefix,
        /// The smallest value.
        first: u128,
        /// The largest one.
        last: u128,
    },
}

impl Match {
    fn scope(&self) -> Option<u32> {
        match *self {
            Self::Address { scope, .. } => scope,
            Self::Values { .. } => None,
        }
    }

    /// Of what matches an address.
    pub(crate) fn prefix(&self) -> Option<Prefix> {
        match *self {
            Self::Address { prefix, .. } => Some(prefix),
            Self::Values { .. } => None,
        }
    }
}

impl fmt::Display for Match {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address { scope: Some(scope), prefix } => write!(formatter, "({scope}, {prefix})"),
            Self::Address { scope: None, prefix } => prefix.fmt(formatter),
            Self::Values { ring, first, last } => write!(formatter, "({ring}, {first:032x} to {last:032x})"),
        }
    }
}

/// What an entry does with what it matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action<'a> {
    /// To this host. `scope`: where the next table looks, 0 if there is none.
    Host {
        /// The receiver.
        host: HostId,
        /// For the next table.
        scope: u32,
    },
    /// A copy to each of these hosts.
    Group(&'a MemberSet),
    /// Gets to the host, of others a copy to each of the members.
    Record {
        /// The receiver of gets.
        host: HostId,
        /// Those of all else.
        members: &'a MemberSet,
    },
}

impl Table {
    /// Whether its entries match updates, too. Those of the others match reads and nothing else.
    pub const fn is_of_updates(self) -> bool {
        matches!(self, Self::Multicast | Self::Record)
    }
}

/// What a table's file says about its entries.
pub trait Entry: Clone + fmt::Debug + PartialEq + Serialize + DeserializeOwned {
    /// The table's name for operators.
    const NAME: &'static str;
    /// The name of the counter of its hits.
    const HITS: &'static str;
    /// The most entries that it holds.
    const CAPACITY: usize;

    /// What it matches; no other entry of the table matches the same.
    fn matches(&self) -> Match;

    /// What it does.
    fn action(&self) -> Action<'_>;

    /// The chain of its partition, if there is one.
    fn chain(&self) -> Option<&Chain> {
        None
    }

    /// Checks what is particular to the table: not the prefix's form, nor that hosts exist, nor that the entry is alone.
    fn validate(&self, vrings: &VringSet) -> Result<(), TableError>;
}

/// Makes all that depends on which tables there are.
macro_rules! tables {
    ($($(#[$doc:meta])* $table:ident, $field:ident: $entry:ident;)*) => {
        /// The match tables.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
        pub enum Table {
            $($(#[$doc])* $table,)*
        }

        impl Table {
            /// Every table, in the order of their numbers.
            pub const ALL: [Self; TABLE_COUNT] = [$(Self::$table),*];

            /// The name that operators see.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$table => $entry::NAME,)* }
            }

            /// The name of the counter of the table's hits.
            pub const fn hits_name(self) -> &'static str {
                match self { $(Self::$table => $entry::HITS,)* }
            }

            /// The most entries that the table holds.
            pub const fn capacity(self) -> usize {
                match self { $(Self::$table => $entry::CAPACITY,)* }
            }
        }

        /// Number of tables.
        pub const TABLE_COUNT: usize = [$(Table::$table),*].len();

        /// One generation of all tables.
        #[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
        pub struct TableSet {
            /// Rises with every change within a controller's term.
            pub generation: u64,
            /// The servers.
            pub hosts: Vec<Host>,
            /// Ports of trunks that are open, ascending: no frame leaves by the others, and none is taken there.
            pub trunks: Vec<u16>,
            $($(#[$doc])* pub $field: Vec<$entry>,)*
        }

        impl TableSet {
            /// Entries of `table`.
            pub fn entries(&self, table: Table) -> usize {
                match table { $(Table::$table => self.$field.len(),)* }
            }

            /// What the entries of `table` match and do, in their order.
            pub fn rules(&self, table: Table) -> Vec<(Match, Action<'_>)> {
                match table {
                    $(Table::$table => self.$field.iter().map(|entry| (entry.matches(), entry.action())).collect(),)*
                }
            }

            /// The chains of the entries of `table`, in their order.
            fn chains(&self, table: Table) -> Vec<Option<&Chain>> {
                match table { $(Table::$table => self.$field.iter().map(Entry::chain).collect(),)* }
            }

            fn validate_entries(&self, table: Table, vrings: &VringSet) -> Result<(), TableError> {
                match table {
                    $(Table::$table => self.$field.iter().try_for_each(|entry| entry.validate(vrings)),)*
                }
            }
        }

        /// What changes from one generation to the next, each list in ascending order of what matches.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct TableDiff {
            /// Servers, known by their ids.
            pub hosts: Changes<Host>,
            /// Trunks that are open.
            pub trunks: Changes<u16>,
            $($(#[$doc])* pub $field: Changes<$entry>,)*
            /// Groups are known by their member set, hence never *changed*.
            pub groups: Changes<MemberSet>,
        }

        impl TableDiff {
            /// Whether the two generations route alike.
            pub fn is_empty(&self) -> bool {
                self.hosts.is_empty() && self.trunks.is_empty() $(&& self.$field.is_empty())*
            }
        }

        impl TableSet {
            /// What must change to get from `old` to `new`.
            pub fn diff(old: &TableSet, new: &TableSet) -> TableDiff {
                TableDiff {
                    hosts: diff::host_changes(&old.hosts, &new.hosts),
                    trunks: diff::trunk_changes(&old.trunks, &new.trunks),
                    $($field: diff::entry_changes(&old.$field, &new.$field),)*
                    groups: diff::group_changes(old, new),
                }
            }
        }

        /// The change of one table.
        #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
        pub enum TableChange {
            $($(#[$doc])* $table(EntryChanges<$entry>),)*
        }

        impl TableChange {
            /// Which table changes.
            pub fn table(&self) -> Table {
                match self { $(Self::$table(_) => Table::$table,)* }
            }

            fn apply(&self, tables: &mut TableSet) -> Result<(), TableError> {
                match self { $(Self::$table(changes) => changes.apply(Table::$table, &mut tables.$field),)* }
            }

            fn is_applied(&self, tables: &TableSet) -> bool {
                match self { $(Self::$table(changes) => changes.is_applied(&tables.$field),)* }
            }

            /// The changes that lead from one generation to another, one for each table that differs.
            fn all(diff: TableDiff) -> Vec<TableChange> {
                let mut all = Vec::new();
                $(if !diff.$field.is_empty() {
                    all.push(Self::$table(EntryChanges::of(diff.$field)));
                })*
                all
            }
        }
    };
}

tables! {
    /// `unicast_vring`.
    Unicast, unicast: UnicastEntry;
    /// `division`.
    Division, division: DivisionEntry;
    /// `multicast_vring`.
    Multicast, multicast: MulticastEntry;
    /// `record`.
    Record, record: RecordEntry;
}

impl fmt::Display for Table {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

impl TableSet {
    /// The distinct member sets, ascending.
    pub fn groups(&self) -> BTreeSet<&MemberSet> {
        let of_records = self.record.iter().map(|entry| &entry.members);
        self.multicast.iter().map(|entry| &entry.members).chain(of_records).collect()
    }

    /// The host named `id`.
    pub fn host(&self, id: HostId) -> Option<&Host> {
        self.hosts.iter().find(|host| host.id == id)
    }

    /// Checks everything that back ends rely on (see the module).
    pub fn validate(&self, vrings: &VringSet) -> Result<(), TableError> {
        self.validate_capacities()?;
        let nodes = hosts::validate(&self.hosts, vrings)?;
        Table::ALL.into_iter().try_for_each(|table| self.validate_table(table, vrings, &nodes))?;
        self.validate_rings(vrings)
    }

    /// Checks that every keyspace is matched in one way.
    fn validate_rings(&self, vrings: &VringSet) -> Result<(), TableError> {
        let by_records: BTreeSet<_> = self.record.iter().map(|entry| entry.ring).collect();
        let mut pairs = vrings.iter().filter(|pair| by_records.contains(&pair.unicast));
        let is_mixed = |pair: &&VringConfig| {
            self.unicast.iter().any(|entry| pair.contains(entry.destination.address))
                || self.multicast.iter().any(|entry| pair.contains(entry.destination.address))
        };
        match pairs.find(is_mixed) {
            Some(pair) => Err(TableError::MixedRing { ring: pair.unicast }),
            None => Ok(()),
        }
    }

    /// Checks that every host is on one of `ports`.
    pub fn validate_ports(&self, ports: impl Fn(u16) -> bool) -> Result<(), TableError> {
        match self.hosts.iter().find(|host| !ports(host.port)) {
            Some(host) => Err(TableError::UnknownPort { host: host.id, port: host.port }),
            None => Ok(()),
        }
    }

    fn validate_capacities(&self) -> Result<(), TableError> {
        for table in Table::ALL {
            let (entries, capacity) = (self.entries(table), table.capacity());
            if entries > capacity {
                return Err(TableError::TableFull { table, entries, capacity });
            }
        }
        if self.hosts.len() > HOST_CAPACITY {
            return Err(TableError::TooManyHosts { hosts: self.hosts.len() });
        }
        let groups = self.groups().len();
        if groups > GROUP_CAPACITY {
            return Err(TableError::TooManyGroups { groups });
        }
        Ok(())
    }

    fn validate_table(
        &self,
        table: Table,
        vrings: &VringSet,
        nodes: &BTreeSet<HostId>,
    ) -> Result<(), TableError> {
        self.validate_entries(table, vrings)?;
        let rules = self.rules(table);
        for ((matches, action), chain) in rules.iter().zip(self.chains(table)) {
            if let Some(chain) = chain {
                validate_chain(table, *matches, action, chain, nodes)?;
            }
            if let Some(prefix) = matches.prefix().filter(|prefix| !prefix.is_canonical()) {
                return Err(TableError::BadPrefix { prefix });
            }
            let (host, group): (_, &[HostId]) = match action {
                Action::Host { host, .. } => (Some(host), &[]),
                Action::Group(members) => (None, members.as_slice()),
                Action::Record { host, members } => (Some(host), members.as_slice()),
            };
            if let Some(&host) = host.into_iter().chain(group).find(|host| !nodes.contains(host)) {
                return Err(TableError::UnknownHost { table, matches: *matches, host });
            }
        }
        validate_matches(table, rules.into_iter().map(|(matches, _)| matches).collect())
    }
}

/// Checks that a chain is one, and that its entry sends puts to its head alone, and gets to its tail.
fn validate_chain(
    table: Table,
    matches: Match,
    action: &Action<'_>,
    chain: &Chain,
    nodes: &BTreeSet<HostId>,
) -> Result<(), TableError> {
    if let Some(&host) = chain.nodes().iter().find(|host| !nodes.contains(host)) {
        return Err(TableError::UnknownHost { table, matches, host });
    }
    let (put, get) = (chain.receiver(true), chain.receiver(false));
    let is_head = |members: &MemberSet| put.is_some_and(|head| members.as_slice() == [head]);
    let leads_there = match action {
        Action::Host { host, .. } => get == Some(*host),
        Action::Group(members) => is_head(members),
        Action::Record { host, members } => get == Some(*host) && is_head(members),
    };
    match chain.is_sound() && leads_there {
        true => Ok(()),
        false => Err(TableError::BadChain { table, matches }),
    }
}

/// Checks that no two entries match the same, and that a partition has no more divisions than switches look at.
fn validate_matches(table: Table, mut all: Vec<Match>) -> Result<(), TableError> {
    all.sort_unstable();
    if let Some(twice) = all.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(TableError::DuplicateEntry { table, matches: twice[0] });
    }
    let overlap = |pair: &&[Match]| match (pair[0], pair[1]) {
        (Match::Values { ring, last, .. }, Match::Values { ring: next, first, .. }) => {
            ring == next && first <= last
        }
        _ => false,
    };
    if let Some(both) = all.windows(2).find(overlap) {
        return Err(TableError::RecordsOverlap { one: both[0], other: both[1] });
    }
    let scopes = all.chunk_by(|one, next| one.scope() == next.scope());
    let mut scopes = scopes.filter_map(|scope| Some((scope[0].scope()?, scope.len())));
    match scopes.find(|(_, divisions)| *divisions > DIVISIONS_MAX) {
        Some((partition, divisions)) => Err(TableError::TooManyDivisions { partition, divisions }),
        None => Ok(()),
    }
}

/// Checks that a destination lies in one of the rings of its kind.
fn validate_destination(
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

#[cfg(test)]
mod tests;
