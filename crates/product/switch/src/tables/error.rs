//! Why tables are refused.

use nicekv_proto::placement::GroupRing;
use thiserror::Error;

use super::{DIVISIONS_MAX, GROUP_CAPACITY, GROUP_MEMBERS_MAX, HOST_CAPACITY, HostId, Match, Table};
use crate::{Prefix, VRINGS_MAX};

/// Why tables are refused. Every variant names the entry.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum TableError {
    #[error("prefix {prefix} is longer than 32 bits or has bits set below its length")]
    BadPrefix { prefix: Prefix },
    #[error("the vrings {one} and {other} overlap")]
    VringsOverlap { one: Prefix, other: Prefix },
    #[error("{pairs} pairs of vrings, allowed are 1 to {VRINGS_MAX}")]
    VringCount { pairs: usize },
    #[error("{entries} entries in table {table}, which holds {capacity}")]
    TableFull { table: Table, entries: usize, capacity: usize },
    #[error("{hosts} hosts, the limit is {HOST_CAPACITY}")]
    TooManyHosts { hosts: usize },
    #[error("{groups} distinct multicast groups, the limit is {GROUP_CAPACITY}")]
    TooManyGroups { groups: usize },
    #[error("host {} appears twice", host.0)]
    DuplicateHost { host: HostId },
    #[error("host {} is the second host on port {port}, and that is no trunk to both", host.0)]
    DuplicatePort { host: HostId, port: u16 },
    #[error("host {} has an address that another host has, too", host.0)]
    DuplicateAddress { host: HostId },
    #[error("host {} is on port {port}, which this switch does not have", host.0)]
    UnknownPort { host: HostId, port: u16 },
    #[error("the address of host {} lies inside a vring", host.0)]
    HostInsideVring { host: HostId },
    #[error("entry {destination} of {table} lies outside every vring of its kind")]
    OutsideVring { table: Table, destination: Prefix },
    #[error("entry {matches} appears twice in {table}")]
    DuplicateEntry { table: Table, matches: Match },
    #[error("partition {partition} has {divisions} divisions, the limit is {DIVISIONS_MAX}")]
    TooManyDivisions { partition: u32, divisions: usize },
    #[error("entry {matches} of {table} names host {}, which is no storage node of these tables", host.0)]
    UnknownHost { table: Table, matches: Match, host: HostId },
    #[error("entry {matches} of {table} has {members} members, allowed are 1 to {GROUP_MEMBERS_MAX}")]
    GroupSize { table: Table, matches: Match, members: usize },
    #[error("the members of entry {matches} of {table} are not in ascending order")]
    MembersNotSorted { table: Table, matches: Match },
    #[error(
        "the chain of entry {matches} of {table} is none, or does not begin and end where the entry leads"
    )]
    BadChain { table: Table, matches: Match },
    #[error("the ring of groups {prefix} is no /{} to /{}", GroupRing::LENGTH_MIN, GroupRing::LENGTH_MAX)]
    GroupRingLength { prefix: Prefix },
    #[error("entry {destination} of the ring of groups is no /20 with places, and no /32 without")]
    GroupPrefix { destination: Prefix },
    #[error(
        "the places of entry {matches} of multicast_vring are not one for each member of a group, from 0 to 11, all different"
    )]
    BadPlaces { matches: Match },
    #[error("record {matches} ends before it begins")]
    EmptyRecord { matches: Match },
    #[error("the records {one} and {other} share match values")]
    RecordsOverlap { one: Match, other: Match },
    #[error("the keyspace of {ring} has both records and vnodes")]
    MixedRing { ring: Prefix },
    #[error("the update is of generation {base}, {} is installed", .installed.map_or(-1, |generation| generation as i64))]
    OtherBase { base: u64, installed: Option<u64> },
    #[error("the update removes entry {matches} of {table}, which is not there")]
    NothingToRemove { table: Table, matches: Match },
}

/// What needs no check is as good as what passed one.
impl From<core::convert::Infallible> for TableError {
    fn from(never: core::convert::Infallible) -> Self {
        match never {}
    }
}
