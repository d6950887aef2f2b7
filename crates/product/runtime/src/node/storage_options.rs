//! Storage parameters: when a node syncs its engine and trims its log, and how much disk space it
//! reserves.

use nicekv_proto::Duration;

/// On a small disk, a node's reserve is its share of the disk divided by this.
const RESERVE_DIVISOR: u64 = 8;
/// Smallest reserve of a node: it has room for a checkpoint, an engine sync and the largest open
/// request.
pub const RESERVE_BYTES_MIN: u64 = 4 << 20;
/// Largest default reserve of a node.
pub const RESERVE_BYTES_MAX: u64 = 64 << 20;

/// Storage parameters of a node.
#[derive(Clone, Copy, Debug)]
pub struct StorageOptions {
    /// Length of a log segment. When a segment is full, a checkpoint is written and the log before
    /// it is trimmed.
    pub segment_bytes_max: u64,
    /// The engine is synced after this many bytes of keys and values were written; after half as
    /// many while space is short, because its merges then need as much space as a few syncs have
    /// written.
    pub engine_sync_bytes: u64,
    /// Reserve for a full disk: at least a segment and an engine sync.
    pub reserve_bytes: u64,
    /// If little is written, deleted and overwritten data is reclaimed in steps at this interval, …
    pub trim_interval: Duration,
    /// … but only if enough was logged since the last step: at least this many bytes, at least as
    /// many as that step has left in the log, and at least a sixteenth of the engine. So these
    /// steps are a small part of the disk's work.
    pub trim_bytes_min: u64,
}

impl StorageOptions {
    /// Default parameters.
    pub const DEFAULT: Self = Self {
        segment_bytes_max: RESERVE_BYTES_MAX / 2,
        engine_sync_bytes: RESERVE_BYTES_MAX / 2,
        reserve_bytes: RESERVE_BYTES_MAX,
        trim_interval: Duration::from_secs(30),
        trim_bytes_min: 256 << 10,
    };

    /// Parameters of a node with this reserve. The other sizes are as large as the reserve allows.
    pub fn with_reserve(reserve_bytes: u64) -> Self {
        Self {
            segment_bytes_max: reserve_bytes / 2,
            engine_sync_bytes: reserve_bytes / 2,
            reserve_bytes,
            ..Self::DEFAULT
        }
    }

    /// Parameters of one of `nodes` nodes that share a disk of `capacity` bytes, so that reserves
    /// do not take too much of a small disk.
    pub fn on_disk(capacity: u64, nodes: usize) -> Self {
        let share = capacity / nodes.max(1) as u64;
        Self::with_reserve((share / RESERVE_DIVISOR).clamp(RESERVE_BYTES_MIN, RESERVE_BYTES_MAX))
    }
}

impl Default for StorageOptions {
    fn default() -> Self {
        Self::DEFAULT
    }
}
