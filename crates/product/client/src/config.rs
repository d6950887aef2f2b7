//! Settings of a client, and its named bounds.

use crate::coordination::Coordination;
use alloc::vec;
use alloc::vec::Vec;
use core::net::SocketAddrV4;
use nicekv_proto::limits::LONG_VALUE_BYTES_MAX;
use nicekv_proto::placement::{Vrings, match_digest};
use nicekv_proto::{ClientId, Duration, KeyDigest, KeyOrder, KeyspaceId, Replication};

/// Ops in flight at once, unless configured otherwise.
pub const IN_FLIGHT_MAX: usize = 16_384;
/// Most op ids between the oldest unfinished op and the newest: replicas remember the results of all of these (R10), so one op that
/// waits for a failover must not let the list grow for ever.
pub const SEQUENCE_SPAN_MAX: usize = 1 << 20;
/// Longest value that is put or got, unless configured otherwise.
pub const LARGE_VALUE_BYTES_MAX: usize = nicekv_proto::limits::LARGE_VALUE_BYTES_MAX as usize;
/// How long an op is retried, unless its caller says otherwise.
pub const OPERATION_TIMEOUT: Duration = Duration::from_secs(5);

/// When an unanswered datagram is sent again.
#[derive(Clone, Copy, Debug)]
pub struct RetryPolicy {
    /// Before the first round trip has been measured.
    pub initial: Duration,
    /// Least time that a retry waits beyond the measured round trip: not shorter than what a queue may add to it at any time.
    pub min: Duration,
    /// The doubling of the time between two tries stops here.
    pub max: Duration,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            initial: Duration::from_millis(20),
            min: Duration::from_millis(5),
            max: Duration::from_millis(100),
        }
    }
}

/// Which address of a vring a request is sent to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Addressing {
    /// The ring's own: the switch reads the vnode from the header. Requests for different vnodes then have one destination, and leave as
    /// a train in one system call, and through the kernel's stack as one.
    Ring,
    /// The vnode's, for switches that match on addresses alone (NICE §3.2).
    Vnode,
}

/// What a client has to know of a keyspace.
#[derive(Clone, Copy, Debug)]
pub struct Keyspace {
    /// Its name in requests.
    pub id: KeyspaceId,
    /// Its address ranges.
    pub vrings: Vrings,
    /// Which protocol it speaks.
    pub replication: Replication,
    /// How its keys become match values.
    pub order: KeyOrder,
    /// What its switches match on.
    pub addressing: Addressing,
    /// Requests for keys of one partition may share a datagram: into how many, as a power of two, the keyspace is divided; `None`: each
    /// request is a datagram of its own, as it is where keys are partitioned by range: nobody knows the borders but switches and nodes.
    pub partition_bits: Option<u32>,
    /// Whether switches spread its hot keys: then its gets and updates have room for what a switch says of their key, and go alone (H2).
    pub is_hot: bool,
    /// Whether its keys are names of objects, which only updates with a stamp of their chunks may change (P9).
    pub holds_objects: bool,
}

impl Keyspace {
    /// Whether its values may be too long for a datagram.
    pub fn has_large_values(&self) -> bool {
        self.replication != Replication::Chain
    }

    /// What a key is matched by.
    pub(crate) fn digest(&self, key: &[u8]) -> KeyDigest {
        match_digest(self.order, key)
    }

    /// Where a get goes.
    pub(crate) fn unicast_address(&self, digest: &KeyDigest) -> SocketAddrV4 {
        match self.addressing {
            Addressing::Ring => self.vrings.unicast_ring(),
            Addressing::Vnode => self.vrings.unicast_address(digest),
        }
    }

    /// Where an update goes.
    pub(crate) fn multicast_address(&self, digest: &KeyDigest) -> SocketAddrV4 {
        match self.addressing {
            Addressing::Ring => self.vrings.multicast_ring(),
            Addressing::Vnode => self.vrings.multicast_address(digest),
        }
    }
}

impl From<Vrings> for Keyspace {
    /// The default one, with a primary, behind a switch that reads headers.
    fn from(vrings: Vrings) -> Self {
        Self {
            id: KeyspaceId::DEFAULT,
            vrings,
            replication: Replication::Multicast,
            order: KeyOrder::Hash,
            addressing: Addressing::Ring,
            partition_bits: None,
            is_hot: false,
            holds_objects: false,
        }
    }
}

/// Settings of a [`ClientCore`](crate::ClientCore).
#[derive(Clone, Debug)]
pub struct Config {
    /// Never used by a client before ([`ClientId::new`]).
    pub client: ClientId,
    /// The keyspaces that it serves.
    pub keyspaces: Vec<Keyspace>,
    /// Most unfinished ops, of all keyspaces together; more are refused.
    pub in_flight_max: usize,
    /// Longest value that is put, or got, in bytes: from what a datagram has room for to [`LARGE_BYTES_MAX`](nicekv_proto::limits::LARGE_BYTES_MAX). A get of a longer one fails.
    pub value_bytes_max: usize,
    /// Longest value that goes in one message of several datagrams, where one has no room for it; longer ones go in chunks, and are *large*: nodes then have
    /// only their names in what they log and tell each other, so that no transaction or script can read them. At most
    /// [`LONG_VALUE_BYTES_MAX`]; quorum keyspaces have no such values, chains no large ones.
    pub message_value_bytes_max: usize,
    /// Longer values are not read before the driver allows it ([`ClientCore::poll_pending_read`](crate::ClientCore::poll_pending_read)). Unless configured otherwise
    /// none waits.
    pub auto_read_bytes_max: usize,
    /// A request may take so much longer than its deadline, in nanoseconds, for each byte of a large value that it puts, or that has come of one that it reads: but no longer
    /// than for a value of the greatest length.
    pub extra_ns_per_byte: u64,
    /// Times of retries.
    pub retry: RetryPolicy,
    /// Seeds the jitter of retries.
    pub jitter_seed: u64,
    /// Who finds the node for a request to a chain.
    pub coordination: Coordination,
    /// Where nodes are that coordinate; none where the switch does.
    pub nodes: Vec<SocketAddrV4>,
}

impl Config {
    /// The default settings of a client of this keyspace.
    pub fn new(client: ClientId, keyspace: impl Into<Keyspace>) -> Self {
        Self {
            client,
            keyspaces: vec![keyspace.into()],
            in_flight_max: IN_FLIGHT_MAX,
            value_bytes_max: LARGE_VALUE_BYTES_MAX,
            message_value_bytes_max: LONG_VALUE_BYTES_MAX,
            auto_read_bytes_max: usize::MAX,
            // 2 MB a second.
            extra_ns_per_byte: 500,
            retry: RetryPolicy::default(),
            jitter_seed: client.0,
            coordination: Coordination::Switch,
            nodes: Vec::new(),
        }
    }
}
