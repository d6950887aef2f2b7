//! Bounds of a replica's queues and tables. `_MAX` without another unit is per partition.

/// Open ops. Beyond it prepares are not taken in, and clients retry.
pub(crate) const OPEN_OPS_MAX: usize = 8192;
/// Decisions that some member has not acknowledged. Beyond it the primary decides no more.
pub(crate) const UNRELEASED_MAX: usize = 65_536;
/// Decisions kept while earlier ones are missing. Further ones are dropped and sent again.
pub(crate) const EARLY_DECISIONS_MAX: usize = 256;
/// Scans that are read at once. Further ones are dropped, and clients retry.
pub(crate) const SCANS_MAX: usize = 16;
/// About how much is read for a piece of a scan that returns no values.
pub(crate) const SCAN_PAGE_BYTES: usize = 16 << 10;
/// Entries in flight to a chain's successor. The others follow as it logs these.
pub(crate) const CHAIN_ENTRIES_IN_FLIGHT_MAX: u64 = 512;
/// Ops kept that came before their entries along a chain. Beyond it the oldest are dropped and sent
/// again.
pub(crate) const CHAIN_OPS_EARLY_MAX: usize = 64;
/// Gets that wait for the outcome of an op, per key. Further ones are dropped, and clients retry.
pub(crate) const WAITING_GETS_MAX: usize = 1024;
/// Damaged keys that are repaired at once. Others are repaired when they are read again.
pub(crate) const REPAIRS_MAX: usize = 256;
/// About how much memory client records and results may take. Beyond it clients are forgotten
/// (R10).
pub const CLIENTS_BYTES_MAX: usize = 4 << 20;
/// Memory for the results of one client. Beyond it the oldest are forgotten (R10). Enough for what
/// a client may have in flight.
pub const CLIENT_BYTES_MAX: usize = 2 << 20;
/// Pages of other members that wait to be compared. Further ones are dropped, and come again with
/// the next pass of the scrub.
pub(crate) const COMPARES_MAX: usize = 64;
/// Expiring keys that are remembered. Beyond it those that expire last are left to the scrub.
pub(crate) const EXPIRING_KEYS_MAX: usize = 8192;
/// A node with so many deletes of overdue values open begins none in the background.
pub(crate) const EXPIRY_DELETES_OPEN_MAX: usize = 256;
/// Datagrams of decisions in the answer to one request for missing ones.
pub(crate) const CATCH_UP_DATAGRAMS_MAX: usize = 32;
/// Tombstones that are remembered, to be dropped. Beyond it they are left to the scrub.
pub(crate) const TOMBSTONES_MAX: usize = 65_536;
/// Latest decisions whose keys are remembered. A member that missed no more than these is sent
/// their entries, without a scan of the partition. Each takes 32 bytes, and twice its key if that
/// is longer than 24.
pub(crate) const RECENT_DECISIONS_MAX: usize = 65_536;
/// Keys that are looked up for one frame of a copy of the latest decisions.
pub(crate) const COPY_KEYS_MAX: usize = 256;
/// Pages of the engine that are read for one frame of a copy, if little on them is new.
pub const COPY_PAGES_MAX: usize = 16;
/// Bytes of entries in one frame of a copy.
pub(crate) const COPY_CHUNK_BYTES: usize = 128 << 10;
