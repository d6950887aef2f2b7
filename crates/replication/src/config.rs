//! What a replica is told at its start.

use core::net::SocketAddrV4;
use core::time::Duration;
use nicekv_placement::{Partitioning, Vrings};
use nicekv_wire::{ClientId, NodeId};

/// Identity and surroundings of one start of a node's process.
#[derive(Clone, Debug)]
pub struct ReplicaConfig {
    /// This node.
    pub node: NodeId,
    /// The metadata service.
    pub metadata: SocketAddrV4,
    /// Random per start (R9).
    pub incarnation: u64,
    /// Random per life of the data directory; for the memory engine, per start.
    pub storage: u128,
    /// Under this id the node itself issues updates (expiry deletes). New at every start (R10).
    pub internal_client: ClientId,
    /// How vnodes form partitions.
    pub partitioning: Partitioning,
    /// Where multicasts to a partition's members go.
    pub vrings: Vrings,
    /// Seeds the hash tables of op ids and keys.
    pub hash_seed: u64,
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
    /// Between the beginnings of two passes of the scrub; the first one begins with the process. Zero: there is none.
    pub scrub_interval: Duration,
    /// The scrub reads about so much, a page at every heartbeat.
    pub scrub_bytes_per_second: u64,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            heartbeat: Duration::from_millis(40),
            resend: Duration::from_millis(8),
            accuse_after_resends: 4,
            progress_delay: Duration::from_millis(20),
            copy_retry: Duration::from_millis(200),
            scrub_interval: Duration::from_secs(24 * 3600),
            scrub_bytes_per_second: 1 << 20,
        }
    }
}

/// Most ops of one partition that may be open at once; beyond it prepares are not taken in and clients retry.
pub const OPEN_OPS_MAX: usize = 8192;
/// Most decisions of one partition that some member has not yet acknowledged; beyond it the primary decides no more.
pub const UNRELEASED_MAX: usize = 65_536;
/// Most gets that wait for the outcome of an op, per key; further ones are dropped and clients retry.
pub const WAITING_GETS_MAX: usize = 1024;
/// Most damaged keys of one partition that are got back from other members at once; others when they are read again.
pub const REPAIRS_MAX: usize = 256;
/// Most memory that a partition takes to remember clients and their results, about; beyond it clients are forgotten (R10).
pub const CLIENTS_BYTES_MAX: usize = 4 << 20;
/// Most memory that a partition takes to remember the results of one client; beyond it the oldest are forgotten (R10). Enough for what
/// a client may have in flight.
pub const CLIENT_BYTES_MAX: usize = 2 << 20;
/// Most datagrams of decisions that one request for missing ones is answered with.
pub const CATCH_UP_DATAGRAMS_MAX: usize = 32;
/// Most deletions of one partition that are remembered to be dropped; beyond it they are left to the scrub.
pub const TOMBSTONES_MAX: usize = 65_536;
/// Most pages of the engine that are read for one frame of a copy, if little on them is new.
pub const COPY_PAGES_MAX: usize = 16;
/// Bytes of entries that one frame of a copy carries.
pub const COPY_CHUNK_BYTES: usize = 128 << 10;
