//! Configuration of a node's process.

use alloc::vec::Vec;
use core::net::SocketAddrV4;
use core::time::Duration;
use nicekv_proto::{ClientId, NodeId};

/// Identity and surroundings of one start of a node's process. The metadata service assigns its
/// partitions.
#[derive(Clone, Debug)]
pub struct NodeConfig {
    /// This node.
    pub node: NodeId,
    /// The instances of the metadata service, one of which leads.
    pub metadata: Vec<SocketAddrV4>,
    /// A switch that hides the senders of what it forwards, like the one in user space.
    pub switch: Option<SocketAddrV4>,
    /// Whether it forwards requests to chains at other nodes, by a directory of all chains (TurboKV
    /// §1).
    pub coordinates: bool,
    /// Random per start (R9).
    pub incarnation: u64,
    /// Random per life of the data directory; for the memory engine, per start.
    pub storage: u128,
    /// The node itself issues updates under this id (expiry deletes). New at every start (R10).
    pub internal_client: ClientId,
    /// Longest value that an append or overwrite may build, in bytes. The same at all nodes,
    /// because it affects the outcome of ops.
    pub value_bytes_max: u32,
    /// Seeds the hash tables of op ids and keys.
    pub hash_seed: u64,
    /// Whether it reports what may be shown, so that gets may be answered outside of the core
    /// ([`Replica::poll_visibility`](crate::Replica::poll_visibility)).
    pub tells_visibility: bool,
    pub timing: Timing,
}

/// Timeouts, intervals and rates of a replica.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// Between heartbeats to the metadata service.
    pub heartbeat: Duration,
    /// A message without an answer for this long is taken for lost: prepares and decisions are sent
    /// again, undecided ops acknowledged again (R15). Doubles with each try, up to eight times
    /// itself.
    pub resend: Duration,
    /// A member that leaves this many resends unanswered is accused.
    pub accuse_after_resends: u32,
    /// A member may delay its report of uncontended decisions for this long.
    pub progress_delay: Duration,
    /// A joiner asks again for a part of its copy after this.
    pub copy_retry: Duration,
    /// Rate limit of a joiner's copies, over all partitions except those of quorum keyspaces, whose
    /// copies wait for the disk anyway. 0: no limit.
    pub copy_bytes_per_second: u64,
    /// Between the starts of two passes of the scrub; the first one starts with the process. Zero:
    /// no scrub.
    pub scrub_interval: Duration,
    /// Rate of the scrub, which reads a page at every heartbeat.
    pub scrub_bytes_per_second: u64,
    /// Between two reports of stored and requested amounts. Zero: none, and nothing is counted.
    pub usage_interval: Duration,
    /// Rate at which entries are read to be counted.
    pub usage_bytes_per_second: u64,
    /// Between two reports of which clients read what. Zero: none, and nothing is counted.
    pub sources_interval: Duration,
    /// Between two reports of where the load of partitions lies. Zero: none, and no samples are
    /// taken.
    pub heat_interval: Duration,
    /// Rate at which discarded partitions are read and removed (R16), some at every heartbeat.
    pub discard_bytes_per_second: u64,
    /// Rate of background deletes of overdue values in the partitions that this node leads, some at
    /// every heartbeat.
    pub expiry_deletes_per_second: u32,
}

impl Timing {
    /// The share of one heartbeat at such a rate.
    pub(crate) fn per_heartbeat(&self, per_second: u64) -> u64 {
        per_second * self.heartbeat.as_millis() as u64 / 1000
    }
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            heartbeat: Duration::from_millis(40),
            resend: Duration::from_millis(8),
            accuse_after_resends: 4,
            progress_delay: Duration::from_millis(20),
            copy_retry: Duration::from_millis(200),
            copy_bytes_per_second: 100 << 20,
            scrub_interval: Duration::from_secs(24 * 3600),
            scrub_bytes_per_second: 1 << 20,
            usage_interval: Duration::from_secs(1),
            usage_bytes_per_second: 1 << 20,
            sources_interval: Duration::from_secs(1),
            heat_interval: Duration::from_secs(2),
            discard_bytes_per_second: 16 << 20,
            expiry_deletes_per_second: 2_000,
        }
    }
}
