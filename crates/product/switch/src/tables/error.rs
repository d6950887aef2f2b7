//! Errors of tables and rings.

use nicekv_proto::placement::GroupRing;
use thiserror::Error;

use super::host::HostId;
use super::rule::Match;
use super::table::Table;
use crate::{DIVISIONS_MAX, GROUP_CAPACITY, GROUP_MEMBERS_MAX, HOST_CAPACITY, Prefix, VRINGS_MAX};

/// Why tables or rings are refused. Every variant names what is wrong.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum TableError {
    #[error("prefix {prefix} is longer than 32 bits or has bits set below its length")]
    BadPrefix { prefix: Prefix },
    #[error("vrings {one} and {other} overlap")]
    VringsOverlap { one: Prefix, other: Prefix },
    #[error("{pairs} pairs of vrings; 1 to {VRINGS_MAX} are allowed")]
    VringCount { pairs: usize },
    #[error("{entries} entries in table {table}; its capacity is {capacity}")]
    TableFull { table: Table, entries: usize, capacity: usize },
    #[error("{hosts} hosts; the limit is {HOST_CAPACITY}")]
    TooManyHosts { hosts: usize },
    #[error("{groups} distinct multicast groups; the limit is {GROUP_CAPACITY}")]
    TooManyGroups { groups: usize },
    #[error("host {} appears twice", host.0)]
    DuplicateHost { host: HostId },
    #[error("host {} shares port {port}, which is not a trunk, with another host", host.0)]
    DuplicatePort { host: HostId, port: u16 },
    #[error("host {} has the address of another host", host.0)]
    DuplicateAddress { host: HostId },
    #[error("host {} is on port {port}, which this switch does not have", host.0)]
    UnknownPort { host: HostId, port: u16 },
    #[error("the address of host {} is inside a vring", host.0)]
    HostInsideVring { host: HostId },
    #[error("entry {destination} of {table} is outside of every vring of its kind")]
    OutsideVring { table: Table, destination: Prefix },
    #[error("entry {matches} appears twice in {table}")]
    DuplicateEntry { table: Table, matches: Match },
    #[error("partition {partition} has {divisions} divisions; the limit is {DIVISIONS_MAX}")]
    TooManyDivisions { partition: u32, divisions: usize },
    #[error("entry {matches} of {table} names host {}, which is not a storage node of these tables", host.0)]
    UnknownHost { table: Table, matches: Match, host: HostId },
    #[error("entry {matches} of {table} has {members} members; 1 to {GROUP_MEMBERS_MAX} are allowed")]
    GroupSize { table: Table, matches: Match, members: usize },
    #[error("the members of entry {matches} of {table} are not in ascending order")]
    MembersNotSorted { table: Table, matches: Match },
    #[error(
        "the chain of entry {matches} of {table} is malformed, or its head or tail is not the entry's host"
    )]
    BadChain { table: Table, matches: Match },
    #[error("the ring of groups {prefix} must be a /{} to /{}", GroupRing::LENGTH_MIN, GroupRing::LENGTH_MAX)]
    GroupRingLength { prefix: Prefix },
    #[error("entry {destination} of the ring of groups must be a /20 with places or a /32 without")]
    GroupPrefix { destination: Prefix },
    #[error(
        "entry {matches} of multicast_vring needs one place for each member, from 0 to 11, all different"
    )]
    BadPlaces { matches: Match },
    #[error("the range of record {matches} ends before it begins")]
    EmptyRecord { matches: Match },
    #[error("records {one} and {other} overlap")]
    RecordsOverlap { one: Match, other: Match },
    #[error("the keyspace of {ring} has both records and vnodes")]
    MixedRing { ring: Prefix },
    #[error("the update is for generation {base}, but {} is installed", .installed.map_or(-1, |generation| generation as i64))]
    OtherBase { base: u64, installed: Option<u64> },
    #[error("the update removes entry {matches} of {table}, which does not exist")]
    NothingToRemove { table: Table, matches: Match },
}

/// For `TryInto<VringSet>` bounds: converting a `VringSet` into itself cannot fail.
impl From<core::convert::Infallible> for TableError {
    fn from(never: core::convert::Infallible) -> Self {
        match never {}
    }
}
