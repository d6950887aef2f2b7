//! The two halves of a table entry: its match key and its action.

use core::fmt;

use serde::{Deserialize, Serialize};

use super::host::HostId;
use super::members::MemberSet;
use crate::Prefix;

/// The match key of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Match {
    /// Longest-prefix match of an address. In tables that have scopes, the scope must be equal,
    /// too.
    Address {
        /// The partition, in `division`; `None` in tables that match only an address.
        scope: Option<u32>,
        prefix: Prefix,
    },
    /// Range match of the match value in a request's header.
    Values {
        /// The unicast ring of the keyspace.
        ring: Prefix,
        /// The smallest value.
        first: u128,
        /// The largest value.
        last: u128,
    },
}

impl Match {
    pub(super) fn scope(&self) -> Option<u32> {
        match *self {
            Self::Address { scope, .. } => scope,
            Self::Values { .. } => None,
        }
    }

    /// The prefix, if this is an address match.
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

/// The switch's action on a datagram that the entry matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action<'a> {
    /// Send it to a host.
    Host {
        /// The receiver.
        host: HostId,
        /// The scope in which `division` is looked up next; 0 if no lookup follows.
        scope: u32,
    },
    /// Send a copy to each member.
    Group(&'a MemberSet),
    /// Send a get to the host, and any other request to each member.
    Record {
        /// The receiver of gets.
        host: HostId,
        /// The receivers of requests other than gets.
        members: &'a MemberSet,
    },
}
