//! How much a node logs and writes before it syncs and trims, and its reserve of disk space.

use nicekv_proto::Duration;

/// Part of a small disk's share that becomes the reserve.
const RESERVE_DIVISOR: u64 = 8;
/// Limits of a node's reserve. The minimum holds a checkpoint, an engine sync and the largest open
/// request.
pub const RESERVE_BYTES_MIN: u64 = 4 << 20;
/// See [`RESERVE_BYTES_MIN`].
pub const RESERVE_BYTES_MAX: u64 = 64 << 20;

/// Storage parameters of a node.
#[derive(Clone, Copy, Debug)]
pub struct StorageOptions {
    /// Log length at which a checkpoint is written and the log before it is trimmed.
    pub segment_bytes_max: u64,
    /// Bytes of keys and values after which the engine is synced; half as many while space is
    /// short, as its merges then take what a few syncs wrote.
    pub engine_sync_bytes: u64,
    /// Reserve for a full disk: at least a segment and an engine sync.
    pub reserve_bytes: u64,
    /// Deleted and overwritten data is reclaimed in steps even if little is written: after this
    /// interval,
    pub trim_interval: Duration,
    /// if at least this much was logged since, and at least as much as the last step left, and a
    /// sixteenth of the engine, so that these steps stay a small part of the disk's work.
    pub trim_bytes_min: u64,
}

impl StorageOptions {
    /// Defaults.
    pub const DEFAULT: Self = Self {
        segment_bytes_max: RESERVE_BYTES_MAX / 2,
        engine_sync_bytes: RESERVE_BYTES_MAX / 2,
        reserve_bytes: RESERVE_BYTES_MAX,
        trim_interval: Duration::from_secs(30),
        trim_bytes_min: 256 << 10,
    };

    /// For a node with this reserve. Other sizes are as large as the reserve allows.
    pub fn with_reserve(reserve_bytes: u64) -> Self {
        Self {
            segment_bytes_max: reserve_bytes / 2,
            engine_sync_bytes: reserve_bytes / 2,
            reserve_bytes,
            ..Self::DEFAULT
        }
    }

    /// For one of `nodes` that share a disk of `capacity` bytes: reserves do not take too much of a
    /// small disk.
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
