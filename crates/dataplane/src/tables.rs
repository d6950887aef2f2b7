//! One generation of a switch's tables, as the metadata controller compiles and the switch agents install it.
//!
//! Invariants that [`TableSet::validate`] establishes, and every back end relies on: each table within its
//! capacity, no two entries with the same match, every prefix canonical and inside its ring, every host known,
//! one host per port (the egress stage of multicast rewrites by port), member sets sorted, not empty, bounded.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::fmt;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{Counter, Prefix, VringConfig};

/// Storage hosts of one switch.
pub const HOST_CAPACITY: usize = 256;
/// Entries of `unicast_vring`.
pub const UNICAST_CAPACITY: usize = 4096;
/// Entries of `division`.
pub const DIVISION_CAPACITY: usize = 16384;
/// Entries of `multicast_vring`.
pub const MULTICAST_CAPACITY: usize = 4096;
/// Distinct member sets.
pub const GROUP_CAPACITY: usize = 1024;
/// Members of one multicast group.
pub const GROUP_MEMBERS_MAX: usize = 16;

/// Names a storage host within the tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct HostId(pub u16);

/// Where a storage host is: what the rewrite action writes, and the switch port that leads there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Host {
    /// The name that entries use.
    pub id: HostId,
    /// IPv4 address, in the order of the wire.
    pub ip: [u8; 4],
    /// Ethernet address.
    pub mac: [u8; 6],
    /// Index of the switch port; no two hosts share one.
    pub port: u16,
}

/// `unicast_vring`: destination prefix → partition and its default host (the primary).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnicastEntry {
    /// Vnodes of the partition, inside the unicast ring.
    pub destination: Prefix,
    /// Partition, the first half of the key of `division`.
    pub partition: u32,
    /// Receives what no division claims.
    pub host: HostId,
}

/// `division`: (partition, source prefix) → host; overrides the default of `unicast_vring` (NICE §4.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DivisionEntry {
    /// Partition that `unicast_vring` chose.
    pub partition: u32,
    /// Client addresses of the division.
    pub source: Prefix,
    /// The replica that serves them.
    pub host: HostId,
}

/// `multicast_vring`: destination prefix → group. A group *is* its member set, so that groups survive a
/// change of tables and no entry can name a group that does not exist.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MulticastEntry {
    /// Vnodes of the partition, inside the multicast ring.
    pub destination: Prefix,
    /// Who receives a copy.
    pub members: MemberSet,
}

/// The members of a multicast group: ascending, distinct.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct MemberSet(Vec<HostId>);

impl MemberSet {
    /// Sorts `members` and drops duplicates.
    pub fn new(members: impl IntoIterator<Item = HostId>) -> Self {
        Self(members.into_iter().collect::<BTreeSet<_>>().into_iter().collect())
    }

    /// The members, ascending.
    pub fn as_slice(&self) -> &[HostId] {
        &self.0
    }
}

/// The three match tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Table {
    /// `unicast_vring`.
    Unicast,
    /// `division`.
    Division,
    /// `multicast_vring`.
    Multicast,
}

impl Table {
    /// Every table, in the order of their numbers.
    pub const ALL: [Self; 3] = [Self::Unicast, Self::Division, Self::Multicast];

    /// The name that operators see.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unicast => "unicast_vring",
            Self::Division => "division",
            Self::Multicast => "multicast_vring",
        }
    }

    /// The global counter of the table's hits.
    pub const fn hits_counter(self) -> Counter {
        match self {
            Self::Unicast => Counter::UnicastHits,
            Self::Division => Counter::DivisionHits,
            Self::Multicast => Counter::MulticastHits,
        }
    }

    /// The most entries that the table holds.
    pub const fn capacity(self) -> usize {
        match self {
            Self::Unicast => UNICAST_CAPACITY,
            Self::Division => DIVISION_CAPACITY,
            Self::Multicast => MULTICAST_CAPACITY,
        }
    }
}

