//! What a node is told at its start.

use alloc::vec::Vec;
use core::net::SocketAddrV4;
use core::time::Duration;
use nicekv_proto::{ClientId, NodeId};

/// Identity and surroundings of one start of a node's process. What it stores, and with whom, it is told by the metadata service.
#[derive(Clone, Debug)]
pub struct NodeConfig {
    /// This node.
    pub node: NodeId,
    /// The instances of the metadata service, one of which leads.
    pub metadata: Vec<SocketAddrV4>,
    /// A switch that hides the senders of what it passes on, as the one in user space does.
    pub switch: Option<SocketAddrV4>,
    /// Whether it passes on requests to chains that are for other nodes, by a directory of all of them (TurboKV §1).
    pub coordinates: bool,
    /// Random per start (R9).
    pub incarnation: u64,
    /// Random per life of the data directory; for the memory engine, per start.
    pub storage: u128,
    /// Under this id the node itself issues updates (expiry deletes). New at every start (R10).
    pub internal_client: ClientId,
    /// Longest value that is made by an op of a client that adds to another, in bytes: the same at all nodes, as it is a part of what an op does.
    pub value_bytes_max: u32,
    /// Seeds the hash tables of op ids and keys.
    pub hash_seed: u64,
    /// Whether it tells what may be shown, so that gets may be answered elsewhere ([`Replica::poll_visibility`](crate::Replica::poll_visibility)).
    pub tells_visibility: bool,
    /// Timeouts.
    pub timing: Timing,
}

/// Timeouts of a replica.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// Between heartbeats to the metadata service.
    pub heartbeat: Duration,
    /// After this a message that should have been answered is taken for lost: prepares and decisions are re-sent, undecided ops are
    /// acknowledged again (R15). Doubles per try, up to eight times itself.
    pub resend: Duration,
    /// A member that left this many resends unanswered is accused.
    pub accuse_after_resends: u32,
    /// How long a member may sit on the news that it has logged uncontended decisions.
    pub progress_delay: Duration,
    /// A joiner asks again for a part of its copy after this.
    pub copy_retry: Duration,
    /// A joiner asks for no more than so much, over all partitions (of quorum keyspaces apart, whose copies wait for the disk anyway); 0:
    /// as much as there is.
    pub copy_bytes_per_second: u64,
    /// Between the beginnings of two passes of the scrub; the first one begins with the process. Zero: there is none.
    pub scrub_interval: Duration,
    /// The scrub reads about so much, a page at every heartbeat.
    pub scrub_bytes_per_second: u64,
    /// Between two reports of what is stored and asked; zero: there are none, and nothing is counted.
    pub usage_interval: Duration,
    /// What is counted for them is read about so fast.
    pub usage_bytes_per_second: u64,
    /// Between two reports of which sources ask for what; zero: there are none, and nothing is counted.
    pub sources_interval: Duration,
    /// Between two reports of where the load of partitions lies; zero: there are none, and no samples are taken.
    pub heat_interval: Duration,
    /// What nobody needs any more is read, and removed, about so fast (R16), some at every heartbeat.
    pub discard_bytes_per_second: u64,
    /// Most overdue values that the node has deleted in the background, in the partitions that it leads, some at every heartbeat.
    pub expiry_deletes_per_second: u32,
}

impl Timing {
    /// What is done between two heartbeats, at such a rate.
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
