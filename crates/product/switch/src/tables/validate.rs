//! Validation of a generation of tables: establishes the invariants that every back end relies on
//! (listed in [`super`]).

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use super::chain::Chain;
use super::error::TableError;
use super::host::{Host, HostId, HostRole};
use super::members::MemberSet;
use super::rule::{Action, Match};
use super::set::TableSet;
use super::table::Table;
use crate::{DIVISIONS_MAX, GROUP_CAPACITY, HOST_CAPACITY, VringConfig, VringSet};

impl TableSet {
    /// Checks every invariant of a generation.
    pub fn validate(&self, vrings: &VringSet) -> Result<(), TableError> {
        self.validate_capacities()?;
        let nodes = validate_hosts(&self.hosts, vrings)?;
        Table::ALL.into_iter().try_for_each(|table| self.validate_table(table, vrings, &nodes))?;
        self.validate_rings(vrings)
    }

    /// Checks that every keyspace is matched either by vnodes or by records.
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

    /// Checks that the port of every host satisfies `ports`.
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

/// Checks that a chain is well-formed, and that its entry sends puts only to the head and gets only
/// to the tail.
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
    let is_consistent = match action {
        Action::Host { host, .. } => get == Some(*host),
        Action::Group(members) => is_head(members),
        Action::Record { host, members } => get == Some(*host) && is_head(members),
    };
    match chain.is_well_formed() && is_consistent {
        true => Ok(()),
        false => Err(TableError::BadChain { table, matches }),
    }
}

/// Checks that matches are distinct, that records do not overlap, and that no partition has more
/// than [`DIVISIONS_MAX`] divisions.
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

/// Checks the hosts. Returns the storage nodes, which are the hosts that entries may name.
fn validate_hosts(hosts: &[Host], vrings: &VringSet) -> Result<BTreeSet<HostId>, TableError> {
    let (mut ids, mut ports) = (BTreeSet::new(), BTreeMap::new());
    let (mut ips, mut macs) = (BTreeSet::new(), BTreeSet::new());
    for host in hosts {
        if !ids.insert(host.id) {
            return Err(TableError::DuplicateHost { host: host.id });
        }
        let other = ports.insert(host.port, host.is_remote);
        if other.is_some_and(|is_remote| !(is_remote && host.is_remote)) {
            return Err(TableError::DuplicatePort { host: host.id, port: host.port });
        }
        if !ips.insert(host.ip) || !macs.insert(host.mac) {
            return Err(TableError::DuplicateAddress { host: host.id });
        }
        if vrings.contains(host.ip) {
            return Err(TableError::HostInsideVring { host: host.id });
        }
    }
    Ok(hosts.iter().filter(|host| host.role == HostRole::Node).map(|host| host.id).collect())
}
