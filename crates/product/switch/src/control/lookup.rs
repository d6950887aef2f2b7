//! Lookup of a key in the installed tables, for operators: the entries that match its gets and
//! updates.

use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::{
    Backend, DivisionEntry, Entry, Host, HostId, HotEntry, MemberSet, MulticastEntry, RecordEntry, TableSet,
    UnicastEntry,
};

/// A key, as the tables match it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lookup {
    /// Its address in the unicast ring of its keyspace.
    pub unicast: [u8; 4],
    /// Its address in the multicast ring.
    pub multicast: [u8; 4],
    /// Its match value.
    pub value: u128,
    /// Its keyspace.
    pub keyspace: u16,
    /// A client whose datagrams the switch should trace from now on. Another lookup with the same
    /// client returns the trace and ends it; a lookup without a client also ends it.
    pub watch: Option<u64>,
}

/// The trace of a client's datagrams at a switch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientTrace {
    /// The switch's boot-time clock when it replied.
    pub now_ns: u64,
    /// Why the trace may be incomplete, if it may.
    pub blind: Option<String>,
    pub seen: Vec<TracedDatagram>,
}

/// A datagram in a trace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TracedDatagram {
    /// The time of the datagram, on the switch's boot-time clock.
    pub at_ns: u64,
    /// The datagram's opcode, and where the switch sent it.
    pub what: String,
}

/// A matching entry with its hits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Met<E> {
    pub entry: E,
    /// The hits of the entry; `None`: the switch did not report them.
    pub hits: Option<u64>,
    /// The entry in the words of the switch's own protocol, if it has one ([`Backend::native_entry`]).
    pub native: Option<String>,
}

/// The entries that match a key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Found {
    /// The entry of `unicast_vring`. If there is none, nor a record, gets are dropped.
    pub unicast: Option<Met<UnicastEntry>>,
    /// The divisions of the key's partition, which override the host of gets.
    pub divisions: Vec<Met<DivisionEntry>>,
    /// The entry of `multicast_vring`. If there is none, nor a record, updates are dropped.
    pub multicast: Option<Met<MulticastEntry>>,
    /// The entry of `record`, if the keyspace is range-partitioned.
    pub record: Option<Met<RecordEntry>>,
    /// The servers that these entries name.
    pub hosts: Vec<Host>,
    /// The key's entry in table `hot`.
    pub hot: Option<HotEntry>,
    /// The trace of the client. The process that runs the agent adds it; the tables do not know
    /// clients.
    pub client_trace: Option<ClientTrace>,
}

impl Found {
    pub(super) fn of<B: Backend>(tables: &TableSet, backend: &B, lookup: Lookup) -> Self {
        let unicast = longest(&tables.unicast, lookup.unicast).map(|at| met(backend, &tables.unicast, at));
        let holds = |entry: &RecordEntry| {
            entry.ring.contains(lookup.unicast) && (entry.first..=entry.last).contains(&lookup.value)
        };
        let record = tables.record.iter().position(holds).map(|at| met(backend, &tables.record, at));
        let partition = record.as_ref().map(|met| met.entry.partition);
        let scope = partition.or(unicast.as_ref().map(|met| met.entry.partition));
        let of_scope = |at: &usize| Some(tables.division[*at].partition) == scope;
        let divisions = (0..tables.division.len()).filter(of_scope);
        let divisions: Vec<_> = divisions.map(|at| met(backend, &tables.division, at)).collect();
        let multicast = longest(&tables.multicast, lookup.multicast);
        let multicast = multicast.map(|at| met(backend, &tables.multicast, at));
        let mut found = Self { unicast, divisions, multicast, record, ..Self::default() };
        found.hosts = tables.hosts.iter().filter(|host| found.names(host.id)).copied().collect();
        found
    }

    /// The partition, and the default host for gets.
    pub fn gets(&self) -> Option<(u32, HostId)> {
        let by_record = self.record.as_ref().map(|met| (met.entry.partition, met.entry.host));
        by_record.or_else(|| self.unicast.as_ref().map(|met| (met.entry.partition, met.entry.host)))
    }

    /// The multicast group for puts.
    pub fn puts(&self) -> Option<&MemberSet> {
        let by_record = self.record.as_ref().map(|met| &met.entry.members);
        by_record.or_else(|| self.multicast.as_ref().map(|met| &met.entry.members))
    }

    fn names(&self, id: HostId) -> bool {
        self.gets().is_some_and(|(_, host)| host == id)
            || self.divisions.iter().any(|met| met.entry.host == id)
            || self.puts().is_some_and(|members| members.as_slice().contains(&id))
    }
}

/// The index of the entry with the longest prefix that contains `address`.
fn longest<E: Entry>(entries: &[E], address: [u8; 4]) -> Option<usize> {
    let prefixes = entries.iter().map(|entry| entry.matches().prefix()).enumerate();
    let holding = prefixes.filter_map(|(at, prefix)| Some((at, prefix.filter(|it| it.contains(address))?)));
    holding.max_by_key(|(_, prefix)| prefix.length).map(|(at, _)| at)
}

fn met<B: Backend, E: Entry + Clone>(backend: &B, entries: &[E], at: usize) -> Met<E> {
    let hits = backend.entry_hits(E::TABLE).ok().and_then(|hits| hits.get(at).copied());
    Met { entry: entries[at].clone(), hits, native: backend.native_entry(E::TABLE, at) }
}