impl fmt::Display for Table {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

/// One generation of all tables.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableSet {
    /// Rises with every change within a controller's term.
    pub generation: u64,
    /// Storage hosts.
    pub hosts: Vec<Host>,
    /// Entries of `unicast_vring`.
    pub unicast: Vec<UnicastEntry>,
    /// Entries of `division`.
    pub division: Vec<DivisionEntry>,
    /// Entries of `multicast_vring`.
    pub multicast: Vec<MulticastEntry>,
}

/// Why tables are refused. Every variant names the entry.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[allow(missing_docs, reason = "the message of each variant says what its fields are")]
pub enum TableError {
    #[error("prefix {prefix} is longer than 32 bits or has bits set below its length")]
    BadPrefix { prefix: Prefix },
    #[error("the vrings {unicast} (unicast) and {multicast} (multicast) overlap")]
    VringsOverlap { unicast: Prefix, multicast: Prefix },
    #[error("{entries} entries in table {table}, which holds {capacity}")]
    TableFull { table: Table, entries: usize, capacity: usize },
    #[error("{hosts} hosts, the limit is {HOST_CAPACITY}")]
    TooManyHosts { hosts: usize },
    #[error("{groups} distinct multicast groups, the limit is {GROUP_CAPACITY}")]
    TooManyGroups { groups: usize },
    #[error("host {} appears twice", host.0)]
    DuplicateHost { host: HostId },
    #[error("host {} is the second host on port {port}", host.0)]
    DuplicatePort { host: HostId, port: u16 },
    #[error("host {} is on port {port}, which this switch does not have", host.0)]
    UnknownPort { host: HostId, port: u16 },
    #[error("the address of host {} lies inside a vring", host.0)]
    HostInsideVring { host: HostId },
    #[error("entry {destination} of {table} lies outside the vring {vring}")]
    OutsideVring { table: Table, destination: Prefix, vring: Prefix },
    #[error("entry {destination} appears twice in {table}")]
    DuplicateEntry { table: Table, destination: Prefix },
    #[error("entry (partition {partition}, source {source_prefix}) appears twice in division")]
    DuplicateDivision { partition: u32, source_prefix: Prefix },
    #[error("entry {destination} of {table} names the unknown host {}", host.0)]
    UnknownHost { table: Table, destination: Prefix, host: HostId },
    #[error(
        "entry {destination} of multicast_vring has {members} members, allowed are 1 to {GROUP_MEMBERS_MAX}"
    )]
    GroupSize { destination: Prefix, members: usize },
    #[error("the members of entry {destination} of multicast_vring are not in ascending order")]
    MembersNotSorted { destination: Prefix },
}

impl TableSet {
    /// The distinct member sets of `multicast_vring`, ascending.
    pub fn groups(&self) -> BTreeSet<&MemberSet> {
        self.multicast.iter().map(|entry| &entry.members).collect()
    }

    /// The host named `id`.
    pub fn host(&self, id: HostId) -> Option<&Host> {
        self.hosts.iter().find(|host| host.id == id)
    }

    /// Entries of `table`.
    pub fn entries(&self, table: Table) -> usize {
        match table {
            Table::Unicast => self.unicast.len(),
            Table::Division => self.division.len(),
            Table::Multicast => self.multicast.len(),
        }
    }

