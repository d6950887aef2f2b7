//! Configuration of a node's process.

use alloc::vec::Vec;
use core::net::SocketAddrV4;
use core::time::Duration;
use nicekv_proto::{ClientId, NodeId};

/// Identity and environment of one start of a node's process. The node's partitions are not
/// configured here; the metadata service assigns them.
#[derive(Clone, Debug)]
pub struct NodeConfig {
    /// Number of this node.
    pub node: NodeId,
    /// Addresses of the metadata service's instances, one of which leads.
    pub metadata: Vec<SocketAddrV4>,
    /// Address of a switch that hides the senders of what it forwards, as the user-space switch
    /// does.
    pub switch: Option<SocketAddrV4>,
    /// Whether this node forwards requests for chains at other nodes, by a directory of all chains
    /// (TurboKV §1).
    pub coordinates: bool,
    /// Random number of this start of the process (R9).
    pub incarnation: u64,
    /// Random number of the data directory; with the memory engine, of this start.
    pub storage: u128,
    /// Client id for updates that the node itself issues (expiry deletes). New at every start
    /// (R10).
    pub internal_client: ClientId,
    /// Longest value that an append or overwrite may build, in bytes. It must be the same at all
    /// nodes, because it affects the outcome of ops.
    pub value_bytes_max: u32,
    /// Seeds the hash tables of op ids and keys.
    pub hash_seed: u64,
    /// Whether this node reports what may be shown, so that gets can be answered outside of the
    /// core ([`Replica::poll_visibility`](crate::Replica::poll_visibility)).
    pub tells_visibility: bool,
    pub timing: Timing,
}

/// Timeouts, intervals and rates of a replica.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// Interval of heartbeats to the metadata service.
    pub heartbeat: Duration,
    /// A message without an answer for this long counts as lost: prepares and decisions are sent
    /// again, and undecided ops are acknowledged again (R15). The timeout doubles with each try, up
    /// to eight times this value.
    pub resend: Duration,
    /// After this many unanswered resends a member is accused.
    pub accuse_after_resends: u32,
    /// How long a member may delay its report of uncontended decisions.
    pub progress_delay: Duration,
    /// A joiner requests a part of its copy again after this time.
    pub copy_retry: Duration,
    /// Rate limit of this node's copies as a joiner, over all partitions. Quorum keyspaces are
    /// exempt, because each part of their copies waits for the disk anyway. 0: no limit.
    pub copy_bytes_per_second: u64,
    /// Interval between the starts of two passes of the scrub; the first pass starts with the
    /// process. Zero: no scrub.
    pub scrub_interval: Duration,
    /// Rate of the scrub, which reads one page at every heartbeat.
    pub scrub_bytes_per_second: u64,
    /// Interval of reports about stored and requested amounts. Zero: no reports, and nothing is
    /// counted.
    pub usage_interval: Duration,
    /// Rate at which entries are read to count stored amounts.
    pub usage_bytes_per_second: u64,
    /// Interval of reports about which clients read from which partition. Zero: no reports, and
    /// nothing is counted.
    pub sources_interval: Duration,
    /// Interval of reports about how load is distributed within partitions. Zero: no reports, and
    /// no samples are taken.
    pub heat_interval: Duration,
    /// Rate at which discarded partitions are read and removed (R16), some bytes at every
    /// heartbeat.
    pub discard_bytes_per_second: u64,
    /// Rate of background deletes of overdue values in the partitions that this node leads, some at
    /// every heartbeat.
    pub expiry_deletes_per_second: u32,
}

impl Timing {
    /// How much one heartbeat may use of a rate given per second.
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
