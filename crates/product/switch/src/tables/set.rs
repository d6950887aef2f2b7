//! One generation of all tables, and the difference between two generations.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::chain::Chain;
use super::diff::{self, Changes, EntryChanges};
use super::division::DivisionEntry;
use super::entry::Entry;
use super::error::TableError;
use super::host::{Host, HostId};
use super::members::MemberSet;
use super::multicast_vring::MulticastEntry;
use super::record::RecordEntry;
use super::rule::{Action, Match};
use super::table::Table;
use super::unicast_vring::UnicastEntry;
use crate::VringSet;

/// Generates the types that have one field or variant for each table.
macro_rules! tables {
    ($($(#[$doc:meta])* $table:ident, $field:ident: $entry:ident;)*) => {
        /// One generation of all tables.
        #[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
        pub struct TableSet {
            /// Rises with every change within a controller's term.
            pub generation: u64,
            /// The servers.
            pub hosts: Vec<Host>,
            /// Ports of the open trunks, ascending. Other trunks neither send nor accept frames.
            pub trunks: Vec<u16>,
            $($(#[$doc])* pub $field: Vec<$entry>,)*
        }

        impl TableSet {
            /// Number of entries of `table`.
            pub fn entries(&self, table: Table) -> usize {
                match table { $(Table::$table => self.$field.len(),)* }
            }

            /// The match and action of each entry of `table`, in the order of the entries.
            pub fn rules(&self, table: Table) -> Vec<(Match, Action<'_>)> {
                match table {
                    $(Table::$table => self.$field.iter().map(|entry| (entry.matches(), entry.action())).collect(),)*
                }
            }

            /// The chain of each entry of `table`, in the order of the entries.
            pub(super) fn chains(&self, table: Table) -> Vec<Option<&Chain>> {
                match table { $(Table::$table => self.$field.iter().map(Entry::chain).collect(),)* }
            }

            pub(super) fn validate_entries(&self, table: Table, vrings: &VringSet) -> Result<(), TableError> {
                match table {
                    $(Table::$table => self.$field.iter().try_for_each(|entry| entry.validate(vrings)),)*
                }
            }
        }

        /// The difference between two generations, each list in ascending order of matches.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct TableDiff {
            /// Servers, identified by their ids.
            pub hosts: Changes<Host>,
            /// Open trunks.
            pub trunks: Changes<u16>,
            $($(#[$doc])* pub $field: Changes<$entry>,)*
            /// Multicast groups. Their member sets identify them, so a group is never *changed*.
            pub groups: Changes<MemberSet>,
        }

        impl TableDiff {
            /// Whether the two generations forward every datagram alike.
            pub fn is_empty(&self) -> bool {
                self.hosts.is_empty() && self.trunks.is_empty() $(&& self.$field.is_empty())*
            }
        }

        impl TableSet {
            /// The difference from `old` to `new`.
            pub fn diff(old: &TableSet, new: &TableSet) -> TableDiff {
                TableDiff {
                    hosts: diff::host_changes(&old.hosts, &new.hosts),
                    trunks: diff::trunk_changes(&old.trunks, &new.trunks),
                    $($field: diff::entry_changes(&old.$field, &new.$field),)*
                    groups: diff::group_changes(old.groups(), new.groups()),
                }
            }
        }

        /// The change of one table.
        #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
        pub enum TableChange {
            $($(#[$doc])* $table(EntryChanges<$entry>),)*
        }

        impl TableChange {
            /// The table that changes.
            pub fn table(&self) -> Table {
                match self { $(Self::$table(_) => Table::$table,)* }
            }

            pub(super) fn apply(&self, tables: &mut TableSet) -> Result<(), TableError> {
                match self { $(Self::$table(changes) => changes.apply(&mut tables.$field),)* }
            }

            pub(super) fn is_applied(&self, tables: &TableSet) -> bool {
                match self { $(Self::$table(changes) => changes.is_applied(&tables.$field),)* }
            }

            /// One change for each table that differs.
            pub(super) fn all(diff: TableDiff) -> Vec<TableChange> {
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

impl TableSet {
    /// The distinct member sets of all entries, ascending.
    pub fn groups(&self) -> BTreeSet<&MemberSet> {
        let of_records = self.record.iter().map(|entry| &entry.members);
        self.multicast.iter().map(|entry| &entry.members).chain(of_records).collect()
    }

    /// The host with this id.
    pub fn host(&self, id: HostId) -> Option<&Host> {
        self.hosts.iter().find(|host| host.id == id)
    }

    /// Whether `next` opens other trunks, or reaches hosts by other ports.
    pub fn reroutes(&self, next: &Self) -> bool {
        let place = |host: &Host| (host.id, host.port, host.is_remote);
        self.trunks != next.trunks || !self.hosts.iter().map(place).eq(next.hosts.iter().map(place))
    }
}
