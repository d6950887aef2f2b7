//! What the installed tables do with a key: the entries that a get and an update of it meet, for operators.

use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::{
    Backend, DivisionEntry, Entry, Host, HostId, HotEntry, MemberSet, MulticastEntry, RecordEntry, Table,
    TableSet, UnicastEntry,
};

/// Two addresses of a key, one in each ring of its keyspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lookup {
    /// Where its gets go.
    pub unicast: [u8; 4],
    /// Where its updates go.
    pub multicast: [u8; 4],
    /// Its match value.
    pub value: u128,
    /// Its keyspace.
    pub keyspace: u16,
    /// A client whose datagrams are to be noted from now on; asked for again, they are told, and that ends. Nobody's: it ends, too.
    pub watch: Option<u64>,
}

/// What a switch has seen of the datagrams of the client that it was to watch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sight {
    /// Its boot-time clock, when it answered.
    pub now_ns: u64,
    /// Why it cannot see all of them.
    pub blind: Option<String>,
    /// What it has seen.
    pub seen: Vec<Sighting>,
}

/// A datagram that a switch has seen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sighting {
    /// By its boot-time clock.
    pub at_ns: u64,
    /// What, and where.
    pub what: String,
}

/// An entry, and how many packets have met it; `None`: the switch did not say.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Met<E> {
    /// The entry.
    pub entry: E,
    /// Its packets.
    pub hits: Option<u64>,
}

/// What was found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Found {
    /// In the table of gets; `None`: they are dropped.
    pub unicast: Option<Met<UnicastEntry>>,
    /// The divisions of that partition: gets from there go elsewhere.
    pub divisions: Vec<Met<DivisionEntry>>,
    /// In the table of updates; `None`: they are dropped.
    pub multicast: Option<Met<MulticastEntry>>,
    /// In the table of both, of a keyspace that is partitioned by range; `None`: they are dropped.
    pub record: Option<Met<RecordEntry>>,
    /// The servers that these name.
    pub hosts: Vec<Host>,
    /// Its hot entry, if it has one.
    pub hot: Option<HotEntry>,
    /// Of the client that was asked for. The tables know nothing of that: whoever runs the agent adds it.
    pub sight: Option<Sight>,
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

    /// Partition and default host of gets.
    pub fn gets(&self) -> Option<(u32, HostId)> {
        let by_record = self.record.as_ref().map(|met| (met.entry.partition, met.entry.host));
        by_record.or_else(|| self.unicast.as_ref().map(|met| (met.entry.partition, met.entry.host)))
    }

    /// The group of puts.
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

/// The place of the entry with the longest prefix that holds `address`.
fn longest<E: Entry>(entries: &[E], address: [u8; 4]) -> Option<usize> {
    let prefixes = entries.iter().map(|entry| entry.matches().prefix()).enumerate();
    let holding = prefixes.filter_map(|(at, prefix)| Some((at, prefix.filter(|it| it.contains(address))?)));
    holding.max_by_key(|(_, prefix)| prefix.length).map(|(at, _)| at)
}

fn met<B: Backend, E: Entry + Clone>(backend: &B, entries: &[E], at: usize) -> Met<E> {
    let table = Table::ALL.into_iter().find(|table| table.name() == E::NAME).expect("each has a name");
    let hits = backend.entry_hits(table).ok().and_then(|hits| hits.get(at).copied());
    Met { entry: entries[at].clone(), hits }
}
