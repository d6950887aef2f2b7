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
    /// A call is given up after so long.
    pub timeout_ns: u64,
    /// Of a million updates so many are sets of values that expire.
    pub expiring: u64,
    /// Of a million sets that store for ever so many are of values that are too long for a datagram, where those may be.
    pub large: u64,
    /// Of those that a datagram has no room for, values of up to so many bytes go as a whole in several, and longer ones are large.
    pub whole_bytes_max: usize,
    /// Of a million updates where values may be large so many are appends.
    pub appends: u64,
    /// Each client reads at most so many large values at a time, gets of one key that it calls in one turn share a request, and it calls several of them at once. 0: it reads all that it asks
    /// for, each by itself.
    pub reads_at_once: usize,
    /// Of a million calls so many are gets, and a third of the others.
    pub gets: u64,
    /// Of a million calls so many are transactions of the first keys that are together, if some are.
    pub transactions: u64,
    /// Of a million updates so many are of fields of hashes.
    pub hashes: u64,
    /// Of a million steps of transactions so many are scripts.
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
