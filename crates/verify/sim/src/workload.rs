//! The workload of clients.

use crate::keyspace::Key;
use nicekv_proto::{ClientId, Duration};
use std::collections::BTreeSet;

/// Minimum retry time of clients that retry often, so that more happens while others wait.
pub const HURRY: Duration = Duration::from_millis(2);

/// Factor of the pauses of idle clients: [`Workload::shift_ns`].
const IDLENESS: u64 = 4;

/// The clients' operations.
#[derive(Clone, Debug)]
pub struct Workload {
    pub keys: Vec<Key>,
    /// For each call this many keys are drawn, and the first of them is used: 1 means that all keys
    /// are equally frequent.
    pub skew: u64,
    /// Calls per client.
    pub calls: usize,
    /// Maximum outstanding calls of a client.
    pub window: usize,
    /// When the clients begin.
    pub begins_ns: u64,
    /// Minimum time before a retry, beyond the round trip.
    pub retry_min: Duration,
    /// Longest pause before the next call.
    pub pause_ns_max: u64,
    /// Timeout of a call.
    pub timeout_ns: u64,
    /// Rate of sets of values that expire, per million updates.
    pub expiring: u64,
    /// Rate of sets of large values, per million sets without expiry, in keyspaces that allow them.
    pub large: u64,
    /// Values that are too long for a datagram, up to this length, are sent in one message of
    /// several datagrams. Longer ones are large values.
    pub whole_bytes_max: usize,
    /// Rate of appends, per million updates of keys that may have large values.
    pub appends: u64,
    /// Maximum large values that a client reads at a time. Gets of one key in the same turn then
    /// share a request, and a client calls several of them at once. 0: no bound, and no sharing.
    pub reads_at_once: usize,
    /// Rate of gets, per million calls. Of the other calls, a third are gets, too.
    pub gets: u64,
    /// Rate of transactions on the co-located keys, per million calls, if there are such keys.
    pub transactions: u64,
    /// Rate of updates of hash fields, per million updates.
    pub hashes: u64,
    /// Rate of scripts, per million steps of transactions.
    pub scripts: u64,
    /// Number of pub/sub actions of each client. Half are published messages, the others change its
    /// subscriptions.
    pub messages: usize,
    /// Scans: a client scans a keyspace after each `.0` calls (0: never), in pieces of about `.1`
    /// bytes; switches may split a scan into at most `.2` pieces.
    pub scans: (usize, usize, u8),
    /// Load shifts with this period: in turn, one half of the clients pauses [`IDLENESS`] times
    /// longer than the other. 0: load does not shift.
    pub shift_ns: u64,
}

impl Workload {
    /// Whether no key occurs twice: the judge checks one history per key.
    pub(crate) fn has_distinct_keys(&self) -> bool {
        let mut seen = BTreeSet::new();
        self.keys.iter().all(|key| seen.insert((key.keyspace, &key.name)))
    }

    /// The factor by which a client's pauses are longer than usual.
    pub(crate) fn idleness(&self, client: ClientId, at_ns: u64) -> u64 {
        let period = at_ns.checked_div(self.shift_ns);
        let is_idle = period.is_some_and(|period| (period + client.0).is_multiple_of(2));
        if is_idle { IDLENESS } else { 1 }
    }
}
