//! Settings of a client, and its bounds.

use crate::coordination::Coordination;
use alloc::vec;
use alloc::vec::Vec;
use core::net::SocketAddrV4;
use nicekv_proto::limits::LONG_VALUE_BYTES_MAX;
use nicekv_proto::placement::{Vrings, match_digest};
use nicekv_proto::{ClientId, Duration, KeyDigest, KeyOrder, KeyspaceId, Replication};

/// Default of [`Config::in_flight_max`].
pub const IN_FLIGHT_MAX: usize = 16_384;
/// Maximum distance between the op ids of the oldest unfinished op and the newest. Replicas
/// remember the results of all ops in between (R10), so one op that waits for a failover must not
/// let their list grow without bound.
pub const SEQUENCE_SPAN_MAX: usize = 1 << 20;
/// Default of [`Config::value_bytes_max`].
pub const LARGE_VALUE_BYTES_MAX: usize = nicekv_proto::limits::LARGE_VALUE_BYTES_MAX as usize;
/// Default timeout of a request.
pub const OPERATION_TIMEOUT: Duration = Duration::from_secs(5);

/// When an unanswered datagram is sent again (RFC 6298, with exponential backoff).
#[derive(Clone, Copy, Debug)]
pub struct RetryPolicy {
    /// The timeout before the first round trip was measured.
    pub initial: Duration,
    /// The minimum margin of a timeout over the measured round trip: at least the delay that a
    /// queue may add.
    pub min: Duration,
    /// The longest interval between two tries.
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

/// The destination address of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Addressing {
    /// The ring's own address: the switch reads the vnode from the header. Requests to different vnodes then share one
    /// destination, and leave as one GSO batch.
    Ring,
    /// The vnode's address, for switches that match on addresses alone (NICE §3.2).
    Vnode,
}

/// A client's view of a keyspace.
#[derive(Clone, Copy, Debug)]
pub struct Keyspace {
    /// Its id in requests.
    pub id: KeyspaceId,
    /// Its address ranges, unicast and multicast.
    pub vrings: Vrings,
    /// Its replication protocol.
    pub replication: Replication,
    /// Whether keys are partitioned by hash or by range.
    pub order: KeyOrder,
    /// How requests are addressed.
    pub addressing: Addressing,
    /// Base-2 logarithm of the number of partitions, so that requests for keys of one partition can
    /// share a datagram. `None`: each request has its own datagram. The same holds for range
    /// partitions, whose bounds clients do not know.
    pub partition_bits: Option<u32>,
    /// Whether switches spread its hot keys. Gets and updates then reserve room for a switch's stamp, and are not batched
    /// (H2).
    pub is_hot: bool,
    /// Whether its keys are names of objects: updates must carry a stamp of their chunks (P9).
    pub holds_objects: bool,
}

impl Keyspace {
    /// Whether its values may be large, that is, move in chunks.
    pub fn has_large_values(&self) -> bool {
        self.replication != Replication::Chain
    }

    /// The digest of a key, by which it is routed.
    pub(crate) fn digest(&self, key: &[u8]) -> KeyDigest {
        match_digest(self.order, key)
    }

    /// The destination of a get.
    pub(crate) fn unicast_address(&self, digest: &KeyDigest) -> SocketAddrV4 {
        match self.addressing {
            Addressing::Ring => self.vrings.unicast_ring(),
            Addressing::Vnode => self.vrings.unicast_address(digest),
        }
    }

    /// The destination of an update.
    pub(crate) fn multicast_address(&self, digest: &KeyDigest) -> SocketAddrV4 {
        match self.addressing {
            Addressing::Ring => self.vrings.multicast_ring(),
            Addressing::Vnode => self.vrings.multicast_address(digest),
        }
    }
}

impl From<Vrings> for Keyspace {
    /// The default keyspace, replicated by multicast, behind a switch that reads headers.
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
    /// An id that no client has used before ([`ClientId::new`]).
    pub client: ClientId,
    /// The keyspaces that it can reach.
    pub keyspaces: Vec<Keyspace>,
    /// Requests in flight in all keyspaces together, from 1 to [`SEQUENCE_SPAN_MAX`]. More are refused with
    /// [`SubmitError::WindowFull`](crate::SubmitError::WindowFull).
    pub in_flight_max: usize,
    /// Longest value that is put or read, in bytes: from
    /// [`VALUE_BYTES_MAX`](nicekv_proto::limits::VALUE_BYTES_MAX) to
    /// [`LARGE_BYTES_MAX`](nicekv_proto::limits::LARGE_BYTES_MAX). A get of a longer value fails.
    pub value_bytes_max: usize,
    /// Longest value that is sent in one message, which may take several datagrams; at most
    /// [`LONG_VALUE_BYTES_MAX`]. Longer values are *large* and are sent in chunks: nodes log and
    /// exchange only their references, so transactions and scripts cannot read them. In quorum
    /// keyspaces all values longer than one datagram are large; chains have no large values.
    pub message_value_bytes_max: usize,
    /// Longer values are read only when the driver allows it
    /// ([`ClientCore::poll_pending_read`](crate::ClientCore::poll_pending_read)). By default, all
    /// values are read at once.
    pub auto_read_bytes_max: usize,
    /// Nanoseconds by which each byte of a large value that has been put or read extends the
    /// deadline of its request. In total, a deadline is extended by at most the time for a value of
    /// [`Self::value_bytes_max`].
    pub extra_ns_per_byte: u64,
    /// When requests are sent again.
    pub retry: RetryPolicy,
    /// Seeds the jitter of retries.
    pub jitter_seed: u64,
    /// The component that finds the node for a request to a chain.
    pub coordination: Coordination,
    /// Addresses of nodes that coordinate; empty if the switch does.
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
            // A rate of 2 MB/s.
            extra_ns_per_byte: 500,
            retry: RetryPolicy::default(),
            jitter_seed: client.0,
            coordination: Coordination::Switch,
            nodes: Vec::new(),
        }
    }
}