    /// Checks everything that back ends rely on (see the module).
    pub fn validate(&self, vrings: &VringConfig) -> Result<(), TableError> {
        self.validate_capacities()?;
        let hosts = self.validate_hosts(vrings)?;
        self.validate_unicast(vrings, &hosts)?;
        self.validate_division(&hosts)?;
        self.validate_multicast(vrings, &hosts)
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

    fn validate_hosts(&self, vrings: &VringConfig) -> Result<BTreeSet<HostId>, TableError> {
        let (mut ids, mut ports) = (BTreeSet::new(), BTreeSet::new());
        for host in &self.hosts {
            if !ids.insert(host.id) {
                return Err(TableError::DuplicateHost { host: host.id });
            }
            if !ports.insert(host.port) {
                return Err(TableError::DuplicatePort { host: host.id, port: host.port });
            }
            if vrings.contains(host.ip) {
                return Err(TableError::HostInsideVring { host: host.id });
            }
        }
        Ok(ids)
    }

    fn validate_unicast(&self, vrings: &VringConfig, hosts: &BTreeSet<HostId>) -> Result<(), TableError> {
        let (table, mut seen) = (Table::Unicast, BTreeSet::new());
        for &UnicastEntry { destination, host, .. } in &self.unicast {
            validate_destination(table, destination, vrings.unicast, &mut seen)?;
            validate_host(table, destination, host, hosts)?;
        }
        Ok(())
    }

    fn validate_division(&self, hosts: &BTreeSet<HostId>) -> Result<(), TableError> {
        let mut seen = BTreeSet::new();
        for &DivisionEntry { partition, source, host } in &self.division {
            if !source.is_canonical() {
                return Err(TableError::BadPrefix { prefix: source });
            }
            if !seen.insert((partition, source)) {
                return Err(TableError::DuplicateDivision { partition, source_prefix: source });
            }
            validate_host(Table::Division, source, host, hosts)?;
        }
        Ok(())
    }

    fn validate_multicast(&self, vrings: &VringConfig, hosts: &BTreeSet<HostId>) -> Result<(), TableError> {
        let (table, mut seen) = (Table::Multicast, BTreeSet::new());
        for MulticastEntry { destination, members } in &self.multicast {
            let (destination, members) = (*destination, members.as_slice());
            validate_destination(table, destination, vrings.multicast, &mut seen)?;
            if members.is_empty() || members.len() > GROUP_MEMBERS_MAX {
                return Err(TableError::GroupSize { destination, members: members.len() });
            }
            // A decoded set did not go through the constructor.
            if members.windows(2).any(|pair| pair[0] >= pair[1]) {
                return Err(TableError::MembersNotSorted { destination });
            }
            for &host in members {
                validate_host(table, destination, host, hosts)?;
            }
        }
        Ok(())
    }
}

fn validate_destination(
    table: Table,
    destination: Prefix,
    vring: Prefix,
    seen: &mut BTreeSet<Prefix>,
) -> Result<(), TableError> {
    if !destination.is_canonical() {
        return Err(TableError::BadPrefix { prefix: destination });
    }
    if !vring.covers(&destination) {
        return Err(TableError::OutsideVring { table, destination, vring });
    }
    if !seen.insert(destination) {
        return Err(TableError::DuplicateEntry { table, destination });
    }
    Ok(())
}

fn validate_host(
    table: Table,
    destination: Prefix,
    host: HostId,
    hosts: &BTreeSet<HostId>,
) -> Result<(), TableError> {
    if hosts.contains(&host) { Ok(()) } else { Err(TableError::UnknownHost { table, destination, host }) }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;

    fn valid() -> TableSet {
        let host = |id: u16| Host {
            id: HostId(id),
            ip: [10, 0, 0, id as u8],
            mac: [2, 0, 0, 0, 0, id as u8],
            port: id,
        };
        TableSet {
            generation: 1,
            hosts: vec![host(1), host(2)],
            unicast: vec![UnicastEntry {
                destination: Prefix::new([10, 10, 0, 0], 17),
                partition: 0,
                host: HostId(1),
            }],
            division: vec![DivisionEntry {
                partition: 0,
                source: Prefix::new([10, 0, 1, 0], 24),
                host: HostId(2),
            }],
            multicast: vec![MulticastEntry {
                destination: Prefix::new([10, 11, 0, 0], 17),
                members: MemberSet::new([HostId(2), HostId(1)]),
            }],
        }
    }

    #[track_caller]
    fn refused(change: impl Fn(&mut TableSet)) -> TableError {
        let mut tables = valid();
        change(&mut tables);
        tables.validate(&VringConfig::DEFAULT).expect_err("must be refused")
    }

    #[test]
    fn every_refusal_names_its_entry() {
        use TableError as E;
        assert_eq!(valid().validate(&VringConfig::DEFAULT), Ok(()));
        let (unknown, prefix) = (HostId(9), Prefix::new([10, 10, 0, 0], 17));
        let group = Prefix::new([10, 11, 0, 0], 17);
        assert_eq!(
            refused(|t| t.unicast[0].host = unknown),
            E::UnknownHost { table: Table::Unicast, destination: prefix, host: unknown }
        );
        assert!(matches!(refused(|t| t.division[0].host = unknown), E::UnknownHost { .. }));
        assert!(matches!(
            refused(|t| t.multicast[0].members = MemberSet::new([unknown])),
            E::UnknownHost { table: Table::Multicast, .. }
        ));
        assert_eq!(
            refused(|t| t.unicast.push(t.unicast[0])),
            E::DuplicateEntry { table: Table::Unicast, destination: prefix }
        );
        assert!(matches!(refused(|t| t.division.push(t.division[0])), E::DuplicateDivision { .. }));
        assert!(matches!(refused(|t| t.multicast.push(t.multicast[0].clone())), E::DuplicateEntry { .. }));
        assert!(matches!(refused(|t| t.unicast[0].destination = group), E::OutsideVring { .. }));
        assert!(matches!(refused(|t| t.unicast[0].destination.length = 15), E::OutsideVring { .. }));
        assert!(matches!(refused(|t| t.unicast[0].destination.address[3] = 1), E::BadPrefix { .. }));
        assert!(matches!(refused(|t| t.division[0].source.length = 33), E::BadPrefix { .. }));
        assert!(matches!(refused(|t| t.hosts.push(t.hosts[0])), E::DuplicateHost { .. }));
        assert!(matches!(refused(|t| t.hosts[1].port = 1), E::DuplicatePort { port: 1, .. }));
        assert!(matches!(refused(|t| t.hosts[1].ip = [10, 11, 0, 1]), E::HostInsideVring { .. }));
        assert_eq!(
            refused(|t| t.multicast[0].members = MemberSet(vec![])),
            E::GroupSize { destination: group, members: 0 }
        );
        assert!(matches!(
            refused(|t| t.multicast[0].members = MemberSet((0..17).map(HostId).collect())),
            E::GroupSize { members: 17, .. }
        ));
        assert_eq!(
            refused(|t| t.multicast[0].members = MemberSet(vec![HostId(2), HostId(1)])),
            E::MembersNotSorted { destination: group }
        );
        let mut elsewhere = valid();
        elsewhere.hosts[0].port = 7;
        assert_eq!(
            elsewhere.validate_ports(|port| port < 3),
            Err(E::UnknownPort { host: HostId(1), port: 7 })
        );
    }

    #[test]
    fn capacities_are_exact() {
        let fill = |count: u32| {
            let mut tables = valid();
            tables.unicast = (0..count)
                .map(|index| UnicastEntry {
                    destination: Prefix::new((0x0a0a_0000 + index).to_be_bytes(), 32),
                    partition: index,
                    host: HostId(1),
                })
                .collect();
            tables.validate(&VringConfig::DEFAULT)
        };
        assert_eq!(fill(4096), Ok(()));
        assert_eq!(
            fill(4097),
            Err(TableError::TableFull { table: Table::Unicast, entries: 4097, capacity: 4096 })
        );
    }

    #[test]
    fn groups_are_keyed_by_member_set() {
        let mut tables = valid();
        tables.multicast.push(MulticastEntry {
            destination: Prefix::new([10, 11, 128, 0], 17),
            members: MemberSet::new([HostId(1), HostId(2), HostId(1)]),
        });
        assert_eq!(tables.groups().len(), 1);
    }
}
