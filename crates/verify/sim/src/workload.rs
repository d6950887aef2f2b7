//! The workload of clients.

use crate::keyspace::Key;
use nicekv_proto::{ClientId, Duration};

/// Clients in a hurry, so that more happens while others wait.
pub const HURRY: Duration = Duration::from_millis(2);

/// See [`Workload::shift_ns`].
const IDLENESS: u64 = 4;

/// What the clients do.
#[derive(Clone, Debug)]
pub struct Workload {
    /// The keys.
    pub keys: Vec<Key>,
    /// A call is for the first of so many keys that are drawn: 1 means that all are asked alike.
    pub skew: u64,
    /// Calls per client.
    pub calls: usize,
    /// Calls of one client at a time.
    pub window: usize,
    /// When they begin.
    pub begins_ns: u64,
    /// Least time before a retry, beyond the round trip.
    pub retry_min: Duration,
    /// Longest pause before the next call.
    pub pause_ns_max: u64,
    /// Timeout of a call.
    pub timeout_ns: u64,
    /// Sets of values that expire, of a million updates.
    pub expiring: u64,
    /// Sets of values that are too long for a datagram, of a million sets without expiry, in keyspaces that allow them.
    pub large: u64,
    /// Of those that a datagram has no room for, values of up to so many bytes go as a whole in several, and longer ones are large.
    pub whole_bytes_max: usize,
    /// Appends, of a million updates of keys that may have large values.
    pub appends: u64,
    /// Each client reads at most so many large values at a time, gets of one key that it calls in one turn share a request, and it calls several of them at once. 0: it reads all that it asks
    /// for, each by itself.
    pub reads_at_once: usize,
    /// Gets, of a million calls; a third of the others are gets, too.
    pub gets: u64,
    /// Transactions on the co-located keys, of a million calls, if there are such keys.
    pub transactions: u64,
    /// Updates of hash fields, of a million updates.
    pub hashes: u64,
    /// Scripts, of a million steps of transactions.
    pub scripts: u64,
    /// Of so many things that each client does besides, half are messages that it publishes, the others change to what it listens.
    pub messages: usize,
    /// Each client scans a keyspace after so many calls, in pieces of about so many bytes, so many of which switches may make of a scan. (0, …): it does not.
    pub scans: (usize, usize, u8),
    /// Load shifts: of two periods of this length a client is [`IDLENESS`] times as slow in one, every second client in the other. 0: it does
    /// not.
    pub shift_ns: u64,
}

impl Workload {
    /// By how much a client's pauses are longer than usual.
    pub(crate) fn idleness(&self, client: ClientId, at_ns: u64) -> u64 {
        let period = at_ns.checked_div(self.shift_ns);
        let is_idle = period.is_some_and(|period| (period + client.0).is_multiple_of(2));
        if is_idle { IDLENESS } else { 1 }
    }
}
